from __future__ import annotations

import math
from pathlib import Path

import torch

from train_manager.extensions import Checkpoints, MetricStore
from train_manager.extensions.reproducibility.run_record import RunRecord
from train_manager.runs.comparing.compared import Points
from train_manager.runs.comparing.run_metrics import (
    band_of,
    curve_of,
    last_and_best,
    points_of,
    stretch,
    thin_out,
)
from train_manager.runs.record.run_paths import named_run
from train_manager.testing import tiny_manager


def train(train_dir: Path, epochs: int) -> None:
    extensions = [RunRecord(), MetricStore(), Checkpoints(resume=True)]
    tiny_manager(*extensions, epochs=epochs, train_dir=train_dir, seed=0).train()


def test_metrics_continue_where_the_run_did(tmp_path: Path) -> None:
    train(tmp_path, epochs=2)
    train(tmp_path, epochs=4)

    points = points_of(named_run(tmp_path))

    assert [step for step, _ in points["loss"]] == [3, 6, 9, 12]
    assert [step for step, _ in points["valid/loss"]] == [0, 3, 6, 9, 12]


def test_metrics_of_an_earlier_run_end_with_it(tmp_path: Path) -> None:
    train(tmp_path, epochs=2)
    first = named_run(tmp_path).id
    train(tmp_path, epochs=4)

    points = points_of(named_run(f"{tmp_path}#{first}"))

    assert [step for step, _ in points["loss"]] == [3, 6]


def test_of_several_evaluations_at_a_step_the_last_one_is_compared(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), MetricStore(), epochs=1, train_dir=tmp_path)
    tm.train()
    with torch.no_grad():
        next(tm.model.parameters()).zero_()
    tm.eval(tm.eval_data)
    *_, last = tm.history.evaluations

    assert points_of(named_run(tmp_path))["valid/loss"][-1:] == [(3, last["loss"])]
    assert [step for step, _ in points_of(named_run(tmp_path))["valid/loss"]] == [0, 3]


def test_a_run_without_a_store_has_no_metrics(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()

    assert points_of(named_run(tmp_path)) == {}


def test_the_best_is_the_largest_where_the_name_says_so() -> None:
    assert last_and_best("valid/accuracy", [(1, 0.5), (2, 0.75), (3, 0.25)]) == (0.25, (2, 0.75))
    assert last_and_best("grad_norm", [(1, 0.5), (2, 0.75)]) == (0.75, None)


def test_nan_is_never_the_best() -> None:
    assert last_and_best("loss", [(1, float("nan")), (2, 0.5)])[1] == (2, 0.5)
    assert last_and_best("loss", [(1, float("nan"))])[1] is None


def test_a_long_curve_is_thinned_to_stretches() -> None:
    curve = thin_out([(step, float(step)) for step in range(1001)])

    assert len(curve) <= 500
    assert (curve[0].first, curve[0].last, curve[0].mean, curve[0].lowest, curve[0].highest) == (0, 2, 1.0, 0.0, 2.0)
    assert curve_of("loss", {"loss": [(1, 2.0)]}) == [(1.0, 2.0)]
    assert thin_out([]) == []


def test_a_spike_of_one_step_is_in_the_band_of_a_long_curve() -> None:
    points: dict[str, Points] = {"loss": [(step, 99.0 if step == 77_777 else 1.0) for step in range(100_000)]}
    [(middle, lowest, highest)] = [one for one in band_of("loss", points) if one[2] > 1]

    assert abs(middle - 77_777) <= 100
    assert (lowest, highest) == (1.0, 99.0)


def test_a_curve_with_all_its_points_has_no_band() -> None:
    assert band_of("loss", {"loss": [(1, 2.0), (2, 3.0)]}) == []
    assert band_of("lr", {"lr": [(step, 0.5) for step in range(2000)]}) == []


def test_nan_is_left_out_of_a_stretch() -> None:
    nan = float("nan")

    assert stretch([(1, nan), (2, 3.0)])[4:] == (2, 1, 3.0, 3.0, 3.0)
    assert math.isnan(stretch([(1, nan)]).mean)
