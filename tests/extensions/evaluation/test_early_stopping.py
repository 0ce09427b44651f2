from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from train_manager import Extension, InputError, SkipStage, TrainManager, modifies
from train_manager.extensions import EarlyStopping
from train_manager.testing import tiny_manager


class Results(Extension):
    """Give evaluations these losses, one after the other; then the last one again and again."""

    def __init__(self, *losses: float, name: str = "loss") -> None:
        self.losses = list(losses)
        self.name = name

    @modifies("eval_result")
    def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
        loss = self.losses.pop(0) if len(self.losses) > 1 else self.losses[0]
        return {**eval_result, self.name: loss}


def test_it_stops_when_the_patience_is_over() -> None:
    tm = tiny_manager(EarlyStopping(patience=2), Results(5, 4, 3, 6, 7, 1), epochs=10)
    tm.train()
    assert tm.epoch_num == 4
    assert tm.stop_reason == "EarlyStopping: 'valid/loss' was no better than 3 in 2 evaluations"


def test_it_does_not_stop_while_the_metric_gets_better() -> None:
    tm = tiny_manager(EarlyStopping(patience=1), Results(9, 8, 7, 6, 5), epochs=4)
    tm.train()
    assert (tm.epoch_num, tm.stop_reason) == (4, None)


def test_more_can_be_better() -> None:
    stopping = EarlyStopping("valid/accuracy", patience=1)
    tm = tiny_manager(stopping, Results(0.1, 0.5, 0.4, name="accuracy"), epochs=9)
    tm.train()
    assert (tm.epoch_num, stopping.patience.best) == (2, 0.5)


def test_the_stop_reason_names_nan_if_all_values_are_nan() -> None:
    tm = tiny_manager(EarlyStopping(patience=2), Results(float("nan")), epochs=9)
    tm.train()
    assert tm.stop_reason == "EarlyStopping: 'valid/loss' was no better than nan in 2 evaluations"


def test_the_evaluation_before_the_first_epoch_does_not_count() -> None:
    stopping = EarlyStopping(patience=2)
    tm = tiny_manager(stopping, Results(1, 5, 4, 3), epochs=3)
    tm.train()
    assert (tm.stop_reason, stopping.state_dict()) == (None, {"best": 3, "waited": 0})


def test_the_evaluation_before_the_first_epoch_counts_if_it_is_asked_for() -> None:
    tm = tiny_manager(EarlyStopping(patience=2, count_start=True), Results(1, 5, 4, 3), epochs=3)
    tm.train()
    assert (tm.epoch_num, tm.stop_reason) == (2, "EarlyStopping: 'valid/loss' was no better than 1 in 2 evaluations")


def test_an_evaluation_that_is_a_run_of_its_own_does_not_count() -> None:
    stopping = EarlyStopping(patience=2)
    tm = tiny_manager(stopping, Results(1), epochs=2)
    tm.train()
    waited = stopping.patience.waited
    tm.eval()
    assert stopping.patience.waited == waited == 1


def test_an_evaluation_in_the_middle_of_an_epoch_counts() -> None:
    tm = tiny_manager(EarlyStopping(patience=1), Results(1), epochs=5)
    tm.add_extension(post_train_step_batch=lambda train_manager: train_manager.eval_soon())
    tm.train()
    assert (tm.epoch_num, tm.step_num) == (0, 2)


def test_an_evaluation_without_the_set_does_not_count() -> None:
    class Seldom(Extension):
        def pre_eval_step_epoch(self, epoch_num: int) -> None:
            if epoch_num % 2:
                raise SkipStage

    stopping = EarlyStopping(patience=2)
    tm = tiny_manager(stopping, Seldom(), Results(1), epochs=9)
    tm.train()
    assert tm.epoch_num == 6


def test_after_a_stop_a_training_goes_on_until_the_next_evaluation_that_is_no_better() -> None:
    tm = tiny_manager(EarlyStopping(patience=1), Results(9, 3, 3, 2, 2), epochs=9)
    tm.train()
    assert tm.epoch_num == 2
    tm.train()
    assert tm.epoch_num == 4


def test_its_count_continues_in_the_next_training() -> None:
    tm = tiny_manager(EarlyStopping(patience=2), Results(1))
    tm.train_epochs(1)
    assert tm.stop_reason is None
    tm.train_epochs(5)
    assert tm.epoch_num == 3


def test_after_removal_it_does_not_stop() -> None:
    tm = tiny_manager(EarlyStopping(patience=1), Results(1), epochs=3)
    tm.remove_extension("early_stopping")
    tm.train()
    assert tm.epoch_num == 3


def test_another_instance_continues_from_its_state() -> None:
    first, second = EarlyStopping(patience=2), EarlyStopping(patience=2)
    tiny_manager(first, Results(1), epochs=2).train()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == {"best": 1, "waited": 1}


def test_a_misspelt_set_is_refused_before_the_first_step() -> None:
    tm = tiny_manager(EarlyStopping("vaild/loss"))
    with pytest.raises(InputError, match=r"no set 'vaild'\n  did you mean 'valid'\?"):
        tm.train()
    assert tm.step_num == 0


def test_it_is_refused_if_nothing_is_evaluated() -> None:
    with pytest.raises(InputError, match=r"no set 'valid'\n  pass eval_data=\{"):
        tiny_manager(EarlyStopping(), eval_data=None).train()


def test_a_misspelt_metric_is_refused_by_the_evaluation_before_the_first_step() -> None:
    tm = tiny_manager(EarlyStopping("valid/los", mode="min"))
    with pytest.raises(InputError, match=r"'valid/los'.*\n  did you mean 'valid/loss'\?"):
        tm.train()
    assert tm.step_num == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience must be a whole number of at least 1, but is 0"),
        ({"min_delta": -1}, "min_delta must be a number of at least 0, but is -1"),
        ({"monitor": "loss"}, "monitor must name a set and a metric, such as \"valid/loss\", but is 'loss'"),
        ({"mode": "less"}, "mode must be 'min' or 'max', but is 'less'"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        EarlyStopping(**options)
    assert str(error.value) == message


def test_the_weights_are_the_same_to_the_bit_with_and_without_it() -> None:
    def trained(*extensions: Extension) -> list[Tensor]:
        tm: TrainManager = tiny_manager(*extensions, epochs=2)
        tm.train()
        return list(tm.model.parameters())

    for one, other in zip(trained(EarlyStopping()), trained(), strict=True):
        assert torch.equal(one, other)
