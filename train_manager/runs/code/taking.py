"""Record the code of a run: the commit, and the files that differ from it."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.atomic import replace_file
from train_manager.files.json_text import json_of
from train_manager.runs.code.changes import Changes, committed_files, find_changes
from train_manager.runs.code.clean_room import CleanRoom, clean_room
from train_manager.runs.code.collecting import Budget, Collection, Limits
from train_manager.runs.code.conversions import find_converted
from train_manager.runs.code.diff_text import text_of_differences
from train_manager.runs.code.git_commands import GitTrouble
from train_manager.runs.code.notebook_cells import as_script
from train_manager.runs.code.outputs import TrainDirs
from train_manager.runs.code.recorded_files import SCHEMA, VERSION
from train_manager.runs.code.repository import Repository, find_repository, is_on_a_remote
from train_manager.runs.code.store import CODE, Store, remove_leftovers
from train_manager.runs.code.submodules import NOT_CHECKED_OUT, inner_repositories

USUAL: Final = Limits()


def take_code_record(
    folder: Path,
    train_dir: Path,
    run_id: str,
    *,
    limits: Limits = USUAL,
    others: Mapping[str, Path] = {},
    cells: Sequence[str] = (),
    loaded: Sequence[Path] = (),
    tell: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Write the code record of a run into ``code/<run_id>.json``, and return it.

    Nothing in the repository is touched, and no program that its settings name is run. What cannot be recorded is
    said in the record: it does not fail the training.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.py").write_text("print('hello')")
    >>> record = take_code_record(folder, folder / "runs", "0123456789abcdef", loaded=[folder / "train.py"])
    >>> [file["path"] for file in record["repositories"][0]["files"]]
    ['train.py']

    Args:
        folder: where the code is; the repository that holds it is recorded.
        train_dir: the folder of the training.
        run_id: what the run is called.
        limits: how much may be kept.
        others: further folders whose repositories are recorded, by the names of their packages.
        cells: the cells of a notebook that ran, in their order.
        loaded: files that ran; they are kept where the repository does not have them.
        tell: gets the warning that no remote has the commit.
    """
    started = time.perf_counter()
    taken = datetime.datetime.now(datetime.UTC).isoformat()
    remove_leftovers(train_dir)
    taking = _Taking(folder.absolute(), train_dir.absolute(), run_id, loaded, Budget(limits), tell, Store(train_dir))
    taking.take(others)
    record = {
        "schema": SCHEMA,
        "version": VERSION,
        "run": run_id,
        "taken": taken,
        "seconds": 0.0,  # set below, when all is done; it stands here for its place in the file
        "reason": "; ".join(taking.reasons) or None,
        "repositories": taking.entries,
        "notebook": notebook_of(train_dir, run_id, cells),
    }
    record["seconds"] = round(time.perf_counter() - started, 3)
    replace_file(train_dir / CODE / f"{run_id}.json", json.dumps(record, indent=1).encode())
    return record


