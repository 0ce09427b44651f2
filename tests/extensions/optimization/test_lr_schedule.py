from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from tests.extensions.optimization.rates import Losses, Make, Rates, halving, rate_of
from train_manager import Extension, InputError, SkipBatch, SkipStage
from train_manager.extensions import Checkpoints, LRSchedule, WarmUp
from train_manager.extensions.optimization.warm_up import factor_after
from train_manager.testing import tiny_manager


def plateau(optimizer: Optimizer) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, factor=0.1, patience=0)


def by_hand(make: Make, steps: int) -> list[float]:
    """Return the rates of a bare scheduler that steps after each step of its optimizer."""
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler, rates = make(optimizer), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_it_steps_after_each_epoch() -> None:
    rates = Rates()
    tiny_manager(rates, LRSchedule(halving), epochs=3).train()
    assert rates.seen == [0.5] * 3 + [0.25] * 3 + [0.125] * 3


def test_it_sets_the_same_rates_as_the_managers_lr_schedule() -> None:
    extended = tiny_manager(LRSchedule(halving), epochs=3)
    plain = tiny_manager(lr_schedule=halving, epochs=3)
    extended.train()
    plain.train()
    for one, other in zip(extended.model.parameters(), plain.model.parameters(), strict=True):
        assert one.equal(other)


@pytest.mark.parametrize(
    "make",
    [
        halving,
        lambda optimizer: CosineAnnealingLR(optimizer, T_max=9),
        lambda optimizer: OneCycleLR(optimizer, max_lr=1.0, total_steps=10),
        lambda optimizer: SequentialLR(optimizer, [LinearLR(optimizer, 0.1, 1.0, 3), StepLR(optimizer, 2)], [3]),
    ],
)
def test_it_steps_after_each_step_of_the_optimizer(make: Make) -> None:
    rates = Rates()
    tiny_manager(rates, LRSchedule(make, per="step"), epochs=3).train()
    assert rates.seen == by_hand(make, 9)


def test_a_batch_without_a_step_of_the_optimizer_does_not_step_the_scheduler_and_has_no_rates() -> None:
    seen: list[Any] = []

    class EverySecond(Extension):
        def pre_train_optimizer_step(self, step_num: int) -> None:
            if step_num % 2 == 0:
                raise SkipStage

    tm = tiny_manager(EverySecond(), LRSchedule(halving, per="step"), epochs=2)
    tm.add_extension(post_train_step_batch=lambda learning_rates=None: seen.append(learning_rates))
    tm.train()
    assert seen == [None, (0.5,), None, (0.25,), None, (0.125,)]


def test_a_batch_that_is_skipped_after_the_optimizers_step_steps_the_scheduler() -> None:
    def skips() -> None:
        raise SkipBatch

    tm = tiny_manager(LRSchedule(halving, per="step"), Extension.of(post_train_optimizer_step=skips))
    tm.train()
    assert rate_of(tm) == 0.5**4


def test_an_epoch_that_is_stopped_in_its_middle_does_not_step_the_scheduler() -> None:
    tm = tiny_manager(LRSchedule(halving), epochs=2)
    tm.add_extension(post_train_step_batch=lambda train_manager: train_manager.stop("enough"))
    tm.train()
    assert (tm.epoch_num, rate_of(tm)) == (0, 0.5)


def test_it_steps_with_a_metric() -> None:
    rates = Rates()
    tiny_manager(rates, LRSchedule(plateau, monitor="valid/loss"), Losses(9, 3, 4, 2), epochs=3).train()
    assert rates.seen == pytest.approx([0.5] * 6 + [0.05] * 3)


@pytest.mark.parametrize(("count_start", "rate"), [(False, 0.5), (True, 0.05)])
def test_it_steps_with_the_evaluation_before_the_first_epoch_only_if_that_is_asked_for(
    count_start: bool, rate: float
) -> None:
    tm = tiny_manager(LRSchedule(plateau, monitor="valid/loss", count_start=count_start), Losses(1, 2))
    tm.train()
    assert rate_of(tm) == pytest.approx(rate)


def test_a_scheduler_that_is_not_from_torch_may_take_a_metric() -> None:
    seen: list[float] = []

    class Own:
        def step(self, loss: float) -> None:
            seen.append(loss)

    tiny_manager(LRSchedule(lambda optimizer: Own(), monitor="valid/loss"), Losses(9, 3, 2), epochs=2).train()
    assert seen == [3, 2]


