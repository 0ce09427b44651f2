"""BatchLeakCheck for transformers: ``Trainer(model, arguments, callbacks=[BatchLeakCheck()], ...)``."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback
from transformers.utils import logging

from train_manager.telling.findings import Findings
from train_manager.tools import check_batch_leak

logger = logging.get_logger("transformers.batch_leak_check")


class BatchLeakCheck(TrainerCallback):
    """Ask the model, at its first call in train mode, whether the examples of the batch leak into each other.

    A leak is a warning of the logger. ``options`` are those of ``check_batch_leak``.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.findings: Findings | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        def look(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if model.training:
                handle.remove()  # first, because the check calls the model too
                self.findings = check_batch_leak(model, {**dict(enumerate(args)), **kwargs}, call=call, **self.options)
                (logger.info if self.findings.is_clean else logger.warning)("\n%s", self.findings)

        if self.findings is None:
            handle = given["model"].register_forward_pre_hook(look, with_kwargs=True)


def call(model: nn.Module, batch: Any) -> Any:
    positions = [key for key in batch if isinstance(key, int)]
    return model(*map(batch.get, positions), **{key: batch[key] for key in batch if key not in positions})
