"""What hooks request of the loop, and the one point at which it looks at that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

from tests.support.training import At, Values, make_batches, skip_stage, stop_at
from train_manager import Extension, TrainManager
from train_manager.errors import StageError
from train_manager.loop.requests import DATA_ENDED, NOTHING, SKIP_BATCH, Requests
from train_manager.schedules import exponentially
from train_manager.testing import Recorder, tiny_manager


def nothing_but(request: str, when: Callable[[TrainManager], bool] = lambda tm: True) -> Callable[..., None]:
    def ask(train_manager: TrainManager) -> None:
        if when(train_manager):
            getattr(train_manager, request)()

    return ask


class Stream:
    """Batches of unknown number, which notes each that it gives."""

    def __init__(self, n: int) -> None:
        self.batches = make_batches(n)
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.given += 1
            yield batch


# ---- requests of hooks -----------------------------------------------------------------------------------------------


def test_a_request_to_evaluate_is_honoured_as_the_call_ends_if_it_trains_nothing() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, At("pre_train", nothing_but("eval_soon")), eval_at=())
    tm.train_steps(0)

    assert evals.seen == [0]


def test_a_request_to_evaluate_that_comes_as_an_epoch_ends_is_honoured_after_it() -> None:
    evals = Values("pre_eval", "epoch_num", "step_num")
    tm = tiny_manager(evals, At("post_train_step_epoch", nothing_but("eval_soon")), eval_at=())
    tm.train()

    assert evals.seen == [(1, 3)]


def test_a_request_to_evaluate_is_honoured_also_after_a_stop() -> None:
    evals = Values("pre_eval", "step_num")
    soon = At("post_train_step_batch", nothing_but("eval_soon"))
    tm = tiny_manager(evals, soon, stop_at("post_train_step_batch"), eval_at=())
    tm.train()

    assert evals.seen == [1]


def test_the_next_batch_is_made_after_the_evaluation_that_was_requested() -> None:
    data = Stream(3)
    given = At("pre_eval", lambda step_num: seen.append((step_num, data.given)))
    seen: list[tuple[int, int]] = []
    tm = tiny_manager(given, At("post_train_step_batch", nothing_but("eval_soon")), train_data=data, eval_at=())
    tm.train()

    assert seen == [(1, 1), (2, 2), (3, 3)]


def test_a_stop_goes_before_the_end_of_data_of_unknown_length() -> None:
    tm = tiny_manager(stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 3), train_data=Stream(3))
    result = tm.train()

    assert (result.steps, result.epochs) == (3, 0)


@pytest.mark.parametrize("order", [("step", "epoch"), ("epoch", "step")])
def test_a_stop_after_the_step_goes_before_one_after_the_epoch(order: tuple[str, str]) -> None:
    result = tiny_manager(*(stop_at("post_train_step_batch", at=at) for at in order), epochs=2).train()

    assert (result.steps, result.epochs) == (1, 0)


def test_the_end_of_an_epoch_goes_before_a_stop() -> None:
    ends = At("post_train_step_batch", nothing_but("end_epoch"))
    result = tiny_manager(ends, stop_at("post_train_step_batch"), epochs=2).train()

    assert (result.steps, result.epochs) == (1, 1)


def test_an_epoch_that_a_hook_ends_resets_its_data() -> None:
    data = _WithReset(make_batches(3))
    tiny_manager(At("post_train_step_batch", nothing_but("end_epoch")), train_data=data).train()

    assert data.resets == 1


def test_an_epoch_of_so_many_steps_that_a_hook_ends_leaves_the_data_where_it_is() -> None:
    data = _WithReset(make_batches(3))
    seen = Values("post_train_step_batch", "batch_num", "inputs")
    ends = At("post_train_step_batch", nothing_but("end_epoch"))
    tiny_manager(seen, ends, train_data=data, steps_per_epoch=2, epochs=2).train()

    assert data.resets == 0
    assert [number for number, _ in seen.seen] == [1, 1]
    assert torch.equal(seen.seen[1][1], data[1][0])


def test_to_end_an_epoch_outside_of_epochs_is_void() -> None:
    result = tiny_manager(At("pre_train", nothing_but("end_epoch"))).train()

    assert result.steps == 3


def test_to_end_an_epoch_as_it_has_ended_does_not_touch_the_next() -> None:
    result = tiny_manager(At("post_train_step_epoch", nothing_but("end_epoch")), epochs=2).train()

    assert result.steps == 6


def test_an_epoch_ended_by_the_hook_before_its_first_batch_has_no_batch() -> None:
    ends = At("pre_train_step_epoch", nothing_but("end_epoch", lambda tm: tm.epoch_num == 0))
    result = tiny_manager(ends, epochs=2).train()

    assert (result.steps, result.epochs) == (3, 2)


def test_epochs_without_a_step_are_an_error_also_if_one_was_left_half_way() -> None:
    tm = tiny_manager()
    tm.train_steps(2)
    tm.add_extension(At("pre_train_step_epoch", skip_stage))
    with pytest.raises(StageError, match="3 epochs went by without a step"):
        tm.train_steps(1)


def test_a_stop_says_who_called_it_and_where() -> None:
    result = tiny_manager(stop_at("post_eval")).train()

    assert (result.stopped, result.stopped_by) == ("enough", "At.post_eval at run > train > eval")


# ---- the point of decision -------------------------------------------------------------------------------------------


class _WithReset(list[Any]):
    resets = 0

    def reset(self) -> None:
        self.resets += 1


class Decisions(Extension):
    """Notes what the loop asks at the point of decision."""

    def __init__(self) -> None:
        self.asked: list[Requests] = []

    def pre_run(self, train_manager: TrainManager) -> None:
        train_manager.decide = self.decide  # type: ignore[method-assign]

    def decide(self, requests: Requests) -> Requests:
        self.asked.append(requests)
        return requests


def test_the_loop_asks_twice_for_each_batch_and_around_the_epoch_whatever_was_requested() -> None:
    decisions = Decisions()
    tiny_manager(decisions, eval_at=()).train()

    before, batches, as_the_call_ends = (
        [NOTHING],
        [one for n in (16, 16, 8) for one in (NOTHING, Requests(examples=n))],
        [NOTHING],
    )
    after = [Requests(data_ended=True), NOTHING]
    assert decisions.asked == before + batches + after + as_the_call_ends


def test_a_batch_that_a_hook_skips_is_told_to_the_others() -> None:
    decisions = Decisions()
    tiny_manager(decisions, At("pre_train_step_batch", skip_stage), eval_at=()).train()

    assert decisions.asked[1:8] == [NOTHING, SKIP_BATCH] * 3 + [Requests(data_ended=True)]


def test_a_batch_that_is_skipped_by_decision_is_not_trained_on() -> None:
    tm = tiny_manager()
    tm.decide = lambda requests: requests._replace(skip_batch=True)  # type: ignore[method-assign]
    result = tm.train()

    assert (result.steps, result.epochs) == (0, 1)


class Agreement:
    """What two managers in two threads do together: any request of one is a request of both."""

    def __init__(self) -> None:
        self.meet = threading.Barrier(2, timeout=90)
        self.asked: dict[int, Requests] = {}

    def of(self, number: int) -> Callable[[Requests], Requests]:
        def decide(requests: Requests) -> Requests:
            self.asked[number] = requests
            self.meet.wait()
            first, second = self.asked[0], self.asked[1]
            self.meet.wait()
            return Requests(*(one or other for one, other in zip(first, second, strict=True)))

        return decide


def trained_together(*makes: Callable[[], TrainManager], **call: Any) -> list[Any]:
    """Train two managers that agree; return each with its result."""
    agreement = Agreement()
    done: dict[int, Any] = {}

    def train(number: int) -> None:
        try:
            tm = makes[number]()
            tm.decide = agreement.of(number)  # type: ignore[assignment, method-assign]
            done[number] = tm, tm.train()
        except BaseException as error:
            done[number] = error, None
            agreement.meet.abort()

    threads = [threading.Thread(target=train, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found, _ in done.values():
        if isinstance(found, BaseException):
            raise found
    return [done[0], done[1]]


MAKING = threading.Lock()
"""Two threads make managers; each seeds torch's global random state for its weights."""