def test_an_evaluation_that_is_a_run_of_its_own_does_not_step_the_scheduler() -> None:
    tm = tiny_manager(LRSchedule(plateau, monitor="valid/loss"), Losses(3, 2, 5, 6))
    tm.train()
    tm.eval()
    assert rate_of(tm) == 0.5


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("per", ["step", "epoch"])
def test_a_warm_up_and_a_schedule_are_multiplied(reverse: bool, per: str) -> None:
    rates = Rates()
    recipes = [WarmUp(steps=4, start=0.2), LRSchedule(halving, per=per)]
    tiny_manager(rates, *(recipes[::-1] if reverse else recipes), epochs=2).train()
    halvings = [step if per == "step" else step // 3 for step in range(6)]
    assert rates.seen == pytest.approx(
        [0.5 * 0.5**half * factor_after(step, 4, 0.2) for step, half in enumerate(halvings)]
    )


def test_the_schedule_continues_after_an_error() -> None:
    class FailsOnce(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            if step_num == 2:
                raise ValueError("on purpose")

    rates = Rates()
    tm = tiny_manager(FailsOnce(), LRSchedule(halving, per="step"), rates)
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    tm.train_epochs(1)
    assert rates.seen == [0.5, 0.125, 0.0625, 0.03125]


def test_an_error_at_the_end_of_an_epoch_does_not_keep_the_scheduler_from_its_step() -> None:
    def fails() -> None:
        raise ValueError("on purpose")

    tm = tiny_manager(Extension.of(post_train_step_epoch=fails), LRSchedule(halving))
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    assert (tm.epoch_num, rate_of(tm)) == (1, 0.25)


def test_added_to_an_open_run_it_begins_there() -> None:
    rates = Rates()
    tm = tiny_manager()
    with tm.run():
        tm.train_epochs(1)
        tm.add_extension(LRSchedule(halving, per="step"))
        tm.add_extension(rates)
        tm.train_epochs(1)
    assert rates.seen == [0.5, 0.25, 0.125]


def test_each_parameter_group_has_a_rate() -> None:
    seen: list[Any] = []

    def optimizer(parameters: Any) -> Optimizer:
        return SGD([{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.1}], lr=0.5)

    tm = tiny_manager(LRSchedule(halving), optimizer=optimizer)
    tm.add_extension(post_train_step_batch=lambda learning_rates: seen.append(learning_rates))
    tm.train()
    assert seen == [(0.5, 0.1)] * 3


@pytest.mark.parametrize("in_stage", [False, True])
@pytest.mark.parametrize(
    "make", [halving, lambda optimizer: OneCycleLR(optimizer, 1.0, total_steps=20)], ids=["exponential", "one_cycle"]
)
def test_a_training_continues_from_its_state(make: Make, in_stage: bool, tmp_path: Any) -> None:
    """The state is loaded before the first run, when there is no scheduler, or in the stage ``load_checkpoint``."""
    first, second, rates = LRSchedule(make, per="step"), LRSchedule(make, per="step"), Rates()
    tiny_manager(first, rates).train_epochs(1)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    tm = tiny_manager(second, rates)
    if in_stage:
        tm.add_extension(pre_load_checkpoint=lambda: second.load_state_dict(state))
    else:
        second.load_state_dict(state)
        assert second.state_dict() == state
    tm.train_epochs(1)
    assert rates.seen == by_hand(make, 6)


def test_a_plateau_continues_from_its_state() -> None:
    first, second = (LRSchedule(plateau, monitor="valid/loss", count_start=True) for _ in range(2))
    tiny_manager(first, Losses(1, 2)).train()
    tm = tiny_manager(second, Losses(2, 0.5))
    second.load_state_dict(first.state_dict())
    tm.train()
    assert rate_of(tm) == pytest.approx(0.005)


def test_a_misspelt_set_is_refused_before_the_first_step() -> None:
    tm = tiny_manager(LRSchedule(plateau, monitor="vaild/loss"))
    with pytest.raises(InputError, match=r"LRSchedule monitors 'vaild/loss'.*\n  did you mean 'valid'\?"):
        tm.train()


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            lambda: LRSchedule(plateau),
            'LRSchedule steps without a metric, but ReduceLROnPlateau needs one\n  name it: monitor="valid/loss"',
        ),
        (
            lambda: LRSchedule(halving, monitor="valid/loss"),
            "LRSchedule: ExponentialLR takes no metric, but 'valid/loss' is named\n"
            '  give per="epoch" or per="step" instead',
        ),
        (
            lambda: LRSchedule(lambda optimizer: None),
            "LRSchedule must make a scheduler with step(), but made a NoneType\n"
            "  LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10))",
        ),
    ],
)
def test_a_scheduler_that_does_not_fit_is_refused_before_the_first_step(
    schedule: Callable[[], LRSchedule], message: str
) -> None:
    tm = tiny_manager(schedule())
    with pytest.raises(InputError) as error:
        tm.train()
    assert str(error.value) == message
    assert tm.step_num == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per": "batch"}, "per must be 'epoch' or 'step', but is 'batch'"),
        (
            {"per": "step", "monitor": "valid/loss"},
            "LRSchedule takes per or monitor, but was given per='step' and monitor='valid/loss'\n"
            "  leave out one of them",
        ),
        (
            {"monitor": "loss"},
            "monitor must name a set of eval_data and a metric, but is 'loss'\n"
            '  put a slash between them: "valid/loss"',
        ),
        (
            {"make": 0.1},
            "LRSchedule needs a function of the optimizer, but was given a float\n"
            "  LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10))",
        ),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        LRSchedule(**{"make": halving, **options})
    assert str(error.value) == message


