from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs.record.sample_runs import entry, write_runs
from tests.runs.showing.stored import trained
from train_manager import cli
from train_manager.runs.record.processes import this_process


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(write_runs(tmp_path / "run", entry()))


def report_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of a report that cannot be made."""
    assert cli.main(["report", *arguments]) == 2
    return capsys.readouterr().err


def test_a_page_is_written_into_the_train_dir(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", run]) == 0

    assert capsys.readouterr().out == f"written to {run}/report.html\n"
    assert Path(run, "report.html").read_text().startswith("<!DOCTYPE html>")


def test_the_curves_are_written_as_lines_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained(tmp_path / "run", epochs=1)

    assert cli.main(["report", str(folder), "--points", str(tmp_path / "points.jsonl")]) == 0

    lines = [json.loads(line) for line in (tmp_path / "points.jsonl").read_text().splitlines()]
    assert lines[-2:] == [
        {"run": "run", "plot": "lr", "curve": "lr", "step": 1, "value": 0.5},
        {"run": "run", "plot": "lr", "curve": "lr", "step": 3, "value": 0.5},
    ]
    assert [line["step"] for line in lines if (line["plot"], line["curve"]) == ("loss", "valid")] == [0, 3]


def renews(page: Path) -> object:
    """After how many seconds a page loads itself again."""
    text = page.read_text()
    return json.loads(text[text.index('"renews":') + len('"renews":') :].split("}")[0])


def test_the_page_is_written_again_until_the_run_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, seen = tmp_path / "run" / "report.html", list[object]()
    write_runs(tmp_path / "run", entry(outcome="running", ended=None, process=this_process()))

    def sleep(seconds: float) -> None:
        seen.append((seconds, renews(page)))
        if len(seen) == 3:
            write_runs(tmp_path / "run", entry())

    monkeypatch.setattr("train_manager.commands.report.sleep", sleep)

    assert cli.main(["report", str(tmp_path / "run"), "--every", "10"]) == 0
    assert seen == [(10.0, 10.0)] * 3
    assert renews(page) is None


@pytest.mark.parametrize("has_file", [True, False])
def test_after_ctrl_c_the_page_renews_itself_no_more(
    has_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_file:
        write_runs(tmp_path, entry(outcome="running", ended=None, process=this_process()))
    else:
        next(trained(tmp_path).glob("run-*.json")).unlink()

    def interrupted(seconds: float) -> None:
        assert renews(tmp_path / "report.html") == seconds
        raise KeyboardInterrupt

    monkeypatch.setattr("train_manager.commands.report.sleep", interrupted)

    assert cli.main(["report", str(tmp_path), "--every", "10"]) == 0
    assert renews(tmp_path / "report.html") is None


def test_a_run_that_has_ended_is_written_once_also_if_it_would_be_renewed(run: str) -> None:
    assert cli.main(["report", run, "--every", "1000"]) == 0


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_period_is_some_seconds(seconds: str, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = f"train-manager: a page cannot be renewed every {seconds} s\n  give some seconds: --every 10\n"

    assert report_error(capsys, run, "--every", seconds) == error


def test_a_folder_is_no_target(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = f"train-manager: {tmp_path} is a folder\n  name a file: --html {tmp_path}/run.html\n"

    assert report_error(capsys, run, "--html", str(tmp_path)) == error


def test_points_that_cannot_be_written_are_told(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"/proc/{tmp_path.name}/points.jsonl"
    error = f"train-manager: {path} cannot be written: No such file or directory\n  name another file: --points FILE\n"

    assert report_error(capsys, run, "--points", path) == error


def test_the_points_name_the_runs_as_the_page_does(tmp_path: Path) -> None:
    folders = [str(trained(tmp_path / name / "run", epochs=1)) for name in "ab"]
    next(Path(folders[0]).glob("run-*.json")).unlink()
    page, points = tmp_path / "page.html", tmp_path / "points.jsonl"

    assert cli.main(["report", *folders, "--html", str(page), "--points", str(points)]) == 0

    assert {json.loads(line)["run"] for line in points.read_text().splitlines()} == {"a/run", "b/run"}
    assert "<h1>a/run, b/run</h1>" in page.read_text()