def manager(*extensions: Extension, data: Iterable[Any] | None = None, **options: Any) -> Callable[[], TrainManager]:
    def make() -> TrainManager:
        given = make_batches(3) if data is None else data
        with MAKING:
            return tiny_manager(*extensions, train_data=given, **{"eval_at": (), "epochs": 2, **options})

    return make


def test_a_stop_of_one_is_a_stop_of_both() -> None:
    (_, one), (_, other) = trained_together(
        manager(stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 2)), manager()
    )

    assert (one.steps, one.epochs) == (other.steps, other.epochs) == (2, 0)
    assert one.stopped == other.stopped == "enough"


def test_a_stop_of_one_in_its_last_step_is_a_stop_of_both() -> None:
    (_, one), (_, other) = trained_together(
        manager(stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 3)), manager()
    )

    assert (one.steps, one.epochs) == (other.steps, other.epochs) == (3, 1)


def test_a_stop_of_one_after_its_epoch_is_a_stop_of_both() -> None:
    stop = stop_at("post_train_step_batch", at="epoch", when=lambda tm: tm.step_num == 2)
    (_, one), (_, other) = trained_together(manager(stop), manager())

    assert (one.steps, one.epochs) == (other.steps, other.epochs) == (3, 1)


@pytest.mark.parametrize("hook", ["pre_train", "post_train_step_epoch", "post_eval"])
def test_a_stop_of_one_between_two_epochs_is_a_stop_of_both(hook: str) -> None:
    (_, one), (_, other) = trained_together(
        manager(stop_at(hook, when=lambda tm: hook == "pre_train" or tm.step_num == 3), eval_at="epoch"),
        manager(eval_at="epoch"),
    )

    assert one.steps == other.steps == (0 if hook == "pre_train" else 3)


