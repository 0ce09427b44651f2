"""The files of a repository as a git tree in the store of a train_dir, with all that its commit does not have.

Each file is taken by what it holds at one moment: what is searched for secrets is what is stored, also if it changes
meanwhile. So its content is read here, and git gets the names, the modes and the hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.secrets import reason_to_leave_out
from train_manager.runs.code.facts import Repository
from train_manager.runs.code.git import Git, GitTrouble, contents_of, first_line, git_module
from train_manager.runs.code.git_folder import AS_THEY_ARE, git_folder, is_linked, read_small, reading
from train_manager.runs.code.left_out import Limits, reason_against_name
from train_manager.runs.code.store import make_store, names_in_store, pack_into_store

# The modes of git; of the permission bits it keeps only whether the owner may execute the file.
LINK: Final = "120000"
PROGRAM: Final = "100755"
FILE: Final = "100644"
SUBMODULE: Final = "160000"
MOST_SHOWN: Final = 1_000_000  # bytes of the files that the text of differences shows
MOST_NAMED: Final = 100  # files that it names as too large
_LARGE: Final = "the differences would be too long"
# A line of `git ls-tree -r -z -l`: mode, kind, blob, size (no number if a partial clone lacks the blob), and name.
_COMMITTED: Final = re.compile(rb"(\d+) \w+ ([0-9a-f]+) +(\S+)\t([^\0]*)\0")
# Attributes that may make other bytes of the same number; line ends always change the size.
_CONVERTING: Final = ("filter", "ident", "working-tree-encoding")
# Names of filters such as git-crypt and sops: their files are plain text here and encrypted in the repository.
_ENCRYPTS: Final = re.compile(r"crypt|secret|sops|vault|\bage\b|gpg", re.IGNORECASE)
_CACHES_OF_PYTHON: Final = b"\n__pycache__/\n"


def note(entry: dict[str, Any], path: str, status: str, mode: str, blob: str, size: int) -> None:
    """Note in an entry of a record that a file was added, modified or deleted."""
    entry["files"].append({"path": path, "status": status, "mode": mode, "blob": blob, "size": size})


def leave_out(entry: dict[str, Any], path: str, why: str) -> None:
    """Note in an entry of a record what is not kept, and why; a file with its size and its time of change."""
    size, time = 0, 0
    if not path.endswith("/"):
        try:
            found = os.lstat(os.path.join(entry["path"], path))
        except OSError:  # the program has deleted it meanwhile
            return
        size, time = found.st_size, found.st_mtime_ns
    entry["left_out"].append({"path": path, "why": why, "size": size, "time": time})


class LeftOut(Exception):
    """A file is not kept; the text says why."""


def read_now(path: str, limits: Limits, kept: int = 0) -> tuple[str, bytes]:
    """Return mode and content of a file as it is now: read once, never through a link, never a pipe without an end.

    Raises:
        LeftOut: it is there and is not kept.
        FileNotFoundError, NotADirectoryError: it is not there.
    """
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return LINK, os.fsencode(os.readlink(path))
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(path)
    if not stat.S_ISREG(found.st_mode):
        raise LeftOut("it is a pipe, a socket or a device")
    if why := limits.reason_against(found.st_size, kept):
        raise LeftOut(why)
    # O_NONBLOCK: the file may have become a pipe since lstat, and opening a pipe waits for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            content = file.read(limits.file + 1)
    except PermissionError as error:
        raise LeftOut(f"it cannot be read: {error.strerror}") from None
    if why := limits.reason_against(len(content), kept):  # it grew meanwhile
        raise LeftOut(why)
    return PROGRAM if found.st_mode & stat.S_IXUSR else FILE, content


def blob_of(content: bytes, object_format: str = "sha1") -> str:
    """Return the hash that git gives a content.

    >>> blob_of(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    return hashlib.new(object_format, b"blob %d\0" % len(content) + content).hexdigest()


@final
class Snapshot:
    """The files of a working tree, as they are now.

    Args:
        git: in a git folder of our own, over the files.
        store: of the train_dir.
        repository: what git says of the files; None if they are not in a repository.
        limits: how much is kept.
        entry: of the record; gets what is kept and what is not.
        kept: bytes so far, of the other repositories of the record.
    """

    def __init__(
        self, git: Git, store: Path, repository: Repository | None, limits: Limits, entry: dict[str, Any], kept: int
    ) -> None:
        assert git.git_folder is not None
        self.git, self.root, self.folder, self.store = git, git.folder, git.git_folder, store
        self.limits, self.entry, self.kept = limits, entry, kept
        self._user = repository
        self._keeps_modes = repository is None or repository.flag("core.filemode", True)
        self._reads = reading(*([repository.objects] if repository else []), store / "objects")
        self._encrypted: dict[str, str] = {}  # the filter of a file that encrypts it in the repository
        # Mode, blob and size of each file of the commit, by its path; the size is None if the blob is missing.
        self._committed: dict[str, tuple[str, str, int | None]] = {}
        self._linked: set[str] = set()  # folders that are reached through a link now
        self.submodules: dict[str, str] = {}  # the commit of each, by its path
        self.nested: list[str] = []  # folders with a repository of their own, which are not submodules
        self.complaints: list[str] = []  # folders that git could not open
        self.names: list[str] = []  # files that may have changed
        self.new: list[str] = []

    # ---- which files ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Find the files that may differ from the commit, and the new ones that nothing ignores."""
        user = self._user
        assert user is not None
        self._copy_index(user.git_folder / "index")
        staged = self._staged()
        # `git ls-files -v` writes a lower-case tag for --assume-unchanged, and S for --skip-worktree.
        for option, tags in (("--no-assume-unchanged", "hsmrck"), ("--no-skip-worktree", "Ss")):
            if flagged := [name for name, tag in staged.items() if tag in tags]:
                self.git.run("update-index", option, "-z", "--stdin", feed=_join(flagged), changes=self._reads)
        # What is staged does not count: the files are what ran. The times of entries that do not change stay.
        tree = ("--reset", user.commit) if user.commit else ("--empty",)
        self.git.run("read-tree", *tree, changes=self._reads)
        self._list_commit()
        others = self._list()
        self.nested = [name[:-1] for name in others if name.endswith("/") and name[:-1] not in self.submodules]
        # Through a link in the place of its folder git would see another file.
        folders = {os.path.dirname(name) for name in (*self._committed, *staged)}
        self._linked = {name for name in folders if is_linked(self.root, name)}
        behind = {name for name in self._committed if os.path.dirname(name) in self._linked}
        # A file that a sparse checkout leaves out is as in the commit; if it lies there all the same, it may have run.
        absent = {name for name, tag in staged.items() if tag in "Ss" and not os.path.lexists(self.root / name)}
        self.names = [*({*others, *self._find_converted(), *behind} & self._committed.keys() - absent)]
        # What is staged and not committed is new, also if git ignores it: `git add --force` stages such files.
        self.new = [name for name in {*others, *staged} - self._committed.keys() if not name.endswith("/")]
        self._converting(self.new)

    def _copy_index(self, source: Path) -> None:
        # Where the index is split, the shared index has its greater part.
        for path in (source, *source.parent.glob("sharedindex.*")):
            if path.is_file():  # not a link to a device, of which a copy would not end
                with contextlib.suppress(FileNotFoundError):
                    # copy2 keeps the time: git compares an entry by content if it changed as late as the index.
                    shutil.copy2(path, self.folder / path.name)

    def _staged(self) -> dict[str, str]:
        """Return the tag of each entry of the index, by its path."""
        lines = self.git.run("ls-files", "-v", "-z", changes=self._reads).split(b"\0")[:-1]
        return {os.fsdecode(line[2:]): line[:1].decode() for line in lines}

    def _list_commit(self) -> None:
        """List the files of the commit, and take its submodules out of the index: each has an entry of its own."""
        if self._user is None or self._user.commit is None:
            return
        listed = self.git.run("ls-tree", "-r", "-z", "-l", "--full-tree", self._user.commit, changes=self._reads)
        for mode, blob, size, name in _COMMITTED.findall(listed):
            if mode.decode() == SUBMODULE:
                self.submodules[os.fsdecode(name)] = blob.decode()
            else:
                known = int(size) if size.isdigit() else None
                self._committed[os.fsdecode(name)] = mode.decode(), blob.decode(), known
        if self.submodules:
            self.git.run("update-index", "--force-remove", "-z", "--stdin", feed=_join([*self.submodules]))

    def _list(self) -> list[str]:
        status, output, complaints = self.git.answer("ls-files", "-z", "-m", "-o", "--exclude-standard")
        if status != 0:
            raise GitTrouble(f"git ls-files failed: {first_line(complaints)}")
        # A folder that git may not open makes a warning only: the record says so, and the other files are taken.
        lines = os.fsdecode(complaints).splitlines()
        self.complaints += [
            line.removeprefix("warning: ") for line in lines if line.startswith("warning: could not open")
        ]
        return [os.fsdecode(name) for name in output.split(b"\0")[:-1]]

    def _find_converted(self) -> Iterator[str]:
        """Yield the files whose bytes are others than those of the commit although git calls them unchanged.

        Line ends, keywords, encodings and filters make other bytes of a file as it is checked out. Its size mostly
        differs from that of its blob. Where its attributes may keep the size, it is read and compared; a file that is
        too large to be kept is taken at its time.
        """
        converting = self._converting(self._committed)
        for path, (_, _, size) in self._committed.items():
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(self.root, path)).st_size
                if found != size or (path in converting and found <= self.limits.file):
                    yield path

    def _converting(self, names: Iterable[str]) -> set[str]:
        """Return the files whose attributes may convert them, and note those that a filter encrypts."""
        assert self._user is not None
        # This command must see the user's attributes, which AS_THEY_ARE hides from every other one.
        attributes = self.folder / "info" / "attributes"
        attributes.write_bytes(read_small(self._user.common_folder / "info" / "attributes"))
        answers = self.git.run("check-attr", "-z", "--stdin", *_CONVERTING, feed=_join(names)).split(b"\0")
        attributes.write_bytes(AS_THEY_ARE)
        found = set()
        # Triples of path, attribute and value.
        for path, name, value in zip(answers[0::3], answers[1::3], answers[2::3], strict=False):
            if value not in (b"unspecified", b"unset"):
                found.add(os.fsdecode(path))
                if name == b"filter" and _ENCRYPTS.search(filter_name := os.fsdecode(value)):
                    self._encrypted[os.fsdecode(path)] = filter_name
        return found

    # ---- what they hold ------------------------------------------------------------------------------------------

    def keep(self, names: Iterable[str]) -> None:
        """Put the content of files into the git folder, small files first, so that data does not push code out."""
        known = names_in_store(self.git, self.store)  # they were searched for secrets as they were stored
        entries: list[tuple[str, str, str]] = []
        for path in sorted({*names}, key=lambda path: (self._size(path), os.fsencode(path))):
            entries += self._take(path, known)
        # What is gone makes room first: a file may lie where a folder was.
        self._enter(sorted(entries, key=lambda entry: entry[0] != "0"))
        for found in (self.entry["files"], self.entry["left_out"]):
            found.sort(key=lambda one: os.fsencode(one["path"]))

    def _take(self, path: str, known: set[str]) -> Iterable[tuple[str, str, str]]:
        """Return the entry of a file for the index; none if it is as in the commit, or left out."""
        *committed, _ = self._committed.get(path, (None,))
        place = os.path.join(self.root, path)
        try:
            if os.path.dirname(path) in self._linked:
                raise NotADirectoryError
            os.lstat(place)  # what is gone has no secrets
            if why := self._reason_against_name(path):
                raise LeftOut(why)
            mode, content = read_now(place, self.limits, self.kept)
        except LeftOut as reason:
            leave_out(self.entry, path, str(reason))
            return []
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if not committed:  # the program has deleted the file since git listed it
                return []
            mode, blob = committed
            note(self.entry, path, "deleted", mode, blob, 0)
            return [("0", "0" * len(blob), path)]
        # Where the file system has no executable bit, the mode of the commit counts; a link is a link everywhere.
        if not self._keeps_modes and committed and {mode, committed[0]} == {FILE, PROGRAM}:
            mode = committed[0]
        blob = blob_of(content, self.entry["format"])
        if [mode, blob] == committed:
            return []
        if blob not in known:
            if why := reason_to_leave_out(path, content):
                leave_out(self.entry, path, why)
                return []
            self._write(blob, content)
        self.kept += len(content)
        note(self.entry, path, "modified" if committed else "added", mode, blob, len(content))
        return [(mode, blob, path)]

    def _reason_against_name(self, path: str) -> str | None:
        if path in self._encrypted:
            return f"its filter {self._encrypted[path]!r} keeps it secret in the repository"
        return reason_to_leave_out(path, None) or reason_against_name(path)

    def _size(self, path: str) -> int:
        try:
            return os.lstat(os.path.join(self.root, path)).st_size
        except OSError:
            return 0

    def _write(self, blob: str, content: bytes) -> None:
        """Write a content as git does, so that it is packed into the store later on."""
        folder = os.path.join(self.folder, "objects", blob[:2])
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, blob[2:]), "wb") as file:
            file.write(zlib.compress(b"blob %d\0" % len(content) + content, 1))

    def _enter(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Put modes and hashes into the index."""
        if feed := b"".join(f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0" for mode, blob, path in entries):
            self.git.run("update-index", "-z", "--index-info", feed=feed)

    def write_tree(self, name: str) -> str:
        """Return the tree of the files, which the store has from now on, with all that the commit does not have.

        Args:
            name: of the ref that keeps the tree.
        """
        # Without the objects of the repository: what it has of the changed files now may be collected there tomorrow.
        tree = self.git.run("write-tree", "--missing-ok", changes=reading(self.store / "objects")).decode().strip()
        pack_into_store(self.git, self.store, name, tree)
        return tree

    # ---- as text for people --------------------------------------------------------------------------------------

    def differences(self) -> bytes:
        """Return how the files differ from the commit, as a patch; a file that is not shown is named above it.

        The content that the commit has is searched for secrets too: a patch shows what was deleted.
        """
        commit = self.entry["commit"]
        if commit is None or not self.entry["files"]:
            return b""
        hidden = self._hidden()
        self._enter((*self._committed.get(path, ("0", "0" * len(commit)))[:2], path) for path in hidden)
        options = (
            "--no-renames",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--full-index",
            "--ignore-submodules",
        )
        text = self.git.run("diff-index", "--cached", "-p", "--binary", *options, commit, changes=self._reads)
        large = sorted(path for path, why in hidden.items() if why == _LARGE)
        named = sorted({*hidden} - {*large[MOST_NAMED:]})
        head = [f"# {ascii(path)[1:-1]} is not shown: {hidden[path]}\n".encode() for path in named]
        if more := large[MOST_NAMED:]:
            head.append(f"# {len(more):,} more files are not shown: {_LARGE}\n".encode())
        return b"".join(head) + text

    def _hidden(self) -> dict[str, str]:
        """Return the files that the text does not show, and why; small files are shown first."""
        hidden, old, changed, shown = {}, {}, [], 0
        for file in self.entry["files"]:
            _, blob, size = self._committed.get(file["path"], ("", "", 0))
            if size is None:
                hidden[file["path"]] = "its content in the commit is not here"
            else:
                changed.append((file["size"] + size, file["path"], blob))
        for size, path, blob in sorted(changed):
            shown += size
            if shown > MOST_SHOWN:
                hidden[path] = _LARGE
            elif blob:
                old[path] = blob
        contents = contents_of(self.git, old.values(), self._reads)
        for path, blob in old.items():
            if why := reason_to_leave_out(path, contents[blob]):
                hidden[path] = f"in the commit, {why}"
        return hidden


@contextlib.contextmanager
def snapshot(
    entry: dict[str, Any], store: Path, repository: Repository | None, limits: Limits, kept: int
) -> Iterator[Snapshot]:
    """Give a snapshot of the folder of an entry, in a git folder of our own that is removed in the end.

    Raises:
        GitTrouble: git is not there, or the store leads elsewhere.
    """
    git_module(limits.seconds)  # before anything is made: without git there is no store
    make_store(store, entry["format"])
    settings = _settings(repository)
    with git_folder(
        Path(entry["path"]), object_format=entry["format"], settings=settings, seconds=limits.seconds
    ) as git:
        files = Snapshot(git, store, repository, limits, entry, kept)
        own = read_small(repository.common_folder / "info" / "exclude") if repository else b""
        (files.folder / "info" / "exclude").write_bytes(own + _CACHES_OF_PYTHON)
        yield files


def _settings(user: Repository | None) -> dict[str, str]:
    """Return our own settings, and those of a user that tell what a file system keeps and what is ignored."""
    found = {
        "core.fsync": "none,pack,pack-metadata",  # what is not packed yet lies in a temporary folder
        "core.bigfilethreshold": "1m",  # larger files count as binary: the diff of a file of 50 MB takes ten seconds
    }
    if user is None:
        return found
    # With a wrong value of these three git would find a difference in every file.
    for name, default in {"core.filemode": True, "core.ignorecase": False, "core.precomposeunicode": False}.items():
        found[name] = str(user.flag(name, default)).lower()
    for name in ("core.excludesfile", "core.attributesfile"):
        if path := user.settings.get(name):
            found[name] = os.path.expanduser(path)
    return found


def _join(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
