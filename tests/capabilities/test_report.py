"""Rows T44 and T45 of Train Manager itself, and G48 of GoMLX: the page about a run, and its points as a file.

The buttons are pressed in a browser in tests/runs/showing/test_report_in_browser.py.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from train_manager import Extension, at_most, cli, every, exponentially, scheduled
from train_manager.core.schedule import Schedule
from train_manager.extensions import Checkpoints, MetricStore, RunRecord
from train_manager.runs.store.writer import MetricWriter
from train_manager.testing import tiny_manager
from train_manager.tools import write_report


def trained(folder: Path, *extensions: Extension, epochs: int = 2) -> Path:
    tiny_manager(MetricStore(), RunRecord(), *extensions, epochs=epochs, train_dir=folder).train()
    return folder


def test_t44_each_plot_has_a_button_that_maximises_it_over_the_whole_window(tmp_path: Path) -> None:
    page = write_report(trained(tmp_path / "run")).read_text()

    assert 'button("Maximise", () => maximise(this))' in page
    assert '<dialog id="maximised"' in page
    assert "dialog.showModal()" in page


def test_t45_curves_are_picked_from_the_legends_of_plots_into_one_with_a_name_and_a_legend(tmp_path: Path) -> None:
    page = write_report(trained(tmp_path / "run")).read_text()

    assert 'word = this.isPicked ? "remove" : isIn ? "picked" : "pick"' in page
    assert 'ariaLabel: "Name of the plot"' in page
    assert 'el("ul", {className: "legend"})' in page


def test_g48_points_are_lines_of_json_in_a_file_beside_the_checkpoints(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", Checkpoints())

    cli.main(["report", str(folder), "--points", str(folder / "checkpoints" / "points.jsonl")])

    lines = [json.loads(line) for line in (folder / "checkpoints" / "points.jsonl").read_text().splitlines()]
    assert Counter((line["plot"], line["curve"]) for line in lines) == {
        ("loss", "training"): 6,
        ("loss", "valid"): 3,
        ("lr", "lr"): 2,
    }


class Writes(Extension):
    """Writes a metric."""

    def post_train_step_batch(self, writer: MetricWriter) -> None:
        writer.scalar("mine", 1.0)


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [(every(4), [4, 8, 12]), (at_most(3), [4, 8, 12]), (exponentially(2, 2), [2, 6])],
    ids=["every 4 steps", "3 times", "ever more seldom"],
)
def test_g48_points_are_written_as_a_schedule_says(tmp_path: Path, schedule: Schedule, steps: list[int]) -> None:
    folder = trained(tmp_path / "run", scheduled(Writes(), "post_train_step_batch", schedule), epochs=4)

    cli.main(["report", str(folder), "--points", str(tmp_path / "points.jsonl")])

    lines = [json.loads(line) for line in (tmp_path / "points.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["plot"] == "mine"] == steps


def test_g48_a_command_compares_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(trained(tmp_path / f"{epochs}", epochs=epochs)) for epochs in (1, 2)]

    assert cli.main(["compare", *runs]) == 1

    assert "valid/loss" in capsys.readouterr().out
