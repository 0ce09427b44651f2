"""The code record of a run, read: ``code/<run>.json``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from train_manager.runs.code.git_folder import is_linked
from train_manager.runs.code.left_out import OF_A_TRAINING
from train_manager.runs.code.store import CODE
from train_manager.telling.errors import CheckpointError

SCHEMA: Final = "train-manager/code"
VERSION: Final = 3
# What readers take from an entry: a type, or a pattern of a text. Names of objects go into command lines of git.
_OBJECT: Final = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_PATH: Final = r"(?!(?:.*/)?\.{1,2}/*\Z).+"
_LISTS: Final = {"files": list, "left_out": list, "remotes": dict}
_ENTRY: Final = {
    "path": _PATH,
    "inside": ".+",
    "commit": _OBJECT,
    "tree": _OBJECT,
    "branch": ".+",
    **_LISTS,
    "format": "sha(1|256)",
}
_NULL: Final = ("inside", "commit", "tree", "branch")
_FILE: Final = {"path": ".+", "status": "added|modified|deleted", "mode": r"\d{6}", "blob": _OBJECT, "size": int}
_LEFT_OUT: Final = {"path": ".+", "why": ".*", "size": int, "time": int}


def read_code_record(train_dir: Path, run: str) -> dict[str, Any] | None:
    """Return the code record of a run; None if it has none.

    Raises:
        CheckpointError: it is damaged, or of another version.
    """
    path = train_dir / CODE / f"{run}.json"
    if path.name != f"{run}.json":  # the id of the run has a slash in it, and the path leads elsewhere
        return None
    try:
        record: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error!s:.200}", name=str(path)) from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise CheckpointError(f"{path} is damaged: it is not a code record", name=str(path))
    version = record.get("version")
    if version != VERSION:
        what = f"{path} has version {version!r:.20} of a code record, and this is version {VERSION}"
        is_newer = isinstance(version, int) and version > VERSION
        cure = f"read it with {'a newer Train Manager' if is_newer else 'the Train Manager that has written it'}"
        raise CheckpointError(what, name=str(path), cure=cure)
    try:
        _require(record, {"repositories": list})
        for entry in record["repositories"]:
            _require(entry, _ENTRY)
            for file in entry["files"]:
                _require(file, _FILE)
            for file in entry["left_out"]:
                _require(file, _LEFT_OUT)
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}", name=str(path)) from None
    return record


def _require(part: Any, shape: Mapping[str, object]) -> None:
    """Require the values that readers take from a part of a record.

    Raises:
        ValueError: one is not there, or not what belongs there.
    """
    for key, expected in shape.items():
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(expected, type):
            fits = isinstance(value, expected) and all(map(_is_name, value.values() if isinstance(value, dict) else ()))
        elif value is None:
            fits = key in _NULL
        else:
            fits = _is_name(value) and re.fullmatch(str(expected), value, re.DOTALL) is not None
        if not fits:
            raise ValueError(f"it has no usable {key!r}")


def _is_name(value: Any) -> bool:
    """Return whether a value may be the name of a file or an argument: without NUL, and in the encoding of names."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def changed_files(repository: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the entries of the files that differ from the commit, without folders that runs write.

    >>> left_out = [{"path": "runs/first/", "why": "a training writes this folder"}]
    >>> [*changed_files({"files": [{"path": "train.py", "status": "modified"}], "left_out": left_out})]
    [{'path': 'train.py', 'status': 'modified'}]
    """
    found = [*(repository.get("files") or ()), *(repository.get("left_out") or ())]
    return (entry for entry in found if entry.get("why") != OF_A_TRAINING)


def copy_of(train_dir: Path, name: str) -> Path:
    """Return the folder with a plain copy of the files that ran, where git could not store them."""
    return train_dir / CODE / f"{name}.copy"


def notebook_file(train_dir: Path, record: Mapping[str, Any] | None) -> Path | None:
    """Return the file with the cells that ran; None if the run was not of a notebook, or if a link is in its place."""
    name = os.path.basename(str(((record or {}).get("notebook") or {}).get("file")))
    is_there = (train_dir / CODE / name).is_file() and not is_linked(train_dir, f"{CODE}/{name}")
    return train_dir / CODE / name if is_there else None
