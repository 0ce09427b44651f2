"""run.json: what is written is read, whatever else happens to the file."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from train_manager import CheckpointError, InputError
from train_manager.runs.record.processes import this_process
from train_manager.runs.record.run_file import Entry, is_alive, outcome_of, read_runs, write_entry


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


def test_entries_stand_in_the_order_in_which_they_were_first_written(tmp_path: Path) -> None:
    for name in ("b", "a", "b"):
        write_entry(tmp_path, entry(name))

    assert [run["id"] for run in read_runs(tmp_path)] == ["b", "a"]


def test_an_entry_is_replaced_by_its_id(tmp_path: Path) -> None:
    write_entry(tmp_path, entry("a"))
    write_entry(tmp_path, entry("b"))
    write_entry(tmp_path, entry("a", outcome="completed"))

    assert [run["outcome"] for run in read_runs(tmp_path)] == ["completed", "running"]


def test_metrics_that_are_no_numbers_are_read_as_they_were(tmp_path: Path) -> None:
    write_entry(tmp_path, entry(metrics={"loss": math.nan, "valid/loss": -math.inf, "accuracy": 0.5}))
    write_entry(tmp_path, entry("b"))  # which writes the first one once more

    found = read_runs(tmp_path)[0]["metrics"]

    assert math.isnan(found["loss"])
    assert found["valid/loss"] == -math.inf
    assert found["accuracy"] == 0.5


def test_a_text_that_is_no_unicode_is_read_as_it_was(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write_entry(tmp_path, entry(command={"script": name}))

    assert read_runs(tmp_path)[0]["command"]["script"] == name


def test_a_folder_without_a_run_says_what_writes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_runs(tmp_path)

    assert str(caught.value) == (
        f"there is no {tmp_path / 'run.json'}, so no run was recorded there\n"
        "  RunRecord, one of the default extensions, writes it as a run opens"
    )


# ---- files that are not what they should be --------------------------------------------------------------------------

DAMAGED = {
    "empty": b"",
    "cut": b'{"schema": "train-manager/run", "version": 1, "runs": [{"id"',
    "no runs": b'{"schema": "train-manager/run", "version": 1}',
    "no outcome": b'{"schema": "train-manager/run", "version": 1, "runs": [{"id": "a", "began": "", "process": {}}]}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_moved_aside_and_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"^{re.escape(str(path))} is damaged: "):
        read_runs(tmp_path)

    with pytest.warns(RuntimeWarning, match=r"is damaged: .*; it was moved to run\.json\.damaged, and a new one is"):
        write_entry(tmp_path, entry())

    assert (tmp_path / "run.json.damaged").read_bytes() == content
    assert [run["id"] for run in read_runs(tmp_path)] == ["a"]


def test_a_second_damaged_file_leaves_the_first_where_it_is(tmp_path: Path) -> None:
    for content in ("1st", "2nd"):
        (tmp_path / "run.json").write_text(content)
        with pytest.warns(RuntimeWarning, match="is damaged"):
            write_entry(tmp_path, entry())

    assert (tmp_path / "run.json.damaged").read_text() == "1st"
    assert (tmp_path / "run.json.damaged-2").read_text() == "2nd"


def test_a_file_of_a_newer_version_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schema": "train-manager/run", "version": 2, "runs": {}}))
    before = path.read_bytes()

    with pytest.raises(InputError) as caught:
        write_entry(tmp_path, entry())

    assert path.read_bytes() == before
    assert str(caught.value) == (
        f"{path} was written by a newer train_manager (version 2); this one reads 1\n"
        "  update train_manager, or give another train_dir"
    )


def test_a_file_of_another_program_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"lr": 0.1}')

    with pytest.raises(InputError) as caught:
        write_entry(tmp_path, entry())

    assert path.read_text() == '{"lr": 0.1}'
    assert str(caught.value) == (
        f"{path} is not a file of train_manager\n"
        "  give a train_dir that no other program writes to, or rename that file"
    )


def test_what_a_killed_process_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-run.json-4711-a1b2c3").write_text("{")

    write_entry(tmp_path, entry())

    assert os.listdir(tmp_path) == ["run.json"]


# ---- how it ended ----------------------------------------------------------------------------------------------------


def test_a_run_of_this_process_is_running() -> None:
    assert is_alive(entry())
    assert outcome_of(entry()) == "running"


def test_a_run_whose_process_is_gone_ended_without_a_word() -> None:
    found = entry(process=ended_process())

    assert not is_alive(found)
    assert outcome_of(found) == f"ended without a word (process {found['process']['pid']} is gone)"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells when a process started")
def test_another_process_with_the_same_number_is_not_the_one_of_the_run() -> None:
    assert not is_alive(entry(process={**this_process(), "started": "00000000-1"}))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells that a process has ended")
def test_a_process_that_its_parent_has_not_asked_about_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        recorded = {**this_process(), "pid": process.pid, "started": "00000000-1"}
        process.stdout.read()  # returns as it ends

        assert not is_alive(entry(process=recorded))


def test_a_process_of_another_host_may_be_alive() -> None:
    found = entry(process={"pid": 12, "host": "node-7", "started": None})

    assert is_alive(found)
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


# ---- readers ---------------------------------------------------------------------------------------------------------


def test_reading_runs_imports_no_torch(tmp_path: Path) -> None:
    write_entry(
        tmp_path, entry(command={"kind": "script", "arguments": ["python", "a.py"]}, environment={"python": "3"})
    )
    program = f"""
import sys
from train_manager.runs.record import command, environment, fingerprint, run_file
found = run_file.read_runs({str(tmp_path)!r})[0]
command.run_again(found), run_file.outcome_of(found)
environment.variables({{}}), fingerprint.fingerprint(None)
print({{"torch", "numpy", "git", "pandas", "rich"}} & {{*sys.modules}})
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