def test_a_scheduler_with_more_parameters_than_the_optimizer_is_refused_at_once() -> None:
    with pytest.raises(InputError) as caught:
        LRSchedule(ExponentialLR)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "LRSchedule was given ExponentialLR, which needs more than the optimizer: gamma\n"
        "  give a function: LRSchedule(lambda optimizer: ExponentialLR(optimizer, gamma=...))"
    )


def test_the_lr_schedule_of_a_manager_is_refused_in_the_same_words() -> None:
    with pytest.raises(
        InputError, match=r"give a function: lr_schedule=lambda optimizer: StepLR\(optimizer, step_size=...\)"
    ):
        tiny_manager(lr_schedule=StepLR)


# ---- schedulers that are told how much is done, as timm's ----------------------------------------------------------


class Counting:
    """The protocol of timm's schedulers; the rate falls by 0.05 with each epoch, or with each update."""

    def __init__(self, optimizer: Optimizer, t_in_epochs: bool = True) -> None:
        self.optimizer, self.t_in_epochs = optimizer, t_in_epochs
        self.told: list[int] = []

    def step(self, epoch: int, metric: float | None = None) -> None:
        self._set(epoch)

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        self._set(num_updates)

    def _set(self, number: int) -> None:
        self.told.append(number)
        self.optimizer.param_groups[0]["lr"] = 0.5 - 0.05 * number

    def state_dict(self) -> dict[str, Any]:
        return {"told": self.told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.told = state["told"]


def counts_updates(optimizer: Optimizer) -> Counting:
    return Counting(optimizer, t_in_epochs=False)


@pytest.mark.parametrize(
    ("make", "per", "told"), [(Counting, "epoch", [1, 2]), (counts_updates, "step", [*range(1, 7)])]
)
def test_a_scheduler_with_step_update_is_told_the_number_of_epochs_or_updates(
    make: Make, per: str, told: list[int]
) -> None:
    schedule = LRSchedule(make, per=per)
    tm = tiny_manager(schedule, epochs=2)
    tm.train()

    assert schedule.scheduler.told == told
    assert rate_of(tm) == 0.5 - 0.05 * told[-1]


def test_after_a_resume_it_is_told_the_next_number(tmp_path: Path) -> None:
    tiny_manager(LRSchedule(counts_updates, per="step"), Checkpoints(), train_dir=tmp_path, epochs=1).train()
    schedule = LRSchedule(counts_updates, per="step")
    tiny_manager(schedule, Checkpoints(resume=True), train_dir=tmp_path, epochs=2).train()

    assert schedule.scheduler.told == [1, 2, 3, 4, 5, 6]


def test_with_a_metric_it_is_told_the_number_and_the_metric() -> None:
    told = []

    class WithMetric(Counting):
        def step(self, epoch: int, metric: float | None = None) -> None:
            told.append((epoch, metric))

    tiny_manager(LRSchedule(WithMetric, monitor="valid/loss"), Losses(3.0, 2.0, 1.0), epochs=2).train()

    assert told == [(1, 2.0), (2, 1.0)]


@pytest.mark.parametrize(
    ("make", "per", "counts", "cure"),
    [(Counting, "step", "epochs", "epoch"), (counts_updates, "epoch", "updates", "step")],
)
def test_of_what_it_does_not_count_it_is_not_told(make: Make, per: str, counts: str, cure: str) -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(LRSchedule(make, per=per)).train()

    assert str(error.value).splitlines()[:2] == [
        f"LRSchedule was given per={per!r}, but this Counting counts {counts}",
        f"  LRSchedule(make, per={cure!r})",
    ]


def test_the_argument_lr_schedule_takes_none_of_these() -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(lr_schedule=Counting)

    assert str(error.value) == (
        "lr_schedule steps without a number, but Counting steps with the number of epochs\n"
        "  give the same function to the extension LRSchedule"
    )
