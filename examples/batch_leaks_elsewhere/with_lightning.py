"""BatchLeakCheck for Lightning: ``Trainer(callbacks=[BatchLeakCheck()])``."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import nn

from train_manager.telling.findings import Findings
from train_manager.tools import check_batch_leak


class BatchLeakCheck(Callback):
    """Ask, in the first training step, whether the examples of the batch leak into each other.

    The module that the step calls is asked: the LightningModule itself, or each network in it that is called. A leak is
    a warning. ``options`` are those of ``check_batch_leak``.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.findings: Findings | None = None
        self._handles: dict[nn.Module, Any] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        def look(network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            for module in network.modules():  # first, because the check calls them too
                if module in self._handles:
                    self._handles.pop(module).remove()
            pl_module.trainer = None  # without a trainer, self.log in a forward writes nothing
            batch: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
            # The whole LightningModule is given, so that names are those in it; the network alone is called.
            found = check_batch_leak(pl_module, batch, call=lambda _, given: call(network, given), **self.options)
            pl_module.trainer = trainer
            (rank_zero_info if found.is_clean else rank_zero_warn)(f"\n{found}")
            self.findings = (self.findings or Findings()) + found

        if self.findings is None:
            self.findings = Findings()
            networks = [pl_module, *(one for one in pl_module.children() if [*one.parameters()])]
            self._handles = {one: one.register_forward_pre_hook(look, with_kwargs=True) for one in networks}

    def on_train_batch_end(self, *_: Any) -> None:
        while self._handles:
            self._handles.popitem()[1].remove()


def call(model: nn.Module, batch: Any) -> Any:
    positions = [key for key in batch if isinstance(key, int)]
    return model(*map(batch.get, positions), **{key: batch[key] for key in batch if key not in positions})
