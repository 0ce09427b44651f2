"""``every(n, of=...)``: hooks that run as another stage has ended n times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train_manager import Extensible, Extension, SkipStage, every, modifies, scheduled, when
from train_manager.errors import CheckError, HookError
from train_manager.schedules.rules import EveryOf


class Loop(Extensible):
    """Batches, each with some updates inside."""

    def run(self, updates: Sequence[int]) -> None:
        for number, count in enumerate(updates, start=1):
            with self.staged("batch", {"number": number}):
                for _ in range(count):
                    self.update()

    def update(self, fails: bool = False) -> None:
        try:
            with self.staged("update", {"fails": fails}):
                if fails:
                    raise ValueError
        except (SkipStage, ValueError):
            pass


class Post(Extension):
    def __init__(self) -> None:
        self.ran: list[int] = []

    def post_batch(self, number: int) -> None:
        self.ran.append(number)


class Pre(Extension):
    def __init__(self) -> None:
        self.ran: list[int] = []

    def pre_batch(self, number: int) -> None:
        self.ran.append(number)


def ran(updates: Sequence[int], n: int, **options: Any) -> list[int]:
    """Return the batches in which a post hook of the batch runs."""
    post = scheduled(Post(), "post_batch", every(n, of="update", **options))
    Loop([post]).run(updates)
    return post.ran


def test_a_post_hook_runs_in_the_batch_in_which_the_count_was_reached() -> None:
    assert ran([1, 1, 1, 1, 1], n=2) == [2, 4]


def test_batches_without_an_update_do_not_count() -> None:
    assert ran([0, 1, 0, 1, 0, 1], n=3) == [6]


def test_a_multiple_is_not_lost_between_two_updates_of_one_batch() -> None:
    assert ran([2, 2, 2, 2], n=3) == [2, 3]


def test_several_multiples_in_one_batch_are_one_run() -> None:
    assert ran([5, 0, 1], n=2) == [1, 3]


def test_the_first_end_counts_too_if_asked_for() -> None:
    assert ran([0, 1, 1, 1, 1], n=3, first=True) == [2, 4]
    assert ran([1, 1, 1], n=1, first=True) == [1, 2, 3]


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 5))
def test_the_hook_runs_in_each_batch_that_passes_a_multiple(updates: list[int], n: int) -> None:
    ends = [sum(updates[:index]) for index in range(len(updates) + 1)]
    assert ran(updates, n) == [index for index in range(1, len(ends)) if ends[index] // n > ends[index - 1] // n]


def test_a_pre_hook_runs_at_the_next_opening() -> None:
    pre = scheduled(Pre(), "pre_batch", every(2, of="update"))
    Loop([pre]).run([1, 1, 1, 1, 1])
    assert pre.ran == [3, 5]


def test_an_around_hook_does_not_lose_what_ends_inside_of_it() -> None:
    class Around(Extension):
        def __init__(self) -> None:
            self.ran: list[int] = []

        @every(2, of="update")
        def around_batch(self, number: int) -> Iterator[None]:
            self.ran.append(number)
            yield

    around = Around()
    Loop([around]).run([2, 2, 0, 0])
    assert around.ran == [2, 3]


def test_ends_are_counted_before_the_post_hooks_of_their_own_stage() -> None:
    class Own(Extension):
        ran = 0

        @every(2, of="update")
        def post_update(self) -> None:
            self.ran += 1

    own = Own()
    Loop([own]).run([5])
    assert own.ran == 2


def test_a_stage_that_is_skipped_or_fails_is_not_counted() -> None:
    class Skips(Extension):
        @every(2)
        def pre_update(self) -> None:
            raise SkipStage

    post = scheduled(Post(), "post_batch", every(1, of="update"))
    loop = Loop([Skips(), post])
    for number, fails in enumerate([True, False, False], start=1):  # the second is skipped
        with loop.staged("batch", {"number": number}):
            loop.update(fails)
    assert post.ran == [3]


def test_a_turn_that_another_schedule_refuses_is_put_off() -> None:
    post = scheduled(Post(), "post_batch", every(2, of="update"), when(lambda number: number > 2))
    Loop([post]).run([1, 1, 0, 1, 1])
    assert post.ran == [3, 5]


def test_the_count_resumes_after_a_checkpoint() -> None:
    first, second = (scheduled(Post(), "post_batch", every(3, of="update")) for _ in range(2))
    Loop([first]).run([2, 2])
    second.load_state_dict(first.state_dict())
    Loop([second]).run([1, 1])
    assert (first.state_dict()["schedules"], second.ran) == ({"post_batch": [{"count": 4, "ran_at": 4}]}, [2])


def test_a_stage_that_nothing_counts_calls_nothing_more() -> None:
    loop = Loop([scheduled(Post(), "post_batch", every(2, of="update"))])
    assert "ended" not in loop.explain("batch", format="code")
    assert loop.explain("update", format="code") == (
        "def post_update(stage, store):\n    counting_0.ended(stage, cell_fixtures.value)\n    store.running = None\n"
    )


def test_a_hook_that_does_not_run_leaves_what_it_modifies() -> None:
    class Doubles(Extension):
        @every(2, of="update")
        @modifies("number")
        def post_batch(self, number: int) -> int:
            return 2 * number

    class Sees(Post): ...

    sees = Sees()
    Loop([Doubles(), sees]).run([1, 1, 1])
    assert sees.ran == [1, 4, 3]


@pytest.mark.parametrize("of", ["two words", "", "stage", 3])
def test_what_no_stage_can_be_called_is_refused(of: Any) -> None:
    with pytest.raises(HookError) as error:
        every(2, of=of)
    assert str(error.value).splitlines()[0] == f"every's of must be the name of a stage, but is {of!r}"
    assert str(error.value).endswith('give the name of one stage: @every(50, of="train_optimizer_step")')


def test_the_check_finds_a_misspelt_stage() -> None:
    with pytest.raises(CheckError) as error:
        Loop([scheduled(Post(), "post_batch", every(2, of="updat"))]).check()
    (found,) = error.value.mistakes
    assert str(found).splitlines()[0] == (
        "Post.post_batch (extension 'post') would never run: @every(2, of='updat') names no stage"
    )
    assert str(found).splitlines()[-1].strip() == "did you mean 'update'?"


def test_a_copy_counts_for_itself() -> None:
    one = EveryOf(2, first=False, of="update")
    one.ended(None, {})  # type: ignore[arg-type]
    other = one.copy()
    other.ended(None, {})  # type: ignore[arg-type]
    assert (one.should_run(), other.should_run()) == (False, True)
