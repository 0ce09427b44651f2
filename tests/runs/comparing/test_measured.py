from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from train_manager.extensions import Checkpoints, MetricStore
from train_manager.extensions.reproducibility.run_record import RunRecord
from train_manager.runs.comparing.compare_runs import compare_runs
from train_manager.runs.comparing.measured import Measured, best_of
from train_manager.runs.record.run_paths import named_run
from train_manager.runs.showing.curves import shown_curves
from train_manager.runs.store.curves import Curve
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager


def train(train_dir: Path, epochs: int) -> None:
    extensions = [RunRecord(), MetricStore(), Checkpoints(resume=True)]
    tiny_manager(*extensions, epochs=epochs, train_dir=train_dir, seed=0).train()


def measured(path: Path | str) -> Measured:
    run = named_run(path)
    return Measured(run.train_dir, run.id)


def curve(*values: float) -> Curve:
    column = np.array(values)
    return Curve(np.arange(1.0, len(values) + 1), column, column, column, column)


def test_after_four_resumes_reader_page_and_comparison_have_each_step_once(tmp_path: Path) -> None:
    for epochs in range(1, 6):
        train(tmp_path, epochs)

    [read] = MetricReader(tmp_path).scalars("loss", "train_step_batch").values()
    [drawn, *_] = shown_curves([measured(tmp_path)])[0].curves
    [compared] = compare_runs([tmp_path]).curves["loss"]
    assert compared is not None
    assert Counter(read.steps) == Counter(drawn.x) == Counter(range(1, 16))
    assert compared.steps.tolist() == [3, 6, 9, 12, 15]
    assert [step for step, _ in measured(tmp_path).pauses] == [3, 6, 9, 12]


def test_the_loss_of_batches_has_another_name_than_that_of_epochs(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), MetricStore(), train_dir=tmp_path)
    assert tm.train_data is not None
    with tm.run():
        for batch in tm.train_data:
            tm.train_on_batch(batch)

    assert [*compare_runs([tmp_path]).curves] == ["batch_loss", "lr"]


def test_more_values_than_a_picture_has_points_are_compared_one_by_one(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), MetricStore(), epochs=1, train_dir=tmp_path)
    tm.train()
    with tm.run():
        for step in range(4, 2004):
            tm.history.evaluations.append({"epoch": 1, "step": step, "set": "valid", "loss": 1.0 / step})

    valid = measured(tmp_path).metrics["valid/loss"]

    assert (len(valid.steps), valid.mean[-1]) == (2002, 1 / 2003)


def test_the_best_is_the_largest_where_the_name_says_so() -> None:
    assert best_of("valid/loss", curve(0.5, 0.25, 0.375)) == (2, 0.25)
    assert best_of("valid/accuracy", curve(0.5, 0.75, 0.25)) == (2, 0.75)
    assert best_of("grad_norm", curve(0.5, 0.75)) is None


@pytest.mark.parametrize(("values", "best"), [((math.nan, 0.5), (2, 0.5)), ((math.nan, math.inf), None)])
def test_what_is_not_a_number_is_never_the_best(values: tuple[float, ...], best: tuple[float, float] | None) -> None:
    assert best_of("loss", curve(*values)) == best
