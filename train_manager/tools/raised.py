"""An error as a finding: what it says, at which stage it was raised, and the user's line that it came through."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from train_manager.telling.errors import TrainManagerError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import shown_path


def finding_of(check: str, error: Exception, *, before: str = "", place: str = "") -> Finding:
    """Return an error as a finding, with its traceback among the numbers.

    Args:
        check: the check that has met it.
        error: the error.
        before: what the finding begins with.
        place: with what it was raised.
    """
    told = error.what if isinstance(error, TrainManagerError) else f"{error}"
    kind, stages = type(error).__name__, stages_of(error)
    at = ", ".join([*([f"at stage {' > '.join(stages)}"] if stages else []), *([f"with {place}"] if place else [])])
    what = before + " ".join([f"{kind}: {told}" if told else kind, *([f"({at})"] if at else [])])
    cure = error.cure if isinstance(error, TrainManagerError) else ""
    return Finding(
        check, "error", what, _line_in(error), cure, {"traceback": "".join(traceback.format_exception(error))}
    )


def stages_of(error: BaseException) -> list[str]:
    """Return the stages that were open as an error was raised; none if that is unknown."""
    if isinstance(error, TrainManagerError):
        return list(error.stages or ())
    notes = (str(note).partition("at stage ")[2] for note in getattr(error, "__notes__", ()))
    return next((note.split(" > ") for note in notes if note), [])


def _line_in(error: BaseException) -> str:
    """Return the innermost line of the user's that an error came through, or the innermost of all.

    An error of this library that came through none has a cure, and a line of its own code tells nothing.
    """
    entries = list(_entries(error.__traceback__))
    of_user = [entry for entry in entries if _is_of_user(entry.tb_frame.f_code.co_filename)]
    if not entries or (isinstance(error, TrainManagerError) and not of_user):
        return ""
    entry = (of_user or entries)[-1]
    code = entry.tb_frame.f_code
    return f"{shown_path(code.co_filename)}:{entry.tb_lineno} in {code.co_name}"


def _entries(found: TracebackType | None) -> Iterator[TracebackType]:
    while found is not None:
        yield found
        found = found.tb_next


def _is_of_user(path: str) -> bool:
    own, library = str(Path(__file__).parents[1]), str(Path(traceback.__file__).parent)
    return not (path.startswith((own, library)) or "site-packages" in path or path.startswith("<"))