def test_an_evaluation_that_one_requests_is_one_of_both() -> None:
    evals = Values("pre_eval", "step_num")
    soon = At("post_train_step_batch", nothing_but("eval_soon", lambda tm: tm.step_num in (2, 3)))
    trained_together(manager(soon), manager(evals))

    assert evals.seen == [2, 3]


def test_the_epoch_that_one_ends_ends_for_both() -> None:
    ends = At("post_train_step_batch", nothing_but("end_epoch", lambda tm: tm.step_num == 1))
    (_, one), (_, other) = trained_together(manager(ends), manager())

    assert (one.steps, one.epochs) == (other.steps, other.epochs) == (4, 2)


def test_a_batch_that_one_skips_is_skipped_by_both() -> None:
    skips = At("pre_train_step_batch", lambda batch_num: skip_stage() if batch_num == 2 else None)
    (_, one), (_, other) = trained_together(manager(skips), manager())

    assert one.steps == other.steps == 4


@pytest.mark.parametrize("is_known", [True, False])
def test_if_one_sees_its_data_end_the_other_leaves_out_the_batch_that_it_has_pulled(is_known: bool) -> None:
    longer = _Batches(make_batches(5))
    shorter: Any = make_batches(3) if is_known else _Batches(make_batches(3))
    (_, one), (_, other) = trained_together(manager(data=shorter), manager(data=longer))

    assert (one.steps, one.epochs) == (other.steps, other.epochs) == (6, 2)
    assert longer.resets == 2


