"""Stages that code outside of a class opens, as ``with worker.staged("report"):``; the class does not show them."""

from __future__ import annotations

import linecache
import re
import sys
from types import CodeType, FrameType

from train_manager.core.methods import code_in


def is_written_in(cls: type, code: CodeType) -> bool:
    """Return whether code is that of a method of a class, or stands inside of one."""
    return any(code is inner for base in cls.__mro__ for found in vars(base).values() for inner in code_in(found))


def is_opened_by_callers(stage: str) -> bool:
    """Return whether a file that the calls come from opens a stage of this name on an object that is not ``self``."""
    opens = re.compile(rf"(?<!\bself)\.staged\(\s*['\"]{re.escape(stage)}['\"]")
    return any(opens.search("".join(linecache.getlines(file))) for file in _files_of_callers())


def _files_of_callers() -> set[str]:
    files: set[str] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    return files
