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
    >>> moved.argument("--data=/home/me/project/digits.csv"), moved.argument("/home/me/projects")
    ('--data=/tmp/copy/digits.csv', '/home/me/projects')

    Attributes:
        old: the folder as it was recorded.
        new: its copy.
    """

    old: Path
    new: Path

    def path(self, path: Path) -> Path:
        """Return a path as it is in the copy; a path elsewhere, or of a Python environment, stays as it is."""
        inside = self._inside(path)
        return path if inside is None or _is_of_environment(self.old, inside) else self.new / inside

    def argument(self, text: str) -> str:
        """Return an argument with the paths in it moved; a relative path follows the working folder."""
        # The separators are kept by the split, and change nothing: they are relative paths.
        return "".join(map(self._text, BETWEEN.split(text)))

    def _text(self, text: str) -> str:
        path = Path(text)
        return text if not path.is_absolute() or (moved := self.path(path)) == path else str(moved)

    def search_path(self, entries: Iterable[str]) -> list[str]:
        """Return the folders of the copy that take the place of entries in the search path, in their order."""
        moved = ((Path(entry), self.path(Path(entry))) for entry in entries if os.path.isabs(entry))
        return list(dict.fromkeys(str(new) for old, new in moved if new != old and new.is_dir()))

    def _inside(self, path: Path) -> Path | None:
        # The path as written, and as it is behind links: the recorded folder may be either.
        for one in (Path(os.path.normpath(path)), Path(os.path.realpath(path))):
            if one.is_relative_to(self.old):
                return one.relative_to(self.old)
        return None


def _is_of_environment(root: Path, inside: Path) -> bool:
    """Return whether a path lies in a virtual environment, which is the machine's and not the repository's."""
    return any((root / folder / "pyvenv.cfg").exists() for folder in [inside, *inside.parents] if folder != Path())
