"""Files that lie in a repository and are not its code: folders that runs write, and thousands of others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

WHY: Final = "a training writes this folder"
# Files and folders of a train_dir, for train_dirs in which the code itself lies.
_OWN_FILES: Final = re.compile(
    r"(run-[\w-]+\.json|metrics\.sqlite[\w-]*|report\.html|\.lock)\Z"
    r"|(checkpoints/|plots/)|(code/(?:[0-9a-f]{32}/|files/(?=\.?[0-9a-f]{64})))"
    r"|code/[0-9a-f]{16}(?:-\d+)?\.(?:json|diff|py)\Z"
)
_WRITTEN: Final = re.compile(r"step-|[0-9a-f]{16}\.json\Z")  # names that only a training writes


@final
class TrainDirs:
    """Tell which files lie in a ``train_dir``.

    Args:
        root: the folder of the working tree.
        train_dir: the folder of the training that asks.
        folder: where its code is; a train_dir that holds it is left out only as far as runs write in it.
    """

    def __init__(self, root: Path, train_dir: Path, folder: Path) -> None:
        self._root = root
        real, own, code = (os.path.realpath(path) for path in (root, train_dir, folder))
        # The folders from the code up to the root of the repository.
        above = [place for place in (code, *map(str, Path(code).parents)) if _name_in(real, place) is not None]
        names = {place: _name_in(real, place) or "" for place in above}
        # A folder that holds the code is never left out as a whole: only files with the names of `_OWN_FILES` are.
        # The train_dir that holds a folder, by the folder: filled as files are asked about, to look once per folder.
        self._known: dict[str, str | None] = {"": None, **dict.fromkeys(names.values())}
        around = [name for place, name in names.items() if place == own or _is_train_dir(Path(place))]
        self._around_the_code = [f"{name}/" if name else "" for name in around]
        if (name := _name_in(real, own)) is not None and own not in names:
            self._known[name] = name

    def holding(self, path: str) -> str | None:
        """Return the train_dir that holds a file, or None."""
        for around in self._around_the_code:
            if path.startswith(around) and (own := _OWN_FILES.match(path.removeprefix(around))):
                return (around + own[0]).rstrip("/")
        return self._of_folder(os.path.dirname(path))

    def _of_folder(self, folder: str) -> str | None:
        if folder not in self._known:
            above = self._of_folder(os.path.dirname(folder))
            self._known[folder] = above or (folder if _is_train_dir(self._root / folder) else None)
        return self._known[folder]


def too_many(names: Sequence[str], limit: int) -> Iterator[tuple[str, list[str]]]:
    """Yield folders with most of the files, and their files, until without them the rest is within a limit.

    >>> list(too_many(["train.py", "data/1", "data/2", "data/3"], 2))
    [('data', ['data/1', 'data/2', 'data/3'])]
    """
    folder, excess = "", len(names) - limit
    # Descend into the largest folder until no single folder below is large enough to leave out alone.
    while excess > 0:
        parts = sorted(_parts(folder, names).items(), key=lambda part: (-len(part[1]), part[0]))
        (largest, files), *_ = parts
        if len(files) >= excess and largest != folder:
            folder, names = largest, files  # leaving out some files of this folder is enough
        elif folder and largest != folder:
            yield folder, list(names)  # as a whole: the record would name thousands of its folders one by one
            return
        else:
            for name, files in parts:
                if excess > 0:
                    yield name, files
                    excess -= len(files)


def _parts(folder: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the files by the folder directly below that they are in; files of the folder itself by its own name."""
    start = len(folder) + 1 if folder else 0
    found: dict[str, list[str]] = {}
    for name in names:
        end = name.find("/", start)
        found.setdefault(name[:end] if end >= 0 else folder, []).append(name)
    return found


def _is_train_dir(folder: Path) -> bool:
    try:
        if (folder / "metrics.sqlite").exists():
            return True
        for path in folder.glob("run-*.json"):
            with open(path, "rb") as file:
                if b'"train-manager/run"' in file.read(1000):
                    return True
    except OSError:
        pass
    names = [*_names_in(folder / "checkpoints"), *_names_in(folder / "code")]
    return any(map(_WRITTEN.match, names))


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _name_in(root: str, place: str) -> str | None:
    """The name of a folder below another; nothing for this one itself, None if it is elsewhere."""
    if place == root:
        return ""
    return os.path.relpath(place, root) if place.startswith(root.rstrip(os.sep) + os.sep) else None
