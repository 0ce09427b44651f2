"""BatchLeakCheck for Keras with the backend torch: ``model.fit(..., callbacks=[BatchLeakCheck()])``."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from train_manager.telling.findings import Findings
from train_manager.tools import check_batch_leak


class BatchLeakCheck(keras.callbacks.Callback):
    """Ask the model, before its first training step, whether the examples of the batch leak into each other.

    A leak is a warning. The BatchNormalization of Keras mixes examples on purpose, so it is allowed. ``options`` are
    those of ``check_batch_leak``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.findings: Findings | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        # A callback gets no batch, and a layer of Keras called within its own call forgets its mode: so the step waits.
        train_step = self.model.train_step

        def look_and_step(data: Any) -> Any:
            del self.model.train_step  # again the method of the class
            self._look(keras.utils.unpack_x_y_sample_weight(data)[0])
            return train_step(data)

        if self.findings is None:
            self.model.train_step = look_and_step

    def _look(self, inputs: Any) -> None:
        norms = [one for one in self.model.modules() if isinstance(one, keras.layers.BatchNormalization)]
        options = {"allow": norms, **self.options}
        self.findings = check_batch_leak(self.model, (inputs,), call=call, **options)
        if not self.findings.is_clean:
            warnings.warn(f"\n{self.findings}", stacklevel=2)


def call(model: Any, batch: Any) -> Any:
    return model(batch[0], training=True)
