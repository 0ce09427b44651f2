from __future__ import annotations

import logging
import pickle
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import StepLR

from tests.support.host_reads import HostReads
from train_manager import Extensible, Extension, SkipBatch, fixture
from train_manager.errors import FixtureNotFound, InputError
from train_manager.extensions import ChangeLog, LRSchedule
from train_manager.testing import tiny_manager


class Worker(Extensible):
    """Opens one stage, or two of one name, and defines a fixture in it."""

    def work(self, value: Any = 1, inner: bool = False) -> None:
        with self.staged("work", {"size": value}):
            self.fixtures["result"] = value
            if inner:
                self.work()


def lines(log: ChangeLog) -> list[str]:
    return [str(change) for change in log.changes]


def test_of_an_extensible_without_steps_a_line_has_no_step() -> None:
    Worker([log := ChangeLog()]).work()
    assert lines(log) == [
        "work: code around work defines: size 1",
        "work: body of work defines: result 1",
    ]


def test_a_recursion_defines_fixtures_of_its_own_and_those_of_the_outer_stage_are_as_they_were() -> None:
    Worker([log := ChangeLog()]).work(2, inner=True)
    assert lines(log)[1:] == [
        "work > work: body of work defines: size 1",
        "work > work: body of work defines: result 1",
        "work: body of work defines: result 2",  # put aside before the first look after its definition
    ]


