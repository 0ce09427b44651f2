"""An error as a finding: its text, the stage at which it was raised, and the user's line in its traceback."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

from train_manager.core.stage import stage_of
from train_manager.telling.errors import TrainManagerError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import display_path

LIBRARIES: Final = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
"""The prefixes of paths that are not the user's: of this library, of Python, and of generated code."""


def finding_of(check: str, error: Exception, *, before: str = "", place: str = "") -> Finding:
    """Return an error as a finding, with its traceback among the numbers.

    Args:
        check: the check in which the error was raised.
        error: the error.
        before: the first words of the finding.
        place: the batch with which it was raised, in words.
    """
    text, cure = (error.what, error.cure) if isinstance(error, TrainManagerError) else (str(error), "")
    stage, kind = stage_of(error), type(error).__name__
    at = ", ".join([*([f"at stage {stage}"] if stage else []), *([f"with {place}"] if place else [])])
    what = f"{before}{kind}{f': {text}' if text else ''}{f' ({at})' if at else ''}"
    numbers = {"traceback": "".join(traceback.format_exception(error))}
    return Finding(check, "error", what, _line_in(error), cure, numbers)


def _line_in(error: BaseException) -> str:
    """Return the innermost line of the user's code in the traceback of an error; empty if there is none."""
    lines = traceback.extract_tb(error.__traceback__)
    of_user = [one for one in lines if not one.filename.startswith(LIBRARIES) and "site-packages" not in one.filename]
    # The last frame of the user: deeper ones are of libraries, where the user can change nothing.
    return "".join(f"{display_path(one.filename)}:{one.lineno} in {one.name}" for one in of_user[-1:])
