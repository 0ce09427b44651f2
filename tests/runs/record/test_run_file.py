"""run-<id>.json: what is written is read, whatever else happens to the file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal
from train_manager.errors import CheckpointError
from train_manager.runs.record import run_file
from train_manager.runs.record.processes import is_gone, this_process
from train_manager.runs.record.run_file import Entry, RunWriter, outcome_of, read_runs, write_entry
from train_manager.telling.errors import TrainManagerError


def entry(name: str = "a", **parts: Any) -> Entry:
    began = "2026-01-02T03:04:05.678+00:00"
    return {"id": name, "began": began, "outcome": "running", "process": this_process(), "metrics": {}, **parts}


def ended_process() -> dict[str, Any]:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return {**this_process(), "pid": process.pid}


# ---- written and read ------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = entry(seed=None, parameters={"lr": [0.1, "text"]}, progress={"steps": 3})

    write_entry(tmp_path, written)

    assert read_runs(tmp_path) == [written]


def test_the_oldest_run_stands_first_and_of_two_the_smaller_id(tmp_path: Path) -> None:
    began = {"b": "2026-01-02T03:04:05+00:00", "c": "2026-01-02T05:00:00+02:00", "a": "2026-01-02T03:04:05+00:00"}
    for name, time in began.items():
        write_entry(tmp_path, entry(name, began=time))

    assert [run["id"] for run in read_runs(tmp_path)] == ["c", "a", "b"]


def test_metrics_that_are_no_numbers_are_read_as_they_were(tmp_path: Path) -> None:
    write_entry(tmp_path, entry(metrics={"loss": math.nan, "valid/loss": -math.inf, "accuracy": 0.5}))

    found = read_runs(tmp_path)[0]["metrics"]

    assert math.isnan(found["loss"])
    assert found["valid/loss"] == -math.inf
    assert found["accuracy"] == 0.5


def test_a_text_that_is_no_unicode_is_read_as_it_was(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write_entry(tmp_path, entry(command={"script": name}))

    assert read_runs(tmp_path)[0]["command"]["script"] == name


def test_a_folder_without_a_run_says_what_writes_it(tmp_path: Path) -> None:
    assert refusal(lambda: read_runs(tmp_path)) == (
        f"no run was recorded in {tmp_path}: it has no file run-<id>.json\n"
        "  RunRecord, one of the default extensions, writes one as a run opens"
    )


# ---- files that are not what they should be --------------------------------------------------------------------------


def content(**parts: Any) -> bytes:
    return json.dumps({"schema": "train-manager/run", "version": 1, **entry(), **parts}).encode()


REFUSED = {
    "empty": (b"", "is damaged: Expecting value: line 1 column 1 (char 0)"),
    "cut": (content()[:-9], "is damaged: "),
    "deep": (b"[" * 100_000, "is damaged: "),
    "not UTF-8": (b"\xff{}", "is damaged: "),
    "no outcome": (content(outcome=None), "is damaged: it has nothing at outcome, where a text belongs"),
    "no process": (content(process=None), "is damaged: it has nothing at process, where an object belongs"),
    "another id": (content(id="b"), "is damaged: it has 'b' at id, where the run of its name belongs"),
    "newer": (
        content(version=2),
        "was written by a newer train_manager (version 2); this one reads 1\n"
        "  update train_manager, or give another train_dir",
    ),
    "foreign": (
        b'{"lr": 0.1}',
        "is not a file of train_manager\n  give a train_dir that no other program writes to, or rename that file",
    ),
}


@pytest.mark.parametrize(("written", "told"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_cannot_be_read_is_named_and_stays_as_it_is(tmp_path: Path, written: bytes, told: str) -> None:
    path = tmp_path / "run-a.json"
    path.write_bytes(written)

    with pytest.raises(TrainManagerError) as read:
        read_runs(tmp_path)
    with pytest.raises(TrainManagerError) as replaced:
        write_entry(tmp_path, entry())

    assert path.read_bytes() == written
    assert str(read.value) == str(replaced.value)
    assert str(read.value).startswith(f"{path} {told}")


WRONG = {
    "began": ("yesterday", "a time with its zone"),
    "ended": ("2026-05-01T12:00:00", "a time with its zone"),
    "outcome": (3, "a text"),
    "goes_on_from": ([], "an object"),
    "command": ("train.py", "an object"),
    "manager": ("1", "a whole number"),
    "metrics": ([0.5], "an object"),
    "findings": ({}, "a list"),
}


@pytest.mark.parametrize("key", WRONG)
def test_a_value_of_a_wrong_type_is_named_by_its_key(tmp_path: Path, key: str) -> None:
    value, word = WRONG[key]
    path = tmp_path / "run-a.json"
    path.write_bytes(content(**{key: value}))

    assert (
        refusal(lambda: read_runs(tmp_path), CheckpointError)
        == f"{path} is damaged: it has {value!r} at {key}, where {word} belongs"
    )


def test_beside_a_damaged_file_the_others_are_read_with_a_warning(tmp_path: Path) -> None:
    write_entry(tmp_path, entry("b"))
    (tmp_path / "run-a.json").write_bytes(content(progress=3))

    with pytest.warns(RuntimeWarning, match=r"left out: .*run-a\.json is damaged: it has 3 at progress, where an obj"):
        found = read_runs(tmp_path)

    assert [run["id"] for run in found] == ["b"]


# ---- how it ended ----------------------------------------------------------------------------------------------------


def test_a_run_of_this_process_is_running() -> None:
    assert not is_gone(entry()["process"])
    assert outcome_of(entry()) == "running"


def test_a_run_whose_process_is_gone_ended_without_a_word() -> None:
    found = entry(process=ended_process())

    assert is_gone(found["process"])
    assert outcome_of(found) == f"ended without a word (process {found['process']['pid']} is gone)"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells when a process started")
def test_another_process_with_the_same_number_is_not_the_one_of_the_run() -> None:
    assert is_gone({**this_process(), "started": "00000000-1"})


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells that a process has ended")
def test_a_process_that_its_parent_has_not_asked_about_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        recorded = {**this_process(), "pid": process.pid, "started": "00000000-1"}
        process.stdout.read()  # returns as it ends

        assert is_gone(recorded)


def test_a_process_of_another_host_may_be_alive() -> None:
    found = entry(process={"pid": 12, "host": "node-7", "started": None})

    assert not is_gone(found["process"])
    assert outcome_of(found) == "running, or ended without a word (process 12 on host node-7)"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"outcome": "completed"}, "completed"),
        ({"outcome": "stopped", "reason": "SIGTERM"}, "stopped: SIGTERM"),
        ({"outcome": "failed", "error": {"type": "OSError", "message": "", "stage": None}}, "failed: OSError"),
    ],
)
def test_an_outcome_in_words(parts: dict[str, Any], words: str) -> None:
    assert outcome_of(entry(**parts)) == words


# ---- how often it is written -----------------------------------------------------------------------------------------


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_file_is_recent_for_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(run_file, "time", clock)
    writer = RunWriter(tmp_path, "a")
    seen = [writer.is_recent]
    writer.write(entry())
    for _ in range(2):
        clock.seconds += 0.5
        seen.append(writer.is_recent)

    assert seen == [False, True, False]


def test_it_writes_where_it_began_also_if_the_program_goes_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = RunWriter(Path("runs"), "a")
    monkeypatch.chdir("/")
    writer.write(entry())

    assert (tmp_path / "runs" / "run-a.json").exists()


# ---- readers ---------------------------------------------------------------------------------------------------------