@final
@dataclass
class _Taking:
    folder: Path  # holds the code
    train_dir: Path
    run_id: str
    loaded: Sequence[Path]  # the files that ran
    budget: Budget  # shared by all repositories
    tell: Callable[[str], object]
    store: Store
    entries: list[dict[str, Any]] = field(default_factory=list)  # of the record, one for each repository
    reasons: list[str] = field(default_factory=list)  # why something is not recorded

    def take(self, others: Mapping[str, Path]) -> None:
        """Record the repository of the code, and the repositories of other packages."""
        try:
            self._repository(find_repository(self.folder, self._seconds), None, self.loaded)
        except (GitTrouble, OSError) as trouble:
            # Without a repository the script and its own modules are kept, as files of a folder without a commit.
            self.reasons.append(_describe(trouble))
            entry = _entry(os.fspath(self.folder), None, None)
            self._keep_what_ran(entry, self.folder, self.loaded)
            if entry["files"]:
                self.entries.append(entry)
        for name, path in others.items():
            try:
                found = find_repository(path.absolute(), self._seconds)
                if os.path.realpath(found.root) not in {os.path.realpath(entry["path"]) for entry in self.entries}:
                    self._repository(found, name, package=name)
            except (GitTrouble, OSError) as trouble:
                self.reasons.append(f"{name}: {_describe(trouble)}")

    @property
    def _seconds(self) -> float:
        return self.budget.limits.seconds

    def _repository(
        self, repository: Repository, inside: str | None, loaded: Sequence[Path] = (), *, package: str | None = None
    ) -> bool:
        """Record a repository and the repositories inside of it; return whether it differs from its commit."""
        entry = _entry(os.fspath(repository.root), inside, repository)
        if package is not None:
            entry["package"] = package
        # Before its submodules, which append their entries after it: the first entry is the repository of the code.
        self.entries.append(entry)
        entry["pushed"] = is_on_a_remote(repository, self._seconds)
        if entry["pushed"] is False:
            what = f"no remote of {repository.root} has its commit {repository.commit:.10}"
            self.tell(f"{what}, without which nobody else can run this again: push it")
        try:
            changes = self._fill(entry, repository, loaded)
        except (GitTrouble, OSError) as trouble:  # the entry still has the commit, and gets the files that ran
            self.reasons.append(f"{inside}: {_describe(trouble)}" if inside else _describe(trouble))
            self._keep_what_ran(entry, repository.root, loaded)
            return False
        entry["submodules"] = self._inner(repository, changes, inside if package is None else None, package)
        return bool(entry["files"])

    def _fill(self, entry: dict[str, Any], repository: Repository, loaded: Sequence[Path]) -> Changes:
        collection = self._collection(
            repository.root, repository.object_format, keeps_modes=repository.flag("core.filemode", True)
        )
        with clean_room(repository, seconds=self._seconds) as room:
            changes = find_changes(room)
            find_converted(room, changes)
            ran = frozenset(_files_that_ran(room, loaded, changes))
            new = ran.union(_beside(self.folder, collection, changes.new))
            collection.collect(changes, collection.without_outputs(sorted(new, key=os.fsencode), ran))
            text = text_of_differences(room, collection.differing)
        self.reasons += changes.warnings
        entry.update(files=collection.files, lfs=collection.lfs)
        if text:
            # The number of this entry in the record makes the name of its file unique.
            number = len(self.entries) - 1
            entry["diff"] = f"{CODE}/{self.run_id}{f'-{number}' if number else ''}.diff"
            replace_file(self.train_dir / entry["diff"], text)
        if changes.not_checked_out:
            names = b"".join(os.fsencode(name) + b"\0" for name in changes.not_checked_out)
            entry["not_checked_out"] = {"sha256": self.store.keep(names), "size": len(names)}
        return changes

    def _collection(self, root: Path, object_format: str = "sha1", *, keeps_modes: bool = True) -> Collection:
        outputs = TrainDirs(root, self.train_dir, self.folder)
        return Collection(os.fspath(root), object_format, self.budget, outputs, self.store, keeps_modes)

    def _inner(
        self, outer: Repository, changes: Changes, inside: str | None, package: str | None
    ) -> list[dict[str, Any]]:
        submodules = []
        for inner, repository in inner_repositories(outer, changes, self._seconds):
            if repository is None:
                self.reasons += [f"{inner['path']}: {inner['state']}"] if inner["state"] != NOT_CHECKED_OUT else []
            elif self._repository(
                repository, f"{inside}/{inner['path']}" if inside else inner["path"], package=package
            ):
                inner["state"] += ", changed" if inner["state"] else "changed"
            submodules.append({**inner, "state": inner["state"] or "clean"})
        return submodules

    def _keep_what_ran(self, entry: dict[str, Any], root: Path, loaded: Sequence[Path]) -> None:
        """Keep only the files that ran, because git cannot list the other files of the code."""
        collection = self._collection(root)
        with contextlib.suppress(OSError):
            collection.collect(Changes(), [name for path in loaded if (name := _below(root, path)) is not None])
            entry["files"] = collection.files


def _entry(path: str, inside: str | None, repository: Repository | None) -> dict[str, Any]:
    return {
        "path": path,
        "inside": inside,
        "commit": repository.commit if repository else None,
        "branch": repository.branch if repository else None,
        "remotes": repository.remotes if repository else {},
        "state": repository.state if repository else [],
        "shallow": repository.is_shallow if repository else False,
        "pushed": None,
        "files": [],
        "lfs": [],
        "diff": None,
        "not_checked_out": None,
        "submodules": [],
    }


def _beside(code: Path, collection: Collection, names: list[str]) -> list[str]:
    """Return the new files to keep: in a repository of a home folder, only the new files beside the code."""
    root, home = (Path(os.path.realpath(path)) for path in (collection.root, os.path.expanduser("~")))
    if not home.is_relative_to(root):
        return names
    start = f"{_below(root, code) or '.'}/"
    kept = [name for name in names if name.startswith(start)]
    if len(kept) < len(names):
        collection.leave_out("./", "new", "of the new files in a home folder only those beside the code are kept")
    return kept


def _files_that_ran(room: CleanRoom, loaded: Sequence[Path], changes: Changes) -> set[str]:
    """Return the files that ran, also if git ignores them."""
    names = {name for path in loaded if (name := _below(room.repository.root, path)) is not None}
    # A file of a submodule or a nested repository belongs to the record of that repository.
    inner = tuple(f"{path}/" for path in [*changes.submodules, *changes.nested])
    names = {name for name in names if not name.startswith(inner)}
    return names - {*committed_files(room)} if names else names


def _below(root: Path, path: Path) -> str | None:
    """Return the name of a file below a folder, also if a link leads to the folder."""
    with contextlib.suppress(ValueError):
        return Path(os.path.realpath(path)).relative_to(os.path.realpath(root)).as_posix()
    return None


def notebook_of(train_dir: Path, run_id: str, cells: Sequence[str]) -> dict[str, Any] | None:
    """Write the cells of a notebook beside the record, and return their entry for the record."""
    if not cells:
        return None
    name = f"{CODE}/{run_id}.py"
    replace_file(train_dir / name, as_script(cells).encode("utf-8", "surrogateescape"))
    return {"cells": len(cells), "file": name}


def renew_cells(train_dir: Path, run_id: str, cells: Sequence[str]) -> None:
    """Replace the cells of a record, because the run continues in a later cell with new code."""
    path = train_dir / CODE / f"{run_id}.json"
    record = json_of(path.read_bytes(), path.name)
    record["notebook"] = notebook_of(train_dir, run_id, cells)
    replace_file(path, json.dumps(record, indent=1).encode())


def _describe(trouble: Exception) -> str:
    return trouble.what if isinstance(trouble, GitTrouble) else f"{type(trouble).__name__}: {trouble}"
