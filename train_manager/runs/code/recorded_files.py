"""The files that a code record holds: what is told of each, and what was in it."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeGuard, final

from train_manager.files.strict_json import strict_json
from train_manager.runs.code.outputs import WHY
from train_manager.runs.code.patch_text import Hunk, hunks_by_path
from train_manager.runs.code.payload import ARCHIVE, CODE, PATCH
from train_manager.telling.errors import CheckpointError

SCHEMA: Final = "train-manager/code"
VERSION: Final = 1
MOST_BYTES: Final = 4_000_000  # of a file, or of a patch, that is looked into
_PAYLOAD: Final = re.compile(rf"{CODE}/[0-9A-Za-z_-]+")
_NOTEBOOK: Final = re.compile(rf"{_PAYLOAD.pattern}/[\w.-]+")


def read_code_record(train_dir: Path, run: str) -> dict[str, Any] | None:
    """Return the code record of a run; None if it has none.

    Raises:
        CheckpointError: it is damaged, or of a newer version.
    """
    path = train_dir / CODE / f"{run}.json"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    record = strict_json(content, str(path))
    if not _is_whole(record):
        raise CheckpointError(f"{path} is damaged: it is not a code record", name=str(path))
    if record.get("version", VERSION) != VERSION:
        what = f"{path} has version {record['version']} of a code record, and this is version {VERSION}"
        raise CheckpointError(what, name=str(path), cure="read it with a newer Train Manager")
    return record


def _is_whole(record: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a record has at each place what is read there."""
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return False
    if not isinstance(record.get("notebook") or {}, dict):
        return False
    found = record.get("repositories") or []
    return isinstance(found, list) and all(map(_is_repository, found))


def _is_repository(item: Any) -> bool:
    if not isinstance(item, dict) or not all(isinstance(item.get(name) or [], list) for name in ("files", "state")):
        return False
    texts = (item.get(name) for name in ("path", "inside", "commit", "branch", "payload"))
    return all(text is None or isinstance(text, str) for text in texts) and all(map(_is_file, item.get("files") or []))


def _is_file(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("path", "how"))


def changed_files(repository: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return what is told of the files that are not as in the commit; folders that trainings write do not count.

    >>> left_out = {"path": "runs/first/", "how": "left out", "why": "a training writes this folder"}
    >>> [*changed_files({"files": [left_out, {"path": "train.py", "how": "patch"}]})]
    [{'path': 'train.py', 'how': 'patch'}]
    """
    return (entry for entry in repository.get("files") or () if entry.get("why") != WHY)


def notebook_text(train_dir: Path, record: Mapping[str, Any]) -> bytes | None:
    """Return the cells that ran, as one text; None if the run was not of a notebook."""
    told = record.get("notebook") or {}
    name = told.get("file") or ""
    path = train_dir / name
    return path.read_bytes() if _NOTEBOOK.fullmatch(name) and path.is_file() else None


@final
class RecordedFiles:
    """What a record holds of one repository.

    Attributes:
        entries: what is told of each file that is not as in the commit, by its path.
    """

    def __init__(self, train_dir: Path, repository: Mapping[str, Any]) -> None:
        payload = repository.get("payload")
        self._payload = train_dir / payload if payload is not None and _PAYLOAD.fullmatch(payload) else None
        self.entries: dict[str, Mapping[str, Any]] = {entry["path"]: entry for entry in changed_files(repository)}

    @cached_property
    def hunks(self) -> dict[str, list[Hunk] | None]:
        """What the patch does to each file, None to a binary one; nothing if it is missing or too large."""
        path = self._payload / PATCH if self._payload else None
        if path is None or not path.is_file() or path.stat().st_size > 10 * MOST_BYTES:
            return {}
        return hunks_by_path(path.read_bytes())

    def archived(self, path: str) -> bytes | None:
        """Return a file of the archive; None if it cannot be had, or is too large to be looked into."""
        archive = self._payload / ARCHIVE if self._payload else None
        if archive is None or not archive.is_file():
            return None
        try:
            with tarfile.open(archive, "r:", encoding="utf-8", errors="surrogateescape") as tar:
                member = tar.getmember(path)
                if member.issym():
                    return member.linkname.encode(errors="surrogateescape")
                file = tar.extractfile(member) if member.size <= MOST_BYTES else None
                return None if file is None else file.read()
        except (tarfile.TarError, KeyError, OSError, EOFError):
            return None
