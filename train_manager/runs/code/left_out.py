"""Files that lie in a repository and are not kept: folders that runs write, what is too large, names that lead out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, final

from train_manager.reporting.values import plural
from train_manager.runs.code.git_folder import read_small

OF_A_TRAINING: Final = "a training writes this folder"
TOO_LARGE: Final = "it is larger than "
TOO_MUCH: Final = "the record would hold more than "
MOST_NAMED: Final = 5
# Files and folders of a train_dir, for train_dirs in which the code itself lies.
_OWN_FILES: Final = re.compile(
    r"(run-[\w-]+\.json|metrics\.sqlite[\w-]*|report\.html|\.lock)\Z"
    r"|(checkpoints/|plots/)|(code/(?:git|git-sha256|[0-9a-f]{16}(?:-\d+)?\.copy)/)"
    r"|code/[0-9a-f]{16}(?:-\d+)?\.(?:json|diff|py)\Z"
)
# What a train_dir has, besides the files of its runs.
_OF_A_TRAIN_DIR: Final = ("metrics.sqlite", "code/git", "checkpoints/step-*")


@final
@dataclass(frozen=True)
class Limits:
    """How much a code record may hold, and how long git may take."""

    file: int = 5_000_000  # bytes; a larger file is left out
    total: int = 50_000_000  # bytes that all kept files have together, in all repositories of a record
    names: int = 20_000  # new files; of more, only the files that ran are kept
    seconds: float = 10.0  # after this time a git command is ended

    def reason_against(self, size: int, kept: int) -> str | None:
        """Return why a file of a size is left out, after so many bytes of other files; None if it fits."""
        if size > self.file:
            return f"{TOO_LARGE}{_megabytes(self.file)}"
        if kept + size > self.total:
            return f"{TOO_MUCH}{_megabytes(self.total)}"
        return None


def outputs_of_trainings(root: Path, names: Iterable[str], train_dir: Path, code: Path) -> dict[str, str]:
    """Return the files that trainings have written, each with the folder or file to name.

    Args:
        root: the folder of the working tree.
        names: of files in it.
        train_dir: the folder of the training that asks.
        code: where its code is; of a train_dir that holds it, only the files are left out that runs write.
    """
    root, own, code = (Path(os.path.realpath(path)) for path in (root, train_dir, code))

    @cache
    def is_train_dir(folder: str) -> bool:
        return root / folder == own or _is_train_dir(root / folder)

    found = {}
    for name in names:
        above = [os.path.join(*name.split("/")[:count]) for count in range(1, name.count("/") + 1)]
        for folder in filter(is_train_dir, ["", *above]):
            if not code.is_relative_to(root / folder):
                found[name] = folder
                break
            if written := _OWN_FILES.match(os.path.relpath(name, folder or ".")):
                found[name] = os.path.join(folder, written[0]).rstrip("/")
    return found


def reason_against_name(path: str) -> str | None:
    """Return why a name may not be written below a folder, or None if it may.

    >>> reason_against_name("../elsewhere")
    'its name leads out of the folder'
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "its name leads out of the folder"
    # File systems of macOS and Windows take ".GIT", ".git. " and "GIT~1" for .git, whose hooks and settings git obeys.
    if any(part.casefold().rstrip(". ") in (".git", "git~1") for part in parts):
        return "its name leads into a git folder"
    return None


def too_large_in_words(left_out: Iterable[Mapping[str, Any]]) -> str | None:
    """Return which files were left out for their size, the largest by name; None if there is none.

    >>> too_large_in_words([{"path": "a.bin", "size": 60_000_000, "why": "it is larger than 5 MB"}])
    '1 file of 60 MB was left out, as too large: a.bin (60 MB)'
    """
    left = [file for file in left_out if file["why"].startswith((TOO_LARGE, TOO_MUCH))]
    if not left:
        return None
    left.sort(key=lambda file: (-file["size"], file["path"]))
    names = [f"{file['path']} ({_megabytes(file['size'])})" for file in left[:MOST_NAMED]]
    more = f" and {len(left) - MOST_NAMED:,} more" if len(left) > MOST_NAMED else ""
    count = f"{plural(len(left), 'file')} of {_megabytes(sum(file['size'] for file in left))}"
    return f"{count} {'was' if len(left) == 1 else 'were'} left out, as too large: {', '.join(names)}{more}"


def _is_train_dir(folder: Path) -> bool:
    if any(any(folder.glob(pattern)) for pattern in _OF_A_TRAIN_DIR):
        return True
    return any(b'"train-manager/run"' in read_small(path, 1000) for path in folder.glob("run-*.json"))


def _megabytes(size: int) -> str:
    return f"{float(f'{size / 1_000_000:.3g}'):g} MB"
