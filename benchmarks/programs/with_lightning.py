"""Lightning: a LightningModule and a Trainer; bare without logger, checkpoints, bar and summary."""

from __future__ import annotations

import tempfile
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.programs.problems import LR, Problem


def usual(problem: Problem, epochs: int) -> nn.Module:
    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = problem.new_model()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            inputs, targets = batch
            loss = F.cross_entropy(self.model(inputs), targets)
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            inputs, targets = batch
            prediction = self.model(inputs)
            self.log("valid_loss", F.cross_entropy(prediction, targets))
            self.log("valid_accuracy", (prediction.argmax(dim=1) == targets).float().mean())

        def configure_optimizers(self) -> Any:
            return AdamW(self.parameters(), LR)

    module = Module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(max_epochs=epochs, accelerator="cpu", default_root_dir=folder)
        trainer.fit(module, problem.loader("train"), problem.loader("valid"))
    return module.model


def bare(problem: Problem, epochs: int) -> nn.Module:
    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = problem.new_model()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            inputs, targets = batch
            return F.cross_entropy(self.model(inputs), targets)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            inputs, targets = batch
            self.log("valid_loss", F.cross_entropy(self.model(inputs), targets))

        def configure_optimizers(self) -> Any:
            return AdamW(self.parameters(), LR)

    module = Module()
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, problem.loader("train"), problem.loader("valid"))
    return module.model
