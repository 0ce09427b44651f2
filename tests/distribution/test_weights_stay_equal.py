"""Weights and buffers stay those of all processes, also if a program or a hook changes them on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import rank_changes
from tests.support.fork_server import ForkServer
from tests.support.ranks import ends_of, on_ranks, start_ranks

pytestmark = [pytest.mark.slow, pytest.mark.whole]

CHANGES = [
    rank_changes.with_a_new_layer,
    rank_changes.with_another_model,
    rank_changes.with_a_layer_that_grows,
    rank_changes.with_statistics,
]


@pytest.mark.parametrize("strategy", ["ddp", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_on_the_way_is_equal_in_all_processes(
    fork_server: ForkServer, tmp_path: Path, change: Callable[..., Any], strategy: str
) -> None:
    first, second = on_ranks(fork_server, 2, change, strategy, folder=tmp_path)

    assert torch.equal(first, second)


@pytest.mark.parametrize("strategy", ["ddp", "after"])
def test_a_window_that_ends_in_a_batch_without_a_backward_pass_is_that_of_all_rows(
    fork_server: ForkServer, tmp_path: Path, strategy: str
) -> None:
    alone = rank_changes.with_a_step_in_the_next_batch(None)

    for found in on_ranks(fork_server, 2, rank_changes.with_a_step_in_the_next_batch, strategy, folder=tmp_path):
        torch.testing.assert_close(found, alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("strategy", ["ddp", "after"])
def test_a_form_of_the_model_is_called_in_its_place(fork_server: ForkServer, tmp_path: Path, strategy: str) -> None:
    assert on_ranks(fork_server, 2, rank_changes.compiled_calls, strategy, folder=tmp_path) == [4, 4]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            rank_changes.with_an_unused_layer,
            "2 trained parameters have no gradient ((2, 2), (2,)), which strategy 'ddp' needs",
        ),
        (
            rank_changes.with_noise_of_its_own,
            "the weights of rank 1 are not those of rank 0 at the end of the epoch",
        ),
        (
            rank_changes.with_a_lazy_layer,
            "0.weight of Sequential is lazy, so it cannot be made equal in all processes",
        ),
    ],
    ids=["unused", "noise", "lazy"],
)
def test_what_would_make_weights_differ_is_an_error(
    fork_server: ForkServer, tmp_path: Path, program: Callable[[], None], said: str
) -> None:
    for end in ends_of(start_ranks(fork_server, 2, program, folder=tmp_path), tmp_path):
        assert said in end.text
