"""What each process asks for is done by all."""

from __future__ import annotations

import pytest
import torch

from train_manager.distribution.agreement import agree, on_host
from train_manager.loop.requests import DATA_ENDED, NOTHING, SKIP_BATCH, Requests

NAMES = [name for name in Requests._fields if name not in ("stopped", "examples")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", range(3))
def test_a_request_of_one_process_is_one_of_all(name: str, rank: int) -> None:
    asks = NOTHING._replace(**{name: True})  # type: ignore[arg-type]

    assert agree([asks if here == rank else NOTHING for here in range(3)]) == asks


def test_without_a_request_there_is_none() -> None:
    assert agree([NOTHING, Requests()]) is NOTHING  # the loop compares with `is`


def test_the_reason_of_the_lowest_rank_that_stops_counts() -> None:
    first, second = ("plateau", "a hook", True), ("time", None, False)

    assert agree([NOTHING, Requests(stop=True, stopped=first), Requests(stop=True, stopped=second)]).stopped == first


def test_examples_are_added() -> None:
    assert agree([Requests(examples=6), Requests(examples=0), Requests(examples=5)]).examples == 11


@pytest.mark.parametrize("requests", [SKIP_BATCH, DATA_ENDED])
def test_a_process_without_a_batch_adds_no_example(requests: Requests) -> None:
    found = agree([Requests(examples=6), requests])

    assert found.examples == 6
    assert found.skip_batch == requests.skip_batch
    assert found.data_ended == requests.data_ended


def test_a_size_on_a_device_is_sent_as_a_number() -> None:
    found = on_host(Requests(examples=torch.tensor(4))).examples

    assert found == 4
    assert type(found) is int
