"""Train Manager: as people use it, as bare as possible, and with the tricks that ``tm.tune()`` finds."""

from __future__ import annotations

import tempfile
from functools import partial

from torch import nn
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.programs.problems import LR, Problem
from train_manager import Extension, InMemory, TrainManager
from train_manager.extensions import Compile, Metrics, default_extensions


def usual(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    with tempfile.TemporaryDirectory() as folder:
        TrainManager(
            model=model,
            loss=F.cross_entropy,
            optimizer=partial(AdamW, lr=LR),
            train_data=problem.loader("train"),
            eval_data={"valid": problem.loader("valid")},
            epochs=epochs,
            train_dir=folder,
            extensions=[default_extensions(), Metrics("accuracy")],
        ).train()
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=partial(AdamW, lr=LR),
        train_data=problem.loader("train"),
        eval_data={"valid": problem.loader("valid")},
        epochs=epochs,
    ).train()
    return model


def tuned(problem: Problem, epochs: int) -> nn.Module:
    model, examples = problem.in_channels_last()
    train, valid = (InMemory(*of, batch_size=problem.batch_size) for of in examples)
    TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=partial(AdamW, lr=LR),
        train_data=train,
        eval_data={"valid": valid},
        epochs=epochs,
        extensions=[Compile(), Extension.of(pre_eval=problem.mark)],
    ).train()
    return model
