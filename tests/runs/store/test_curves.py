from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from train_manager.metrics.host_numbers import HostNumbers
from train_manager.runs.store.curves import Curve, curves_of
from train_manager.runs.store.database import Database
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import Begin
from train_manager.runs.store.schema import BATCH_SIZE, EVALUATIONS, Series
from train_manager.telling.errors import InputError

LOSS = Series("loss", "train_step_batch", "train")
SIZES = Series(BATCH_SIZE, "train_step_batch", "train")
OWN = Series("own")
Points = Iterable[tuple[int, float]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite"


def store(
    path: Path,
    series: Mapping[Series, Points],
    run: str = "run",
    resumes: str = "",
    step: int = 0,
    history: Mapping[str, Sequence[Any]] | None = None,
) -> MetricReader:
    """Write a part of a run, each value a second after the one of the step before."""
    rows = [(of, at, None, 1, float(at), value) for of, points in series.items() for at, value in points]
    _write(path, run, Begin(0.0, resumes, step, history or {}), rows)
    return MetricReader(path)


def _write(path: Path, run: str, begin: Begin, rows: Sequence[Any]) -> None:
    database = Database(path, run, HostNumbers())
    database.write([begin, *rows])
    database.close_without_log()


def lists(curve: Curve) -> list[list[float]]:
    return [column.tolist() for column in curve]


def epochs_of(path: Path, steps: int, value: Callable[[int], float]) -> Curve:
    """The curve of a loss: each 22nd batch has 3 examples, all others 64."""
    sizes = [(step, 64.0 if step % 22 else 3.0) for step in range(1, steps + 1) if step % 22 < 2]
    return curves_of(store(path, {LOSS: ((step, value(step)) for step in range(1, steps + 1)), SIZES: sizes}))[LOSS]


def test_a_short_series_has_each_value(path: Path) -> None:
    [curve] = curves_of(store(path, {LOSS: [(1, 0.5), (5, 0.25), (900_000, 0.125)]})).values()

    values = [0.5, 0.25, 0.125]
    assert lists(curve) == [[1, 5, 900_000], values, values, values, [1, 5, 900_000]]


def test_a_spike_is_the_highest_value_of_its_stretch(path: Path) -> None:
    points = ((step, 99.0 if step == 7_777 else 1.0) for step in range(1, 20_001))

    [curve] = curves_of(store(path, {LOSS: points})).values()

    assert 1400 < len(curve.steps) <= 1500
    at = curve.high.argmax()
    assert abs(curve.steps[at] - 7_777) <= 7
    assert (curve.low[at], curve.high[at]) == (1, 99)
    assert 1 < curve.mean[at] < 9
    assert curve.times[at] == pytest.approx(curve.steps[at])


def test_the_last_smaller_batch_of_an_epoch_does_not_widen_the_band(path: Path) -> None:
    curve = epochs_of(path, 20_000, lambda step: 9.0 if step % 22 == 0 else 99.0 if step == 7_777 else 1.0)

    assert {*curve.high.tolist()} == {1.0, 99.0}
    weights = [3 / 64 if step % 22 == 0 else 1.0 for step in range(1, round(2 * curve.steps[0]))]
    smaller = sum(weight < 1 for weight in weights)
    mean = (len(weights) - smaller + smaller * 9 * 3 / 64) / sum(weights)
    assert curve.mean[0] == pytest.approx(mean, rel=1e-3)


def test_the_smaller_batch_of_a_short_series_is_part_of_the_one_before_it_by_its_examples(path: Path) -> None:
    curve = epochs_of(path, 44, lambda step: 9.0 if step % 22 == 0 else 1.0)

    joined = (64 + 3 * 9) / 67
    assert curve.steps.tolist() == [*range(1, 21), *range(22, 43), 44]
    for values in curve[1:4]:
        assert sum(values != 1) == 2
        assert values[[20, 41]].tolist() == pytest.approx([joined] * 2)


def test_a_batch_that_is_half_as_large_or_whose_size_lasts_stays_as_it_is(path: Path) -> None:
    sizes = [(1, 64.0), (3, 32.0), (4, 64.0), (5, 8.0), (7, 64.0)]

    curve = curves_of(store(path, {LOSS: [(step, float(step)) for step in range(1, 7)], SIZES: sizes}))[LOSS]

    assert lists(curve)[:2] == [[1, 2, 3, 4, 5, 6]] * 2


def test_batch_sizes_are_never_joined(path: Path) -> None:
    sizes = [(step, 64.0 if step % 2 else 3.0) for step in range(1, 4001)]

    curve = curves_of(store(path, {SIZES: sizes}))[SIZES]

    assert list(zip(curve.steps, curve.mean, strict=True)) == sizes


def test_values_of_one_step_are_one_point(path: Path) -> None:
    [curve] = curves_of(store(path, {OWN: [(3, 1.0), (3, 2.0), (3, 6.0), (4, 0.0)]})).values()

    assert lists(curve)[:4] == [[3, 4], [3, 0], [1, 0], [6, 0]]


def test_of_several_evaluations_at_a_step_the_last_one_is_in_the_curve(path: Path) -> None:
    history = {EVALUATIONS: [evaluated(3, 0.5), evaluated(6, 0.75), evaluated(6, 0.25)]}

    curve = curves_of(store(path, {OWN: [(1, 1.0)]}, history=history))[Series("loss", EVALUATIONS, "valid")]

    assert lists(curve)[:2] == [[3, 6], [0.5, 0.25]]


def evaluated(step: int, loss: float) -> dict[str, Any]:
    return {"epoch": 1, "step": step, "set": "valid", "loss": loss}


def test_a_curve_has_what_counts_for_its_run(path: Path) -> None:
    def losses(*steps: int, value: float) -> dict[Series, Points]:
        return {LOSS: [(step, value) for step in steps]}

    store(path, losses(1, 2, 3, value=1.0), run="first")
    reader = store(path, losses(3, 4, value=2.0), run="second", resumes="first", step=2)

    assert lists(curves_of(reader)[LOSS])[:2] == [[1, 2, 3, 4], [1, 1, 2, 2]]
    assert lists(curves_of(reader, "first")[LOSS])[:2] == [[1, 2, 3], [1, 1, 1]]


def test_nan_is_left_out_of_means(path: Path) -> None:
    reader = store(path, {LOSS: enumerate([math.nan, 2.0, math.inf]), OWN: [(step, math.nan) for step in range(3)]})
    curves = curves_of(reader, most=1)

    assert lists(curves[LOSS])[:4] == [[1], [math.inf], [2], [math.inf]]
    assert all(map(math.isnan, [curves[OWN].mean[0], curves[OWN].low[0], curves[OWN].high[0]]))


def test_steps_of_hooks_may_be_as_large_as_they_are(path: Path) -> None:
    steps = (-(2**63), 0, 2**63 - 1)
    _write(path, "run", Begin(0.0, "", 0, {}), [(OWN, 1, step, 1, 0.0, 0.5) for step in steps])

    [curve] = curves_of(MetricReader(path)).values()

    assert lists(curve)[:2] == [[*map(float, steps)], [0.5] * 3]


def test_a_curve_is_in_the_order_of_its_steps(path: Path) -> None:
    [curve] = curves_of(store(path, {OWN: [(3, 0.3), (1, 0.1), (2, 0.2)]})).values()

    assert lists(curve)[:2] == [[1, 2, 3], [0.1, 0.2, 0.3]]


def test_curves_can_be_chosen(path: Path) -> None:
    history = {EVALUATIONS: [evaluated(3, 0.5)]}
    reader = store(path, {LOSS: [(1, 1.0), (2, 5.0)], SIZES: [(1, 64.0), (2, 4.0)], OWN: [(1, 1.0)]}, history=history)

    assert [*curves_of(reader, name="loss", stage=LOSS.stage)] == [LOSS]
    assert curves_of(reader, name="loss")[LOSS].steps.tolist() == [2]  # sizes are known although they are not chosen
    assert [*curves_of(reader, stage=EVALUATIONS)] == [Series("loss", EVALUATIONS, "valid")]
    assert curves_of(reader, name="lost") == {}
    with pytest.raises(InputError, match=r"^most must be a whole number of at least 1, but is 0$"):
        curves_of(reader, most=0)