class _Batches:
    """Batches of unknown number that can be reset."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.resets = batches, 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def reset(self) -> None:
        self.resets += 1


def test_both_train_on_the_same_weights_if_they_have_the_same_batches() -> None:
    (first, _), (second, _) = trained_together(manager(), manager())

    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_at_the_end_of_a_call_is_asked_for_at_the_point_of_decision() -> None:
    decisions, recorder = Decisions(), Recorder()
    asks = At("pre_train", lambda train_manager: train_manager.save_soon(at="end"))
    tiny_manager(decisions, asks, recorder, eval_at=()).train_steps(1)

    assert [request for request in decisions.asked if request.save_at_end] == [Requests(save_at_end=True)]
    assert recorder.stages.count("save_checkpoint") == 1


def test_a_checkpoint_at_the_end_that_one_asks_for_is_one_of_both_also_after_a_stop_of_the_other() -> None:
    asks = At("pre_train", lambda train_manager: train_manager.save_soon(at="end"))
    stops = stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 2)
    saves = Recorder(), Recorder()
    trained_together(manager(asks, saves[0]), manager(stops, saves[1]))

    assert [one.stages.count("save_checkpoint") for one in saves] == [1, 1]


def test_a_checkpoint_at_the_end_that_a_hook_skips_is_not_asked_for_again() -> None:
    asks = At("pre_train", lambda train_manager: train_manager.save_soon(at="end"))
    skips = At("pre_save_checkpoint", skip_stage)

    assert tiny_manager(asks, skips).train_steps(1).steps == 1


def test_a_pull_that_fails_after_a_signal_asks_what_a_process_without_a_batch_asks() -> None:
    decisions = Decisions()
    tm = tiny_manager(decisions, eval_at=())

    def batches() -> Iterator[Any]:
        yield make_batches(1)[0]
        tm.stop_from_outside("SIGTERM")
        raise RuntimeError("a worker has ended")

    class Failing:
        __iter__ = staticmethod(batches)

    tm.train_data = Failing()
    tm.train()

    assert decisions.asked[4:6] == [DATA_ENDED, Requests(stop=True, stopped=("SIGTERM", None, True))]


def test_the_checkpoint_at_the_end_of_a_call_is_saved_after_its_last_evaluation() -> None:
    recorder = Recorder()
    asks = At("pre_train", lambda train_manager: train_manager.save_soon(at="end"))
    tiny_manager(asks, recorder, eval_at=("end",)).train_steps(3)  # which is an epoch

    assert [stage for stage in recorder.stages if stage in ("eval", "save_checkpoint")] == ["eval", "save_checkpoint"]


def test_a_checkpoint_at_the_end_of_a_call_that_fails_is_not_saved_in_the_next_call() -> None:
    saved = Values("pre_save_checkpoint", "step_num")
    fails = At("post_train_step_epoch", lambda train_manager: 1 / (train_manager.step_num - 3))
    tm = tiny_manager(saved, fails, eval_at=())
    with tm.run():
        tm.save_soon(at="end")
        with pytest.raises(ZeroDivisionError):
            tm.train_steps(3)
        tm.train_steps(2)

    assert saved.seen == [5]


def test_a_schedule_with_the_last_step_asks_no_data_before_the_epoch_begins() -> None:
    seen: list[int] = []

    class Ends(Extension):
        @exponentially(100, 2, at_end=True)
        def pre_train_step_epoch(self, step_num: int) -> None:
            seen.append(step_num)

    tiny_manager(Ends(), epochs=2).train()

    assert seen == []


# ---- requests that are joined ----------------------------------------------------------------------------------------

NAMES = [name for name in Requests._fields if name not in ("stopped", "examples")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", range(3))
def test_a_request_of_one_process_is_one_of_all(name: str, rank: int) -> None:
    asks = NOTHING._replace(**{name: True})  # type: ignore[arg-type]
    first, *others = [asks if here == rank else NOTHING for here in range(3)]

    assert first.joined(*others) == asks


def test_without_a_request_there_is_none() -> None:
    assert Requests().joined(NOTHING) is NOTHING  # the loop compares with `is`


def test_the_reason_of_the_lowest_rank_that_stops_counts() -> None:
    first, second = ("plateau", "a hook", True), ("time", None, False)

    assert NOTHING.joined(Requests(stop=True, stopped=first), Requests(stop=True, stopped=second)).stopped == first


def test_a_stop_of_the_whole_run_is_one_whoever_stops_first() -> None:
    of_phase, whole = ("plateau", "a hook", False), ("time", None, True)

    found = Requests(stop=True, stopped=of_phase).joined(Requests(stop=True, stopped=whole))

    assert found.stopped == ("plateau", "a hook", True)


def test_a_stop_in_this_step_goes_before_one_in_this_epoch() -> None:
    assert Requests(stop_after_epoch=True).joined(Requests(stop=True)) == Requests(stop=True)


def test_examples_are_added() -> None:
    assert Requests(examples=6).joined(Requests(examples=0), Requests(examples=5)).examples == 11


@pytest.mark.parametrize("requests", [SKIP_BATCH, DATA_ENDED])
def test_a_process_without_a_batch_adds_no_example(requests: Requests) -> None:
    found = Requests(examples=6).joined(requests)

    assert found.examples == 6
    assert found.skip_batch == requests.skip_batch
    assert found.data_ended == requests.data_ended


def test_what_is_left_of_requests_that_were_followed_is_nothing() -> None:
    assert Requests(save=True).without("save") is NOTHING
    assert Requests(save=True, evaluate=True).without("save") == Requests(evaluate=True)
