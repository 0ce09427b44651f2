from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.host_reads import HostReads
from train_manager.metrics.histogram import histogram_of

NAN, INF = float("nan"), float("inf")


def counted(values: Any, bins: int) -> tuple[list[float], list[int]]:
    edges, counts = histogram_of(values, bins)
    return edges.tolist(), counts.tolist()


@pytest.mark.parametrize(
    "values",
    [
        [],
        [NAN, INF],
        [1.0, 1.0],
        [0.0],
        [1e300, 1e300],
        [-1.7e308],
        [1.7976931348623157e308],
        [NAN, 2.0, INF],
        [1e300, -1e300],
        [5e-324, 0.0],
    ],
)
def test_every_finite_value_is_counted_once(values: list[float]) -> None:
    edges, counts = counted(values, 3)

    assert len(edges) == 4
    assert edges == sorted(edges)
    assert edges[0] < edges[-1]
    assert all(abs(edge) < INF for edge in edges)
    assert sum(counts) == sum(value - value == 0 for value in values)


def test_it_may_be_as_wide_as_all_floats() -> None:
    assert counted([-1.5e308, 0.0, 1.5e308], 3) == ([-1.5e308, -0.5e308, 0.5e308, 1.5e308], [1, 1, 1])


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([0, 1, 3, 4]),
        torch.tensor([[0, 1], [3, 4]], dtype=torch.bfloat16),
        np.array([0, 1, 3, 4], dtype=np.uint8),
        [[0], [1, 3, 4]],
        [torch.tensor([0.0, 1.0]), torch.nn.Parameter(torch.tensor([[3.0], [4.0]]))],
        (value for value in (0, 1, 3, 4)),
    ],
)
def test_values_of_any_kind_are_counted(values: Any) -> None:
    assert counted(values, 2) == ([0.0, 2.0, 4.0], [2, 2])


def test_the_counts_are_those_of_numpy() -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    edges, counts = counted(values, 64)

    assert counts == np.histogram(values.double().numpy(), bins=np.array(edges))[0].tolist()


def test_no_value_is_read() -> None:
    with HostReads() as reads:
        histogram_of(torch.rand(100), 64)

    assert reads.count == 0


def test_the_values_are_counted_by_torch_and_not_as_a_list() -> None:
    """A tensor on the meta device has no numbers, so that a list of them is an error."""
    edges, counts = histogram_of(torch.empty(1_000_000, device="meta"), 64)

    assert (edges.shape, counts.shape) == ((65,), (64,))
