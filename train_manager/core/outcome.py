"""Which exception comes out of a stage when several meet: the body's, its hooks', Ctrl-C, a request to skip."""

from __future__ import annotations

import traceback
from typing import final

from train_manager.core.locations import shown_path


class Skip(Exception):
    """Base of the parameters. When an error and a parameter meet at the end of a stage, the error comes out."""


class SkipStage(Skip):
    """Raised in a pre hook: leave out the remaining hooks and the body of this stage.

    Hooks marked ``@always`` still run. The loop of a TrainManager catches it for the stages that it
    opens; around stages of your own, catch it yourself:

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
        path: the stage whose pre hook raised it, outermost name first; empty when it was raised anywhere else,
            where nobody will catch it.
    """

    path: tuple[str, ...] = ()


@final
class Failures:
    """What went wrong in one stage, in the order it happened.

    One exception comes out, and nothing is lost on the way:

    - an interruption (KeyboardInterrupt, SystemExit) before an error, an error before a parameter to skip or a
      generator that is only being closed
    - among errors the body's; several of hooks alone come out as an ExceptionGroup
    - all others become notes on the one that comes out

    A skipped stage, whose parameter must not hide an error:

    >>> failures = Failures("step", Skip())
    >>> failures.add(ValueError("in an @always hook"))
    >>> failures.outcome()
    ValueError('in an @always hook')
    """

    __slots__ = ("_body", "_errors", "_stage")

    def __init__(self, stage: str, body: BaseException | None = None) -> None:
        self._stage = stage
        self._body = body
        self._errors = [body] if body is not None else []

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: BaseException) -> None:
        """Take in an error of a hook; one that is here already, and was only raised again, counts once."""
        if not any(error is known for known in self._errors):
            self._errors.append(error)

    def outcome(self) -> BaseException | None:
        """The exception that comes out, the others as notes on it; None where nothing failed.

        All are forgotten here: the frames in their tracebacks know this object, and would keep each other, and
        with them the values of the stage, alive.
        """
        errors, body = self._errors, self._body
        self._errors, self._body = [], None
        if not errors:
            return None
        weightiest = max(map(_weight, errors))
        candidates = [error for error in errors if _weight(error) == weightiest]
        chosen = body if body is not None and _weight(body) == weightiest else candidates[0]
        noted = [error for error in errors if error is not chosen]
        if chosen is not body and len(candidates) > 1 and weightiest == _ERROR:
            chosen = BaseExceptionGroup(f"{len(candidates)} hooks of stage {self._stage!r} failed", candidates)
            noted = [error for error in errors if _weight(error) < weightiest]
        for error in noted:
            if _weight(error) > _WISH:
                chosen.add_note(_as_note(error))
        return chosen

    def first(self) -> BaseException | None:
        """What made the stage fail, as ``@always`` hooks are told it."""
        return self._errors[0] if self._errors else None


_WISH, _ERROR, _INTERRUPTION = range(3)


def _weight(error: BaseException) -> int:
    if isinstance(error, Skip | GeneratorExit):
        return _WISH
    return _ERROR if isinstance(error, Exception) else _INTERRUPTION


def _as_note(error: BaseException) -> str:
    """``also failed at ema.py:41: ValueError: no room``, and its own notes below it."""
    entries = traceback.extract_tb(error.__traceback__)
    place = f" at {shown_path(entries[-1].filename)}:{entries[-1].lineno}" if entries else ""
    lines = [f"also failed{place}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return "\n  ".join(lines)
