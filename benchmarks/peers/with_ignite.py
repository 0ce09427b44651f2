"""Ignite: an engine fires events, whose handlers get the engine."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from ignite.engine import Engine, Events
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.mlp import Clocked, sgd
from benchmarks.subscribers import Stage, subscribers

AFTER = "ended(self, engine)"


def stage(count: int) -> Stage:
    handlers = subscribers(count, before="started(self, engine)", after=AFTER)
    engine = Engine(lambda engine, batch: None)
    for handler in handlers:
        engine.add_event_handler(Events.ITERATION_STARTED, handler.started)
        engine.add_event_handler(Events.ITERATION_COMPLETED, handler.ended)

    def run(times: int) -> None:
        for _ in repeat(None, times):
            engine.fire_event(Events.ITERATION_STARTED)
            engine.fire_event(Events.ITERATION_COMPLETED)

    return Stage(run, handlers)


def train(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    optimizer = sgd(model.parameters())

    def step(engine: Engine, batch: Any) -> Tensor:
        inputs, targets = batch
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss  # handlers find it in engine.state.output

    handlers = subscribers(count, after=AFTER)
    engine = Engine(step)
    for handler in handlers:
        engine.add_event_handler(Events.ITERATION_COMPLETED, handler.ended)
    engine.run(batches, max_epochs=1)
    return handlers
