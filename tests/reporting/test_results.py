"""The results that training returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from train_manager import Extension, SkipBatch, SkipStage, TrainManager, TrainResult
from train_manager.testing import tiny_manager


class Enough(Extension):
    """Stops after the second step."""

    def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        if step_num == 2:
            train_manager.stop("enough")


def test_it_counts_this_call_alone() -> None:
    tm = tiny_manager(epochs=2)
    tm.train()
    result = tm.train_epochs(1)

    assert (result.epochs, result.steps, result.updates) == (1, 3, 3)


def test_steps_without_an_update_are_no_updates() -> None:
    def every_third(last_batch: bool) -> None:
        if not last_batch:
            raise SkipStage

    result = tiny_manager(Extension.of(pre_train_optimizer_step=every_third)).train()

    assert (result.steps, result.updates) == (3, 1)


def test_skipped_batches_are_no_steps() -> None:
    def skip() -> None:
        raise SkipBatch

    result = tiny_manager(Extension.of(pre_train_step_batch=skip)).train()

    assert (result.epochs, result.steps, result.updates) == (1, 0, 0)


def test_an_unfinished_epoch_is_none() -> None:
    tm = tiny_manager()

    assert [tm.train_steps(n).epochs for n in (2, 1, 4)] == [0, 1, 1]


def test_its_metrics_are_those_of_the_last_evaluation() -> None:
    tm = tiny_manager(epochs=2)
    result = tm.train()

    assert result.metrics == tm.eval()


def test_it_has_no_metrics_if_nothing_was_evaluated() -> None:
    tm = tiny_manager()
    tm.train()

    assert tm.train_epoch().metrics == {}


@pytest.mark.parametrize(
    "call",
    [lambda tm: tm.train(), lambda tm: tm.train_epochs(1), lambda tm: tm.train_steps(3), TrainManager.train_epoch],
)
def test_each_call_that_trains_returns_one(call: Callable[[TrainManager], TrainResult]) -> None:
    result = call(tiny_manager())

    assert (result.stopped, result.stopped_by, result.epochs, result.steps) == (None, None, 1, 3)


def test_it_says_why_and_where_training_was_stopped() -> None:
    result = tiny_manager(Enough()).train()

    assert (result.stopped, result.steps, result.epochs) == ("enough", 2, 0)
    assert result.stopped_by == ("Enough.post_train_step_batch at run > train > train_step_epoch > train_step_batch")


def test_a_stop_outside_of_hooks_has_no_stopped_by() -> None:
    tm = tiny_manager()
    with tm.run():
        tm.stop("seen enough")
        with pytest.warns(UserWarning, match="this run was stopped"):
            result = tm.train()

    assert (result.stopped, result.stopped_by, result.steps) == ("seen enough", None, 0)


def test_a_run_that_is_skipped_has_done_nothing() -> None:
    def skip() -> None:
        raise SkipStage

    result = tiny_manager(Extension.of(pre_run=skip)).train()

    assert (result.stopped, result.metrics, result.epochs, result.steps, result.updates) == (None, {}, 0, 0, 0)


def test_its_text_says_what_was_done_and_of_which_step_the_metrics_are() -> None:
    metrics = {"valid": {"loss": 0.65412345, "accuracy": 0.9}}
    result = TrainResult(epochs=1, steps=1200, seconds=0.0314, metrics=metrics, evaluated_at=1200)

    assert repr(result) == (
        "TrainResult(1 epoch, 1,200 steps, 0.031 s; at step 1200: valid loss 0.6541, valid accuracy 0.9)"
    )


def test_its_text_says_why_training_was_stopped() -> None:
    assert repr(TrainResult(stopped="enough", steps=2)) == "TrainResult(0 epochs, 2 steps, 0 s; stopped: enough)"


def test_a_notebook_shows_its_metrics_as_a_table() -> None:
    html = TrainResult(metrics={"valid": {"loss": 0.5}, "<b>": {"accuracy": 1.0}}, evaluated_at=6)._repr_html_()

    assert html.count("<tr>") == 3
    assert all(text in html for text in (">at step 6<", ">0.5<", ">&lt;b&gt;<", ">1<"))
