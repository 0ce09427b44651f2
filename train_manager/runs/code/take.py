"""Record the code of a run: the commit, and a tree of the files as they are."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.atomic import replace_file
from train_manager.files.secrets import reason_to_leave_out
from train_manager.runs.code.facts import Repository, find_repository, is_on_a_remote
from train_manager.runs.code.git import GitTrouble
from train_manager.runs.code.left_out import OF_A_TRAINING, Limits, outputs_of_trainings
from train_manager.runs.code.notebook import as_script
from train_manager.runs.code.record import SCHEMA, VERSION, copy_of
from train_manager.runs.code.snapshot import Changed, LeftOut, Snapshot, blob_of, read_now, snapshot
from train_manager.runs.code.store import CODE, store_of

USUAL: Final = Limits()
NOT_CHECKED_OUT: Final = "not checked out"


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
    taking = _Taking(folder.absolute(), train_dir.absolute(), run_id, loaded, limits, tell)
    taking.take(others)
    record = {
        "schema": SCHEMA,
        "version": VERSION,
        "run": run_id,
        "taken": taken,
        "seconds": round(time.perf_counter() - started, 3),
        "reason": "; ".join(taking.reasons) or None,
        "repositories": taking.entries,
        "notebook": notebook_of(train_dir, run_id, cells),
    }
    replace_file(train_dir / CODE / f"{run_id}.json", json.dumps(record, indent=1).encode())
    return record


@final
@dataclass
class _Taking:
    folder: Path  # holds the code
    train_dir: Path
    run_id: str
    loaded: Sequence[Path]  # the files that ran
    limits: Limits
    tell: Callable[[str], object]
    kept: int = 0  # bytes so far, of all repositories
    entries: list[dict[str, Any]] = field(default_factory=list)  # of the record, one for each repository
    reasons: list[str] = field(default_factory=list)  # why something is not recorded

    def take(self, others: Mapping[str, Path]) -> None:
        """Record the repository of the code, and the repositories of other packages."""
        try:
            self._repository(find_repository(self.folder, self.limits.seconds), None, self.loaded)
        except (GitTrouble, OSError) as trouble:
            self.reasons.append(_describe(trouble))
            self._files_that_ran()
        for name, path in others.items():
            try:
                found = find_repository(path.absolute(), self.limits.seconds)
                if os.path.realpath(found.root) not in {os.path.realpath(entry["path"]) for entry in self.entries}:
                    self._repository(found, name, package=name)
            except (GitTrouble, OSError) as trouble:
                self.reasons.append(f"{name}: {_describe(trouble)}")

    @property
    def _name(self) -> str:
        """The name of the files of the last entry: its number makes it unique."""
        number = len(self.entries) - 1
        return f"{self.run_id}-{number}" if number else self.run_id

    def _repository(
        self, repository: Repository, inside: str | None, loaded: Sequence[Path] = (), *, package: str | None = None
    ) -> bool:
        """Record a repository and the repositories inside of it; return whether it differs from its commit."""
        entry = _entry(os.fspath(repository.root), inside, repository)
        if package is not None:
            entry["package"] = package
        # Before its submodules, which append their entries after it: the first entry is the repository of the code.
        self.entries.append(entry)
        entry["pushed"] = is_on_a_remote(repository, self.limits.seconds)
        if entry["pushed"] is False:
            what = f"no remote of {repository.root} has its commit {repository.commit:.10}"
            self.tell(f"{what}, without which nobody else can run this again: push it")
        changed = Changed(kept=self.kept)
        try:
            with snapshot(
                repository.root, store_of(self.train_dir, repository.object_format), repository, self.limits, changed
            ) as files:
                files.look()
                files.keep([*files.names, *self._new_files(files, changed, loaded)])
                entry["tree"] = files.write_tree(self._name)
                with contextlib.suppress(GitTrouble):  # the tree is there, and nothing is restored from the text
                    self._write_differences(entry, files)
        except (GitTrouble, OSError) as trouble:  # the entry still has the commit, and gets the files that ran
            self.reasons.append(f"{inside}: {_describe(trouble)}" if inside else _describe(trouble))
            self._copy(entry, repository.root, loaded)
            return False
        self._take_over(entry, changed)
        self.reasons += files.complaints
        entry["submodules"] = self._inner(repository, files, inside if package is None else None, package)
        return bool(changed.files or changed.left_out)

    def _new_files(self, files: Snapshot, changed: Changed, loaded: Sequence[Path]) -> Iterator[str]:
        """Yield the new files to keep: the files that ran, also if git ignores them, and others within the limits."""
        # A file of a submodule or a nested repository belongs to the record of that repository.
        inner = tuple(f"{path}/" for path in [*files.submodules, *files.nested])
        ran = {name for path in loaded if (name := _below(files.root, path)) is not None and not name.startswith(inner)}
        outputs = outputs_of_trainings(files.root, {*files.new, *ran}, self.train_dir, self.folder)
        for folder in sorted({*outputs.values()}):
            changed.leave_out(f"{folder}/", OF_A_TRAINING)
        ran -= outputs.keys()
        yield from ran
        new = [name for name in files.new if name not in outputs and name not in ran]
        root, home = (Path(os.path.realpath(path)) for path in (files.root, os.path.expanduser("~")))
        if home.is_relative_to(root):
            beside = f"{_below(root, self.folder) or '.'}/"
            if any(not name.startswith(beside) for name in new):
                changed.leave_out("./", "of the new files in a home folder only those beside the code are kept")
            new = [name for name in new if name.startswith(beside)]
        if len(new) > self.limits.names:
            changed.leave_out("./", f"{len(new)} new files are too many to keep")
            return
        yield from new

    def _write_differences(self, entry: dict[str, Any], files: Snapshot) -> None:
        if text := files.differences():
            entry["diff"] = f"{CODE}/{self._name}.diff"
            replace_file(self.train_dir / entry["diff"], text)

    def _inner(
        self, outer: Repository, files: Snapshot, inside: str | None, package: str | None
    ) -> list[dict[str, Any]]:
        """Record the repositories inside of another, and return the entries that tell their states."""
        submodules = []
        # A nested repository is not known to the outer commit.
        for path, recorded in sorted({**files.submodules, **dict.fromkeys(files.nested)}.items()):
            found = _repository_in(outer, path, self.limits.seconds)
            states = [found] if isinstance(found, str) else [] if recorded else ["not a submodule"]
            commit = None
            if not isinstance(found, str):
                commit = found.commit
                states += ["other commit"] if recorded not in (None, commit) else []
                if self._repository(found, f"{inside}/{path}" if inside else path, package=package):
                    states.append("changed")
            elif found != NOT_CHECKED_OUT:
                self.reasons.append(f"{path}: {found}")
            submodules.append(
                {"path": path, "commit": commit, "recorded_commit": recorded, "state": ", ".join(states) or "clean"}
            )
        return submodules

    def _files_that_ran(self) -> None:
        """Keep the script and its own modules, where there is no repository."""
        entry, changed = _entry(os.fspath(self.folder), None, None), Changed(kept=self.kept)
        names = [name for path in self.loaded if (name := _below(self.folder, path)) is not None]
        if not names:
            return
        self.entries.append(entry)
        try:
            with snapshot(self.folder, store_of(self.train_dir), None, self.limits, changed) as files:
                files.keep(names)
                entry["tree"] = files.write_tree(self._name)
            self._take_over(entry, changed)
        except (GitTrouble, OSError):  # without git a plain copy is kept
            self._copy(entry, self.folder, self.loaded)

    def _copy(self, entry: dict[str, Any], root: Path, loaded: Sequence[Path]) -> None:
        """Copy the files that ran, because git cannot store them."""
        changed = Changed(kept=self.kept)
        for name in filter(None, (_below(root, path) for path in loaded)):
            with contextlib.suppress(OSError):
                try:
                    mode, content = read_now(os.path.realpath(root / name), self.limits, changed.kept)
                    if why := reason_to_leave_out(name, content):
                        raise LeftOut(why)
                except LeftOut as reason:
                    changed.leave_out(name, str(reason))
                    continue
                replace_file(copy_of(self.train_dir, self._name) / name, content)
                changed.kept += len(content)
                changed.files.append(
                    {"path": name, "status": "added", "mode": mode, "blob": blob_of(content), "size": len(content)}
                )
        self._take_over(entry, changed)

    def _take_over(self, entry: dict[str, Any], changed: Changed) -> None:
        entry.update(files=changed.files, left_out=changed.left_out)
        self.kept = changed.kept


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
        "format": repository.object_format if repository else "sha1",
        "tree": None,
        "files": [],
        "left_out": [],
        "diff": None,
        "submodules": [],
    }


def _repository_in(outer: Repository, path: str, seconds: float) -> Repository | str:
    """Return the repository in a folder, or why it cannot be recorded."""
    folder = outer.root / path
    # In a folder without a .git of its own, git would find the outer repository.
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return NOT_CHECKED_OUT
    try:
        found = find_repository(folder, seconds)
    except GitTrouble as trouble:
        return trouble.what
    if not os.path.samefile(found.root, folder):
        return "its files are elsewhere"
    return found if found.common_folder != outer.common_folder else "another working tree of this repository"


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
    record = json.loads(path.read_bytes())
    record["notebook"] = notebook_of(train_dir, run_id, cells)
    replace_file(path, json.dumps(record, indent=1).encode())


def _describe(trouble: Exception) -> str:
    return trouble.what if isinstance(trouble, GitTrouble) else f"{type(trouble).__name__}: {trouble}"
