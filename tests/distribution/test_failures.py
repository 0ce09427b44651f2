"""The first failure of all processes, as each of them reads it; watches of several processes share a store here."""

from __future__ import annotations

from typing import Any, cast

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch does not list it

from train_manager.data.shares import Place
from train_manager.distribution import failures
from train_manager.distribution.environment import Environment
from train_manager.distribution.failures import (
    Failure,
    FailureWatch,
    ended_failure,
    failure_of,
    has_timed_out,
    is_of_communication,
    late_failure,
)
from train_manager.errors import CheckError, RankError

LONG = 1000.0
"""Longer than a test may take."""


class Store:
    """A store that processes of one program share."""

    def __init__(self) -> None:
        self._inner = HashStore()
        self.is_alive = True

    def __getattr__(self, name: str) -> Any:
        if not self.is_alive:
            raise RuntimeError("Connection reset by peer")
        return getattr(self._inner, name)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(failures, "GRACE", 0.1)
    return Store()


@pytest.fixture
def watches(store: Store) -> list[FailureWatch]:
    return [watch(store, rank) for rank in range(3)]


def watch(store: Store, rank: int, *, is_of_torchrun: bool = False) -> FailureWatch:
    environment = Environment(Place(rank, 3), rank, "0", ("127.0.0.1", 1), is_of_torchrun)
    return FailureWatch(cast(Any, store), environment)


def note_that(watches: list[FailureWatch], *ranks: int) -> None:
    """Let processes note that they wait too."""
    for rank in ranks:
        watches[rank]._set(f"waits/{rank}")


def text_of(failure: Failure | None) -> str:
    assert failure is not None
    return failure.text


def test_the_first_failure_counts(watches: list[FailureWatch]) -> None:
    first = watches[1].report(failure_of(1, ValueError("no rows")))
    second = watches[2].report(failure_of(2, KeyError("no key")))

    assert first == second == watches[0].failure()
    assert first.text == "rank 1 has failed: ValueError: no rows"


def test_a_connection_that_was_lost_while_all_processes_are_alive_is_not_a_failure_of_one(
    watches: list[FailureWatch],
) -> None:
    note_that(watches, 1, 2)

    assert watches[0].find(LONG, has_waited=False) is None


def test_of_those_that_lost_a_connection_the_one_that_does_not_notice_has_ended(watches: list[FailureWatch]) -> None:
    note_that(watches, 1)
    watches[0].place = "the end of a batch"

    found = text_of(watches[0].find(0.1, has_waited=False))

    assert found == "rank 2 ended without an error, while others were at the end of a batch"


def test_under_torchrun_which_names_a_process_that_was_killed_the_others_do_not_wait_for_it(store: Store) -> None:
    found = watch(store, 0, is_of_torchrun=True).find(LONG, has_waited=False)

    assert found is None


def test_a_process_that_has_left_has_ended_without_waiting(watches: list[FailureWatch]) -> None:
    watches[1].leave()

    assert text_of(watches[0].find(LONG, has_waited=False)).startswith("rank 1 ended without an error")


def test_what_one_process_finds_out_all_others_read(watches: list[FailureWatch]) -> None:
    watches[1].leave()
    found = watches[0].find(LONG, has_waited=False)
    watches[0].leave()

    assert watches[2].find(LONG, has_waited=False) == found


def test_of_those_alive_the_one_that_does_not_wait_is_late(watches: list[FailureWatch]) -> None:
    note_that(watches, 0)
    watches[2].place, watches[2].passed = "the end of a batch", "the start of a run"

    found = text_of(watches[2].find(3.0, has_waited=True))

    assert found == "rank 1 did not come to the end of a batch within 3 s (rank 1 was last at the start of a run)"


def test_a_store_that_is_gone_names_what_it_ends_with(watches: list[FailureWatch], store: Store) -> None:
    store.is_alive = False

    assert text_of(watches[1].failure()) == "rank 0 ended without an error, and the store of all processes with it"


def test_the_host_of_the_store_waits_until_the_others_have_left(watches: list[FailureWatch]) -> None:
    for watch in watches:
        watch.leave()

    watches[0].wait_for_others(LONG)


@pytest.mark.parametrize("has_waited", [True, False])
def test_the_host_of_the_store_does_not_wait_again_for_a_process_that_did_not_come(
    watches: list[FailureWatch], has_waited: bool
) -> None:
    note_that(watches, 1)
    watches[0].find(0.1, has_waited=has_waited)
    watches[0].leave()
    watches[1].leave()

    watches[0].wait_for_others(LONG)


def test_an_error_says_its_cure() -> None:
    error = failure_of(1, ValueError("no rows")).error()

    assert isinstance(error, RankError)
    assert str(error) == (
        "rank 1 has failed: ValueError: no rows\n  look at the output of rank 1: this process has only waited for it"
    )


def test_mistakes_of_one_process_are_mistakes_of_all() -> None:
    error = failure_of(0, CheckError("1 mistake")).error()

    assert isinstance(error, CheckError)
    assert str(error).startswith("rank 0 has failed: CheckError: 1 mistake")


def test_processes_that_never_came_are_late_without_a_place() -> None:
    found = late_failure([0, 2], "the start of a run", "", 3.0)

    assert found.text == "rank 0 and rank 2 did not come to the start of a run within 3 s"
    assert found.cure == "a slow hook, or a save that takes longer? give Distributed(timeout=...) more seconds"


def test_a_process_that_has_ended_says_what_may_have_killed_it() -> None:
    found = ended_failure([1], "the end of a batch", "")

    assert found.text == "rank 1 ended without an error, while others were at the end of a batch"
    assert found.cure == "was the process killed? a job that takes more memory than it has is, by the system"


@pytest.mark.parametrize(
    ("error", "is_communication", "is_late"),
    [
        (RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:6"), True, False),
        (RuntimeError("[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv"), True, True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, False),
        (RankError("rank 1 has failed", name="rank 1"), False, False),
    ],
)
def test_errors_of_communication_are_known_by_their_text(
    error: Exception, is_communication: bool, is_late: bool
) -> None:
    assert (is_of_communication(error), has_timed_out(error)) == (is_communication, is_late)
