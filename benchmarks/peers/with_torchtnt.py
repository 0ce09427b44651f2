"""torchtnt: callbacks get the state and the unit."""
# ruff: noqa: E402

from __future__ import annotations

import sys
from itertools import repeat
from types import ModuleType
from typing import Any

# torchtnt imports it, and uses it only where torch does not tell its version; today's setuptools has it no more.
sys.modules.setdefault("pkg_resources", ModuleType("pkg_resources"))

from torch import nn
from torch.nn import functional as F
from torchtnt.framework import train as fit
from torchtnt.framework._callback_handler import CallbackHandler
from torchtnt.framework.callback import Callback
from torchtnt.framework.state import EntryPoint, PhaseState, State
from torchtnt.framework.unit import TrainUnit

from benchmarks.mlp import Clocked, sgd
from benchmarks.subscribers import Stage, subscribers

BEFORE = "on_train_step_start(self, state, unit)"
AFTER = "on_train_step_end(self, state, unit)"


class Unit(TrainUnit[Any]):
    """The training."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.optimizer = sgd(model.parameters())

    def train_step(self, state: State, data: Any) -> Any:
        inputs, targets = data
        loss = F.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss  # callbacks find it in state.train_state.step_output


def stage(count: int) -> Stage:
    callbacks = subscribers(count, before=BEFORE, after=AFTER, base=Callback)
    handler = CallbackHandler(callbacks)
    unit = Unit(nn.Linear(1, 1))
    state = State(entry_point=EntryPoint.TRAIN, train_state=PhaseState(dataloader=[], max_epochs=1))

    def run(times: int) -> None:
        for _ in repeat(None, times):
            handler.on_train_step_start(state, unit)
            handler.on_train_step_end(state, unit)

    return Stage(run, callbacks)


def train(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    callbacks = subscribers(count, after=AFTER, base=Callback)
    fit(Unit(model), batches, max_epochs=1, callbacks=callbacks)
    return callbacks
