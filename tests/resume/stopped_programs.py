"""Random programs of several training calls, which are stopped or killed at a step, and started again."""

from __future__ import annotations

import random
import signal
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tests.resume.resuming import end_of
from tests.resume.trainings import batches, in_memory, usual
from train_manager import Extension, TrainManager, every
from train_manager.extensions import EMA, Accumulate, Checkpoints, LRSchedule

WAYS = ("SIGTERM", "Ctrl-C", "stop", "kill", "kill in the save")
POINTS: tuple[str | int, ...] = ("start", "epoch", "end", 2, 3, 4)
SAVE_AT: tuple[tuple[Any, ...], ...] = (
    ("epoch", "end"),
    ("end",),
    ("epoch",),
    ("best",),
    ("best", "end"),
    (2, "end"),
    (3,),
)


class KilledError(Exception):
    """What is raised in place of a kill."""


@dataclass
class Program:
    """What a script does, and when it ends before its end.

    Attributes:
        calls: the training calls, each a method and its argument; or a phase of so many epochs.
        is_held: one run is open around all of them.
        eval_at: as of TrainManager; a number is that of ``every``.
        evaluates: the steps that ask for an evaluation by ``eval_soon``.
        saves: the steps that ask for a checkpoint by ``save_soon``.
        save_at: as of Checkpoints; a number is that of ``every``.
        accumulates: how many batches a window has.
        steps_per_epoch: cuts the epochs.
        epochs: of ``train``.
        shuffles: the data are in a new order in each epoch.
    """

    calls: list[tuple[str, int]]
    is_held: bool
    eval_at: tuple[str | int, ...]
    evaluates: set[int]
    saves: set[int]
    save_at: tuple[Any, ...]
    accumulates: int = 1
    steps_per_epoch: int | None = None
    epochs: int = 2
    shuffles: bool = True


def random_program(seed: int) -> Program:
    chance = random.Random(seed)
    calls = [("train", 0), *((method, n) for method in ("train_epochs", "phase") for n in (1, 2))]
    calls += [("train_steps", n) for n in (1, 2, 3, 5, 7)]
    steps = range(1, 20)
    return Program(
        calls=[chance.choice(calls) for _ in range(chance.randint(1, 3))],
        is_held=chance.random() < 0.5,
        eval_at=tuple(chance.sample(POINTS, chance.randint(0, 2))),
        evaluates={step for step in steps if chance.random() < 0.3},
        saves={step for step in steps if chance.random() < 0.2},
        save_at=chance.choice(SAVE_AT),
        accumulates=chance.choice([1, 1, 2, 3]),
        steps_per_epoch=chance.choice([None, None, 3, 6]),
        epochs=chance.randint(1, 3),
        shuffles=chance.random() < 0.7,
    )


def random_end(seed: int, program: Program, steps: int) -> tuple[str, int]:
    """Return a way to end a program, and a step."""
    chance = random.Random(seed)
    # A call that is stopped evaluates at its end, where the uninterrupted call does not end.
    ways = [way for way in WAYS if way.startswith("kill") or "end" not in program.eval_at]
    return chance.choice(ways), chance.randint(1, steps)


class Asks(Extension):
    """Ask for evaluations and checkpoints at some steps."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        if step_num in self.program.evaluates:
            train_manager.eval_soon()
        if step_num in self.program.saves:
            train_manager.save_soon()


class Ends(Extension):
    """End the program at a step, in a way."""

    def __init__(self, way: str, step: int) -> None:
        self.way, self.step = way, step
        at = {"kill": "pre_train_step_batch", "kill in the save": "post_save_checkpoint"}
        vars(self)[at.get(way, "post_train_step_batch")] = self.end

    def end(self, train_manager: TrainManager, step_num: int) -> None:
        if step_num != self.step:
            return
        if self.way.startswith("kill"):
            raise KilledError
        if self.way == "stop":
            train_manager.stop("enough", whole_run=True)
        else:
            signal.raise_signal(signal.SIGTERM if self.way == "SIGTERM" else signal.SIGINT)


def make(program: Program, *more: Extension, train_dir: Path | None = None) -> TrainManager:
    """Make all objects of the program anew, as a script does."""
    torch.manual_seed(1)
    given = usual()
    plateau = LRSchedule(
        lambda optimizer: ReduceLROnPlateau(optimizer, factor=0.7, patience=0, threshold=0.5), monitor="valid/loss"
    )
    recipes = [plateau, EMA(0.5), Accumulate(program.accumulates), Asks(program)]
    changes: dict[str, Any] = {
        "optimizer": lambda parameters: SGD(parameters, lr=0.5, momentum=0.5),
        "eval_at": points(program.eval_at),
        "epochs": program.epochs,
        "steps_per_epoch": program.steps_per_epoch,
        "train_data": in_memory() if program.shuffles else batches(),
        "extensions": [*recipes, *more],
        "train_dir": train_dir,
    }
    return TrainManager(**{**given, **changes})


def points(given: tuple[Any, ...]) -> list[Any]:
    return [every(one) if isinstance(one, int) else one for one in given]


def play(program: Program, tm: TrainManager) -> None:
    """Make the calls of a program, as a script that makes no further call after a stop."""
    with tm.run() if program.is_held else nullcontext():
        for method, n in program.calls:
            if method == "phase":
                with tm.phase(f"of {n}", epochs=n, train_data=in_memory(seed=5)):
                    tm.train()
            else:
                getattr(tm, method)(*([n] if n else []))
            if tm.stop_reason is not None:
                return


def checkpoints_of(program: Program) -> Checkpoints:
    return Checkpoints(points(program.save_at), resume=True, keep=None)


def started_again(program: Program, way: str, step: int, folder: Path) -> TrainManager:
    """End a program at a step, start it again, and let it come to its end."""
    with suppress(KilledError, SystemExit, KeyboardInterrupt):
        play(program, make(program, checkpoints_of(program), Ends(way, step), train_dir=folder))
    tm = make(program, checkpoints_of(program), train_dir=folder)
    play(program, tm)
    return tm


def found_in(tm: TrainManager) -> dict[str, Any]:
    found = end_of(tm)
    if not found["data"]["is_within"]:
        del found["epoch"]  # the sums of an epoch that is over
    return {**found, "extensions": {name: one for name, one in found["extensions"].items() if name != "ends"}}
