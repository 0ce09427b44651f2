"""BatchLeakCheck for Keras with the backend torch: ``model.fit(..., callbacks=[BatchLeakCheck()])``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from torch import nn

from train_manager.telling.findings import Findings
from train_manager.tools import check_batch_leak

# They mix examples on purpose. Those of torch are put into train mode by each call of a TorchModuleWrapper.
NORMS = (keras.layers.BatchNormalization, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class BatchLeakCheck(keras.callbacks.Callback):
    """Ask the model, before its first training step, whether the examples of the batch leak into each other.

    A leak is a warning. ``allow``, a list, and ``options`` are those of ``check_batch_leak``.
    """

    def __init__(self, allow: Sequence[Any] = (), **options: Any) -> None:
        super().__init__()
        self.allow, self.options = allow, options
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
        # Keras keeps layers in lists of its own, where torch does not see them. The model is last: names are the first.
        modules = nn.ModuleDict({**dict(layers_of(self.model)), "model": self.model})
        norms = [one for one in modules.modules() if isinstance(one, NORMS)]
        batch = tuple(inputs) if isinstance(inputs, list) else inputs  # a list could be one of examples
        options = {"allow": [*norms, *self.allow], **self.options}
        self.findings = check_batch_leak(modules, batch, call=self._call, **options)
        if not self.findings.is_clean:
            warnings.warn(f"\n{self.findings}", stacklevel=2)

    def _call(self, _: Any, batch: Any) -> Any:
        return self.model(list(batch) if isinstance(batch, tuple) else batch, training=True)


def layers_of(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the layers of a model, and those of models in it, with their names."""
    for layer in model.layers:
        yield prefix + layer.name, layer
        if isinstance(layer, keras.Model):
            yield from layers_of(layer, f"{prefix}{layer.name}/")
