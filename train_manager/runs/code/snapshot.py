"""The files of a folder as a git tree in the store of a train_dir, with all that their commit does not have.

Git reads each file once, into a temporary git folder. What is searched for secrets is what git has read, also if the
file changes meanwhile; only then it is packed into the store.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
class CodeSnapshot:
    """The files of a folder, as they are now."""

    git: Git  # in a git folder of our own over the files; its index is that of the commit
    tree: WorkingTree  # what may differ from the commit
    entry: dict[str, Any]  # of the record; gets what is kept and what is not
    limits: Limits
    kept: int  # bytes so far, of all repositories of the record
    known: Mapping[str, int]  # the sizes of what the store has, which was searched for secrets as it was stored

    def keep(self, names: Iterable[str]) -> None:
        """Put files into the git folder, small ones first, so that data does not push code out."""
        found = {path: self._look(path) for path in sorted({*names}, key=os.fsencode)}
        there = sorted(((file.st_size, path, file) for path, file in found.items() if file), key=lambda one: one[0])
        chosen = [path for _, path, file in there if self._may_keep(path, file)]
        # Each is entered anew, without times: git would trust those of a file that a conversion has changed.
        self._reset(path for path in chosen if path in self.tree.committed)
        self._remove(path for path, file in found.items() if file is None)  # a folder may be in its place
        self.git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", feed=joined(chosen))
        self._note_changes()

    def _note_changes(self) -> None:
        """Note what git has read that differs from the commit, and take out again what holds a secret."""
        index, committed = _ENTRY.findall(self.git.run("ls-files", "-s", "-z")), self.tree.committed
        files = {os.fsdecode(name): (mode.decode(), blob.decode()) for mode, blob, name in index}
        for path in committed.keys() - files.keys():
            note(self.entry, path, "deleted", *committed[path][:2], 0)
        changed = [path for path, file in files.items() if committed.get(path, ABSENT)[:2] != file]
        read = [blob for blob in dict.fromkeys(files[path][1] for path in changed) if blob not in self.known]
        contents = dict(zip(read, _contents(self.git, read), strict=True))
        secret = []
        for path in changed:
            mode, blob = files[path]
            why = reason_to_leave_out(path, contents[blob]) if blob in contents else None
            if why is not None:
                leave_out(self.entry, path, why)
                secret.append(path)
            else:
                size = len(contents[blob]) if blob in contents else self.known[blob]
                note(self.entry, path, "modified" if path in committed else "added", mode, blob, size)
        self._reset(secret)
        self._forget({files[path][1] for path in secret} - {file["blob"] for file in self.entry["files"]})
        for noted in (self.entry["files"], self.entry["left_out"]):
            noted.sort(key=lambda one: os.fsencode(one["path"]))

    def _look(self, path: str) -> os.stat_result | None:
        """Return what the file system says of a file or a link; None if it is gone, or a folder is in its place."""
        if path in self.tree.gone:
            return None
        try:
            found = os.lstat(self.git.folder / path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(found.st_mode) else found

    def _may_keep(self, path: str, file: os.stat_result) -> bool:
        """Return whether git may read a file, and note why not."""
        why = self._reason_against(path) or self.limits.reason_against(file.st_size, self.kept)
        if not stat.S_ISLNK(file.st_mode):
            if not stat.S_ISREG(file.st_mode):  # a pipe would not end
                why = "it is a pipe, a socket or a device"
            elif not os.access(self.git.folder / path, os.R_OK):
                why = "it cannot be read"
        if why:
            leave_out(self.entry, path, why)
        else:
            self.kept += file.st_size
        return why is None

    def _reason_against(self, path: str) -> str | None:
        if path in self.tree.filters:
            return f"its filter {self.tree.filters[path]!r} keeps it secret in the repository"
        return reason_to_leave_out(path, None) or reason_against_name(path)

    def _reset(self, names: Iterable[str]) -> None:
        """Enter files into the index as the commit has them, without times; a file that it does not have is removed."""
        names = [*names]
        known = ((self.tree.committed[path], path) for path in names if path in self.tree.committed)
        feed = b"".join(f"{file.mode} {file.blob}\t".encode() + os.fsencode(path) + b"\0" for file, path in known)
        self.git.run("update-index", "-z", "--index-info", feed=feed)
        self._remove(path for path in names if path not in self.tree.committed)

    def _remove(self, names: Iterable[str]) -> None:
        self.git.run("update-index", "--force-remove", "-z", "--stdin", feed=joined(names))

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
