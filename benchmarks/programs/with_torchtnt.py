"""torchtnt: a unit for training and evaluation; usual with an AutoUnit and its bar, bare with units by hand."""
# ruff: noqa: E402

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

# torchtnt imports it, and uses it only where torch does not tell its version; today's setuptools has it no more.
sys.modules.setdefault("pkg_resources", ModuleType("pkg_resources"))

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import AdamW
from torchtnt.framework import fit
from torchtnt.framework.auto_unit import AutoUnit
from torchtnt.framework.callbacks import TQDMProgressBar
from torchtnt.framework.state import State
from torchtnt.framework.unit import EvalUnit, TrainUnit

from benchmarks.programs.problems import LR, Problem


def usual(problem: Problem, epochs: int) -> nn.Module:
    class Unit(AutoUnit[Any]):
        right = count = 0

        def compute_loss(self, state: State, data: Any) -> Any:
            inputs, targets = data
            prediction = self.module(inputs)
            return F.cross_entropy(prediction, targets), prediction

        def configure_optimizers_and_lr_scheduler(self, module: nn.Module) -> Any:
            return AdamW(module.parameters(), LR), None

        def on_eval_step_end(self, state: State, data: Any, step: int, loss: Any, outputs: Any) -> None:
            self.right += (outputs.argmax(dim=1) == data[1]).sum()
            self.count += data[1].numel()

        def on_eval_end(self, state: State) -> None:
            print(self.right / self.count)

    model = problem.new_model()
    unit = Unit(module=model, device=torch.device("cpu"))
    fit(unit, problem.loader("train"), problem.loader("valid"), max_epochs=epochs, callbacks=[TQDMProgressBar()])
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    class Unit(TrainUnit[Any], EvalUnit[Any]):
        def __init__(self) -> None:
            super().__init__()
            self.model = problem.new_model()
            self.optimizer = AdamW(self.model.parameters(), LR)

        def train_step(self, state: State, data: Any) -> Any:
            inputs, targets = data
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()
            return loss

        def eval_step(self, state: State, data: Any) -> Any:
            inputs, targets = data
            return F.cross_entropy(self.model(inputs), targets)

    unit = Unit()
    fit(unit, problem.loader("train"), problem.loader("valid"), max_epochs=epochs)
    return unit.model
