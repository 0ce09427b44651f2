"""Record the code of a run: the commit, and a tree of the files as they are."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from train_manager.runs.code.snapshot import LeftOut, Snapshot, blob_of, leave_out, note, read_now, snapshot
from train_manager.runs.code.store import CODE, store_of

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
    entries: list[dict[str, Any]] = field(default_factory=list)  # of the record, one for each repository
    reasons: list[str] = field(default_factory=list)  # why something is not recorded

    def take(self, others: Mapping[str, Path]) -> None:
        """Record the repository of the code, and the repositories of other packages."""
        try:
            self._record(find_repository(self.folder, self.limits.seconds), None, self.loaded)
        except (GitTrouble, OSError) as trouble:
            self.reasons.append(_describe(trouble))
            if ran := _below(self.folder, self.loaded):
                self.entries.append(_entry(os.fspath(self.folder), None, None))
                self._keep(self.entries[-1], None, ran)
        for name, path in others.items():
            try:
                found = find_repository(path.absolute(), self.limits.seconds)
                if os.path.realpath(found.root) not in {os.path.realpath(entry["path"]) for entry in self.entries}:
                    self._record(found, name, package=name)
            except (GitTrouble, OSError) as trouble:
                self.reasons.append(f"{name}: {_describe(trouble)}")

    @property
    def _name(self) -> str:
        """The name of the files of the last entry: its number makes it unique."""
        number = len(self.entries) - 1
        return f"{self.run_id}-{number}" if number else self.run_id

    @property
    def _kept(self) -> int:
        """The bytes so far, of all repositories."""
        return sum(file["size"] for entry in self.entries for file in entry["files"])

    def _record(
        self, repository: Repository, inside: str | None, loaded: Sequence[Path] = (), *, package: str | None = None
    ) -> None:
        """Record a repository and the repositories inside of it."""
        entry = _entry(os.fspath(repository.root), inside, repository)
        if package is not None:
            entry["package"] = package
        # Before its submodules, which append their entries after it: the first entry is the repository of the code.
        self.entries.append(entry)
        entry["pushed"] = is_on_a_remote(repository, self.limits.seconds)
        if entry["pushed"] is False:
            what = f"no remote of {repository.root} has its commit {repository.commit:.10}"
            self.tell(f"{what}, without which nobody else can run this again: push it")
        files = self._keep(entry, repository, _below(repository.root, loaded))
        if files is not None:
            self.reasons += files.complaints
            entry["submodules"] = files.submodules
            self._record_inner(repository, files, inside if package is None else None, package)

    def _keep(self, entry: dict[str, Any], repository: Repository | None, ran: Sequence[str]) -> Snapshot | None:
        """Put the files of an entry into the store; None if git cannot, and the files that ran are copied.

        Args:
            entry: the last one.
            repository: None if the files are not in a repository.
            ran: the files that ran.
        """
        store = store_of(self.train_dir, entry["format"])
        try:
            with snapshot(entry, store, repository, self.limits, self._kept) as files:
                names = ran
                if repository is not None:
                    files.look()
                    names = [*files.names, *self._new_files(files, ran)]
                files.keep(names)
                entry["tree"] = files.write_tree(self._name)
                with contextlib.suppress(GitTrouble):  # the tree is there, and nothing is restored from the text
                    self._write_differences(entry, files)
        except (GitTrouble, OSError) as trouble:  # the entry still has the commit
            if repository is not None:
                inside = entry["inside"]
                self.reasons.append(f"{inside}: {_describe(trouble)}" if inside else _describe(trouble))
            self._copy(entry, ran)
            return None
        return files

    def _new_files(self, files: Snapshot, loaded: Sequence[str]) -> Iterator[str]:
        """Yield the new files to keep: the files that ran, also if git ignores them, and others within the limits."""
        # A file of a submodule or a nested repository belongs to the record of that repository.
        inner = tuple(f"{path}/" for path in [*files.submodules, *files.nested])
        ran = {name for name in loaded if not name.startswith(inner)}
        outputs = outputs_of_trainings(files.root, {*files.new, *ran}, self.train_dir, self.folder)
        for folder in sorted({*outputs.values()}):
            leave_out(files.entry, f"{folder}/", OF_A_TRAINING)
        ran -= outputs.keys()
        yield from ran
        new = [name for name in files.new if name not in outputs and name not in ran]
        if _below(files.root, [Path(os.path.expanduser("~"))]):
            beside = f"{next(iter(_below(files.root, [self.folder])), '.')}/"
            if any(not name.startswith(beside) for name in new):
                leave_out(files.entry, "./", "of the new files in a home folder only those beside the code are kept")
            new = [name for name in new if name.startswith(beside)]
        if len(new) > self.limits.names:
            leave_out(files.entry, "./", f"{len(new)} new files are too many to keep")
            return
        yield from new

    def _write_differences(self, entry: dict[str, Any], files: Snapshot) -> None:
        if text := files.differences():
            entry["diff"] = f"{CODE}/{self._name}.diff"
            replace_file(self.train_dir / entry["diff"], text)

    def _record_inner(self, outer: Repository, files: Snapshot, inside: str | None, package: str | None) -> None:
        """Record the repositories inside of another: its submodules, and others that its commit does not know."""
        for path in sorted({*files.submodules, *files.nested}):
            try:
                found = _repository_in(outer, path, self.limits.seconds)
            except GitTrouble as trouble:
                self.reasons.append(f"{path}: {trouble.what}")
            else:
                if found is not None:
                    self._record(found, f"{inside}/{path}" if inside else path, package=package)

    def _copy(self, entry: dict[str, Any], ran: Sequence[str]) -> None:
        """Copy the files that ran, because git cannot store them."""
        entry.update(tree=None, files=[], left_out=[])
        for name in ran:
            with contextlib.suppress(OSError):
                try:
                    mode, content = read_now(
                        os.path.realpath(os.path.join(entry["path"], name)), self.limits, self._kept
                    )
                    if why := reason_to_leave_out(name, content):
                        raise LeftOut(why)
                except LeftOut as reason:
                    leave_out(entry, name, str(reason))
                    continue
                replace_file(copy_of(self.train_dir, self._name) / name, content)
                note(entry, name, "added", mode, blob_of(content), len(content))


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
        "submodules": {},  # the commit of each in the commit of this repository, by its path
    }


def _repository_in(outer: Repository, path: str, seconds: float) -> Repository | None:
    """Return the repository in a folder; None if it is not checked out.

    Raises:
        GitTrouble: it cannot be recorded.
    """
    folder = outer.root / path
    # In a folder without a .git of its own, git would find the outer repository.
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return None
    found = find_repository(folder, seconds)
    if not os.path.samefile(found.root, folder):
        raise GitTrouble("its files are elsewhere")
    if found.common_folder == outer.common_folder:
        raise GitTrouble("another working tree of this repository")
    return found


def _below(root: Path, paths: Iterable[Path]) -> list[str]:
    """Return the names of those files that are below a folder, also if a link leads to the folder."""
    folder, real = os.path.realpath(root), [Path(os.path.realpath(path)) for path in paths]
    return [path.relative_to(folder).as_posix() for path in real if path.is_relative_to(folder)]


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
