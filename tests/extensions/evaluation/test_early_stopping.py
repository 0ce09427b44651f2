from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, InputError, SkipStage, TrainManager, modifies
from train_manager.extensions import EMA, Checkpoints, EarlyStopping
from train_manager.schedules import every
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
    assert (tm.stop_reason, stopping.patience.best, stopping.patience.waited) == (None, 3, 0)


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


def test_after_a_stop_a_training_continues_until_the_next_evaluation_that_is_no_better() -> None:
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


@pytest.mark.parametrize(
    ("monitor", "told"),
    [
        ("vaild/loss", r"no set 'vaild'\n  did you mean 'valid'\?"),
        ("valid/los", r"'valid/los'.*\n  did you mean 'valid/loss'\?"),
    ],
)
def test_a_misspelt_set_or_metric_is_refused_before_the_first_step(monitor: str, told: str) -> None:
    tm = tiny_manager(EarlyStopping(monitor, mode="min"))
    with pytest.raises(InputError, match=told):
        tm.train()
    assert tm.step_num == 0


def test_it_is_refused_if_nothing_is_evaluated() -> None:
    with pytest.raises(InputError, match=r"no set 'valid'\n  pass eval_data=\{"):
        tiny_manager(EarlyStopping(), eval_data=None).train()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience must be a whole number of at least 1, but is 0"),
        ({"min_delta": -1}, "min_delta must be a number of at least 0, but is -1"),
        (
            {"monitor": "loss"},
            "monitor must name a set of eval_data and a metric, but is 'loss'\n"
            '  put a slash between them: "valid/loss"',
        ),
        ({"mode": "less"}, "mode must be 'min' or 'max', but is 'less'"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        EarlyStopping(**options)
    assert str(error.value) == message


# ---- the best weights -------------------------------------------------------------------------------------------


class Weights(Extension):
    """Remembers the weights at each evaluation."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Tensor]] = []

    def post_eval(self, train_manager: TrainManager) -> None:
        self.seen.append(copy.deepcopy(train_manager.model.state_dict()))


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_best_weights_are_put_back() -> None:
    stopping = EarlyStopping(patience=2, restore_best=True)
    tm = tiny_manager(stopping, Results(9, 3, 4, 5), weights := Weights(), epochs=9)
    tm.train()

    assert tm.epoch_num == 3
    assert equal(tm.model.state_dict(), weights.seen[1])
    assert tm.stop_reason == (
        "EarlyStopping: 'valid/loss' was no better than 3 in 2 evaluations; the weights of step 3 are restored"
    )


def test_they_are_put_back_with_the_buffers_also_if_the_training_was_not_stopped() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    stopping = EarlyStopping(restore_best=True)
    tm = tiny_manager(stopping, Results(9, 3, 4), weights := Weights(), model=model, epochs=2)
    tm.train()

    assert equal(tm.model.state_dict(), weights.seen[1])
    assert tm.model.state_dict()["1.num_batches_tracked"] == 3


def test_in_a_loop_of_ones_own_they_are_put_back_as_the_run_ends() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True), Results(3, 4), weights := Weights())
    with tm.run():
        for _ in range(2):
            tm.train_epoch()
            tm.eval()
        assert equal(tm.model.state_dict(), weights.seen[1])

    assert equal(tm.model.state_dict(), weights.seen[0])


def test_weights_that_were_set_after_the_training_stay() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True))
    tm.train()
    nn.init.zeros_(tm.model[0].weight)
    tm.eval()

    assert not tm.model[0].weight.any()


class Failing(Extension):
    def post_train_step_batch(self, epoch_num: int) -> None:
        if epoch_num == 2:
            raise ValueError("in epoch 3")


def test_an_evaluation_after_a_training_that_failed_leaves_the_weights_alone() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True), Results(9, 3, 4, 5), Failing(), epochs=3)
    with pytest.raises(ValueError, match="in epoch 3"):
        tm.train()
    last = copy.deepcopy(tm.model.state_dict())
    tm.eval()

    assert equal(tm.model.state_dict(), last)


def test_the_best_of_an_earlier_call_counts() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True), Results(9, 3, 4), weights := Weights())
    tm.train()
    tm.train_epochs(1)

    assert equal(tm.model.state_dict(), weights.seen[1])


def test_the_best_weights_of_a_phase_are_put_back_as_it_ends() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True), Results(9, 3, 4), weights := Weights())
    with tm.run():
        with tm.phase("head", epochs=2):
            tm.train()
        assert equal(tm.model.state_dict(), weights.seen[1])


@pytest.mark.filterwarnings("ignore:EarlyStopping saw")
def test_weights_of_a_phases_own_model_are_not_put_into_another() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True), Results(9, 3, 4), optimizer=torch.optim.SGD)
    with tm.run():
        with tm.phase("other", model=nn.Linear(2, 2)):
            tm.train()
        before = copy.deepcopy(tm.model.state_dict())
        tm.train_epoch()

    assert not equal(tm.model.state_dict(), before)


def test_the_average_of_the_weights_is_put_back_too() -> None:
    stopping, averaged = EarlyStopping(restore_best=True), EMA(0.5)
    tm = tiny_manager(stopping, averaged, epochs=3, extensions=[stopping, averaged, Results(9, 3, 4)])
    tm.train_epochs(1)
    best = copy.deepcopy(averaged.average)
    tm.train_epochs(2)

    assert equal(averaged.average, best)


def test_without_an_improvement_nothing_is_put_back() -> None:
    tm = tiny_manager(EarlyStopping(restore_best=True), Results(float("nan")), weights := Weights(), epochs=2)
    tm.train()

    assert equal(tm.model.state_dict(), weights.seen[-1])


# ---- a set without a loss ---------------------------------------------------------------------------------------


class NoLoss(TrainManager):
    def eval_batch(self) -> None: ...


@pytest.mark.parametrize(
    ("extensions", "cure"),
    [
        ([], "it has no results: set fixtures['loss'] in eval_batch, or measure something with Metrics(...)"),
        (
            [Results(1.0, name="f1")],
            "the results are 'valid/f1'; there is no loss, since eval_batch sets no fixtures['loss']",
        ),
    ],
)
def test_a_set_without_a_loss_is_refused_with_the_cure(extensions: list[Extension], cure: str) -> None:
    toy = tiny_manager()
    parts: dict[str, Any] = {name: getattr(toy, name) for name in ("model", "loss", "train_data", "eval_data")}
    tm = NoLoss(**parts, optimizer=torch.optim.SGD, extensions=[EarlyStopping(), *extensions])
    with pytest.raises(InputError) as error:
        tm.train()

    assert str(error.value).splitlines()[:2] == [
        "EarlyStopping monitors 'valid/loss', which is not among the results of 'valid'",
        f"  {cure}",
    ]


def test_a_program_that_is_started_again_after_it_stopped_trains_nothing_more(tmp_path: Path) -> None:
    def program(patience: int = 1) -> TrainManager:
        stopping = EarlyStopping(patience=patience, mode="max")
        tm = tiny_manager(Checkpoints(resume=True), stopping, epochs=10, seed=0, train_dir=tmp_path)
        tm.train()
        return tm

    first, second = program(), program()

    assert (first.step_num, first.stop_reason) == (second.step_num, second.stop_reason)
    with pytest.warns(RuntimeWarning, match="patience of extension 'early_stopping': program 3, checkpoint 1, used 3"):
        assert program(patience=3).step_num > first.step_num


# ---- phases ----------------------------------------------------------------------------------------------------------


def test_an_improving_training_is_not_stopped_by_what_a_phase_has_found() -> None:
    stopping = EarlyStopping(patience=2, restore_best=True)
    tm = tiny_manager(stopping, Results(9, 9, 8, 0.1, 0.1, 7, 6, 5, 4), epochs=6)
    with tm.run():
        tm.train_epochs(2)
        with tm.phase("head", epochs=1):
            tm.train()
        tm.train()
    assert (tm.epoch_num, tm.stop_reason) == (6, None)
    assert (stopping.patience.best, stopping.patience.waited) == (4, 0)


def test_a_phase_is_stopped_by_what_it_has_found_itself() -> None:
    stopping = EarlyStopping(patience=2)
    tm = tiny_manager(stopping, Results(9, 1, 50, 40, 41, 42, 0.5), epochs=2)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("head", epochs=9):
            found = tm.train()
        tm.train()
    assert (found.epochs, found.stopped) == (3, "EarlyStopping: 'valid/loss' was no better than 40 in 2 evaluations")
    assert (tm.epoch_num, stopping.patience.best) == (2, 0.5)


def test_the_weights_that_are_put_back_are_those_of_the_training_around_a_phase() -> None:
    weights = []
    keep = Extension.of(post_train_step_epoch=lambda train_manager: weights.append(weight_of(train_manager)))
    tm = tiny_manager(EarlyStopping(patience=9, restore_best=True), keep, Results(9, 1, 0.1, 2, 3), epochs=3)
    with tm.run():
        tm.train_epochs(1)  # the best one around the phase
        with tm.phase("head", epochs=1):
            tm.train()
        tm.train()
    assert weight_of(tm).equal(weights[0])


def test_a_checkpoint_of_a_phase_keeps_what_was_found_around_it() -> None:
    stopping = EarlyStopping(patience=5)
    tm = tiny_manager(stopping, Results(9, 4, 5, 0.1), epochs=2)
    with tm.run():
        tm.train()
        with tm.phase("head", epochs=1):
            tm.train()
            state = copy.deepcopy(stopping.state_dict())
            saved = tm.state_dict()["extensions"]["early_stopping"]["found"]
    assert {key: (found["best"], found["waited"]) for key, found in saved.items()} == {
        "": (4, 1),
        "phase 1: head": (0.1, 0),
    }
    assert state["found"] == {"": {"best": 0.1, "waited": 0}}  # by hand, those of where the training is


def weight_of(tm: TrainManager) -> Tensor:
    weight: Tensor = tm.model[0].weight
    return weight.detach().clone()


def test_an_evaluation_by_hand_within_the_first_epoch_counts() -> None:
    stopping = EarlyStopping(patience=9)
    tm = tiny_manager(stopping, Results(4, 3), eval_at=())
    with tm.run():
        tm.train_steps(2)
        tm.eval()
        tm.eval()
    assert (stopping.patience.best, stopping.patience.waited) == (3, 0)


def test_without_a_monitor_it_watches_the_loss_of_the_first_set() -> None:
    batch = (torch.rand(4, 2), torch.zeros(4, dtype=torch.long))
    tm = tiny_manager(EarlyStopping(patience=1), Results(1), eval_data={"near": [batch], "far": [batch]}, epochs=9)
    tm.train()
    assert tm.stop_reason == "EarlyStopping: 'near/loss' was no better than 1 in 1 evaluations"


def test_the_result_is_of_the_weights_that_are_put_back() -> None:
    stopping = EarlyStopping(patience=2, restore_best=True)
    result = tiny_manager(stopping, Results(9, 5, 6, 7), epochs=9).train()
    assert (result.metrics, result.evaluated_at) == ({"valid": {"loss": 5}}, 3)


SAW_NOTHING = (
    "EarlyStopping saw no evaluation of 'valid/loss' after the start, so it could not stop the training "
    '(let the training evaluate: eval_at=("start", "epoch"))'
)


@pytest.mark.filterwarnings("ignore:EarlyStopping saw")
def test_a_training_without_an_evaluation_is_told_as_its_run_closes() -> None:
    tm = tiny_manager(EarlyStopping(), eval_at=())
    with tm.run():
        tm.train()
        tm.train_steps(1)
        assert tm.findings == []

    assert [(one.check, one.level, one.in_a_line) for one in tm.findings] == [
        ("early stopping", "warning", SAW_NOTHING)
    ]


def test_a_standalone_evaluation_is_none_that_early_stopping_sees() -> None:
    tm = tiny_manager(EarlyStopping(), eval_at=())
    tm.eval()
    assert tm.findings == []
    with pytest.warns(UserWarning, match="EarlyStopping saw no evaluation"):
        tm.train()


def test_a_short_run_after_an_evaluation_is_not_told() -> None:
    tm = tiny_manager(EarlyStopping())
    tm.train_steps(1)  # evaluated at its start
    tm.train_steps(1)

    assert tm.findings == []


def test_a_part_of_an_epoch_is_not_told_if_evaluations_are_to_come() -> None:
    tm = tiny_manager(EarlyStopping(), eval_at="epoch")
    tm.train_steps(1)
    with tm.phase("warm up"):
        tm.train_steps(1)

    assert tm.findings == []


@pytest.mark.filterwarnings("ignore:EarlyStopping saw")
@pytest.mark.parametrize("eval_at", ["start", every(50)], ids=["start", "every"])
def test_an_epoch_without_an_evaluation_that_counts_is_told(eval_at: Any) -> None:
    tm = tiny_manager(EarlyStopping(), eval_at=eval_at)
    tm.train_epochs(1)

    assert [one.in_a_line for one in tm.findings] == [SAW_NOTHING]
