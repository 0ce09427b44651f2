"""Random edits of a real repository, as people and git make them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tests.runs.code.repositories import git

NAMES = [
    *(b"train.py", b"d", b"d/x.py", b"d/e", b"d/e/y.txt", b"with space", b"-dash", b'quo"te', b"new\nline", b"tab\t"),
    *(b"back\\slash", b"caf\xc3\xa9", b"\xff\xfe.bin", b".hidden", b"star*", b"[a-z]", b":(glob)x", b"!bang", b"#hash"),
    *(b"trailing ", b" leading", b"dir /in", b"'q'", b"$HOME", b"%s", b"long" * 40, b"\x01", b"~", b"x.txt", b"x.bin"),
    *(b"a => b", b"{a,b}", b"ignored.log", b"\xe2\x80\xae", b"b/" * 12 + b"deep", b"UPPER", b"diff --git a", b"cr\r"),
]
CONTENTS = [
    *(
        b"",
        b"\n",
        b"a line\n",
        b"no end",
        b"a\nb\nc\nd\ne\nf\ng\nh\n",
        b"a\nb\nC\nd\ne\nf\ng\nh",
        b"\0binary\0",
        b"\r\n",
    ),
    *(
        b"windows\r\nlines\r\n",
        b"mixed\nlines\r\nand\rall\r\n",
        b"$Id$\n",
        b"$Id: 0 $\n",
        b"\xff\xfea\0b\0\n\0",
        b"\xe9t\xe9",
    ),
    *(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n", b"@@ -1 +1 @@\n", b"index 0..1\n", b"GIT binary patch\n"),
    *(b"x" * 3000, bytes(range(256)) * 20, b"line\n" * 900, b" trailing  \n\t\n", b"\x1a", b"\xef\xbb\xbfbom\r\n"),
]
ATTRIBUTES = [
    *(b"", b"* text=auto\n", b"* text eol=crlf\n", b"* ident\n", b"*.txt working-tree-encoding=UTF-16LE\n"),
    *(b"* filter=x\n", b"[attr]lab text=auto ident\n* lab\nd/* -text filter=x\n", b"* -diff\n", b"* binary\n"),
]
DRIVER = ["-c", "filter.x.clean=tr a-z n-za-m", "-c", "filter.x.smudge=tr a-z n-za-m"]  # keeps the size
TARGETS = [b"train.py", b"/nowhere/at all", b"..", b"d", b"\xff", b"new\nline"]

Edit = Callable[[Path], None]


@dataclass(frozen=True)
class Step:
    """An edit, with a name that shows in a failure."""

    kind: str
    name: bytes = b""
    more: bytes = b""

    def make(self, root: Path) -> None:
        """Do it; what git or the file system refuses is left undone."""
        with contextlib.suppress(OSError):
            getattr(self, f"_{self.kind}")(root, os.path.join(os.fsencode(root), self.name))

    def _write(self, root: Path, path: bytes) -> None:
        _make_room(root, self.name)
        with open(path, "wb") as file:
            file.write(self.more)

    def _delete(self, root: Path, path: bytes) -> None:
        _remove(path)

    def _link(self, root: Path, path: bytes) -> None:
        _make_room(root, self.name)
        os.symlink(self.more, path)

    def _program(self, root: Path, path: bytes) -> None:
        os.chmod(path, os.stat(path).st_mode ^ 0o111)

    def _rename(self, root: Path, path: bytes) -> None:
        _make_room(root, self.more)
        os.rename(path, os.path.join(os.fsencode(root), self.more))

    def _touch(self, root: Path, path: bytes) -> None:
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)

    def _stage(self, root: Path, path: bytes) -> None:
        git(root, "--literal-pathspecs", *DRIVER, "add", "-A", "-f", "--", self.name, check=False)

    def _stage_all(self, root: Path, path: bytes) -> None:
        git(root, *DRIVER, "add", "-A", check=False)

    def _forget(self, root: Path, path: bytes) -> None:
        git(root, "--literal-pathspecs", "rm", "-q", "--cached", "-r", "--", self.name, check=False)

    def _assume(self, root: Path, path: bytes) -> None:
        git(root, "--literal-pathspecs", "update-index", "--assume-unchanged", "--", self.name, check=False)

    def _skip(self, root: Path, path: bytes) -> None:
        git(root, "--literal-pathspecs", "update-index", "--skip-worktree", "--", self.name, check=False)

    def _intend(self, root: Path, path: bytes) -> None:
        git(root, "--literal-pathspecs", "add", "-N", "--", self.name, check=False)

    def _status(self, root: Path, path: bytes) -> None:
        git(root, *DRIVER, "status", check=False)  # renews the times in the index


def _make_room(root: Path, name: bytes) -> None:
    place = os.fsencode(root)
    for part in name.split(b"/")[:-1]:
        place = os.path.join(place, part)
        if os.path.islink(place) or os.path.isfile(place):
            os.unlink(place)
        os.makedirs(place, exist_ok=True)
    _remove(os.path.join(os.fsencode(root), name))


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


names = st.sampled_from(NAMES)
contents = st.one_of(st.sampled_from(CONTENTS), st.binary(max_size=40))
commits = st.dictionaries(names, contents, min_size=1, max_size=8)
steps = st.one_of(
    st.builds(Step, st.just("write"), names, contents),
    st.builds(Step, st.just("write"), names, contents),
    st.builds(Step, st.just("link"), names, st.sampled_from(TARGETS)),
    st.builds(Step, st.just("rename"), names, names),
    st.builds(Step, st.sampled_from(["delete", "program", "touch", "stage", "forget", "assume", "skip"]), names),
    st.builds(Step, st.sampled_from(["intend", "stage_all", "status"]), names),
)
