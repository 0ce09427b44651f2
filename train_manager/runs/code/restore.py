"""Put recorded code back: the tree of a run in a new folder, on its commit.

The new folder has a git folder of its own that reads the objects of the repository (as ``git clone --shared`` makes
it). The repository and the store of the train_dir are only read; no hook and no filter runs, and each file is compared
with the tree.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, final

from train_manager.runs.code.facts import Repository, find_repository
from train_manager.runs.code.git import Git, GitTrouble, quote, reason_in
from train_manager.runs.code.git_folder import is_linked, make_git_folder, read_small
from train_manager.runs.code.left_out import OF_A_TRAINING, reason_against_name
from train_manager.runs.code.record import copy_of, name_of, read_code_record
from train_manager.runs.code.store import CODE, blob_of, require_own_objects, store_of
from train_manager.runs.code.working_tree import joined, names_in
from train_manager.telling.errors import CheckpointError, InputError

_SECONDS: Final = 600.0  # a checkout of a large commit takes its time
_ANOTHER: Final = "name another clone as `repository`, or take out the changed files: changed_only=True"


@final
@dataclass
class Restored:
    """Code that was put back."""

    root: Path  # the working tree of the repository with the code
    commit: str | None  # the commit below the changes; None if the repository had none
    problems: list[str] = field(default_factory=list)  # a sentence for each file that differs from the record
    packages: dict[str, Path] = field(default_factory=dict)  # the working trees of other packages, by their names


def restore_code(
    train_dir: Path, run_id: str, into: Path, *, repository: Path | None = None, changed_only: bool = False
) -> Restored:
    """Put the code of a run into a new folder.

    >>> import tempfile
    >>> from train_manager.runs.code.take import take_code_record
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "train.py").write_text("print('hello')")
    >>> record = take_code_record(folder, folder / "runs", "0123456789abcdef", loaded=[folder / "train.py"])
    >>> restored = restore_code(folder / "runs", "0123456789abcdef", folder / "again")
    >>> (restored.root / "train.py").read_text()
    "print('hello')"

    Args:
        train_dir: the folder of the training.
        run_id: what the run is called.
        into: a folder that is empty or not there yet; the working tree is made in it, under its own name.
        repository: a clone that has the commit; by default the repository that was recorded.
        changed_only: put back the changed and the new files alone, which needs no repository.

    Raises:
        InputError: the run has not recorded any code, ``into`` is in use, or the commit is not there.
        CheckpointError: the record is damaged, or of another version.
    """
    record = read_code_record(train_dir, run_id)
    if record is None:
        path = train_dir / CODE / f"{run_id}.json"
        raise InputError(f"{path} is not there: the run has not recorded its code", name=run_id)
    entries = record["repositories"]
    if not entries:
        what = f"the code of run {run_id} was not recorded: {record.get('reason')}"
        raise InputError(what, name=run_id, asked_by="restore_code")
    if into.exists() and any(into.iterdir()):
        raise InputError(f"{into} is not empty", name="into", asked_by="restore_code", cure="name a new folder")
    # The first entry is the repository with the code; submodules and packages follow.
    restored = Restored(into / (Path(entries[0]["path"]).name or "code"), entries[0]["commit"])
    # Without a commit there was not a repository: the reason says just that, and the files that ran are there.
    if record.get("reason") is not None and entries[0]["commit"] is not None:
        restored.problems.append(f"not all code was recorded: {record['reason']}")
    for number, entry in enumerate(entries):
        place = _place(entry, into, restored)
        # The outer repository, restored before, may have a link where the submodule belongs.
        if is_linked(into, os.fspath(place.relative_to(into))):
            restored.problems.append(f"{entry['inside']} is not put back: a link is in its place")
            continue
        source = Path(entry["path"])
        if repository is not None and "package" not in entry:
            source = repository / (entry["inside"] or "")
        store = store_of(train_dir, entry["format"])
        copy = copy_of(train_dir, name_of(run_id, number))
        _Restoring(entry, store, copy, place, source, restored.problems).restore(changed_only)
    return restored


def _place(entry: dict[str, Any], into: Path, restored: Restored) -> Path:
    """Return where a repository is put: a submodule into the tree, a package beside it."""
    inside, package = entry["inside"] or "", entry.get("package")
    if package is not None:
        inside = inside.removeprefix(package).lstrip("/")
    if inside and (reason := reason_against_name(inside)):
        raise InputError(f"{inside!r} cannot be put back: {reason}", asked_by="restore_code")
    if package is None:
        return restored.root / inside
    beside = into / f"packages-{len(restored.packages) + 1}" / Path(entry["path"]).name
    return restored.packages.setdefault(package, beside) / inside


@final
@dataclass
class _Restoring:
    entry: dict[str, Any]  # of one repository, in the record
    store: Path
    copy: Path  # the files that ran, if git could not store them
    root: Path  # the new working tree
    source: Path  # the repository that has the commit
    problems: list[str]  # the list of `Restored`, to which each step adds

    def restore(self, changed_only: bool) -> None:
        """Make the working tree, as far as that is possible."""
        self.root.mkdir(parents=True, exist_ok=True)
        commit, tree = self.entry["commit"], self.entry["tree"]
        repository = self._repository() if commit is not None and not changed_only else None
        if tree is not None or repository is not None:
            folder = self.root / ".git"
            make_git_folder(folder, self.entry["format"])
            try:
                self._check_out(Git(self.root, folder, _SECONDS), repository, changed_only)
                if repository is not None:
                    self._stand_on_the_commit(Git(self.root, folder, _SECONDS), repository)
            finally:
                if repository is None:
                    shutil.rmtree(folder)
        if tree is None:
            self._put_copies()
        for file in self.entry["left_out"]:
            if file["why"] != OF_A_TRAINING:  # left out on purpose, and not worth a line
                self.problems.append(f"{file['path']} was left out of the record: {file['why']}")

    def _repository(self) -> Repository:
        commit, inside, source = self.entry["commit"], self.entry["inside"], self.source.absolute()
        found, trouble = None, None
        try:
            found = find_repository(source)
            found.git.run("cat-file", "-e", f"{commit}^{{commit}}")
        except (GitTrouble, OSError) as error:
            trouble = error
        is_there = found is not None and os.path.realpath(found.root) == os.path.realpath(source)
        if inside is not None and "package" not in self.entry and not is_there:  # git has found the outer one
            outer = source.parents[inside.count("/")]
            what = f"the submodule {inside} of the record is not checked out in {outer}"
            self._refuse(what, f"check it out: git -C {shlex.quote(str(outer))} submodule update --init --recursive")
        if found is None or trouble is not None:
            cure = "name a clone that has it as `repository`, or take out the changed files: changed_only=True"
            self._refuse(f"the commit {commit} of the record is not in {self.source}", cure)
        return found

    def _refuse(self, what: str, cure: str) -> NoReturn:
        raise InputError(what, name="repository", asked_by="restore_code", cure=cure)

    def _check_out(self, git: Git, repository: Repository | None, changed_only: bool) -> None:
        """Write the files of the tree, and take away again each one whose content is not that of the tree."""
        tree, objects = self.entry["tree"], [] if repository is None else [repository.objects]
        try:
            if tree is not None:
                require_own_objects(self.store)
        except GitTrouble as trouble:
            raise CheckpointError(f"{trouble.what}, and nothing is read there", name=str(self.store)) from None
        git = git.reading(self.store / "objects", *objects)
        status, _, complaint = git.answer("read-tree", tree or self.entry["commit"])
        if status != 0:
            what = f"the tree {tree} of the record is damaged, or not in {self.store}: {reason_in(complaint)}"
            raise CheckpointError(what, name=str(self.store))
        changed = {file["path"] for file in self.entry["files"] if file["status"] != "deleted"}
        names = joined(changed if changed_only else names_in(git.run("ls-files", "-z")))
        git.answer("checkout-index", "--quiet", "-z", "--stdin", feed=names)  # what fails is missing below
        # The index has no times: git compares every file with the tree by what it holds.
        wrong = {*names_in(git.run("ls-files", "-m", "-z"))}
        if changed_only:
            wrong &= changed
        for path in sorted(wrong):
            with contextlib.suppress(OSError):
                (self.root / path).unlink()
        if missing := sorted(wrong - changed if tree else wrong):
            self._refuse_missing(repository, missing)
        self.problems += [
            f"{path} is not put back: its content in the record is damaged, or not there" for path in sorted(wrong)
        ]

    def _refuse_missing(self, repository: Repository | None, missing: list[str]) -> NoReturn:
        commit, settings = self.entry["commit"], repository.settings if repository else {}
        remotes = [found[1] for name in settings if (found := re.fullmatch(r"remote\.(.+)\.promisor", name, re.DOTALL))]
        if not remotes:
            names = ", ".join(missing[:3])
            self._refuse(f"{self.source} lacks files of the commit {commit}, or they are damaged: {names}", _ANOTHER)
        what = f"{self.source} is a partial clone, and lacks files of the commit {commit}"
        fetch = f"git -C {shlex.quote(str(self.source))} fetch --refetch --no-filter {remotes[0]}"
        self._refuse(what, f"fetch them: {fetch}")

    def _stand_on_the_commit(self, git: Git, repository: Repository) -> None:
        """Make the folder a repository on the recorded commit and branch, with the recorded remotes."""
        folder, commit, branch = self.root / ".git", self.entry["commit"], self.entry["branch"]
        alternates = f"{quote(os.fspath(repository.objects))}\n"
        (folder / "objects" / "info" / "alternates").write_bytes(os.fsencode(alternates))
        # A shallow clone lacks the parents of some commits; without this list git would take it for damaged.
        if repository.is_shallow:
            (folder / "shallow").write_bytes(read_small(repository.common_folder / "shallow"))
        (folder / "HEAD").write_text(f"{commit}\n")
        git.run("read-tree", commit)
        with contextlib.suppress(GitTrouble):
            if branch:
                git.run("update-ref", f"refs/heads/{branch}", commit)
                git.run("symbolic-ref", "HEAD", f"refs/heads/{branch}")
            for name, address in self.entry["remotes"].items():
                git.run("config", "--", f"remote.{name}.url", address)

    def _put_copies(self) -> None:
        """Copy the files that ran, if the record has no tree; nothing is written through a link."""
        for file in self.entry["files"]:
            path, place = file["path"], self.root / file["path"]
            content = read_small(self.copy / path, file["size"] + 1)
            reason = reason_against_name(path)
            if reason is None and is_linked(self.root, os.path.dirname(path)):
                reason = "a link is in its place"
            if reason is None and blob_of(content) != file["blob"]:
                reason = "its content in the record is damaged, or not there"
            if reason is not None:
                self.problems.append(f"{path} is not put back: {reason}")
                continue
            place.unlink(missing_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
