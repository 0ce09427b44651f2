"""What a step, a save and a load run of the library's own code, counted: opcodes, calls, files and moves.

A move is a call from one file of the library into another one. None of these has noise.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from torch import nn

import train_manager.extensions
from benchmarks.mlp import new_batches, new_model, sgd
from train_manager import Extension, TrainManager
from train_manager.extensions import Checkpoints

PACKAGES: Final = (train_manager, train_manager.extensions)
FOLDERS: Final = tuple(str(Path(package.__file__ or "").resolve().parent) for package in PACKAGES)


@dataclass
class Trace:
    """What was run of the library.

    Attributes:
        opcodes: bytecode instructions.
        moves: calls from one of its files into another one.
        called: how many functions written in Python were called in each file.
    """

    opcodes: int = 0
    moves: int = 0
    called: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """How many functions were called."""
        return sum(self.called.values())

    def __sub__(self, other: Trace) -> Trace:
        return Trace(self.opcodes - other.opcodes, self.moves - other.moves, self.called - other.called)


@contextmanager
def tracing() -> Iterator[Trace]:
    """Count what is run of the library in a ``with`` block."""
    trace = Trace()

    def note(frame: FrameType, what: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(FOLDERS):
            return None
        if what == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            trace.called[file] += 1
            trace.moves += _came_from(frame) not in (None, file)
        elif what == "opcode":
            trace.opcodes += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        yield trace
    finally:
        sys.settrace(before)


def _came_from(frame: FrameType) -> str | None:
    """Return the file of the library that a call came from, perhaps by way of others."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(FOLDERS):
        caller = caller.f_back
    return None if caller is None else caller.f_code.co_filename


def plain_manager(*extensions: Extension, **arguments: Any) -> TrainManager:
    """Return the training of the benchmarks, without evaluations."""
    return TrainManager(
        model=new_model(),
        loss=nn.functional.cross_entropy,
        optimizer=sgd,
        train_data=new_batches(50),
        eval_at=(),
        extensions=list(extensions),
        **arguments,
    )


class Inside(Extension):
    """Has a hook at each stage inside a batch, which are opened for it."""

    def post_train_model_forward(self) -> None: ...
    def post_train_loss_forward(self) -> None: ...
    def post_train_backward(self) -> None: ...
    def post_train_optimizer_step(self) -> None: ...


def step(*extensions: Extension) -> Trace:
    """Count one step, as what eleven steps run beyond ten."""
    tm = plain_manager(*extensions)
    for _ in range(2):  # what is done once is done; and the second call makes plans that the first one has outdated
        tm.train_steps(10)
    with tracing() as ten:
        tm.train_steps(10)
    with tracing() as eleven:
        tm.train_steps(11)
    return eleven - ten


class TracedBatches:
    """Batches of which those after the first few are traced, from one pull to the next."""

    def __init__(self, before: int, traced: int) -> None:
        self._before, self._traced = before, traced
        self.trace = Trace()

    def __len__(self) -> int:
        return self._before + self._traced + 1

    def __iter__(self) -> Iterator[Any]:
        batches = new_batches(len(self))
        yield from batches[: self._before]
        with tracing() as self.trace:
            yield from batches[self._before : -1]
        yield batches[-1]


def steps(extensions: Any = None, count: int = 100) -> Trace:
    """Count so many steps of a run with a folder; the loop that pulls the batches is not traced."""
    batches = TracedBatches(20, count)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        with contextlib.redirect_stdout(io.StringIO()):
            model, loss = new_model(), nn.functional.cross_entropy
            given: dict[str, Any] = {"train_data": batches, "eval_at": (), "train_dir": folder}
            TrainManager(model=model, loss=loss, optimizer=sgd, extensions=extensions, **given).train()
    return batches.trace


class InsideStages(Extension):
    """Counts what runs inside the stages in which checkpoints are saved and loaded, all hooks included."""

    priority = -1000

    def __init__(self) -> None:
        self.saved = self.loaded = Trace()

    def around_save_checkpoint(self) -> Iterator[None]:
        with tracing() as self.saved:
            yield

    def around_load_checkpoint(self) -> Iterator[None]:
        with tracing() as self.loaded:
            yield


def save_and_load() -> tuple[Trace, Trace]:
    """Count a checkpoint as ``Checkpoints`` saves it, not for the first time, and as another program loads it."""
    with tempfile.TemporaryDirectory() as folder:
        saving, loading = InsideStages(), InsideStages()
        tm = plain_manager(saving, Checkpoints(save_at="end"), train_dir=folder)
        tm.train_steps(1)
        tm.train_steps(1)
        plain_manager(loading, Checkpoints(resume=True), train_dir=folder).train_steps(2)
        return saving.saved, loading.loaded
