"""The files of a folder as a git tree in the store of a train_dir, with all that their commit does not have.

Git reads each file once, into a temporary git folder. What is searched for secrets is what git has read, also if the
file changes meanwhile; only then it is packed into the store.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from train_manager.files.secrets import reason_to_leave_out
from train_manager.runs.code.git import Git
from train_manager.runs.code.left_out import Limits, reason_against_name
from train_manager.runs.code.record import leave_out, note
from train_manager.runs.code.working_tree import ABSENT, WorkingTree, joined

MOST_SHOWN: Final = 1_000_000  # bytes of the files that the text of differences shows
_LARGE: Final = "the differences would be too long"
_AS_PATCH: Final = ("-p", "--binary", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index")
_ENTRY: Final = re.compile(rb"(\d+) ([0-9a-f]+) \d\t([^\0]*)\0")  # of `git ls-files -s -z`


@final
@dataclass
class Snapshot:
    """The files of a folder, as they are now."""

    git: Git  # in a git folder of our own over the files; its index is that of the commit
    tree: WorkingTree  # what may differ from the commit
    entry: dict[str, Any]  # of the record; gets what is kept and what is not
    limits: Limits
    kept: int  # bytes so far, of all repositories of the record

    def keep(self, names: Iterable[str]) -> None:
        """Put files into the git folder, small ones first, so that data does not push code out."""
        names = sorted({*names}, key=lambda path: (self._size(path), os.fsencode(path)))
        chosen = [path for path in names if path not in self.tree.gone and self._may_keep(path)]
        # Each is entered anew, without times: git would trust those of a file that a conversion has changed.
        self._reset(path for path in chosen if path in self.tree.committed)
        self.git.run("update-index", "--force-remove", "-z", "--stdin", feed=joined(self.tree.gone))
        self.git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", feed=joined(chosen))
        index = _ENTRY.findall(self.git.run("ls-files", "-s", "-z"))
        files = {os.fsdecode(name): (mode.decode(), blob.decode()) for mode, blob, name in index}
        for path in self.tree.committed.keys() - files.keys():
            note(self.entry, path, "deleted", *self.tree.committed[path][:2], 0)
        changed = [path for path, file in files.items() if self.tree.committed.get(path, ABSENT)[:2] != file]
        secret = []
        for path, content in zip(changed, _contents(self.git, [files[path][1] for path in changed]), strict=True):
            if why := reason_to_leave_out(path, content):
                leave_out(self.entry, path, why)
                secret.append(path)
            else:
                status = "modified" if path in self.tree.committed else "added"
                note(self.entry, path, status, *files[path], len(content))
        self._reset(secret)
        self._forget({files[path][1] for path in secret} - {file["blob"] for file in self.entry["files"]})
        for found in (self.entry["files"], self.entry["left_out"]):
            found.sort(key=lambda one: os.fsencode(one["path"]))

    def _size(self, path: str) -> int:
        try:
            return os.lstat(self.git.folder / path).st_size
        except OSError:
            return 0

    def _may_keep(self, path: str) -> bool:
        """Return whether git may read a file, or take out the entry of a file that is gone."""
        place = self.git.folder / path
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return path in self.tree.committed
        if stat.S_ISDIR(found.st_mode):
            return path in self.tree.committed
        why = self._reason_against(path) or self.limits.reason_against(found.st_size, self.kept)
        if not stat.S_ISLNK(found.st_mode):
            if not stat.S_ISREG(found.st_mode):  # a pipe would not end
                why = "it is a pipe, a socket or a device"
            elif not os.access(place, os.R_OK):
                why = "it cannot be read"
        if why:
            leave_out(self.entry, path, why)
        else:
            self.kept += found.st_size
        return why is None

    def _reason_against(self, path: str) -> str | None:
        if path in self.tree.filters:
            return f"its filter {self.tree.filters[path]!r} keeps it secret in the repository"
        return reason_to_leave_out(path, None) or reason_against_name(path)

    def _reset(self, names: Iterable[str]) -> None:
        """Enter files into the index as the commit has them, without times; a file that it does not have is removed."""
        found = ((*self.tree.committed.get(path, ABSENT)[:2], path) for path in names)
        feed = b"".join(f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0" for mode, blob, path in found)
        self.git.run("update-index", "-z", "--index-info", feed=feed)

    def _forget(self, blobs: Iterable[str]) -> None:
        """Delete contents that were not to be kept, so that they are not packed into the store."""
        assert self.git.git_folder is not None
        for blob in blobs:
            (self.git.git_folder / "objects" / blob[:2] / blob[2:]).unlink()

    def differences(self, git: Git) -> bytes:
        """Return how the files differ from the commit, as a patch; a file that is not shown is named above it.

        The content that the commit has is searched for secrets too: a patch shows what was deleted.

        Args:
            git: the same, which reads the objects of the repository too.
        """
        if self.entry["commit"] is None or not self.entry["files"]:
            return b""
        hidden = self._find_hidden(git)
        self._reset(hidden)
        head = [f"# {ascii(path)[1:-1]} is not shown: {why}\n" for path, why in sorted(hidden.items()) if why != _LARGE]
        if count := len(hidden) - len(head):
            head.append(f"# {count:,} more {'file is' if count == 1 else 'files are'} not shown: {_LARGE}\n")
        return "".join(head).encode() + git.run("diff-index", "--cached", *_AS_PATCH, self.entry["commit"])

    def _find_hidden(self, git: Git) -> dict[str, str]:
        """Return the files that the text does not show, and why; small files are shown first."""
        files = {file["path"]: self.tree.committed.get(file["path"], ABSENT) for file in self.entry["files"]}
        sizes = {file["path"]: file["size"] + (files[file["path"]].size or 0) for file in self.entry["files"]}
        hidden, blobs, shown = {}, {}, 0
        for path in sorted(files, key=lambda path: (sizes[path], path)):
            shown += sizes[path]
            if files[path].size is None:
                hidden[path] = "its content in the commit is not here"
            elif shown > MOST_SHOWN:
                hidden[path] = _LARGE
            elif files[path] != ABSENT:
                blobs[path] = files[path].blob
        for path, content in zip(blobs, _contents(git, [*blobs.values()]), strict=True):
            if why := reason_to_leave_out(path, content):
                hidden[path] = f"in the commit, {why}"
        return hidden


def _contents(git: Git, blobs: Sequence[str]) -> Iterator[bytes]:
    """Yield the contents of blobs, none of which may be missing."""
    # One process for all blobs. Each answer is a line "<blob> blob <size>", the content and a newline.
    output, start = git.run("cat-file", "--batch", feed="".join(f"{blob}\n" for blob in blobs).encode()), 0
    for _ in blobs:
        begin = output.index(b"\n", start) + 1
        start = begin + int(output[start:begin].split()[2]) + 1
        yield output[begin : start - 1]
