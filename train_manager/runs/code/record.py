"""The form of a code record, ``code/<run>.json``: its parts as they are made, and as they are read.

A record may come from somebody else: what readers take from it is checked, above all paths and names of objects.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from train_manager.files.atomic import replace_file
from train_manager.runs.code.facts import Repository
from train_manager.runs.code.git_folder import is_linked
from train_manager.runs.code.left_out import OF_A_TRAINING
from train_manager.runs.code.notebook import as_script
from train_manager.runs.code.store import CODE
from train_manager.telling.errors import CheckpointError

SCHEMA: Final = "train-manager/code"
VERSION: Final = 3


def new_entry(path: Path, inside: str | None = None, repository: Repository | None = None) -> dict[str, Any]:
    """Return the entry of a repository, or of a folder that is not in one; its files are added later."""
    return {
        "path": os.fspath(path),
        "inside": inside,
        "commit": repository.commit if repository else None,
        "branch": repository.branch if repository else None,
        "remotes": repository.remotes if repository else {},
        "state": repository.state if repository else [],
        "shallow": repository.is_shallow if repository else False,
        "pushed": repository.is_pushed() if repository else None,
        "format": repository.object_format if repository else "sha1",
        "tree": None,
        "files": [],
        "left_out": [],
        "submodules": {},  # the commit of each in the commit of this repository, by its path
    }


def note(entry: dict[str, Any], path: str, status: str, mode: str, blob: str, size: int) -> None:
    """Note in an entry that a file was added, modified or deleted."""
    entry["files"].append({"path": path, "status": status, "mode": mode, "blob": blob, "size": size})


def leave_out(entry: dict[str, Any], path: str, why: str) -> None:
    """Note in an entry what is not kept, and why; a file with its size and its time of change."""
    size, time = 0, 0
    if not path.endswith("/"):
        try:
            found = os.lstat(os.path.join(entry["path"], path))
        except OSError:  # the program has deleted it meanwhile
            return
        size, time = found.st_size, found.st_mtime_ns
    entry["left_out"].append({"path": path, "why": why, "size": size, "time": time})


def changed_files(repository: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the entries of the files that differ from the commit, without folders that runs write.

    >>> left_out = [{"path": "runs/first/", "why": "a training writes this folder"}]
    >>> [*changed_files({"files": [{"path": "train.py", "status": "modified"}], "left_out": left_out})]
    [{'path': 'train.py', 'status': 'modified'}]
    """
    found = [*(repository.get("files") or ()), *(repository.get("left_out") or ())]
    return (entry for entry in found if entry.get("why") != OF_A_TRAINING)


def name_of(run: str, number: int) -> str:
    """Return the name of what belongs to an entry of a record: its number makes it unique."""
    return f"{run}-{number}" if number else run


def copy_of(train_dir: Path, name: str) -> Path:
    """Return the folder with a plain copy of the files that ran, where git could not store them."""
    return train_dir / CODE / f"{name}.copy"


def notebook_file(train_dir: Path, record: Mapping[str, Any] | None) -> Path | None:
    """Return the file with the cells that ran; None if the run was not of a notebook, or if a link is in its place."""
    name = os.path.basename(str(((record or {}).get("notebook") or {}).get("file")))
    is_there = (train_dir / CODE / name).is_file() and not is_linked(train_dir, f"{CODE}/{name}")
    return train_dir / CODE / name if is_there else None


def write_code_record(record: dict[str, Any], train_dir: Path, cells: Sequence[str]) -> None:
    """Write a record, and beside it the cells of a notebook that ran."""
    path = train_dir / CODE / f"{record['run']}.json"
    if cells:
        replace_file(path.with_suffix(".py"), as_script(cells).encode("utf-8", "surrogateescape"))
        record["notebook"] = {"cells": len(cells), "file": f"{CODE}/{record['run']}.py"}
    replace_file(path, json.dumps(record, indent=1).encode())


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
    if (key := _unusable(record, _RECORD)) is not None:
        raise CheckpointError(f"{path} is damaged: it has no usable {key!r}", name=str(path))
    return record


# What readers take from a record: a type, a pattern of a text, or the shape of each item of a list. A text that may be
# null has an empty alternative. Names of objects go into command lines of git.
_OBJECT: Final = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_FILE: Final = {"path": ".+", "status": "added|modified|deleted", "mode": r"\d{6}", "blob": _OBJECT, "size": int}
_ENTRY: Final = {
    "path": r"(?!(?:.*/)?\.{1,2}/*\Z).+",
    "inside": "|.+",
    "commit": f"|{_OBJECT}",
    "tree": f"|{_OBJECT}",
    "branch": "|.+",
    "remotes": dict,
    "format": "sha(1|256)",
    "files": [_FILE],
    "left_out": [{"path": ".+", "why": ".*", "size": int, "time": int}],
}
_RECORD: Final = {"repositories": [_ENTRY]}


def _unusable(part: Any, shape: Mapping[str, Any]) -> str | None:
    """Return the first key of a part whose value is not there, or not what belongs there; None if all are."""
    for key, expected in shape.items():
        value = part.get(key) if isinstance(part, dict) else None
        if isinstance(expected, list):
            if not isinstance(value, list):
                return key
            if inner := next(filter(None, (_unusable(item, expected[0]) for item in value)), None):
                return inner
        elif isinstance(expected, str):
            text: Any = "" if value is None and expected.startswith("|") else value
            if not _is_name(text) or not re.fullmatch(expected, text, re.DOTALL):
                return key
        elif not isinstance(value, expected) or (expected is dict and not all(map(_is_name, value.values()))):
            return key
    return None


def _is_name(value: Any) -> bool:
    """Return whether a value may be the name of a file or an argument: without NUL, and in the encoding of names."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False
