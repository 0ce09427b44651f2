from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.runs.record.sample_runs import entry, write_code, write_runs
from train_manager import cli

RUN = "ab12cd34ef56ab78"


def local(began: str) -> list[str]:
    """A time as it is shown here."""
    return datetime.fromisoformat(began).astimezone().strftime("%Y-%m-%d %H:%M").split()


def test_the_runs_below_a_folder_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(RUN))
    write_code(tmp_path / "a", RUN)
    write_runs(tmp_path / "b", entry(began="2026-05-01T13:00:00+00:00", metrics={"loss": 0.125}))

    assert cli.main(["runs", str(tmp_path)]) == 0

    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "began", "took", "outcome", "epochs", "steps", "loss", "valid/loss", "commit"]
    assert [row.split() for row in rows] == [
        ["b", *local("2026-05-01T13:00:00+00:00"), "1", "min", "15", "s", "completed", "2", "20", "0.1250"],
        [
            "a",
            *local("2026-05-01T12:00:00+00:00"),
            "1",
            "min",
            "15",
            "s",
            "completed",
            "2",
            "20",
            "0.5000",
            "0.2500",
            "18afa3f",
        ],
    ]


def test_runs_are_sorted_by_a_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, loss in (("a", 0.5), ("b", 0.125), ("c", 0.25)):
        write_runs(tmp_path / name, entry(metrics={"valid/loss": loss}))

    assert cli.main(["runs", str(tmp_path), "--sort", "valid/loss"]) == 0

    assert [line[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["b", "c", "a"]


def test_a_program_gets_all_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(RUN))

    assert cli.main(["runs", str(tmp_path), "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "runs": [
            {
                "label": f"{tmp_path}/a",
                "train_dir": f"{tmp_path}/a",
                "id": RUN,
                "began": "2026-05-01T12:00:00+00:00",
                "seconds": 75.0,
                "outcome": "completed",
                "epochs": 2,
                "steps": 20,
                "metrics": {"loss": 0.5, "valid/loss": 0.25},
                "commit": "",
            }
        ],
        "damaged": [],
    }


def test_a_damaged_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(RUN))
    write_runs(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text('{"schema": "train-manager/run", "version": 1}')

    assert cli.main(["runs", str(tmp_path)]) == 1

    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err == f"train-manager: {tmp_path}/b/run.json is damaged: it has no list of runs\n"


def test_a_folder_without_runs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(tmp_path)]) == 0

    assert capsys.readouterr().out == f"there is no run below {tmp_path}\n"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(tmp_path / "nowhere")]) == 2

    assert capsys.readouterr().err == (
        f"train-manager: there is no folder {tmp_path}/nowhere\n"
        "  give a folder that has train_dirs in it, or a train_dir\n"
    )
