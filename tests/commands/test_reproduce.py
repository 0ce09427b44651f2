from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.reproducing import Project
from train_manager import cli
from train_manager.extensions import RunRecord
from train_manager.testing import tiny_manager


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Project:
    """A long training, of whose record only the beginning is kept."""
    project = Project(tmp_path_factory.mktemp("project") / "digits").make()
    project.train(fork_server, epochs=3)
    run_file = project.train_dir / "run.json"
    run_file.write_text(run_file.read_text().replace('"digits.train", "3"', '"digits.train", "1000000"'))
    return project


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
def test_a_run_is_compared_up_to_a_step(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["reproduce", str(project.train_dir), "--steps", "7"])

    out, _ = capfd.readouterr()
    assert code == 0, out
    assert "identical up to step 7: 7 losses and 11 figures, bit for bit\n  compared up to step 7, as asked; " in out


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


def test_a_folder_without_a_record_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", str(tmp_path)]) == 2

    assert capsys.readouterr().err == (
        f"train-manager: there is no {tmp_path}/run.json, so no run was recorded there\n"
        "  RunRecord, one of the default extensions, writes it as a run opens\n"
    )


def test_a_run_without_figures_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()

    assert cli.main(["reproduce", str(tmp_path), "--here"]) == 2

    assert capsys.readouterr().err == (
        f"train-manager: {tmp_path} has no metrics\n  give the train_dir of a training with the extension MetricStore\n"
    )


def test_steps_must_be_a_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", str(tmp_path), "--steps", "0"]) == 2

    assert "steps must be a whole number of at least 1, but is 0" in capsys.readouterr().err
