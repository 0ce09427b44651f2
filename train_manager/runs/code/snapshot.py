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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.secrets import reason_to_leave_out
from train_manager.runs.code.facts import Repository
from train_manager.runs.code.git import Git, GitTrouble, contents_of, first_line, git_module, sizes_of
from train_manager.runs.code.git_folder import AS_THEY_ARE, git_folder, read_small, reading
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
# A line of `git ls-tree -r -z`: mode, kind, blob, with `-l` the size (a partial clone may lack it), and name.
_COMMITTED: Final = re.compile(rb"(\d+) \w+ ([0-9a-f]+)( +\S+)?\t([^\0]*)\0")
_CONVERTING: Final = ("text", "eol", "filter", "ident", "working-tree-encoding")
# Names of filters such as git-crypt and sops: their files are plain text here and encrypted in the repository.
_ENCRYPTS: Final = re.compile(r"crypt|secret|sops|vault|\bage\b|gpg", re.IGNORECASE)
_CACHES_OF_PYTHON: Final = b"\n__pycache__/\n"


@final
@dataclass
class Changed:
    """What of a working tree a record keeps, and what not."""

    files: list[dict[str, Any]] = field(default_factory=list)  # added, modified or deleted: an entry for each
    left_out: list[dict[str, Any]] = field(default_factory=list)  # an entry for each file or folder, with the reason
    kept: int = 0  # bytes so far, of all repositories of the record

    def leave_out(self, path: str, why: str, size: int = 0, time: int = 0) -> None:
        """Name a file or a folder that is not kept, and why; a file with its size and its time of change."""
        self.left_out.append({"path": path, "why": why, "size": size, "time": time})


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
    # O_NONBLOCK: the file may have become a pipe since lstat, and opening a pipe waits for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if why := limits.reason_against(found.st_size, kept):
                raise LeftOut(why)
            content = file.read(limits.file + 1)
            if why := limits.reason_against(len(content), kept):  # it grew meanwhile
                raise LeftOut(why)
    except PermissionError as error:
        raise LeftOut(f"it cannot be read: {error.strerror}") from None
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
        folder: that git folder.
        root: the folder of the files.
        store: of the train_dir.
        repository: what git says of the files; None if they are not in a repository.
        limits: how much is kept.
        changed: gets what is kept and what is not.
    """

    def __init__(
        self,
        git: Git,
        folder: Path,
        root: Path,
        store: Path,
        repository: Repository | None,
        limits: Limits,
        changed: Changed,
    ) -> None:
        self.git, self.folder, self.root, self.store = git, folder, root, store
        self.limits, self.changed = limits, changed
        self.object_format = repository.object_format if repository else "sha1"
        self._user = repository
        self._keeps_modes = repository is None or repository.flag("core.filemode", True)
        self._reads = reading(*([repository.objects] if repository else []), store / "objects")
        self._known: set[str] = set()  # contents in the store, which were searched for secrets as they were stored
        self._encrypted: dict[str, str] = {}  # the filter of a file that encrypts it in the repository
        self._committed: dict[str, tuple[str, str]] = {}  # mode and blob of each file of the commit, by its path
        self.submodules: dict[str, str] = {}  # the commit of each, by its path
        self.nested: list[str] = []  # folders with a repository of their own, which are not submodules
        self.complaints: list[str] = []  # folders that git could not open
        self.names: list[str] = []  # files that may have changed
        self.new: list[str] = []
        self._links: dict[str, bool] = {}  # whether a folder is reached through a link

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
        converted = self._find_converted()
        others = self._list()
        self.nested = [name[:-1] for name in others if name.endswith("/") and name[:-1] not in self.submodules]
        # Through a link in the place of its folder git would see another file.
        behind = {name for name in self._committed if self._is_behind_a_link(name)}
        # A file that a sparse checkout leaves out is as in the commit; if it lies there all the same, it may have run.
        absent = {name for name, tag in staged.items() if tag in "Ss" and not self._is_there(name)}
        self.names = [*({*others, *converted, *behind} & self._committed.keys() - absent)]
        # `git add --force` stages files that are ignored.
        forced = {name for name in staged.keys() - self._committed.keys() if self._is_there(name)}
        self.new = [name for name in {*others, *forced} - self._committed.keys() if not name.endswith("/")]
        self._attributes(self.new)

    def _copy_index(self, source: Path) -> None:
        if not source.is_file():  # also if it is a link to a device, of which a copy would not end
            return
        with contextlib.suppress(FileNotFoundError):
            # copy2 keeps the time of the index: git compares an entry by content if it changed as late as the index.
            shutil.copy2(source, self.folder / "index")
            index = (self.folder / "index").read_bytes()
            for shared in source.parent.glob("sharedindex.*"):  # where the index is split: its greater part
                with contextlib.suppress(ValueError):  # the suffix is not a hash: a file of another program
                    if bytes.fromhex(shared.suffix[1:]) in index:
                        shutil.copy2(shared, self.folder / shared.name)

    def _staged(self) -> dict[str, str]:
        """Return the tag of each entry of the index, by its path."""
        lines = self.git.run("ls-files", "-v", "-z", changes=self._reads).split(b"\0")[:-1]
        return {os.fsdecode(line[2:]): line[:1].decode() for line in lines}

    def _list_commit(self) -> None:
        """List the files of the commit, and take its submodules out of the index: each has an entry of its own."""
        for mode, blob, _, path in self._tree():
            if mode == SUBMODULE:
                self.submodules[path] = blob
            else:
                self._committed[path] = mode, blob
        if self.submodules:
            self.git.run("update-index", "--force-remove", "-z", "--stdin", feed=_join([*self.submodules]))

    def _tree(self, *options: str) -> Iterator[tuple[str, str, bytes, str]]:
        if self._user is not None and self._user.commit is not None:
            command = ("ls-tree", "-r", "-z", "--full-tree", *options, self._user.commit)
            for mode, blob, size, name in _COMMITTED.findall(self.git.run(*command, changes=self._reads)):
                yield mode.decode(), blob.decode(), size.strip(), os.fsdecode(name)

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

    def _find_converted(self) -> list[str]:
        """Return the files whose bytes are others than those of the commit although git calls them unchanged.

        Line ends, keywords, encodings and filters make other bytes of a file as it is checked out. Its size mostly
        differs from that of its blob. Where the attributes of a file may keep the size, git forgets its time and
        compares what it holds; a file that is too large to be kept is taken at its time.
        """
        assert self._user is not None
        asked = self._attributes(self._committed)
        has_ends = self._user.settings.get("core.autocrlf", "").lower() not in ("", "false", "no", "off", "0")
        # Attributes may have changed since the files were checked out.
        if not (asked or has_ends or any(path.endswith(".gitattributes") for path in self._committed)):
            return []
        converted, doubtful = [], []
        for mode, blob, size, path in self._tree("-l"):
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(self.root, path)).st_size
                if b"%d" % found != size and mode != SUBMODULE:
                    converted.append(path)
                elif asked.get(path, set()) - {b"text", b"eol"} and found <= self.limits.file:
                    doubtful.append((mode, blob, path))
        self._enter(doubtful)
        return converted

    def _attributes(self, names: Iterable[str]) -> dict[str, set[bytes]]:
        """Return the attributes of files that may convert them, and note the files that a filter encrypts."""
        assert self._user is not None
        # This command must see the user's attributes, which AS_THEY_ARE hides from every other one.
        attributes = self.folder / "info" / "attributes"
        attributes.write_bytes(read_small(self._user.common_folder / "info" / "attributes"))
        answers = self.git.run("check-attr", "-z", "--stdin", *_CONVERTING, feed=_join(names)).split(b"\0")
        attributes.write_bytes(AS_THEY_ARE)
        found: dict[str, set[bytes]] = {}
        # Triples of path, attribute and value.
        for path, name, value in zip(answers[0::3], answers[1::3], answers[2::3], strict=False):
            if value not in (b"unspecified", b"unset"):
                found.setdefault(os.fsdecode(path), set()).add(name)
                if name == b"filter" and _ENCRYPTS.search(filter_name := os.fsdecode(value)):
                    self._encrypted[os.fsdecode(path)] = filter_name
        return found

    def _is_there(self, path: str) -> bool:
        """Return whether a file or a link is there, by real folders only."""
        full = self.root / path
        return not self._is_behind_a_link(path) and (full.is_symlink() or (full.exists() and not full.is_dir()))

    def _is_behind_a_link(self, path: str) -> bool:
        folder = os.path.dirname(path)
        if folder not in self._links:
            self._links[folder] = bool(folder) and ((self.root / folder).is_symlink() or self._is_behind_a_link(folder))
        return self._links[folder]

    # ---- what they hold ------------------------------------------------------------------------------------------

    def keep(self, names: Iterable[str]) -> None:
        """Put the content of files into the git folder, small files first, so that data does not push code out."""
        self._known = names_in_store(self.git, self.store)
        entries: list[tuple[str, str, str]] = []
        for path in sorted({*names}, key=lambda path: (self._size(path), os.fsencode(path))):
            entries += self._take(path)
        # What is gone makes room first: a file may lie where a folder was.
        self._enter(sorted(entries, key=lambda entry: entry[0] != "0"))
        for found in (self.changed.files, self.changed.left_out):
            found.sort(key=lambda one: os.fsencode(one["path"]))

    def _take(self, path: str) -> Iterable[tuple[str, str, str]]:
        """Return the entry of a file for the index; none if it is as in the commit, or left out."""
        committed, place = self._committed.get(path), os.path.join(self.root, path)
        try:
            if self._is_behind_a_link(path):
                raise NotADirectoryError
            os.lstat(place)  # what is gone has no secrets
            if why := self._reason_against_name(path):
                raise LeftOut(why)
            mode, content = read_now(place, self.limits, self.changed.kept)
        except LeftOut as reason:
            self._leave_out(path, str(reason))
            return []
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if committed is None:  # the program has deleted the file since git listed it
                return []
            self._note(path, "deleted", *committed, size=0)
            return [("0", "0" * len(committed[1]), path)]
        # Where the file system has no executable bit, the mode of the commit counts; a link is a link everywhere.
        if not self._keeps_modes and committed and {mode, committed[0]} == {FILE, PROGRAM}:
            mode = committed[0]
        blob = blob_of(content, self.object_format)
        if (mode, blob) == committed:
            return []
        if blob not in self._known:
            if why := reason_to_leave_out(path, content):
                self._leave_out(path, why)
                return []
            self._write(blob, content)
        self.changed.kept += len(content)
        self._note(path, "modified" if committed else "added", mode, blob, size=len(content))
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

    def _leave_out(self, path: str, why: str) -> None:
        with contextlib.suppress(OSError):
            found = os.lstat(os.path.join(self.root, path))
            self.changed.leave_out(path, why, found.st_size, found.st_mtime_ns)

    def _note(self, path: str, status: str, mode: str, blob: str, size: int) -> None:
        self.changed.files.append({"path": path, "status": status, "mode": mode, "blob": blob, "size": size})

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
        pack_into_store(self.git, self.folder, self.store, name, tree)
        return tree

    # ---- as text for people --------------------------------------------------------------------------------------

    def differences(self) -> bytes:
        """Return how the files differ from the commit, as a patch; a file that is not shown is named above it.

        The content that the commit has is searched for secrets too: a patch shows what was deleted.
        """
        commit = self._user.commit if self._user else None
        if commit is None or not self.changed.files:
            return b""
        hidden = self._hidden()
        self._enter((*self._committed.get(path, ("0", "0" * len(commit))), path) for path in hidden)
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
        paths = [file["path"] for file in self.changed.files if file["path"] in self._committed]
        old = {path: self._committed[path][1] for path in paths}
        sizes = sizes_of(self.git, old.values(), self._reads)
        hidden = {path: "its content in the commit is not here" for path, blob in old.items() if blob not in sizes}
        shown = 0
        for size, path in sorted(
            (file["size"] + sizes.get(old.get(file["path"], ""), 0), file["path"]) for file in self.changed.files
        ):
            shown += size
            if shown > MOST_SHOWN:
                hidden[path] = _LARGE
        old = {path: blob for path, blob in old.items() if path not in hidden}
        contents = contents_of(self.git, old.values(), self._reads)
        for path, blob in old.items():
            if why := reason_to_leave_out(path, contents[blob]):
                hidden[path] = f"in the commit, {why}"
        return hidden


@contextlib.contextmanager
def snapshot(
    root: Path, store: Path, repository: Repository | None, limits: Limits, changed: Changed
) -> Iterator[Snapshot]:
    """Give a snapshot of a folder, in a git folder of our own that is removed in the end.

    Raises:
        GitTrouble: git is not there, or the store leads elsewhere.
    """
    object_format = repository.object_format if repository else "sha1"
    git_module(limits.seconds)  # before anything is made: without git there is no store
    make_store(store, object_format)
    with git_folder(root, object_format=object_format, settings=_settings(repository), seconds=limits.seconds) as (
        git,
        folder,
    ):
        own = read_small(repository.common_folder / "info" / "exclude") if repository else b""
        (folder / "info" / "exclude").write_bytes(own + _CACHES_OF_PYTHON)
        yield Snapshot(git, folder, root, store, repository, limits, changed)


def _settings(user: Repository | None) -> dict[str, str]:
    """Return our own settings, and those of a user that tell what a file system keeps and what is ignored."""
    found = {
        "fsync": "none,pack,pack-metadata",  # what is not packed yet lies in a temporary folder
        "bigfilethreshold": "1m",  # larger files count as binary: the diff of a file of 50 MB takes ten seconds
    }
    if user is None:
        return found
    # With a wrong value of these three git would find a difference in every file.
    for name, default in {"filemode": True, "ignorecase": False, "precomposeunicode": False}.items():
        found[name] = str(user.flag(f"core.{name}", default)).lower()
    for name in ("excludesfile", "attributesfile"):
        if path := user.settings.get(f"core.{name}"):
            found[name] = os.path.expanduser(path)
    return found


def _join(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
