"""The norms of tensors of all kinds."""

from __future__ import annotations

import math

import torch

from tests.support.host_reads import HostReads
from train_manager.metrics.layer_norms import norms_by_layer, norms_of


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
