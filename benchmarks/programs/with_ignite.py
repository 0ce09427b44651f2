"""Ignite: a trainer and an evaluator, each an engine."""

from __future__ import annotations

from typing import Any

from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import ProgressBar
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.programs.problems import LR, Problem


def usual(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    trainer = create_supervised_trainer(model, AdamW(model.parameters(), LR), F.cross_entropy)
    evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(F.cross_entropy)})
    valid = problem.loader("valid")

    def evaluate() -> None:
        evaluator.run(valid)
        print(evaluator.state.metrics)

    trainer.add_event_handler(Events.EPOCH_COMPLETED, evaluate)
    ProgressBar().attach(trainer, output_transform=lambda loss: {"loss": loss})
    trainer.run(problem.loader("train"), max_epochs=epochs)
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    optimizer = AdamW(model.parameters(), LR)

    def step(engine: Engine, batch: Any) -> Any:
        inputs, targets = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    trainer = Engine(step)
    evaluator = create_supervised_evaluator(model, {"loss": Loss(F.cross_entropy)})
    valid = problem.loader("valid")

    def evaluate() -> None:
        evaluator.run(valid)
        model.train()

    trainer.add_event_handler(Events.EPOCH_COMPLETED, evaluate)
    trainer.run(problem.loader("train"), max_epochs=epochs)
    return model
