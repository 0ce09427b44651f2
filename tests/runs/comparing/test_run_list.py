from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from train_manager.runs.comparing.run_list import run_lines, sorted_runs
from train_manager.runs.record.run_summary import RunSummary
from train_manager.telling.errors import InputError

FOLDER = Path("runs")


def run(name: str, *, hour: int = 12, **more: Any) -> RunSummary:
    """A run in a line."""
    given: dict[str, Any] = {
        "seconds": 75.0,
        "outcome": "completed",
        "epochs": 2,
        "steps": 20,
        "metrics": {"loss": 0.5, "valid/loss": 0.25, "valid/accuracy": 0.75},
        "commit": "18afa3f+",
        **more,
    }
    return RunSummary(f"runs/{name}", FOLDER / name, name, datetime(2026, 5, 1, hour, tzinfo=UTC).astimezone(), **given)


def texts(runs: list[RunSummary], width: int, by: str = "began") -> list[str]:
    return [line.text.replace(runs[0].began.strftime("%H:%M"), "12:00") for line in run_lines(runs, FOLDER, width, by)]


def test_a_run_has_a_line() -> None:
    runs = [run("a"), run("b", seconds=None, outcome="failed: ValueError: no room", epochs=None, metrics={}, commit="")]

    head, *rows = texts(runs, 160)

    assert head.split() == [
        *("run", "began", "took", "outcome", "epochs", "steps", "loss", "valid/loss", "valid/accuracy", "commit")
    ]
    assert rows == [
        "a    2026-05-01 12:00  1 min 15 s  completed                         2     20  0.5000      0.2500"
        "          0.7500  18afa3f+",
        "b    2026-05-01 12:00              failed: ValueError: no room             20",
    ]


def test_in_a_narrow_terminal_long_texts_are_cut_and_columns_that_have_no_room_are_named() -> None:
    runs = [run("a/very/long/name/of/a/run"), run("b", outcome="failed: RuntimeError: out of memory")]

    assert texts(runs, 80) == [
        "run                     began             outcome                 loss  commit",
        "a/very/lon…me/of/a/run  2026-05-01 12:00  completed             0.5000  18afa3f+",
        "b                       2026-05-01 12:00  failed: RuntimeError  0.5000  18afa3f+",
        "not shown: took, epochs, steps, valid/loss, valid/accuracy (--json has all)",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    runs = [run("x" * 100, outcome="y" * 100, commit="18afa3f+")]

    for width in (80, 100, 160):
        assert max(len(text) for text in texts(runs, width)) <= width


def test_the_column_that_runs_are_sorted_by_has_room() -> None:
    shown = texts([run("a", metrics={f"valid/metric_{number}": 1.0 for number in range(9)})], 80, "valid/metric_8")

    assert "valid/metric_8" in shown[0]


def test_names_are_printed_without_what_a_terminal_obeys() -> None:
    assert "\\x1b[31m" in texts([run("\x1b[31mred")], 200)[1]


def test_runs_are_sorted_by_a_metric_with_those_without_it_last() -> None:
    runs = [run("a", metrics={"loss": 0.5}), run("b", metrics={}), run("c", metrics={"loss": 0.25})]
    nan = run("d", metrics={"loss": float("nan")})

    assert [one.id for one in sorted_runs([*runs, nan], "loss")] == ["c", "a", "b", "d"]


def test_the_newest_runs_come_first() -> None:
    assert [one.id for one in sorted_runs([run("a", hour=9), run("b", hour=10)], "began")] == ["b", "a"]


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(InputError) as error:
        sorted_runs([run("a")], "valid/los")

    assert str(error.value) == "no run has a metric 'valid/los'\n  did you mean 'valid/loss'?"


def test_losses_have_room_before_other_metrics() -> None:
    metrics = {"loss": 0.5, "accuracy": 0.75, "valid/loss": 0.25, "valid/accuracy": 0.5}

    assert texts([run("a", metrics=metrics)], 80)[0].split()[-3:] == ["loss", "valid/loss", "commit"]


def test_losses_of_several_optimizers_have_room_before_other_metrics() -> None:
    metrics = {"accuracy": 0.75, "losses/critic": 0.5, "losses/generator": 0.25}

    assert texts([run("a", metrics=metrics)], 80)[0].split()[-3:] == [*[*metrics][1:], "commit"]
