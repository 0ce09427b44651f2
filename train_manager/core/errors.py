"""What can go wrong, and how it is told. Nothing here decides; the other files raise.

TrainManagerError
├── FixtureNotFound    (KeyError)       a name was asked for that is not alive
├── FixtureExists      (ValueError)     a name was defined that is alive, or is always there
├── NoStageOpen        (RuntimeError)   a fixture was written while no stage was open
├── StageError         (RuntimeError)   a stage was opened, left or touched where it cannot be
├── HookError          (TypeError)      a hook, or an extension, that can never be called
├── OrderError         (ValueError)     nothing orders two hooks, or fixtures wait for each other in a cycle
├── CheckError         (ValueError)     mistakes found before the first stage, all at once
├── ExtensionNotFound  (KeyError)       no extension has this name
├── InputError         (ValueError)     an argument, the data, or what the model or the loss returned cannot be used
└── NonFiniteLoss      (ArithmeticError)   the loss was nan or infinite

Every error holds its data as attributes and renders them as lines: what happened and to whom, where it was
asked (file:line), which stages are open, what is alive, and the cure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

SHOWN_NAMES = 12  # an error is read in a terminal: a longer list of names hides the cure below it


class TrainManagerError(Exception):
    """Base of all errors of this library.

    Attributes:
        what: the first line: what happened, and who asked.
        name: the fixture, stage, hook or extension that it is about.
        asked_by: the hook, function or method that asked.
        asked_at: where in the source, as ``file:line``.
        requests: who asked whom, outermost first, where fixtures asked for fixtures.
        stages: names of the open stages, outermost first; None where stages play no part.
        alive: names of the live fixtures; None where they play no part.
        nearest: names that are written nearly like ``name``, best first.
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
        self.requests = tuple(requests)
        self.stages = None if stages is None else tuple(stages)
        self.alive = None if alive is None else tuple(sorted(alive))
        self.nearest = tuple(nearest)
        self.cure = cure

    def __str__(self) -> str:  # KeyError's own would be the repr of the message
        lines = [self.what]
        if self.defined_at:
            lines.append(f"  defined at   {self.defined_at}")
        if self.asked_at:
            lines.append(f"  asked at     {self.asked_at}")
        for request in self.requests:
            lines.append(f"  requested by {request}")
        if self.stages is not None:
            lines.append(f"  open stages  {' > '.join(self.stages) or 'none'}")
        if self.alive is not None:
            lines.append(f"  alive        {_shortened(self.alive)}")
        if self.cure:
            lines.append(f"  {self.cure}")
        return "\n".join(lines)


class FixtureNotFound(TrainManagerError, KeyError):
    """A name was asked for that is not alive: it never was, or its stage took it along."""


class FixtureExists(TrainManagerError, ValueError):
    """A name was defined that is alive already, or is always there."""


class NoStageOpen(TrainManagerError, RuntimeError):
    """A fixture was written while no stage was open that could own it."""


class StageError(TrainManagerError, RuntimeError):
    """A stage was opened, left or touched where that cannot be."""


class HookError(TrainManagerError, TypeError):
    """A hook that can never be called as it is written, or an extension that is none."""


class OrderError(TrainManagerError, ValueError):
    """Nothing says in which order two hooks run, or parameters lead back to where they came from."""


class CheckError(TrainManagerError, ValueError):
    """Mistakes that were found before the first stage opened, all at once.

    Attributes:
        mistakes: each as an error of its own.
    """

    def __init__(self, what: str, mistakes: Sequence[TrainManagerError] = ()) -> None:
        super().__init__(what)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        numbered = (f"{number}. {mistake}" for number, mistake in enumerate(self.mistakes, start=1))
        return "\n".join([self.what, *(line.replace("\n", "\n   ") for line in numbered)])


class ExtensionNotFound(TrainManagerError, KeyError):
    """No extension has this name."""


def near(name: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """The names most like ``name``, best first; for "did you mean"."""
    return tuple(difflib.get_close_matches(name, sorted(set(candidates) - {name}), n=3, cutoff=0.7))


def did_you_mean(names: Sequence[str]) -> str:
    """``did you mean 'a'?``, or nothing where there is nothing near."""
    return f"did you mean {names[0]!r}?" if names else ""


def _shortened(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f", ... ({more} more)" if more > 0 else "")


class InputError(TrainManagerError, ValueError):
    """An argument, the data, or what the model or the loss returned, cannot be trained with."""


class NonFiniteLoss(TrainManagerError, ArithmeticError):
    """The training loss was nan or infinite.

    Attributes:
        epoch: epoch in which it was first so, counted from 1.
        step: step in which it was first so, counted from 1 over the whole training.
    """

    def __init__(self, what: str, *, epoch: int = 0, step: int = 0, cure: str = "") -> None:
        super().__init__(what, cure=cure)
        self.epoch = epoch
        self.step = step


for _error in (
    TrainManagerError,
    FixtureNotFound,
    FixtureExists,
    NoStageOpen,
    StageError,
    HookError,
    OrderError,
    CheckError,
    ExtensionNotFound,
    InputError,
    NonFiniteLoss,
):
    _error.__module__ = "train_manager"  # the door that users import from, and read in a traceback
