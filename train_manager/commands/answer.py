"""What a command gives back, to people and to programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

from train_manager.telling.errors import TrainManagerError


class Answer(NamedTuple):
    """The exit code of a command, and what ``--json`` prints.

    Attributes:
        code: the exit code.
        data: what the command has found; its keys do not depend on what that is.
    """

    code: int
    data: Mapping[str, Any]


def error_data(error: BaseException, message: str = "") -> dict[str, Any]:
    """Return what ``--json`` prints of an error: its class as the code, its text, what it is about, and the cure."""
    name, cure = (error.name, error.cure) if isinstance(error, TrainManagerError) else ("", "")
    return {"error": {"code": type(error).__name__, "message": message or str(error), "name": name, "cure": cure}}


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Send to the standard error what is printed meanwhile, also by C code and by programs that are started."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
