"""The exception that comes out of a stage when several meet: the body's, its hooks', Ctrl-C, a request to skip."""

from __future__ import annotations

import traceback
from typing import final

from train_manager.telling.source_locations import display_path


class Skip(Exception):
    """Base of the requests to skip. If an error and a request meet at the end of a stage, the error comes out."""


class SkipStage(Skip):
    """Raised in a pre hook: leave out the remaining hooks and the body of this stage.

    ``@always`` hooks still run. A TrainManager catches it for the stages of its loop. Around stages of your own,
    catch it yourself:

    >>> from train_manager import Extensible, SkipStage
    >>> class Worker(Extensible):
    ...     def pre_work(self):
    ...         raise SkipStage
    ...     def work(self):
    ...         try:
    ...             with self.staged("work"):
    ...                 print("never printed")
    ...         except SkipStage as skip:
    ...             print("skipped", skip.path)
    >>> Worker().work()
    skipped ('work',)

    Attributes:
        path: names of the open stages, outermost first, the skipped one last; empty if it was raised anywhere else
            than in a pre hook: then no loop catches it.
    """

    path: tuple[str, ...] = ()


@final
class Failures:
    """The exceptions of one stage, in the order in which they were raised; the body's comes first.

    One exception comes out of the stage, and no error is lost:

    - an interruption (KeyboardInterrupt, SystemExit) comes out before an error, an error before a request to skip or
      the closing of a generator
    - among errors, the error of the body comes out; without one, several errors of hooks come out as an ExceptionGroup
    - all other errors become notes on the exception that comes out

    A request to skip must not hide an error:

    >>> failures = Failures("step", Skip())
    >>> failures.add(ValueError("in an @always hook"))
    >>> failures.outcome()
    ValueError('in an @always hook')
    """

    __slots__ = ("_body", "_errors", "_stage")

    def __init__(self, stage: str, body: BaseException | None = None) -> None:
        self._stage = stage
        self._body = body
        self._errors = [] if body is None else [body]

    def add(self, error: BaseException) -> None:
        """Add the error of a hook."""
        # An around-hook that lets the error of the stage through raises the same object again.
        if not any(error is known for known in self._errors):
            self._errors.append(error)

    def first(self) -> BaseException | None:
        """Return the exception that made the stage fail, which ``@always`` hooks get; None if nothing failed."""
        return self._errors[0] if self._errors else None

    def outcome(self) -> BaseException | None:
        """Return the exception that comes out, with the others as notes on it; None if nothing failed."""
        errors, body = self._errors, self._body
        # Let go of them: the frames in their tracebacks refer to this object, and this cycle would keep all values
        # alive that those frames hold.
        self._errors, self._body = [], None
        if not errors:
            return None
        weight = max(map(_weight, errors))
        heaviest = [error for error in errors if _weight(error) == weight]
        chosen = heaviest[0]
        if weight == _ERROR and len(heaviest) > 1 and chosen is not body:  # hooks have failed, each for its own reason
            return BaseExceptionGroup(f"{len(heaviest)} hooks of stage {self._stage!r} failed", heaviest)
        for error in errors:
            if error is not chosen and _weight(error) > _REQUEST:  # a request to skip says nothing to a reader
                chosen.add_note(_as_note(error))
        return chosen

    def raise_outcome(self) -> None:
        """Raise the exception that comes out, if there is one."""
        error = self.outcome()
        if error is not None:
            raise error


_REQUEST, _ERROR, _INTERRUPTION = range(3)  # the heaviest comes out


def _weight(error: BaseException) -> int:
    if isinstance(error, Skip | GeneratorExit):
        return _REQUEST
    return _ERROR if isinstance(error, Exception) else _INTERRUPTION


def _as_note(error: BaseException) -> str:
    """Return ``also failed at ema.py:41: ValueError: no room``, and the error's own notes below it."""
    entries = traceback.extract_tb(error.__traceback__)
    line = f" at {display_path(entries[-1].filename)}:{entries[-1].lineno}" if entries else ""
    lines = [f"also failed{line}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return "\n  ".join(lines)
