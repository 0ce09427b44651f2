"""BatchLeakCheck for PyTorch-Ignite: ``BatchLeakCheck(model).attach(trainer)``."""

from __future__ import annotations

from typing import Any

from ignite.engine import Engine, Events
from torch import nn

from train_manager.telling.findings import Findings
from train_manager.tools import check_batch_leak


class BatchLeakCheck:
    """Ask the model, at its first call in train mode, whether the examples of the batch leak into each other.

    A leak is a warning of the engine's logger. ``options`` are those of ``check_batch_leak``.
    """

    def __init__(self, model: nn.Module, **options: Any) -> None:
        self.model, self.options = model, options
        self.findings: Findings | None = None

    def attach(self, trainer: Engine) -> None:
        trainer.add_event_handler(Events.STARTED, self._wait)

    def _wait(self, engine: Engine) -> None:
        def look(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if model.training:
                handle.remove()  # first, because the check calls the model too
                self.findings = check_batch_leak(model, {**dict(enumerate(args)), **kwargs}, call=call, **self.options)
                (engine.logger.info if self.findings.is_clean else engine.logger.warning)("\n%s", self.findings)

        if self.findings is None:
            handle = self.model.register_forward_pre_hook(look, with_kwargs=True)


def call(model: nn.Module, batch: Any) -> Any:
    positions = [key for key in batch if isinstance(key, int)]
    return model(*map(batch.get, positions), **{key: batch[key] for key in batch if key not in positions})
