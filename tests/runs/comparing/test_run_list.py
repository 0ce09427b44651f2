from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal
from train_manager.runs.comparing.run_list import run_lines, sorted_runs
from train_manager.runs.record.run_summary import Best, RunSummary

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
    some = {"loss": 0.5, "valid/loss": 0.25}
    failed: dict[str, Any] = {
        "hour": 12,
        "seconds": None,
        "outcome": "failed: ValueError: no room",
        "epochs": None,
        "metrics": {},
        "commit": "",
    }

    assert texts([run("a", metrics=some), run("b", **failed)], 160) == [
        "run  began                   took  outcome            epochs  steps    loss  valid/loss  commit",
        "a    2026-05-01 12:00  1 min 15 s  completed               2     20  0.5000      0.2500  18afa3f+",
        "b    2026-05-01 12:00              error: ValueError             20",
    ]


def test_runs_of_the_folder_itself_have_its_name(tmp_path: Path) -> None:
    runs = [replace(run("a"), label=f"{tmp_path}/lr01{end}") for end in ("", "#ac41")]

    shown = [line.text.split()[0] for line in run_lines(runs, tmp_path / "lr01", 100)]

    assert shown[:3] == ["run", "lr01", "lr01#ac41"]


def test_the_best_value_has_a_column_with_its_epoch() -> None:
    runs = [
        run("a", best=Best("valid/loss", 0.125, 1, 10, "min", "")),
        run("b"),
        run("c", best=Best("valid/loss", 0.25, 12, 120, "min", "")),
    ]

    assert texts(runs, 80) == [
        "run  began             outcome      best valid/loss",
        "a    2026-05-01 12:00  completed   0.1250 (epoch 1)",
        "b    2026-05-01 12:00  completed",
        "c    2026-05-01 12:00  completed  0.2500 (epoch 12)",
    ]


def test_best_values_of_several_metrics_have_their_names() -> None:
    runs = [
        run("a", best=Best("valid/loss", 0.125, 1, 10, "min", "")),
        run("b", best=Best("valid/f1", 0.5, 2, 20, "max", "")),
    ]

    assert [line[-27:].strip() for line in texts(runs, 80)[1:3]] == [
        "valid/loss 0.1250 (epoch 1)",
        "valid/f1 0.5000 (epoch 2)",
    ]


def test_a_narrow_terminal_shows_beginning_outcome_and_a_value() -> None:
    runs = [run("a/very/long/name/of/a/run"), run("b", outcome="failed: RuntimeError: out of memory")]

    assert texts(runs, 80) == [
        "run                        began             outcome                loss",
        "a/very/long/name/of/a/run  2026-05-01 12:00  completed            0.5000",
        "b                          2026-05-01 12:00  error: RuntimeError  0.5000",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    best = Best("valid/accuracy", 0.125, 21, 210, "max", "")
    runs = [run("x" * 100, outcome="y" * 100, best=best), run("b", outcome="failed: RuntimeError: no room", best=best)]

    assert max(map(len, texts(runs, width))) <= width


def test_what_has_no_room_stands_below_beside_the_runs() -> None:
    runs = [
        run("a" * 30, best=Best("valid/accuracy", 0.5, 21, 210, "max", ""), outcome="failed: RuntimeError: no room")
    ]

    assert texts(runs, 60) == [
        "run                 began             outcome",
        "aaaaaaaa…aaaaaaaaa  2026-05-01 12:00  error: RuntimeError",
        "",
        "run                 best valid/accuracy",
        "aaaaaaaa…aaaaaaaaa    0.5000 (epoch 21)",
    ]


@pytest.mark.parametrize("by", ["valid/metric_8", "took", "steps"])
def test_the_column_that_runs_are_sorted_by_is_shown(by: str) -> None:
    shown = texts([run("a", metrics={f"valid/metric_{number}": 1.0 for number in range(9)})], 80, by)

    assert by in shown[0].split()


def test_names_are_printed_without_what_a_terminal_obeys() -> None:
    assert "\\x1b[31m" in texts([run("\x1b[31mred")], 200)[1]


def test_runs_are_sorted_by_a_metric_with_those_without_it_last() -> None:
    runs = [run("a", metrics={"loss": 0.5}), run("b", metrics={}), run("c", metrics={"loss": 0.25})]
    nan = run("d", metrics={"loss": float("nan")})

    assert [one.id for one in sorted_runs([*runs, nan], "loss")] == ["c", "a", "b", "d"]


def test_the_newest_runs_come_first() -> None:
    assert [one.id for one in sorted_runs([run("a", hour=9), run("b", hour=10)], "began")] == ["b", "a"]


def test_an_unknown_column_is_refused() -> None:
    assert (
        refusal(lambda: sorted_runs([run("a")], "valid/los"))
        == "no run has a metric 'valid/los'\n  did you mean 'valid/loss'?"
    )


def test_losses_are_shown_before_other_metrics() -> None:
    metrics = {"loss": 0.5, "accuracy": 0.75, "valid/loss": 0.25, "valid/accuracy": 0.5}

    assert texts([run("a", metrics=metrics)], 120)[0].split()[-3:] == ["loss", "valid/loss", "commit"]


def test_losses_of_several_optimizers_are_shown_before_other_metrics() -> None:
    metrics = {"accuracy": 0.75, "losses/critic": 0.5, "losses/generator": 0.25}

    assert texts([run("a", metrics=metrics)], 120)[0].split()[-3:] == [*[*metrics][1:], "commit"]


def with_parameters(runs: list[RunSummary], width: int) -> list[str]:
    return [line.text for line in run_lines(runs, FOLDER, width, "run", parameters=True)]


SWEEP = [
    run("a", parameters={"optimizer.lr": "0.1", "epochs": "2", "train_dir": "runs/a", "model.width": "8"}),
    run("b", parameters={"optimizer.lr": "0.5", "epochs": "2", "train_dir": "runs/b"}),
]


def test_the_parameters_that_differ_have_columns() -> None:
    lines = with_parameters(SWEEP, 80)

    assert [line.split()[-3:] for line in lines] == [
        ["loss", "optimizer.lr=", "model.width="],
        ["0.5000", "0.1", "8"],
        ["completed", "0.5000", "0.5"],
    ]
