"""Lightning: callbacks get the trainer and the module. ``barebones=True`` leaves out all that can be left out."""

from __future__ import annotations

import logging
import warnings
from itertools import repeat
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.call import _call_callback_hooks
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.mlp import Clocked, sgd
from benchmarks.subscribers import Stage, subscribers

BEFORE = "on_train_batch_start(self, trainer, pl_module, batch, batch_idx)"
AFTER = "on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx)"

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(LightningModule):
    """The training."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, targets = batch
        return F.cross_entropy(self.model(inputs), targets)  # callbacks get it as outputs["loss"]

    def configure_optimizers(self) -> Any:
        return sgd(self.parameters())


def new_trainer(callbacks: list[Any]) -> Trainer:
    """A trainer that does nothing beside training."""
    return Trainer(barebones=True, max_epochs=1, accelerator="cpu", callbacks=callbacks)


def stage(count: int) -> Stage:
    callbacks = subscribers(count, before=BEFORE, after=AFTER, base=Callback)
    trainer = new_trainer(callbacks)
    trainer.strategy.connect(Module(nn.Linear(1, 1)))

    def run(times: int) -> None:
        for _ in repeat(None, times):
            _call_callback_hooks(trainer, "on_train_batch_start", 1, 0)
            _call_callback_hooks(trainer, "on_train_batch_end", None, 1, 0)

    return Stage(run, callbacks)


def train(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    callbacks = subscribers(count, after=AFTER, base=Callback)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        new_trainer(callbacks).fit(Module(model), batches)
    return callbacks
