"""The rows of a batch of train_on_batch that a process trains on."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from train_manager import InputError
from train_manager.data.shares import ALONE, Place, Share
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.outputs import share_of_batch

Pair = namedtuple("Pair", "x y")
X = torch.arange(5)
SPREADS = ModelCall(torch.nn.Linear(2, 2)).spreads


@pytest.mark.parametrize(
    ("batch", "cut"),
    [
        ([X, X + 1], [X[1::2], X[1::2] + 1]),
        (Pair(X, ("a", "b", "c", "d", "e")), Pair(X[1::2], ("b", "d"))),
        (OrderedDict(x=X, task="web", scale=2.0, none=None), OrderedDict(x=X[1::2], task="web", scale=2.0, none=None)),
        (MappingProxyType({"x": X}), {"x": X[1::2]}),
        ((X, [np.arange(5)]), (X[1::2], [np.arange(1, 5, 2)])),
    ],
)
def test_a_batch_of_any_structure_is_cut_by_rows(batch: Any, cut: Any) -> None:
    found, examples = share_of_batch(batch, Place(1, 2), None, SPREADS)

    assert repr(found) == repr(cut)
    assert examples == 2


def test_a_process_without_a_row_gets_the_first_one_and_counts_none() -> None:
    assert repr(share_of_batch(X[:1], Place(1, 2), None, SPREADS)) == repr((X[:1], 0))


@pytest.mark.parametrize("place", [ALONE, Place(1, 2)])
def test_a_share_is_taken_as_it_is(place: Place) -> None:
    assert share_of_batch(Share(X, 5, 9), place, None, SPREADS) == (X, 5)


@pytest.mark.parametrize("other", [torch.tensor(2.0), torch.ones(2), ["a", "b"], object(), np.ones(3)])
def test_an_entry_with_other_rows_is_refused(other: Any) -> None:
    with pytest.raises(InputError, match="cannot cut this batch for several processes: it has 5 rows, and a "):
        share_of_batch((X, other), Place(0, 2), None, SPREADS)


def test_lists_of_examples_are_refused() -> None:
    images = [torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)]

    with pytest.raises(InputError) as error:
        share_of_batch((images, [{"label": 0}, {"label": 1}]), Place(0, 2), None, SPREADS)

    assert str(error.value) == (
        "train_on_batch cannot cut this batch for several processes: its inputs and targets are lists of 2 examples\n"
        "  give the rows of this process as Share(batch, examples, of), of train_manager.data.shares"
    )
