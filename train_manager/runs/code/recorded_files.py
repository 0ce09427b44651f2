"""The files of a code record: the facts and the content of each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.json_shape import LIST, NAME, NAMES, NUMBER, OBJECT, OBJECT_OF_NAMES, Kind, Shape, wrong_in
from train_manager.files.json_text import json_of
from train_manager.runs.code.old_payload import OldPayload
from train_manager.runs.code.outputs import WHY
from train_manager.runs.code.patch_text import Hunk, hunks_by_path
from train_manager.runs.code.store import CODE, read_stored
from train_manager.telling.errors import CheckpointError

SCHEMA: Final = "train-manager/code"
VERSION: Final = 2
MOST_BYTES: Final = 4_000_000  # larger files are not compared by lines; a text of differences may be ten times as large
# Names of files that a record may point to: in code/, or in one folder of it.
_BESIDE: Final = re.compile(rf"{CODE}/(?:[\w-]+/)?[\w-]+\.\w+")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def _is_path(value: Any) -> bool:
    return NAME.fits(value) and os.path.basename(value.rstrip("/")) not in (".", "..")


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and NAME.fits(value.get("sha256")) and NUMBER.fits(value.get("size"))


# The fields that the readers use. For a restoration, the fields marked `required` must be there.
_RECORD: Final[Shape] = {
    "reason": NAME,
    "notebook": OBJECT,
    "repositories": LIST.required,
    "repositories[]": OBJECT.required,
    "repositories[].path": Kind("a path", _is_path).required,
    "repositories[].commit": Kind(
        "a commit", lambda value: isinstance(value, str) and _COMMIT.fullmatch(value) is not None
    ),
    **dict.fromkeys((f"repositories[].{name}" for name in ("inside", "branch", "package", "diff", "payload")), NAME),
    **dict.fromkeys(("repositories[].patch", "repositories[].not_checked_out"), Kind("size and SHA-256", _is_content)),
    "repositories[].remotes": OBJECT_OF_NAMES.required,
    "repositories[].lfs": NAMES.required,
    "repositories[].state": LIST,
    "repositories[].files": LIST.required,
    "repositories[].files[]": OBJECT.required,
    **dict.fromkeys((f"repositories[].files[].{name}" for name in ("path", "how", "sha256", "mode")), NAME.required),
    "repositories[].files[].why": NAME,
    "repositories[].files[].size": NUMBER.required,
}


def read_code_record(train_dir: Path, run: str, *, is_whole: bool = False) -> dict[str, Any] | None:
    """Return the code record of a run; None if it has none.

    Args:
        train_dir: the folder of the training.
        run: its id.
        is_whole: whether all that restoring needs must be in it.

    Raises:
        CheckpointError: it is damaged, or of a newer version.
    """
    path = train_dir / CODE / f"{run}.json"
    if path.name != f"{run}.json":  # the id of the run has a slash in it, and the path leads elsewhere
        return None
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    record: Any = json_of(content, str(path))
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise CheckpointError(f"{path} is damaged: it is not a code record", name=str(path))
    if record.get("version", VERSION) not in range(1, VERSION + 1):
        what = f"{path} has version {record['version']} of a code record, and this is version {VERSION}"
        raise CheckpointError(what, name=str(path), cure="read it with a newer Train Manager")
    if (wrong := wrong_in(record, _RECORD, is_whole=is_whole)) is not None:
        raise CheckpointError(f"{path} is damaged: it has {wrong}", name=str(path))
    return record


def changed_files(repository: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the entries of the files that differ from the commit, without folders that runs write.

    >>> left_out = {"path": "runs/first/", "how": "left out", "why": "a training writes this folder"}
    >>> [*changed_files({"files": [left_out, {"path": "train.py", "how": "patch"}]})]
    [{'path': 'train.py', 'how': 'patch'}]
    """
    return (entry for entry in repository.get("files") or () if entry.get("why") != WHY)


def file_beside(train_dir: Path, name: object) -> Path | None:
    """Return a file that a record names; None if it is not there, or not in the folder of the records."""
    if not isinstance(name, str) or not _BESIDE.fullmatch(name):
        return None
    path = train_dir / name
    is_inside = path.resolve() == train_dir.resolve() / name
    return path if is_inside and path.is_file() else None


def notebook_file(train_dir: Path, record: Mapping[str, Any] | None) -> Path | None:
    """Return the file with the cells that ran; None if the run was not of a notebook."""
    return file_beside(train_dir, ((record or {}).get("notebook") or {}).get("file"))


@final
class RecordedFiles:
    """What a record holds of one repository.

    Attributes:
        entries: the entry of each file that differs from the commit, by its path.
        old: what a record of version 1 keeps.
    """

    def __init__(self, train_dir: Path, repository: Mapping[str, Any]) -> None:
        self._train_dir = train_dir
        self._diff = file_beside(train_dir, repository.get("diff"))
        self._not_checked_out = repository.get("not_checked_out")
        self.old = OldPayload(train_dir, repository)
        self.entries: dict[str, Mapping[str, Any]] = {entry["path"]: entry for entry in changed_files(repository)}

    @cached_property
    def hunks(self) -> dict[str, list[Hunk] | None]:
        """What the differences do to each file, None to a binary one; nothing if they are missing or too large."""
        # A record of version 1 has a patch in its folder; version 2 has a text of differences beside the record.
        text = self._diff.read_bytes() if self._diff else self.old.patch
        return hunks_by_path(text) if len(text) <= 10 * MOST_BYTES else {}

    @property
    def not_checked_out(self) -> bytes:
        """The names of files that a sparse checkout had left out, each with a zero after it."""
        entry, train_dir = self._not_checked_out, self._train_dir
        return (read_stored(train_dir, entry["sha256"], entry["size"]) or b"") if entry else self.old.not_checked_out

    def content(self, file: Mapping[str, Any]) -> bytes | None:
        """Return the content of a file; None if the record does not keep it, or is damaged."""
        if file["how"] == "stored":
            return read_stored(self._train_dir, file["sha256"], file["size"])
        return self.old.content(file) if file["how"] == "archive" else None
