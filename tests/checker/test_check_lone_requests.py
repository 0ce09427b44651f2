"""A hook that runs on one rank alone must not ask for a fixture that all ranks compute at once: the rank would wait."""

from __future__ import annotations

import pytest

from tests.checker.checking import At, Loop, mistake
from train_manager import Extension, at_most, every, fixture, periodically, when
from train_manager.errors import CheckError
from train_manager.extensions import Log
from train_manager.testing import tiny_manager


class Norms(Extension):
    @fixture("step", collective=True)  # the norm
    def norm(self, batch: int) -> float:
        return float(batch)

    @fixture("step")  # its double
    def doubled(self, norm: float) -> float:
        return 2 * norm


def test_a_hook_of_rank_0_that_asks_for_a_collective_fixture_is_found(at: At) -> None:
    class Asks(Norms):
        ranks = 0

        def post_step(self, norm: float) -> None: ...  # asks itself

    assert str(mistake(Asks())) == (
        "Asks.post_step runs on rank 0 only, but asks for 'norm', which all ranks must compute at once\n"
        f"  asked at     {at('asks itself')}\n"
        f"  requested by Asks.post_step ({at('asks itself')})\n"
        f"  requested by Asks.norm ({at('the norm')})\n"
        "  ask for it in a hook of all ranks, and write there where train_manager.ranks.place.rank is 0"
    )


def test_the_chain_to_a_collective_fixture_is_shown(at: At) -> None:
    class Asks(Norms):
        ranks = 0

        def post_step(self, doubled: float = 0.0) -> None: ...  # asks through another

    assert str(mistake(Asks())) == (
        "Asks.post_step runs on rank 0 only, but asks for 'norm', which all ranks must compute at once\n"
        f"  asked at     {at('asks through another')}\n"
        f"  requested by Asks.post_step ({at('asks through another')})\n"
        f"  requested by Asks.doubled ({at('its double')})\n"
        f"  requested by Asks.norm ({at('the norm')})\n"
        "  ask for it in a hook of all ranks, and write there where train_manager.ranks.place.rank is 0"
    )


def test_a_hook_at_times_of_a_clock_that_asks_for_a_collective_fixture_is_found(at: At) -> None:
    class Asks(Norms):
        @periodically(60)  # at times
        def post_step(self, norm: float) -> None: ...

    assert str(mistake(Asks())) == (
        "Asks.post_step runs at other steps on each rank (@periodically(60)), but asks for 'norm', which all ranks "
        "must compute at once\n"
        f"  asked at     {at('at times')}\n"
        f"  requested by Asks.post_step ({at('at times')})\n"
        f"  requested by Asks.norm ({at('the norm')})\n"
        "  give it a schedule of steps, as @every(50)"
    )


def test_a_clock_with_a_last_time_is_found_too() -> None:
    class Asks(Norms):
        @periodically(60, at_end=True)
        def post_step(self, norm: float) -> None: ...

    assert "@periodically(60, at_end=True)" in str(mistake(Asks()))


def test_a_schedule_of_rank_0_that_asks_for_a_collective_fixture_is_found() -> None:
    class Asks(Norms):
        ranks = 0

        @when(lambda norm: norm > 1)
        def post_step(self) -> None: ...

    assert "asks for 'norm'" in str(mistake(Asks()))


def test_a_hook_that_runs_on_all_ranks_may_ask_for_a_collective_fixture() -> None:
    class Asks(Norms):
        @every(2)
        @at_most(3)
        def post_step(self, norm: float) -> None: ...

    Loop([Asks()]).check()


def test_a_hook_of_rank_0_may_ask_for_any_other_fixture() -> None:
    class Asks(Norms):
        ranks = 0

        def post_step(self, batch: int) -> None: ...

    Loop([Asks()]).check()


def test_a_collective_fixture_that_another_one_replaces_is_not_looked_at() -> None:
    class Plain(Extension):
        ranks = 0

        @fixture("step", override=True)
        def norm(self, batch: int) -> float:
            return float(batch)

        def post_step(self, norm: float) -> None: ...

    Loop([Norms(), Plain()]).check()


def test_a_log_that_shows_a_collective_fixture_is_refused_before_the_run() -> None:
    class NormOfWeights(Extension):
        @fixture("train_step_batch", collective=True)
        def norm_of_weights(self) -> float:
            return 1.0

    with pytest.raises(
        CheckError,
        match=r"runs on rank 0 only, but asks for 'norm_of_weights'.*\n.*requested by Log.post_train_step_batch\n",
    ):
        tiny_manager(NormOfWeights(), Log(every=1, show="norm_of_weights")).train()
