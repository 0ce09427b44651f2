from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.reproducing import Project
from train_manager import cli
from train_manager.extensions import MetricStore, RunRecord
from train_manager.runs.record.run_file import read_runs, write_entry
from train_manager.testing import tiny_manager


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Project:
    """A long training, of whose record only the beginning is kept."""
    project = Project(tmp_path_factory.mktemp("project") / "digits").make()
    project.train(fork_server, epochs=3)
    project.edit_record('"digits.train", "3"', '"digits.train", "1000000"')
    return project


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
def test_a_run_is_compared_up_to_a_step(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["reproduce", str(project.train_dir), "--steps", "7"])

    out, _ = capfd.readouterr()
    assert code == 0, out
    assert "identical up to step 7: 7 losses and 11 metrics, bit for bit\n  compared up to step 7, as asked; " in out


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
def test_ctrl_c_ends_the_program_and_removes_its_files(
    project: Project, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupt() -> None:
        while not list(tmp_path.glob("reproduce-*/train_dir/metrics.sqlite")):
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    code = cli.main(["reproduce", str(project.train_dir), "--quiet"])
    waiting.join()

    assert code == 130
    assert capfd.readouterr().err.endswith("train-manager: interrupted; the program was ended, and its files removed\n")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_metrics_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()

    assert cli.main(["reproduce", str(tmp_path), "--here"]) == 2

    assert capsys.readouterr().err == (
        f"train-manager: {tmp_path} has no metrics\n  give the train_dir of a training with the extension MetricStore\n"
    )


def test_steps_must_be_a_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", str(tmp_path), "--steps", "0"]) == 2

    assert "steps must be a whole number of at least 1, but is 0" in capsys.readouterr().err


def test_no_error_prints_a_record_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_manager(RunRecord(), MetricStore(), train_dir=tmp_path).train()
    entry = read_runs(tmp_path)[0]
    write_entry(tmp_path, {**entry, "command": {**entry["command"], "kind": "script"}})
    record = {"schema": "train-manager/code", "version": 3, "reason": "\x1b[31mred", "repositories": []}
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{entry['id']}.json").write_text(json.dumps(record))

    assert cli.main(["reproduce", str(tmp_path)]) == 2

    assert capsys.readouterr().err == (
        "train-manager: the code of this run was not recorded: \\x1b[31mred\n"
        "  --here runs the program as it is now, and compares the metrics\n"
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A run that says that it is of another machine."""
    tiny_manager(RunRecord(), MetricStore(), train_dir=tmp_path / "run").train()
    (path,) = (tmp_path / "run").glob("run-*.json")
    path.write_text(path.read_text().replace(f'"host": "{socket.gethostname()}"', '"host": "else\\u001b[31mwhere"'))
    entry = read_runs(tmp_path / "run")[0]
    write_entry(tmp_path / "run", {**entry, "command": {**entry["command"], "kind": "script"}})
    return tmp_path / "run"


def test_without_a_terminal_a_foreign_record_is_refused(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", str(foreign), "--here"]) == 2

    assert capsys.readouterr().err == (
        "train-manager: the record may not be yours: it was recorded on another machine, 'else\\x1b[31mwhere'\n"
        "  look at the command and at the code of the record, and give --yes if you trust them\n"
    )


@pytest.mark.parametrize("answer", ["", "No"])
def test_at_a_terminal_a_foreign_record_is_asked_about(
    foreign: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    asked: list[str] = []

    def answer_question(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("builtins.input", answer_question)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)

    assert cli.main(["reproduce", str(foreign), "--here"]) == 2

    assert capsys.readouterr().err == "train-manager: the program was not run, as the answer was no\n"
    assert asked[0].endswith("'else\\x1b[31mwhere'. Run its program? [y/N] ")
