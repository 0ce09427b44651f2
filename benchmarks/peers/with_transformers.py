"""transformers: callbacks get arguments, state and control; the model computes the loss, and keeps it for callbacks."""

from __future__ import annotations

import tempfile
from itertools import repeat
from typing import Any

import accelerate  # noqa: F401  (its Trainer needs it)
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler, PrinterCallback
from transformers.utils import logging

from benchmarks.mlp import LEARNING_RATE, Clocked, sgd
from benchmarks.subscribers import Stage, subscribers

BEFORE = "on_step_begin(self, args, state, control, **others)"
AFTER = "on_step_end(self, args, state, control, **others)"

logging.set_verbosity_error()


class WithLoss(nn.Module):
    """The model, which computes its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(self.model(inputs), labels)}


class Batches:
    """The batches, as dicts."""

    def __init__(self, batches: Clocked) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        return ({"inputs": inputs, "labels": targets} for inputs, targets in self.batches)


class MyTrainer(Trainer):
    """A trainer on batches that are there."""

    batches: Batches

    def get_train_dataloader(self) -> Any:
        return self.batches


def stage(count: int) -> Stage:
    callbacks = subscribers(count, before=BEFORE, after=AFTER, base=TrainerCallback)
    handler = CallbackHandler(callbacks, None, None, None, None)
    state, control = TrainerState(), TrainerControl()

    def run(times: int) -> None:
        for _ in repeat(None, times):
            handler.on_step_begin(None, state, control)
            handler.on_step_end(None, state, control)

    return Stage(run, callbacks)


def train(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    callbacks = subscribers(count, after=AFTER, base=TrainerCallback)
    optimizer = sgd(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            max_grad_norm=0,
            disable_tqdm=True,
            logging_strategy="no",
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        trainer = MyTrainer(
            WithLoss(model), arguments, train_dataset=[0], callbacks=callbacks, optimizers=(optimizer, schedule)
        )
        trainer.batches = Batches(batches)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return callbacks
