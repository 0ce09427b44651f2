"""Numbers of layers: what is in their windows, that nothing is read in a step, and what is sent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.support.host_reads import HostReads
from train_manager.metrics.layer_series import FULL, LayerSeries, LayerSeriesByName, norms_by_layer, norms_of

NAN = math.nan


def filled(steps: int, *, first: int = 1, columns: LayerSeries | None = None) -> LayerSeries:
    columns = columns or LayerSeries(["a", "b"])
    for step in range(first, first + steps):
        if columns.append(torch.tensor([step, -step], dtype=torch.float), step, weight=16):
            columns.take()
    return columns


def test_windows_of_two_steps_come_after_a_thousand_single_ones() -> None:
    columns = filled(1004)
    columns.take()

    assert [row.step for row in columns.rows[998:]] == [999, 1000, 1002, 1004]
    assert columns.rows[1000].mean.tolist() == [1001.5, -1001.5]
    assert columns.rows[1000].largest.tolist() == [1002, -1001]
    assert columns.rows[1000].weight == 32


def test_nothing_is_read_before_64_vectors_are_there_and_then_with_one_copy() -> None:
    columns = LayerSeries(["a"])
    with HostReads() as reads:
        full = [columns.append(torch.tensor([1.0]), step, weight=1) for step in range(FULL)]
        assert (reads.count, reads.stacks) == (0, 0)
        columns.take()

    assert full == [False] * 63 + [True]
    assert (reads.count, reads.stacks) == (0, 1)


def test_a_window_is_weighted_by_examples() -> None:
    columns = filled(1000)
    columns.append(torch.tensor([1.0, NAN]), 1001, weight=3)
    columns.append(torch.tensor([5.0, NAN]), 1002, weight=1)
    columns.take()

    assert repr(columns.rows[-1].mean.tolist()) == "[2.0, nan]"
    assert repr(columns.rows[-1].largest.tolist()) == "[5.0, nan]"


def test_a_vector_with_a_nan_leaves_its_window_the_other_ones() -> None:
    columns = filled(1000)
    columns.append(torch.tensor([NAN, 1.0]), 1001, weight=16)
    columns.append(torch.tensor([4.0, 2.0]), 1002, weight=16)
    columns.take()

    assert columns.rows[-1].mean.tolist() == [4.0, 1.5]


def test_an_infinite_number_stays_infinite() -> None:
    columns = filled(1000)
    columns.append(torch.tensor([math.inf, 1.0]), 1001, weight=16)
    columns.append(torch.tensor([4.0, 2.0]), 1002, weight=16)
    columns.take()

    assert columns.rows[-1].mean.tolist() == [math.inf, 1.5]


@pytest.mark.parametrize("steps", [0, 1, 63, 64, 65, 1001, 1003])
def test_series_resume_from_their_state_in_the_middle_of_a_window(steps: int) -> None:
    whole, loaded = filled(1010), LayerSeries(())
    loaded.load_state_dict(filled(steps).state_dict())
    filled(1010 - steps, first=steps + 1, columns=loaded)

    assert repr(loaded.state_dict()) == repr(whole.state_dict())


def test_a_batch_size_may_be_a_tensor() -> None:
    columns = LayerSeries(["a"])
    columns.append(torch.tensor([1.0]), 1, weight=torch.tensor(16))
    columns.take()

    assert columns.rows[0].weight == 16


class Written:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, list[float], int | None]] = []

    def array(self, name: str, values: Tensor, labels: list[str] | None = None, step: int | None = None) -> None:
        self.rows.append((name, values.tolist(), step))


def test_each_window_is_sent_once() -> None:
    series, writer = LayerSeriesByName(), Written()
    columns = series.of("norms", ["a"], counts=[4])
    for step in (1, 2):
        columns.append(torch.tensor([float(step)]), step, weight=1)
    series.send(writer)
    series.send(writer)
    columns.append(torch.tensor([3.0]), 3, weight=1)
    series.send(writer)

    assert writer.rows == [("norms_counts", [4], None), ("norms", [1], 1), ("norms", [2], 2), ("norms", [3], 3)]


def test_the_largest_is_sent_where_a_window_has_several_steps() -> None:
    series, writer = LayerSeriesByName(), Written()
    filled(1002, columns=series.of("norms", ["a", "b"]))
    series.send(writer)

    assert writer.rows[-2:] == [("norms", [1001.5, -1001.5], 1002), ("norms_largest", [1002, -1001], 1002)]
    assert len(writer.rows) == 1002


def test_windows_that_were_drawn_before_they_were_sent_are_sent_too() -> None:
    series, writer = LayerSeriesByName(), Written()
    series.of("norms", ["a"]).append(torch.tensor([1.0]), 1, weight=1)
    series.send(None)
    series.send(writer)

    assert writer.rows == [("norms", [1], 1)]


# ---- norms ----


def test_all_tensors_may_be_missing() -> None:
    assert norms_of([None, None]).tolist() == [-1, -1]


def test_kinds_of_numbers_may_be_mixed() -> None:
    found = norms_of([torch.ones(4, dtype=kind) for kind in (torch.bfloat16, torch.float, torch.double)])

    assert found.tolist() == [2, 2, 2]


def test_rows_of_a_sparse_gradient_are_added_up() -> None:
    embedding = torch.nn.Embedding(5, 1, sparse=True)
    embedding(torch.tensor([1, 1])).sum().backward()

    assert norms_of([embedding.weight.grad]).tolist() == [2]


def test_a_norm_that_is_nan_is_no_missing_one() -> None:
    found = norms_by_layer(torch.tensor([[math.nan, 1.0, -1.0, 2.0, -1.0]]), [0, 0, 1, 1, 2], 3)

    assert repr(found.tolist()) == "[[nan, 2.0, nan]]"


def test_nothing_is_read_on_the_host() -> None:
    with HostReads() as reads:
        norms_by_layer(norms_of([torch.ones(3), None])[None], [0, 1], 2)

    assert reads.count == 0
