"""Put recorded code back: the commit in a new folder, then the deletions, and the files that the record keeps.

The new folder has a git folder of its own that reads the objects of the repository (as ``git clone --shared`` makes
it). The repository itself is only read; no hook and no filter runs, and each file is checked against the record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.code.clean_room import git_in, make_git_folder
from train_manager.runs.code.git_commands import GitCommands, GitTrouble
from train_manager.runs.code.lfs import SIZES, content_of, read_pointer
from train_manager.runs.code.old_payload import PATCH
from train_manager.runs.code.outputs import WHY
from train_manager.runs.code.placing import put_file, reason_against
from train_manager.runs.code.reading import LINK, Unreadable, read_now
from train_manager.runs.code.recorded_files import RecordedFiles, read_code_record
from train_manager.runs.code.repository import Repository, find_repository
from train_manager.runs.code.store import CODE
from train_manager.telling.errors import InputError

_SECONDS: Final = 600.0  # a checkout of a large commit takes its time
_PACKAGES: Final = "packages"


@final
@dataclass
class Restored:
    """Code that was put back."""

    root: Path  # the working tree of the repository with the code
    commit: str | None  # the commit below the changes; None if the repository had none
    problems: list[str] = field(default_factory=list)  # a sentence for each file that differs from the record
    packages: dict[str, Path] = field(default_factory=dict)  # the working trees of other packages, by their names


def restore_code(train_dir: Path, run_id: str, into: Path, *, repository: Path | None = None) -> Restored:
    """Put the code of a run into a new folder.

    >>> import tempfile
    >>> from train_manager.runs.code.taking import take_code_record
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

    Raises:
        InputError: the run has not recorded any code, ``into`` is in use, or the commit is not there.
        CheckpointError: the record is damaged, or of a newer version.
    """
    record = read_code_record(train_dir, run_id, is_whole=True)
    if record is None:
        path = train_dir / CODE / f"{run_id}.json"
        raise InputError(f"{path} is not there: the run has not recorded its code", name=run_id)
    entries = record["repositories"]
    if not entries:
        raise InputError(
            f"the code of run {run_id} was not recorded: {record.get('reason')}", name=run_id, asked_by="restore_code"
        )
    if into.exists() and any(into.iterdir()):
        raise InputError(f"{into} is not empty", name="into", asked_by="restore_code", cure="name a new folder")
    # The first entry is the repository with the code; submodules and packages follow.
    restored = Restored(into / (Path(entries[0]["path"]).name or "code"), entries[0]["commit"])
    # Without a commit there was not a repository: the reason says just that, and the files that ran are there.
    if record.get("reason") is not None and entries[0]["commit"] is not None:
        restored.problems.append(f"not all code was recorded: {record['reason']}")
    for entry in entries:
        source = Path(entry["path"])
        if repository is not None and "package" not in entry:
            source = repository / (entry["inside"] or "")
        place = _place(entry, into, restored)
        # The outer repository, restored before, may have a link where the submodule belongs.
        if os.path.realpath(place) != os.path.join(os.path.realpath(into), place.relative_to(into)):
            restored.problems.append(f"{entry['inside']} is not put back: a link is in its place")
            continue
        _Restoring(entry, RecordedFiles(train_dir, entry), place, source, restored.problems).restore()
    return restored


def _place(entry: dict[str, Any], into: Path, restored: Restored) -> Path:
    """Return where a repository is put: a submodule into the tree, a package beside it."""
    inside: str | None = entry["inside"]
    package: str | None = entry.get("package")
    if inside is None or inside == package:
        inside = ""
    elif reason := reason_against(inside):
        raise InputError(f"{inside!r} cannot be put back: {reason}", asked_by="restore_code")
    if package is None:
        return restored.root / inside
    if package not in restored.packages:
        name = Path(entry["path"]).name
        restored.packages[package] = into / f"{_PACKAGES}-{len(restored.packages) + 1}" / name
    return restored.packages[package] / inside


@final
@dataclass
class _Restoring:
    entry: dict[str, Any]  # of one repository, in the record
    recorded: RecordedFiles  # the files that the record keeps of it
    root: Path  # the new working tree
    source: Path  # the repository that has the commit
    problems: list[str]  # the list of `Restored`, to which each step adds

    def restore(self) -> None:
        """Make the working tree, as far as that is possible."""
        self.root.mkdir(parents=True, exist_ok=True)
        if self.entry["commit"] is not None:
            repository = self._repository()
            git = self._check_out(repository)
            self._apply(git)
            self._fetch_lfs(repository)
        for file in self._files("deleted"):
            _delete(self.root, file["path"])
        # Links are made last, so that no file is written through one of them.
        for file in sorted(self._files("stored", "archive"), key=lambda file: bool(file["mode"] == LINK)):
            self._put(file)
        self._check()

    def _files(self, *how: str) -> list[dict[str, Any]]:
        return [file for file in self.entry["files"] if file["how"] in how]

    def _repository(self) -> Repository:
        commit, inside, source = self.entry["commit"], self.entry["inside"], self.source.absolute()
        found, trouble = None, None
        try:
            found = find_repository(source)
            GitCommands(source).run("cat-file", "-e", f"{commit}^{{commit}}")
        except (GitTrouble, OSError) as error:
            trouble = error
        is_there = found is not None and os.path.realpath(found.root) == os.path.realpath(source)
        if inside is not None and "package" not in self.entry and not is_there:  # git has found the outer one
            outer = source.parents[inside.count("/")]
            what = f"the submodule {inside} of the record is not checked out in {outer}"
            cure = f"check it out: git -C {shlex.quote(str(outer))} submodule update --init --recursive"
            raise InputError(what, name="repository", asked_by="restore_code", cure=cure)
        if found is None or trouble is not None:
            what = f"the commit {commit} of the record is not in {self.source}"
            cure = "name a clone that has it as `repository`"
            raise InputError(what, name="repository", asked_by="restore_code", cure=cure) from trouble
        return dataclasses.replace(found, commit=commit)

    def _check_out(self, repository: Repository) -> GitCommands:
        make_git_folder(self.root / ".git", repository)
        git = git_in(self.root / ".git", self.root, seconds=_SECONDS)
        self._name_branch(git)
        commit = repository.commit or "HEAD"
        try:
            # A sparse checkout: the files that the working tree lacked must not appear in the new one.
            if names := self.recorded.not_checked_out:
                git.run("read-tree", commit)
                git.run("update-index", "--skip-worktree", "-z", "--stdin", feed=names)
                git.run("checkout-index", "--all", "--index", "--quiet")
            else:
                git.run("read-tree", "-m", "-u", commit)
        except GitTrouble as trouble:
            settings = [name for name in repository.settings if re.fullmatch(r"remote\..+\.promisor", name, re.DOTALL)]
            if not settings:  # not a partial clone, so missing objects are not the reason
                raise
            remote = settings[0].removeprefix("remote.").removesuffix(".promisor")
            what = f"{self.source} is a partial clone, and lacks files of the commit {commit}"
            cure = f"fetch them: git -C {shlex.quote(str(self.source))} fetch --refetch --no-filter {remote}"
            raise InputError(what, name="repository", asked_by="restore_code", cure=cure) from trouble
        return git

    def _name_branch(self, git: GitCommands) -> None:
        """Put HEAD on the recorded branch and set the recorded remotes; nothing is fetched."""
        branch = self.entry["branch"]
        with contextlib.suppress(GitTrouble):
            if isinstance(branch, str):
                git.run("update-ref", f"refs/heads/{branch}", self.entry["commit"])
                git.run("symbolic-ref", "HEAD", f"refs/heads/{branch}")
            for name, address in self.entry["remotes"].items():
                git.run("config", "--", f"remote.{name}.url", address)

    def _apply(self, git: GitCommands) -> None:
        """Apply the patch of a record of version 1."""
        recorded, folder = self.entry.get("patch"), self.recorded.old.folder
        if recorded is None:
            return
        if folder is None or hashlib.sha256(self.recorded.old.patch).hexdigest() != recorded["sha256"]:
            self.problems.append(f"{PATCH} of the record is damaged, or not there")
            return
        try:
            git.run("apply", "--whitespace=nowarn", "--binary", os.fspath(folder / PATCH))
        except GitTrouble as trouble:
            self.problems.append(f"{PATCH} does not fit: {trouble.what}")

    def _fetch_lfs(self, repository: Repository) -> None:
        """Replace the pointers of LFS by the contents that they name."""
        for path in self.entry["lfs"]:
            now = read_now(os.fspath(self.root), path, keep=max(SIZES)) if _is_below(self.root, path) else None
            # The record may be forged: a link in the pointer's place would lead the copy out of the folder.
            if now is not None and now.mode == LINK:
                now = None
            pointer = read_pointer(now.content or b"") if now else None
            kept = content_of(pointer[0], repository, self.source / path) if pointer else None
            if kept is None:
                self.problems.append(f"{path} is only a pointer: `git lfs pull` in {self.source} fetches its content")
            else:  # written into the pointer's file, which keeps its mode
                shutil.copyfile(kept, self.root / path, follow_symlinks=False)

    def _put(self, file: dict[str, Any]) -> None:
        content = self.recorded.content(file)
        if content is None:
            self.problems.append(f"{file['path']} is not put back: its content in the record is damaged, or not there")
        elif reason := put_file(self.root, file["path"], file["mode"], content):
            self.problems.append(f"{file['path']} is not put back: {reason}")

    def _check(self) -> None:
        for file in self.entry["files"]:
            path, how = file["path"], file["how"]
            if how == "left out":
                # Outputs of trainings are left out on purpose, and are not worth a line.
                if file.get("why") != WHY:
                    self.problems.append(f"{path} was left out of the record: {file.get('why')}")
                continue
            try:
                now = read_now(os.fspath(self.root), path, keep=0) if _is_below(self.root, path) else None
            except Unreadable as problem:
                self.problems.append(f"{path}: {problem}")
                continue
            if how == "deleted" and now is not None:
                self.problems.append(f"{path} should not be there any more")
            elif how != "deleted" and (now is None or (now.sha256, now.mode) != (file["sha256"], file["mode"])):
                self.problems.append(f"{path} is not what it was")


def _is_below(root: Path, path: str) -> bool:
    """Return whether a name stays below a folder, and no link is on its way."""
    return reason_against(path) is None and not any((root / parent).is_symlink() for parent in Path(path).parents)


def _delete(root: Path, path: str) -> None:
    """Delete a file, and the folders that are empty without it."""
    if not _is_below(root, path):
        return
    place = root / path
    if place.is_symlink() or place.is_file():
        place.unlink()
    # Git does not know empty folders: `rmdir` fails at the first parent that still has a file, which ends the loop.
    for parent in list(place.relative_to(root).parents)[:-1]:
        try:
            (root / parent).rmdir()
        except OSError:
            return
