"""The errors of the library, and their text. This file raises none of them.

TrainManagerError
├── FixtureNotFound    (KeyError)          a name that is read or modified is not alive
├── FixtureExists      (ValueError)        a name that is defined is alive, or is always there
├── NoStageOpen        (RuntimeError)      a fixture is written while no stage is open
├── StageError         (RuntimeError)      a stage is opened, left or used in a way that is impossible
├── HookError          (TypeError)         a hook or an extension cannot be used as it is written
├── OrderError         (ValueError)        nothing orders two hooks, or fixtures wait for each other in a cycle
├── CheckError         (ValueError)        mistakes found before the first stage, all at once
├── ExtensionNotFound  (KeyError)          no extension has this name
├── InputError         (ValueError)        an argument, the data, or the result of the model or the loss is invalid
│   ├── ArgumentError  (TypeError too)     a class is made with arguments that it does not have
│   └── CheckpointError                    a checkpoint cannot be written, is damaged, or does not fit
├── NonFiniteLoss      (ArithmeticError)   the loss is nan or infinite
└── RankError          (RuntimeError)      another of the processes that train together has failed, or does not come

Every error holds its data as attributes and renders them as lines: what happened, which line asked
(file:line), which stages are open, what is alive, and the cure.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence

from train_manager.telling.source_locations import is_own_line

__all__ = [
    "ArgumentError",
    "CheckError",
    "CheckpointError",
    "ExtensionNotFound",
    "FixtureExists",
    "FixtureNotFound",
    "HookError",
    "InputError",
    "NoStageOpen",
    "NonFiniteLoss",
    "OrderError",
    "RankError",
    "StageError",
    "TrainManagerError",
]

SHOWN_NAMES = 30  # of the live fixtures; a TrainManager has fewer, and a list without end would hide the cure below it
WIDTH = 100  # of the lines of this list, in characters


class TrainManagerError(Exception):
    """Base of all errors of this library.

    Attributes:
        what: the first line: what happened.
        name: the fixture, stage, hook or extension that it is about.
        asked_by: the hook, function or method that asked.
        asked_at: the line that asked, as ``file:line``.
        defined_at: the line that has defined the same name before.
        requests: the fixtures that were being computed, outermost first, if fixtures asked for fixtures.
        stages: names of the open stages, outermost first; None if the error is not about stages.
        alive: names of the live fixtures; None if the error is not about fixtures.
        nearest: what may be meant by ``name``, best first.
        cure: what to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        name: str = "",
        asked_by: str = "",
        asked_at: str = "",
        defined_at: str = "",
        requests: Sequence[str] = (),
        stages: Sequence[str] | None = None,
        alive: Iterable[str] | None = None,
        nearest: Sequence[str] = (),
        cure: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.name = name
        self.asked_by = asked_by
        self.asked_at = asked_at
        self.defined_at = defined_at
        self.requests: tuple[str, ...] = tuple(requests)
        self.stages: tuple[str, ...] | None = None if stages is None else tuple(stages)
        self.alive: tuple[str, ...] | None = None if alive is None else tuple(sorted(alive))
        self.nearest: tuple[str, ...] = tuple(nearest)
        self.cure = cure

    # Written here, since the `__str__` of KeyError is the repr of the message, with its quotes and `\n`.
    def __str__(self) -> str:
        # First the lines and the way that led to the error, then the state at that moment; the cure comes last.
        rows = [
            ("defined at", self.defined_at),
            # A line of this library shows nothing that the user could correct; the first line names its hook.
            ("asked at", "" if is_own_line(self.asked_at) else self.asked_at),
            *(("requested by", request) for request in self.requests),
            ("open stages", "" if self.stages is None else " > ".join(self.stages) or "none"),
            ("alive", "" if self.alive is None else _abbreviate_names(self.alive)),
        ]
        lines = [f"  {label:<12} {text}" for label, text in rows if text]
        return "\n".join([self.what, *lines, *([f"  {self.cure}"] if self.cure else [])])


