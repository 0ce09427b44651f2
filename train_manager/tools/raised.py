"""An error as a finding: what it says, at which stage it was raised, and the user's line that it came through."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

from train_manager.runs.record.outcomes import stage_of
from train_manager.telling.errors import TrainManagerError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import shown_path

LIBRARIES: Final = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
"""What the paths of files begin with that are not the user's."""


def finding_of(check: str, error: Exception, *, before: str = "", place: str = "") -> Finding:
    """Return an error as a finding, with its traceback among the numbers.

    Args:
        check: the check that has met it.
        error: the error.
        before: what the finding begins with.
        place: with what it was raised.
    """
    told, cure = (error.what, error.cure) if isinstance(error, TrainManagerError) else (str(error), "")
    stage, kind = stage_of(error), type(error).__name__
    at = ", ".join([*([f"at stage {stage}"] if stage else []), *([f"with {place}"] if place else [])])
    what = f"{before}{kind}{f': {told}' if told else ''}{f' ({at})' if at else ''}"
    numbers = {"traceback": "".join(traceback.format_exception(error))}
    return Finding(check, "error", what, _line_in(error), cure, numbers)


def _line_in(error: BaseException) -> str:
    """Return the innermost line of the user's that an error came through; empty if it came through none."""
    lines = traceback.extract_tb(error.__traceback__)
    of_user = [one for one in lines if not one.filename.startswith(LIBRARIES) and "site-packages" not in one.filename]
    return "".join(f"{shown_path(one.filename)}:{one.lineno} in {one.name}" for one in of_user[-1:])
