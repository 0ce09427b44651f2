"""How a run has ended, as its entry in ``run.json`` records it."""

from __future__ import annotations

from typing import Any, Final

from train_manager.core.outcome import Skip
from train_manager.runs.code.secret_files import redacted

LONGEST: Final = 4000  # characters of an error's message


def outcome(error: BaseException | None, stop_reason: str | None) -> dict[str, Any]:
    """Return how a run has ended: completed, stopped or failed, and why.

    >>> outcome(None, None)["outcome"], outcome(KeyboardInterrupt(), None)["reason"]
    ('completed', 'KeyboardInterrupt')

    Args:
        error: what came out of it; None if nothing did.
        stop_reason: what ``tm.stop`` was given; a signal gives its name.
    """
    found: dict[str, Any] = {"outcome": "completed", "reason": None, "error": None}
    if isinstance(error, Exception) and not isinstance(error, Skip):
        return found | {"outcome": "failed", "error": _describe(error)}
    reason = stop_reason or (None if error is None else _interruption(error))
    return found if reason is None else found | {"outcome": "stopped", "reason": redacted(reason)}


def _interruption(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"SystemExit({error.code!r:.60})"
    if isinstance(error, Skip):
        return "a hook has skipped the run"
    return "the run was left" if isinstance(error, GeneratorExit) else type(error).__name__


def _describe(error: Exception) -> dict[str, Any]:
    kind = type(error)
    return {
        "type": kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": redacted(str(error)[:LONGEST]),
        "stage": stage_of(error),
    }


def stage_of(error: Exception) -> str | None:
    """Return the path of the stage in which an error was raised: the loop has noted it, or the error knows."""
    # The loop adds a note with the path of the stage to an error of a hook; an error of the core has it as `stages`.
    notes = [str(note) for note in getattr(error, "__notes__", ()) if "at stage " in str(note)]
    if notes:
        return notes[0].partition("at stage ")[2].splitlines()[0]
    inner = getattr(error, "exceptions", None)  # the errors of an ExceptionGroup
    if inner:
        return stage_of(inner[0])
    return " > ".join(getattr(error, "stages", None) or ()) or None
