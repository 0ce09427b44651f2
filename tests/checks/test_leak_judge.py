from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from train_manager.checks.batch_leaves import name_of
from train_manager.checks.leak_judge import OutputAxes, axes_of
from train_manager.checks.leak_runs import outputs_of


def axes(returned: Callable[[Tensor], object], size: int = 6, count: int = 5) -> OutputAxes:
    x = torch.arange(4.0 * size).view(size, 4)
    base, fewer = (outputs_of(returned(x[:number])) for number in (size, count))
    return axes_of(base, fewer, size, count, 0)


@pytest.mark.parametrize(
    ("returned", "axis", "numbers"),
    [
        (lambda x: x, 0, [0, 1, 2, 3, 4, 5]),
        (lambda x: x.t(), 1, [0, 1, 2, 3, 4, 5]),
        (lambda x: x.repeat_interleave(2, 0), 0, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        (lambda x: x.repeat(2, 1), 0, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]),
    ],
    ids=["rows", "columns", "folded", "folded in turn"],
)
def test_the_axis_that_shrank_in_proportion_holds_the_examples(
    returned: Callable[[Tensor], Tensor], axis: int, numbers: list[int]
) -> None:
    (found,) = axes(returned).known.values()

    assert (found.axis, found.numbers.tolist()) == (axis, numbers)


def test_a_list_that_shrank_holds_one_each() -> None:
    found = axes(lambda x: [{"row": row} for row in x])

    assert [(name_of(path), axis.axis, axis.numbers.tolist()) for path, axis in found.known.items()] == [
        (f"{number}.row", None, [number]) for number in range(6)
    ]


def test_a_leaf_of_the_same_shape_belongs_to_no_example() -> None:
    found = axes(lambda x: {"rows": x, "loss": x.mean()})

    assert [name_of(path) for path in found.none] == ["loss"]


def test_what_shrank_otherwise_has_its_examples_somewhere() -> None:
    found = axes(lambda x: torch.ones(2 * len(x) + 3))

    assert (found.known, found.unknown) == ({}, [()])


def test_without_a_smaller_batch_an_axis_of_its_length_holds_the_examples() -> None:
    found = axes_of(outputs_of({"rows": torch.ones(3, 6), "loss": torch.ones(())}), None, 6, 0, 0)

    assert [(name_of(path), axis.axis) for path, axis in found.known.items()] == [("rows", 1)]
    assert [name_of(path) for path in found.none] == ["loss"]
