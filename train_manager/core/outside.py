"""Stages and fixtures of code outside of a class, as ``with worker.staged("report"):``, which it does not show."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Final

from train_manager.core.methods import code_in

INSTALLED: Final = (os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(__file__)))
"""The folders of the standard library and of this one; their files are many, and name nothing of users."""

STARTS: Final = ("@", "def", "async", "class")
DEFINITION: Final = re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)


def is_written_in(cls: type, code: CodeType) -> bool:
    """Return whether code is that of a method of a class, or stands inside of one."""
    return any(code is inner for base in cls.__mro__ for found in vars(base).values() for inner in code_in(found))


def is_as_imported(cls: type) -> bool:
    """Return whether the methods of a class still stand where they stood: a file may have been edited meanwhile."""
    codes = [code for base in cls.__mro__ for found in vars(base).values() for code in code_in(found)]
    return all(map(_is_in_place, codes))


def _is_in_place(code: CodeType) -> bool:
    lines = linecache.getlines(code.co_filename)
    if not (lines and code.co_name.isidentifier()):  # made at run time, or a lambda
        return True
    text = "".join(lines[code.co_firstlineno - 1 :])
    definition = DEFINITION.search(text)
    return text.lstrip().startswith(STARTS) and definition is not None and definition[1] == code.co_name


def is_written_elsewhere(name: str) -> bool:
    """Return whether a file of the program opens such a stage, or defines such a fixture, on an object not ``self``."""
    quoted = rf"\s*['\"]{re.escape(name)}['\"]"
    fixture = rf"fixtures(?:\[{quoted}\s*\]\s*=(?!=)|\.(?:define|setdefault)\({quoted})"
    writes = re.compile(rf"(?<!\bself)\.(?:staged\({quoted}|{fixture})")
    return any(writes.search("".join(linecache.getlines(file))) for file in _files_of_users())


def _files_of_users() -> Iterator[str]:
    """Yield the files of the modules that are imported, and the cells of a notebook."""
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    for file in {*modules, *linecache.cache}:
        if isinstance(file, str) and not file.startswith(INSTALLED) and "site-packages" not in file:
            yield file
