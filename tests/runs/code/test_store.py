"""What a record keeps is stored once, and a killed process leaves nothing that misleads."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.runs.code.repositories import RUN, contents_of, git, repository, tree, write
from tests.support.fork_server import ForkServer
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record


def record_again_and_again(root: Path, train_dir: Path, number: int) -> None:
    os.setpgid(0, 0)  # so that a kill ends its git too
    for count in itertools.count(1):
        record = take_code_record(root, train_dir, f"{number:08x}{count:08x}")
        assert record["reason"] is None, record["reason"]
        print(f"record {count}", flush=True)


def test_a_run_of_the_same_code_needs_no_further_pack(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1", "lib/net.py": b"n"})
    write(root, {"train.py": b"2"})
    packs = []
    for number in range(3):
        take_code_record(root, tmp_path / "runs", f"{number:016x}")
        packs.append(sorted((tmp_path / "runs/code/git/objects/pack").iterdir()))

    assert packs[0] == packs[1] == packs[2]
    assert len([path for path in packs[0] if path.suffix == ".pack"]) == 1


def test_git_finds_the_store_sound_and_collects_nothing(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1", "lib/net.py": b"n"})
    for number in range(2):
        write(root, {"train.py": b"%d" % (number + 2)})
        take_code_record(root, tmp_path / "runs", f"{number:016x}")
    store = tmp_path / "runs/code/git"
    before = contents_of(tmp_path / "runs")

    git(store, "gc", "-q")
    git(store, "fsck")

    assert contents_of(tmp_path / "runs") == before
    take_code_record(root, tmp_path / "runs", RUN)  # after a collection too
    assert tree(restore_code(tmp_path / "runs", RUN, tmp_path / "again").root) == tree(root)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.parametrize(
    "moment", ["take.pack_into_store", "store.replace_file", "take.replace_file", "record.replace_file"]
)
def test_a_process_that_is_killed_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    write(root, {"train.py": b"2", "new.py": b"n"})
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(f"train_manager.runs.code.{moment}", lambda *_, **__: os._exit(9))
        take_code_record(root, tmp_path / "runs", RUN)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    assert not [*(tmp_path / "runs").rglob("*.json")]
    take_code_record(root, tmp_path / "runs", RUN)
    assert tree(restore_code(tmp_path / "runs", RUN, tmp_path / "again").root) == tree(root)


@pytest.mark.whole
@pytest.mark.slow
def test_of_eight_processes_that_record_at_once_some_are_killed_and_every_record_is_whole(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1", "lib/net.py": b"n"})
    write(root, {f"new{number}.py": b"%d" % number for number in range(20)})
    children = [fork_server.start(record_again_and_again, root, tmp_path / "runs", number) for number in range(8)]
    chance = random.Random(0)
    for child in children:  # each has taken a record before it is killed in the middle of another
        child.wait_for("record 1")
    for child in children:
        until = time.monotonic() + chance.random() / 10
        while time.monotonic() < until:
            pass
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL

    records = [path.stem for path in (tmp_path / "runs/code").glob("*.json")]
    assert {name[:8] for name in records} == {f"{number:08x}" for number in range(8)}
    for number, name in enumerate(records):
        restored = restore_code(tmp_path / "runs", name, tmp_path / str(number))
        assert (tree(restored.root), restored.problems) == (tree(root), [])


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    packs = tmp_path / "runs/code/git/objects/pack"
    write(packs, {"tmp_pack_old": b"x", "tmp_pack_new": b"x"})
    os.utime(packs / "tmp_pack_old", (1, 1))

    record = take_code_record(root, tmp_path / "runs", RUN)

    assert record["reason"] is None
    assert [path.name for path in packs.glob("tmp_*")] == ["tmp_pack_new"]
    assert json.loads((tmp_path / "runs/code" / f"{RUN}.json").read_bytes()) == record
