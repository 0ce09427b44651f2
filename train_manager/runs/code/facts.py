"""The facts of a repository: where it is, its commit, its remotes, and unfinished operations such as a merge.

Its settings are read as data; nothing that they name is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from train_manager.files.secrets import redacted
from train_manager.runs.code.git import Git, GitTrouble, reason_in

NO_REPOSITORY: Final = "not in a git repository"
# `git rev-parse` prints an option that it does not know: between the questions, this option separates the answers.
_NEXT: Final = "--train-manager-next"
# Files in the git folder that exist while an operation is unfinished.
_STATES: Final = {
    "merge": ("MERGE_HEAD",),
    "rebase": ("rebase-merge", "rebase-apply"),
    "cherry-pick": ("CHERRY_PICK_HEAD",),
    "revert": ("REVERT_HEAD",),
    "bisect": ("BISECT_LOG",),
}


@final
@dataclass(frozen=True)
class Repository:
    """A repository and its working tree, as it is now."""

    git: Git  # in the folder of the working tree
    git_folder: Path  # holds the index and HEAD of this working tree
    common_folder: Path  # holds the objects; differs from git_folder in a tree that `git worktree` has made
    object_format: str  # sha1 or sha256
    is_shallow: bool
    commit: str | None  # None before the first commit
    branch: str | None  # None if HEAD is detached
    # The value of each setting that counts, by its name: lower-case except for a subsection, as in remote.Origin.url.
    settings: Mapping[str, str]

    @property
    def root(self) -> Path:
        """The folder of the working tree."""
        return self.git.folder

    @property
    def objects(self) -> Path:
        """The folder of its objects."""
        return self.common_folder / "objects"

    @property
    def state(self) -> list[str]:
        """The unfinished operations of the repository: ``merge``, ``rebase`` and so on."""
        return [
            state for state, names in _STATES.items() if any(os.path.lexists(self.git_folder / name) for name in names)
        ]

    @property
    def remotes(self) -> dict[str, str]:
        """Addresses by name, without credentials."""
        found = {
            without_credentials(name.removeprefix("remote.").removesuffix(".url")): without_credentials(value)
            for name, value in self.settings.items()
            if re.fullmatch(r"remote\..+\.url", name, re.DOTALL)
        }
        return dict(sorted(found.items()))

    def is_pushed(self) -> bool | None:
        """Return whether a remote has the commit, as of the last fetch or push; None if that is not known.

        A repository without remotes, or without a commit, has nothing to compare with.
        """
        if self.commit is None or not self.remotes:
            return None
        try:
            return not self.git.run("rev-list", "--max-count=1", self.commit, "--not", "--remotes").strip()
        except GitTrouble:
            return None


def find_repository(folder: Path, seconds: float = 10.0) -> Repository:
    """Return the repository whose working tree holds a folder.

    Raises:
        GitTrouble: there is not any, or git refuses to look at it.
    """
    git = Git(folder, seconds=seconds)
    answers = _answers(git)
    root, git_folder, common_folder = (
        Path(os.path.normpath(folder.absolute() / answers[name])) for name in ("root", "git folder", "common folder")
    )
    _require_own_files(git, root, git_folder)
    # Exit code 1: HEAD is detached.
    branch = os.fsdecode(git.run("symbolic-ref", "-q", "HEAD", fine=(0, 1))).removesuffix("\n")
    return Repository(
        git=Git(root, seconds=seconds),
        git_folder=git_folder,
        common_folder=common_folder,
        object_format=answers["object format"],
        is_shallow=answers["shallow"] == "true",
        commit=answers.get("commit"),
        branch=redacted(branch.removeprefix("refs/heads/")) or None,
        settings=_settings(git),
    )


def without_credentials(address: str) -> str:
    """Return the address of a remote without names, passwords and tokens.

    >>> without_credentials("https://me:hunter2@example.com/data.git?token=1")
    'https://example.com/data.git'
    >>> without_credentials("git@example.com:data.git")
    'git@example.com:data.git'
    """
    start, separator, rest = address.partition("://")
    start, rest = (start + separator, rest) if separator else ("", address)
    # A password may hold @ and / itself: only the last @ is certain to be its end.
    user, at, place = rest.rpartition("@")
    if not start and (not at or "/" in user.removeprefix("//")):  # a path
        return redacted(address)
    # The user of an ssh address is a part of the place, as in git@example.com; of other addresses it may be a token.
    is_ssh = not start or start.endswith("ssh://")
    kept = user + at if is_ssh and re.fullmatch(r"[\w.-]+", user) else ""
    return redacted(f"{start}{kept}{re.split(r'[?#;]', place)[0]}")


def _require_own_files(git: Git, root: Path, git_folder: Path) -> None:
    """Refuse a working tree that a setting puts elsewhere: it may be the home of the user.

    Raises:
        GitTrouble: the folder is not in it, or its files are those of another repository.
    """
    if Path(os.path.realpath(git.folder)).is_relative_to(os.path.realpath(root)):
        # In a submodule and in a linked working tree, .git is a file that names the git folder.
        _, answer, _ = Git(root, seconds=git.seconds).answer("rev-parse", "--absolute-git-dir")
        place = os.fsdecode(answer).removesuffix("\n")
        if os.path.realpath(place) == os.path.realpath(git_folder):
            return
    raise GitTrouble(f"the setting core.worktree of {git_folder} puts its files elsewhere, in {root}")


def _answers(git: Git) -> dict[str, str]:
    # All questions in one process: a training starts with this, and each process costs milliseconds.
    asked = {
        "bare": "--is-bare-repository",
        "object format": "--show-object-format",
        "shallow": "--is-shallow-repository",
        "git folder": "--absolute-git-dir",
        "common folder": "--git-common-dir",
        "root": "--show-toplevel",
        "commit": "HEAD",
    }
    arguments = [part for question in asked.values() for part in (question, _NEXT)]
    status, output, complaint = git.answer("rev-parse", *arguments)
    texts = os.fsdecode(output).split(f"{_NEXT}\n")
    found = {name: text.removesuffix("\n") for name, text in zip(asked, texts, strict=False)}
    if status == 0:
        return found
    if found.get("bare") == "true":
        raise GitTrouble(f"the git repository at {found['git folder']} is bare: it does not have files to run")
    if found.pop("commit", None) is not None:  # only HEAD can fail after it: before the first commit
        return found
    raise GitTrouble(_why(complaint))


def _why(complaint: bytes) -> str:
    line = reason_in(complaint)
    if "not a git repository" in line:
        return NO_REPOSITORY
    if found := re.search(r"dubious ownership in repository at '(.*)'", line):
        return f"the git repository at {found[1]} is owned by another user"
    if "work tree" in line:
        return "not in the files of a git repository, but in its .git folder"
    # Git quotes the value of a setting that it does not understand, and the value may be a secret.
    shown = redacted(re.sub(r" value '.*' for ", " value for ", line))
    return f"git could not read the repository: {shown}"


def _settings(git: Git) -> dict[str, str]:
    found = {}
    for entry in git.run("config", "-z", "--list").split(b"\0")[:-1]:
        name, is_set, value = os.fsdecode(entry).partition("\n")
        # Of several values the last one counts; of the addresses of a remote, git fetches from the first one.
        if name not in found or not name.endswith(".url"):
            found[name] = value if is_set else "true"  # a name without a value
    return found
