from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runs.showing.stored import Writes, trained
from train_manager import Extension
from train_manager.extensions import Checkpoints
from train_manager.runs.comparing.measured import Measured
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.showing.clocks import clock
from train_manager.runs.showing.curves import as_json, shown_curves
from train_manager.runs.showing.page import run_to_show
from train_manager.runs.store.curves import SeriesRows, curve_of
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import BATCH_SIZE, BATCHES, EVALUATIONS, Series
from train_manager.runs.store.writer import MetricWriter

SIZES = Series(BATCH_SIZE, BATCHES, "train")


def measured(curves: Mapping[Series, Sequence[tuple[float, float]]]) -> Measured:
    """What a run has measured, of steps and values."""
    found = Measured(Path(), None)
    found.curves = {series: curve_of(rows(points)) for series, points in curves.items()}
    found.reader = None
    return found


def rows(points: Sequence[tuple[float, float]]) -> SeriesRows:
    steps, values = np.array(points, float).T
    return SeriesRows(steps.astype(int), steps, values)


def loss(*values: float, sizes: Sequence[tuple[float, float]] = ()) -> Measured:
    """A loss of the first steps."""
    curves = {Series("loss", BATCHES, "train"): [*enumerate(values, 1)]}
    return measured({**curves, **({SIZES: sizes} if sizes else {})})


def measured_in(folder: Path | str) -> Measured:
    return run_to_show(folder).measured


def test_the_last_smaller_batch_of_an_epoch_is_part_of_the_one_before_it(tmp_path: Path) -> None:
    inputs, targets = torch.rand(36, 2, generator=torch.Generator().manual_seed(0)), torch.ones(36, dtype=torch.long)
    batches = list(zip(inputs.split(16), targets.split(16), strict=True))
    folder = trained(tmp_path / "run", epochs=1, train_data=batches)
    [(_, (_, [first, second, small], _))] = MetricReader(folder).scalars("loss", BATCHES).items()

    [curve, _] = shown_curves([measured_in(folder)])[0].curves

    assert ([*curve.x], [*curve.low]) == ([1, 3], [])
    assert curve.y == pytest.approx([first, (16 * second + 4 * small) / 20], rel=1e-5)


def test_what_is_not_a_number_is_a_gap_whose_end_is_told() -> None:
    [plot] = shown_curves([loss(1.0, math.nan, math.inf)])

    assert plot.curves[0].y == [1.0, None, None]
    assert plot.curves[0].end == "inf at step 3"


def test_training_is_grey_and_a_set_has_one_colour_in_all_plots() -> None:
    metrics = measured(
        {
            Series("loss", BATCHES, "train"): [(1, 1)],
            Series("loss", EVALUATIONS, "b"): [(1, 1)],
            Series("loss", EVALUATIONS, "a"): [(1, 1)],
            Series("accuracy", EVALUATIONS, "a"): [(1, 1)],
        }
    )

    plots = as_json(shown_curves([metrics]))

    assert [[(one["name"], one["key"]) for one in plot["curves"]] for plot in plots] == [
        [("training", -1), ("b", 0), ("a", 1)],
        [("a", 1)],
    ]


def test_a_rate_holds_until_the_end_and_batch_sizes_are_no_curve(tmp_path: Path) -> None:
    plots = {plot.name: plot for plot in shown_curves([measured_in(trained(tmp_path / "run"))])}

    [rate] = plots["lr"].curves
    assert (rate.kind, rate.x, rate.y, rate.end) == ("steps", [1, 6], [0.5, 0.5], "0.5, constant")
    assert [*plots] == ["loss", "lr"]


def test_metrics_of_hooks_with_a_slash_share_a_plot(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", Writes({"time/step": 1.0, "time/wait": 2.0, "norm": 3.0}))

    plots = shown_curves([measured_in(folder)])

    assert [(plot.name, [curve.name for curve in plot.curves]) for plot in plots[1:3]] == [
        ("time", ["step", "wait"]),
        ("norm", ["norm"]),
    ]


class Spikes(Extension):
    """Writes a metric that is high in one step."""

    def post_train_step_batch(self, writer: MetricWriter, step_num: int) -> None:
        if step_num == 1:
            for step in range(1, 4001):
                writer.scalar("norm", 1000.0 if step == 1234 else 1.0, step=step)


def test_a_spike_of_one_step_is_in_the_band_of_a_long_curve(tmp_path: Path) -> None:
    metrics = measured_in(trained(tmp_path / "run", Spikes(), epochs=1))

    [curve] = next(plot for plot in shown_curves([metrics]) if plot.name == "norm").curves

    assert len(curve.x) <= 1500
    [at] = [x for x, high in zip(curve.x, curve.high, strict=True) if high == 1000.0]
    assert abs(at - 1234) <= 3


def test_other_axes_know_epochs_examples_and_seconds_without_the_pause_of_a_resume(tmp_path: Path) -> None:
    trained(tmp_path / "run", Checkpoints(), epochs=1)
    trained(tmp_path / "run", Checkpoints(resume=True), epochs=2)

    metrics = measured_in(tmp_path / "run")

    knots = clock(metrics)
    assert knots["epoch"] == [(0.0, 0.0), (3.0, 1.0), (6.0, 2.0)]
    assert knots["examples"][-1] == (6.0, 80.0)
    assert [step for step, _ in metrics.pauses] == [3]
    [(_, before), (_, after)] = [knot for knot in knots["time"] if knot[0] in (3, 4)]
    assert 0 <= after - before < 60


def test_of_an_earlier_run_in_the_folder_its_own_metrics_are_shown(tmp_path: Path) -> None:
    trained(tmp_path / "run", epochs=2)
    trained(tmp_path / "run", epochs=1)
    first, last = (entry["id"] for entry in read_runs(tmp_path / "run"))

    of_first, of_last = (measured_in(f"{tmp_path}/run#{run}") for run in (first, last))

    assert (of_first.last, of_last.last) == (6, 3)


def test_an_axis_leaves_out_what_is_not_a_number() -> None:
    assert "examples" not in clock(loss(1.0, 2.0, sizes=[(1.0, math.nan)]))
    assert clock(loss(1.0, 2.0, sizes=[(1.0, 8.0)]))["examples"] == [(0.0, 0.0), (2.0, 16.0)]