class Sets(Extension):
    """Give a fixture another value, of any kind."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def post_work(self, fixtures: Any) -> None:
        fixtures.modify("result", self.value)


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (1, 2, "1 -> 2"),
        ("a", None, "a -> None"),
        (0.5, torch.tensor([3.0, 4.0]), "0.5 -> 5"),
        (torch.tensor([6, 8]), torch.tensor([True]), "10 -> True"),
        (torch.ones(4, dtype=torch.float16), torch.zeros(2, 0), "2 -> 0"),
        (torch.tensor([3 + 4j, 0]), torch.tensor(7), "5 -> 7"),
    ],
)
def test_a_row_shows_numbers_and_texts_and_one_number_of_a_tensor(old: Any, new: Any, shown: str) -> None:
    Worker([Sets(new), log := ChangeLog()]).work(old)
    assert lines(log)[-1] == f"work: Sets.post_work sets: result {shown}"


@pytest.mark.parametrize("new", [[1], torch.ones(2).to_sparse(), torch.ones(2, device="meta")])
def test_a_row_shows_the_type_and_id_of_another_object(new: Any) -> None:
    Worker([Sets(new), log := ChangeLog()]).work()
    assert log.why("result")[-1].new == f"<{type(new).__name__} {id(new):#x}>"


@pytest.mark.parametrize("value", [float("nan"), 3.5, 10**6])
def test_an_equal_value_is_no_change(value: float) -> None:
    Worker([Sets(value + 0), log := ChangeLog(deep=True)]).work(value)
    assert [change.how for change in log.changes] == ["defines", "defines"]


def test_with_deep_a_tensor_that_changes_past_its_version_changes_in_place() -> None:
    class Doubles(Extension):
        def post_work(self, result: Tensor) -> None:
            result.data.mul_(2)

    for deep, found in ((False, []), (True, ["work: Doubles.post_work changes in place: result 2 -> 4"])):
        Worker([Doubles(), log := ChangeLog(deep=deep)]).work(torch.ones(4))
        assert [line for line in lines(log) if "in place: result" in line] == found


def test_a_tensor_for_inference_is_logged_as_it_is_defined() -> None:
    with torch.inference_mode():
        made = torch.ones(4)
    Worker([log := ChangeLog()]).work(made)
    assert lines(log)[-1] == "work: body of work defines: result 2"


def test_a_lazy_fixture_is_not_computed_for_the_log_and_its_provider_defines_it() -> None:
    class Lazy(Extension):
        asked = False

        @fixture("work")
        def norm(self, size: int) -> int:
            return size + 1

        def post_work(self, fixtures: Any) -> None:
            if self.asked:
                fixtures["norm"]

    worker = Worker([lazy := Lazy(), log := ChangeLog()])
    worker.work()
    assert "norm" not in {change.fixture for change in log.changes}
    lazy.asked = True
    worker.work()
    assert str(log.why("norm")[0]) == "work: Lazy.norm defines: norm 2"


def test_a_rate_that_a_schedule_sets_is_found_with_the_hook() -> None:
    schedule = LRSchedule(lambda optimizer: StepLR(optimizer, 1, gamma=0.5), per="step")
    tiny_manager(schedule, log := ChangeLog(), epochs=1).train()
    (change,) = log.why("lr", step=2)
    assert (change.who.partition(".")[0], change.how, change.old, change.new) == ("LRSchedule", "sets", 0.25, 0.125)


def test_each_group_of_parameters_has_a_row_for_its_rate() -> None:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        first, *others = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": others, "lr": 0.25}])

    schedule = LRSchedule(lambda optimizer: StepLR(optimizer, 1, gamma=0.5), per="step")
    tiny_manager(schedule, log := ChangeLog(), optimizer=optimizer, epochs=1).train()
    assert [(change.old, change.new) for change in log.why("lr", step=1)] == [(0.5, 0.25), (0.25, 0.125)]


def test_only_the_last_rows_are_kept() -> None:
    tiny_manager(log := ChangeLog(keep=5), epochs=2).train()
    assert len(log.changes) == 5
    assert log.why("inputs") == ()


def test_the_log_keeps_no_value_of_a_fixture_alive() -> None:
    kept: list[Any] = []

    class Keeps(Extension):
        def post_train_step_batch(self, prediction: Tensor) -> None:
            kept.append(ref(prediction))

    tiny_manager(Keeps(), log := ChangeLog(), epochs=1).train()
    assert log.changes
    assert [one() for one in kept] == [None] * 3


def test_a_log_that_comes_in_an_open_stage_takes_what_is_alive_as_defined_before() -> None:
    worker, log = Worker(), ChangeLog()
    with worker.staged("outer", {"width": 1}):
        worker.add_extension(log)
        worker.work()
    assert [change.fixture for change in log.changes] == ["size", "result"]
    assert log.why("width") == ()


def test_changes_while_the_log_was_away_are_not_in_it() -> None:
    tm = tiny_manager(log := ChangeLog())
    with tm.run():
        tm.train_steps(1)
        tm.remove_extension("change_log")
        tm.train_steps(1)
        tm.add_extension(log)
        tm.train_steps(1)
    assert {change.step for change in log.why("weights")} == {1, 3}
    assert {change.who for change in log.why("weights")} == {"body of train_optimizer_step"}


def test_a_batch_that_is_skipped_counts_as_no_step() -> None:
    class Skips(Extension):
        def pre_train_model_forward(self, batch_num: int) -> None:
            if batch_num == 1:
                raise SkipBatch

    tiny_manager(Skips(), log := ChangeLog(), epochs=1).train()
    assert [change.step for change in log.why("step_num")][-2:] == [1, 2]


def test_the_rows_are_pickled_with_the_log() -> None:
    tiny_manager(log := ChangeLog(), epochs=1).train()
    assert pickle.loads(pickle.dumps(log)).changes == log.changes


def test_rows_go_to_a_logger_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "train_manager.changes"):
        Worker([log := ChangeLog()]).work()
    assert caplog.messages == lines(log)


def test_without_deep_no_number_is_read_in_a_run() -> None:
    tm, plain = tiny_manager(ChangeLog(), epochs=1), tiny_manager(epochs=1)
    counts = []
    for one in (plain, tm):
        with HostReads() as reads:
            one.train()
        counts.append(reads.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("keep", [0, "all"])
def test_a_number_of_rows_that_is_not_at_least_1_is_refused(keep: Any) -> None:
    with pytest.raises(InputError, match=f"keep must be a whole number of at least 1, but is {keep!r}"):
        ChangeLog(keep)


def test_a_name_that_was_never_seen_is_refused_with_the_nearest() -> None:
    Worker([log := ChangeLog()]).work()
    with pytest.raises(FixtureNotFound) as caught:
        log.why("reslut")
    assert str(caught.value) == "the ChangeLog has never seen a fixture 'reslut'\n  did you mean 'result'?"
    with pytest.raises(FixtureNotFound, match="it has seen nothing yet"):
        ChangeLog().why("loss")
