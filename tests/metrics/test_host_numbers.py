from __future__ import annotations

import torch

from tests.support.host_reads import HostReads
from train_manager.metrics.host_numbers import HostNumbers


def test_a_value_is_kept_without_being_read() -> None:
    with HostReads() as reads:
        HostNumbers().keep(torch.tensor(0.5))

    assert reads.count == 0


def test_a_tensor_that_is_changed_in_place_is_kept_as_it_was() -> None:
    numbers, total = HostNumbers(), torch.zeros(())
    kept = [numbers.keep(total.add_(1)) for _ in range(3)]

    assert numbers(kept) == [1, 2, 3]


def test_what_is_kept_has_no_graph() -> None:
    kept = HostNumbers().keep((torch.ones(2, requires_grad=True) * 2).sum())

    assert kept.grad_fn is None


def test_numbers_of_any_precision_are_exact() -> None:
    values = [torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.1, dtype=torch.bfloat16), 3]

    assert HostNumbers()(values) == [0.10000000149011612, 0.1, 0.10009765625, 3.0]
