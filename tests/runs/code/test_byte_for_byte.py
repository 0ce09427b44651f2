"""A record on its commit restores the working tree byte for byte, however it was edited."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.runs.code.edits import ATTRIBUTES, DRIVER, Step, commits, steps
from tests.runs.code.repositories import RUN, git, repository, tree
from tests.support.rotation import in_turn, share_of
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record

PARTS = range(10)
EXAMPLES = share_of(10)  # of each part: 200 at all places, a half of them with attributes
KINDS = {"without attributes": [b""], "with attributes": ATTRIBUTES[1:]}
settled = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def committed(folder: Path, files: dict[bytes, bytes], attributes: bytes = b"") -> Path:
    """A repository whose files were checked out as its attributes say."""
    root = repository(folder)
    for setting in DRIVER[1::2]:
        git(root, "config", *setting.split("=", 1))
    own = {b".gitattributes": attributes} if attributes else {}
    for name, content in {b".gitignore": b"*.log\n", **own, **files}.items():
        Step("write", name, content).make(root)
    for name in os.listdir(os.fsencode(root)):
        git(root, "--literal-pathspecs", "add", "-f", "--", name, check=False)
    git(root, "commit", "-q", "-m", "first", "--allow-empty")
    for name in _names(root, "ls-files"):
        os.unlink(os.path.join(os.fsencode(root), name))
    git(root, "reset", "-q", "--hard", check=False)
    for name in _names(root, "ls-files"):  # before the index was written, so that its times are trusted
        os.utime(os.path.join(os.fsencode(root), name), (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    git(root, "status")
    return root


def kept(root: Path) -> dict[str, tuple[str, bytes]]:
    """The files of a working tree, but for new ones that git ignores."""
    ignored = {*_names(root, "ls-files", "--others", "--ignored", "--exclude-standard")}
    ignored -= {*_names(root, "ls-tree", "-r", "--name-only", "HEAD")}
    return {name: told for name, told in tree(root).items() if os.fsencode(name) not in ignored}


def _names(root: Path, *command: str) -> list[bytes]:
    return git(root, *command, "-z").split(b"\0")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "part"), in_turn(KINDS, PARTS))
def test_what_is_restored_is_what_was_there(kind: str, part: int) -> None:
    @seed(part)
    @settled
    @given(files=commits, attributes=st.sampled_from(KINDS[kind]), edits=st.lists(steps, max_size=10))
    def check(files: dict[bytes, bytes], attributes: bytes, edits: list[Step]) -> None:
        base = Path(tempfile.mkdtemp())
        try:
            root = committed(base / "lab", files, attributes)
            for edit in edits:
                edit.make(root)
            record = take_code_record(root, base / "runs", RUN)
            assert record["reason"] is None

            restored = restore_code(base / "runs", RUN, base / "again")

            assert restored.problems == []
            assert tree(restored.root) == kept(root)
        finally:
            shutil.rmtree(base)

    check()
