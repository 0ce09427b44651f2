"""The paths of a repository as they are in a copy of it: in arguments of a program, and in its search path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

BETWEEN: Final = re.compile(r"([=,:])")  # paths in an argument, as in --config=/home/me/project/a.yaml


@final
@dataclass(frozen=True)
class Moved:
    """A folder that lies elsewhere now.

    >>> moved = Moved(Path("/home/me/project"), Path("/tmp/copy"))
    >>> moved.text("--data=/home/me/project/digits.csv"), moved.text("/home/me/projects")
    ('--data=/tmp/copy/digits.csv', '/home/me/projects')

    Attributes:
        old: the folder as it was recorded.
        new: its copy.
    """

    old: Path
    new: Path

    def text(self, text: str) -> str:
        """Return a text with its absolute paths below the old folder as they are below the new one.

        Paths elsewhere, and of a Python environment in the folder, stay as they are.
        """
        return "".join(map(self._part, BETWEEN.split(text)))

    def path(self, path: Path) -> Path:
        """Return a path as it is in the copy."""
        return Path(self._part(str(path)))

    def search_path(self, entries: Iterable[str]) -> list[str]:
        """Return the folders of the copy that take the place of entries in the search path, in their order."""
        moved = ((entry, self.text(entry)) for entry in entries)
        return list(dict.fromkeys(new for old, new in moved if new != old and os.path.isdir(new)))

    def _part(self, text: str) -> str:
        if not os.path.isabs(text):
            return text
        # The path as written, and as it is behind links: the recorded folder may be either.
        for path in (Path(os.path.normpath(text)), Path(os.path.realpath(text))):
            if path.is_relative_to(self.old) and not self._is_of_environment(path):
                return str(self.new / path.relative_to(self.old))
        return text

    def _is_of_environment(self, path: Path) -> bool:
        # A virtual environment is the machine's and not the repository's: the copy has none.
        inside = [one for one in (path, *path.parents) if one != self.old and one.is_relative_to(self.old)]
        return any((folder / "pyvenv.cfg").exists() for folder in inside)
