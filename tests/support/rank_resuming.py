"""Trainings that processes do together in tests, stop, and resume from a checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.rank_trainings import manager, net, outcome
from train_manager import Extension, TrainManager
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.extensions import Accumulate, Checkpoints, Distributed

STOP_AT = 10  # within the second epoch, which ends with step 12, and within a window of 3


class StopAt(Extension):
    """Stop after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        if step_num == self.step:
            train_manager.stop("as planned", whole_run=True)


class SignalAt(Extension):
    """Let one rank get a signal within a step."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank = step, rank

    def pre_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        if step_num == self.step and train_manager.ranks.place.rank == self.rank:
            os.kill(os.getpid(), signal.SIGTERM)


class Seen(Extension):
    """Note what the fixtures of checkpoints are."""

    def __init__(self) -> None:
        self.loaded: Any = None
        self.saved: list[Any] = []

    def post_load_checkpoint(self, checkpoint_loaded: Any) -> None:
        self.loaded = checkpoint_loaded

    def post_save_checkpoint(self, checkpoint_saved: Any) -> None:
        self.saved.append(checkpoint_saved)


def make(
    folder: Path, *extensions: Extension, dropout: float = 0.0, strategy: str = "after", **options: Any
) -> TrainManager:
    """A training with files in a folder; in a process that torchrun has not started it is one process's."""
    torch.manual_seed(0)
    model = nn.Sequential(*net(), nn.Dropout(dropout))
    torch.manual_seed(1)
    return manager(*extensions, Distributed(strategy), model=model, train_dir=folder, **options)


def train_on(folder: Path, stop_at: int = 0, window: int = 0, **options: Any) -> dict[str, Any]:
    """Train from what the folder has, perhaps until a step, and return what the training has come to."""
    extensions = [Checkpoints(save_at="end", resume=True), *([StopAt(stop_at)] if stop_at else [])]
    seen = Seen()
    tm = make(folder, *extensions, seen, *([Accumulate(window)] if window else []), **options)
    result = tm.train()
    return {**outcome(tm, result), "loaded": seen.loaded, "saved": seen.saved}


def stop_and_resume(folder: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what a training without a stop has come to, one that stops, and one that resumes from there."""
    torch.set_default_dtype(torch.float64)  # sums of a few losses of 32 bits would be exact, in whatever order
    whole = train_on(folder / "whole", **options)
    stopped = train_on(folder / "stopped", stop_at=STOP_AT, **options)
    return whole, stopped, train_on(folder / "stopped", **options)


def steps_in(folder: Path) -> list[int]:
    return [int(path.name[5:17]) for path in CheckpointFolder(folder / "checkpoints").checkpoints()]


class Draw(Extension):
    """Draw a random number as a checkpoint was saved, and as one was loaded."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}

    def post_save_checkpoint(self) -> None:
        self.numbers["saved"] = torch.rand(()).item()

    def post_load_checkpoint(self) -> None:
        self.numbers["loaded"] = torch.rand(()).item()


def draws(folder: Path, stop_at: int = 0) -> dict[str, float]:
    """Return the first random number after a checkpoint was saved, and after one was loaded."""
    draw = Draw()
    stop = [StopAt(stop_at)] if stop_at else []
    make(folder, Checkpoints(save_at="end", resume=True), draw, *stop).train()
    return draw.numbers


def train_with_defaults(folder: Path, *args: Any, **options: Any) -> dict[str, Any]:
    """Train with Checkpoints as they are by default, or with options."""
    seen, checkpoints = Seen(), Checkpoints(*args, **options)
    make(folder, checkpoints, seen).train()
    return {"saved": seen.saved, "has_locked": checkpoints._opened.lock.is_enforced, "best": checkpoints.best}


def train_anew(folder: Path) -> dict[str, Any]:
    """Train, and then train anew, keeping the best weights only."""
    train_with_defaults(folder)
    return train_with_defaults(folder, "best", resume="fresh")


def train_on_own_disk(folder: Path, **options: Any) -> dict[str, Any]:
    """Do as ``train_on``, with a folder for each rank."""
    return train_on(folder / f"disk-{os.environ['RANK']}", **options)


def resume_from_own_disk(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a training without a stop has come to, and one that was resumed, each with a folder for each rank."""
    whole = train_on_own_disk(folder / "whole")
    train_on_own_disk(folder / "stopped", stop_at=STOP_AT)
    return whole, train_on_own_disk(folder / "stopped")


def train_on_full_disk(folder: Path, in_background: bool) -> None:
    """Train until the checkpoint at the end, which cannot be written."""

    def write(*args: Any) -> None:
        raise OSError(28, "no space left")

    CheckpointFolder.write = write  # type: ignore[assignment, method-assign]
    make(folder, Checkpoints(save_at="end", in_background=in_background)).train()


def resume_twice(folder: Path) -> None:
    """Train in a folder that has checkpoints of a training already, without saying what to do with them."""
    train_on(folder)
    make(folder, Checkpoints()).train()


def train_until_signal(folder: Path, rank: int) -> dict[str, Any]:
    """Train until one rank gets SIGTERM; return what this rank has come to."""
    seen = Seen()
    tm = make(folder, Checkpoints(save_at="end"), seen, SignalAt(4, rank))
    code: Any = None
    try:
        tm.train()
    except SystemExit as end:
        code = end.code
    return {"step": tm.step_num, "saved": seen.saved, "reason": tm.stop_reason, "code": code}
