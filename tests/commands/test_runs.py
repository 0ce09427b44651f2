from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.runs.record.sample_runs import entry, parameters, write_code, write_runs
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
    (b, *of_b), (a, *of_a) = (row.split() for row in rows)
    assert (b, of_b[:2], of_b[2:]) == (
        *("b", local("2026-05-01T13:00:00+00:00")),
        ["1", "min", "15", "s", "completed", "2", "20", "0.1250"],
    )
    assert (a, of_a[:2], of_a[2:]) == (
        *("a", local("2026-05-01T12:00:00+00:00")),
        ["1", "min", "15", "s", "completed", "2", "20", "0.5000", "0.2500", "18afa3f"],
    )


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
                "best": None,
                "trained": True,
                "parameters": {"": "TrainManager", "epochs": "2", "optimizer": "AdamW", "optimizer.lr": "0.1"},
                "trains": {},
            }
        ],
        "damaged": [],
    }


def test_the_parameters_that_differ_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(RUN, parameters=parameters(lr=0.1)))
    write_runs(tmp_path / "b", entry(RUN, parameters=parameters(lr=0.5)))

    assert cli.main(["runs", str(tmp_path), "--parameters"]) == 0

    head, *rows = capsys.readouterr().out.splitlines()
    column = head.split().index("optimizer.lr=") - len(head.split())
    assert [row.split()[column] for row in rows] == ["0.1", "0.5"]


def test_a_run_with_damaged_parameters_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(RUN, parameters={"unknown tag": 1}))

    assert cli.main(["runs", str(tmp_path), "--parameters"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "a"


NOTHING: dict[str, Any] = {"progress": {"epochs": 0, "steps": 0}, "metrics": {}}


def test_a_run_that_trained_nothing_is_counted_and_listed_with_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed = entry("bbbb", goes_on_from={"run": "aaaa", "step": 20})  # at its end, with nothing to do
    write_runs(tmp_path / "a", entry("aaaa"), resumed)
    write_runs(tmp_path / "b", entry("cccc", outcome="failed", error={"type": "ValueError"}, **NOTHING))

    cli.main(["runs", str(tmp_path)])
    cli.main(["runs", str(tmp_path), "--all"])

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "a#aaaa", "not", "run", "a#aaaa", "a#bbbb", "b"]
    assert lines[2] == "not listed: 2 runs that trained nothing (--all lists them)"


def test_a_killed_run_of_which_nothing_is_stored_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(outcome="running", ended=None, **NOTHING))

    cli.main(["runs", str(tmp_path)])

    assert "running or killed" in capsys.readouterr().out


def test_files_that_cannot_be_read_are_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path / "a", entry(RUN))
    write_runs(tmp_path / "b", entry(RUN), entry("cccc", progress=3))
    write_runs(tmp_path / "c", entry(RUN, version=2))
    (tmp_path / "c" / "run-d.json").write_text("[]")

    assert cli.main(["runs", str(tmp_path)]) == 1

    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.err.splitlines() == [
        f"train-manager: {tmp_path}/b/run-cccc.json is damaged: it has 3 at progress, where an object belongs",
        f"train-manager: {tmp_path}/c/run-{RUN}.json was written by a newer train_manager (version 2); "
        "this one reads 1",
        f"train-manager: {tmp_path}/c/run-d.json is not a file of train_manager",
    ]


def test_a_folder_without_runs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(tmp_path)]) == 0

    assert capsys.readouterr().out == f"there is no run below {tmp_path}\n"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(tmp_path / "nowhere")]) == 2

    assert capsys.readouterr().err == (
        f"train-manager: there is no folder {tmp_path}/nowhere\n"
        "  give a folder that has train_dirs in it, or a train_dir\n"
    )