class FixtureNotFound(TrainManagerError, KeyError):
    """A name that is read or modified is not alive: it never was, or its stage has ended."""


class FixtureExists(TrainManagerError, ValueError):
    """A name that is defined is alive already, or is always there."""


class NoStageOpen(TrainManagerError, RuntimeError):
    """A fixture is written while no stage is open that could own it."""


class StageError(TrainManagerError, RuntimeError):
    """A stage is opened, left or used in a way that is impossible."""


class HookError(TrainManagerError, TypeError):
    """A hook can never be called as it is written, or an extension is not an extension."""


class OrderError(TrainManagerError, ValueError):
    """Nothing says in which order two hooks run, or fixtures wait for each other in a cycle."""


class CheckError(TrainManagerError, ValueError):
    """Mistakes that were found before the first stage opened, all at once.

    Attributes:
        mistakes: each as an error of its own.
    """

    def __init__(self, what: str, mistakes: Sequence[TrainManagerError] = ()) -> None:
        super().__init__(what)
        self.mistakes: tuple[TrainManagerError, ...] = tuple(mistakes)

    def __str__(self) -> str:
        # The further lines of a mistake are indented below its number.
        numbered = (f"{number}. {mistake}" for number, mistake in enumerate(self.mistakes, start=1))
        return "\n".join([self.what, *(line.replace("\n", "\n   ") for line in numbered)])


class ExtensionNotFound(TrainManagerError, KeyError):
    """No extension has this name."""


class InputError(TrainManagerError, ValueError):
    """An argument, the data, or the result of the model or the loss cannot be used for training."""


class ArgumentError(InputError, TypeError):
    """A class is made with arguments that it does not have, or without one that it needs."""


class CheckpointError(InputError):
    """A checkpoint cannot be written, is damaged, or does not fit the training."""


class RankError(TrainManagerError, RuntimeError):
    """Another of the processes that train together has failed, has ended, or does not come."""


class NonFiniteLoss(TrainManagerError, ArithmeticError):
    """The training loss is nan or infinite.

    Attributes:
        epoch: the epoch in which that happened first, counted from 1.
        step: the step in which that happened first, counted from 1 over the whole training.
    """

    def __init__(self, what: str, *, epoch: int = 0, step: int = 0, cure: str = "") -> None:
        super().__init__(what, cure=cure)
        self.epoch = epoch
        self.step = step


for _error in (TrainManagerError, *TrainManagerError.__subclasses__(), *InputError.__subclasses__()):
    _error.__module__ = "train_manager.errors"  # a traceback shows the module that users import the error from


def near(name: str, candidates: Iterable[str], cutoff: float = 0.7) -> tuple[str, ...]:
    """Return the names most like ``name``, best first; names with a likeness below ``cutoff`` are left out.

    Names of the same words in another order come first: ``train_step_batch`` for ``train_batch_step``.
    """
    # Sorted, since the order of a set, which decides between names of equal likeness, differs from process to process.
    others, words = sorted(set(candidates) - {name}), sorted(name.split("_"))
    turned = [other for other in others if sorted(other.split("_")) == words]
    return tuple(dict.fromkeys([*turned, *difflib.get_close_matches(name, others, n=3, cutoff=cutoff)]))


def did_you_mean(names: Sequence[str]) -> str:
    """Return ``did you mean 'a'?`` with the first name, or nothing if there is none."""
    return f"did you mean {names[0]!r}?" if names else ""


def _abbreviate_names(names: Sequence[str]) -> str:
    """Return the names in lines of ``WIDTH`` below the first, without those beyond ``SHOWN_NAMES``."""
    more = len(names) - SHOWN_NAMES
    shown = ", ".join(names[:SHOWN_NAMES]) + (f", ... ({more} more)" if more > 0 else "") or "nothing"
    return f"\n{' ' * 15}".join(textwrap.wrap(shown, WIDTH, break_long_words=False))
