from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tests.extensions.optimization.rates import rate_of
from tests.extensions.optimization.two_optimizers import TwoOptimizers
from tests.support.ctrl_c import CtrlC
from tests.support.rotation import stride
from train_manager import Extension, InputError, SkipStage, TrainManager, always
from train_manager.extensions import Accumulate, WarmUp
from train_manager.extensions.optimization.warm_up import factor_after
from train_manager.testing import tiny_manager


class Rates(Extension):
    """Record the learning rate in the step of the optimizer, and between two steps."""

    priority = 200

    def __init__(self) -> None:
        self.stepped: list[float] = []
        self.between: list[float] = []

    def pre_train_optimizer_step(self, train_manager: TrainManager) -> None:
        self.stepped.append(rate_of(train_manager))

    @always
    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        self.between.append(rate_of(train_manager))


def test_the_factor_grows_linearly_and_ends_at_1() -> None:
    assert [factor_after(done, 4, 0.2) for done in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert factor_after(3, 3, 0.1) == 1.0  # to the bit


def test_the_optimizer_steps_with_the_small_rate_which_is_restored_after_the_step() -> None:
    rates = Rates()
    tiny_manager(rates, WarmUp(steps=4, start=0.2), epochs=2).train()
    assert rates.stepped == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5])
    assert rates.between == [0.5] * 6


def rates_by_epochs(tm: TrainManager) -> list[float]:
    rates = Rates()
    tm.add_extension(rates)
    tm.add_extension(WarmUp(epochs=2, start=0.4))
    tm.train()
    return rates.stepped


def test_by_epochs_the_factor_grows_with_each_step() -> None:
    assert rates_by_epochs(tiny_manager(epochs=3)) == pytest.approx([0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.5, 0.5])


def test_by_epochs_the_factor_grows_with_each_step_of_an_epoch_that_is_cut() -> None:
    tm = tiny_manager(epochs=3, steps_per_epoch=2)
    assert rates_by_epochs(tm) == pytest.approx([0.2, 0.275, 0.35, 0.425, 0.5, 0.5])


def test_by_epochs_an_accumulated_step_counts_the_batches_before_its_last_one() -> None:
    tm = tiny_manager(Accumulate(3), epochs=3)
    assert rates_by_epochs(tm) == pytest.approx([0.3, 0.45, 0.5])


def test_by_epochs_the_factor_is_constant_in_an_epoch_without_a_known_length_which_is_warned_of() -> None:
    tm = tiny_manager(epochs=3)
    batches = list(tm.train_data or ())
    tm.train_data = type("Unsized", (), {"__iter__": lambda self: iter(batches)})()
    with pytest.warns(UserWarning, match="is constant within an epoch") as found:
        assert rates_by_epochs(tm) == pytest.approx([0.2] * 3 + [0.35] * 3 + [0.5] * 3)
    assert {str(one.message) for one in found} == {
        "train_data has no len(), so the factor of WarmUp(epochs=...) is constant within an epoch; "
        "WarmUp(steps=...) grows with each step; or set steps_per_epoch"
    }


@pytest.mark.parametrize("step", [1, 2, 4])
def test_by_epochs_a_resumed_warm_up_has_the_rates_of_one_in_one_go(step: int) -> None:
    rates = [Rates(), Rates()]
    first, second = (tiny_manager(one, WarmUp(epochs=2, start=0.4), epochs=3) for one in rates)
    first.train_steps(step)
    second.load_state_dict(first.state_dict())
    second.train()
    assert rates[0].stepped + rates[1].stepped == rates_by_epochs(tiny_manager(epochs=3))


def test_a_schedule_that_computes_its_rates_from_the_present_ones_is_not_changed() -> None:
    """As the manager's ``lr_schedule`` may; here it multiplies the present rate after each epoch."""
    rates = Rates()
    schedule = {"lr_schedule": lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.1**epoch)}
    tiny_manager(rates, WarmUp(steps=5, start=0.5), epochs=3, **schedule).train()
    expected = [0.5 * 0.1 ** (step // 3) * factor_after(step, 5, 0.5) for step in range(9)]
    assert rates.stepped == pytest.approx(expected)


def test_another_extension_may_set_rates_at_the_end_of_the_optimizers_step() -> None:
    class Halves(Extension):
        def post_train_optimizer_step(self, train_manager: TrainManager) -> None:
            assert train_manager.optimizer is not None
            train_manager.optimizer.param_groups[0]["lr"] *= 0.5

    for extensions in ([Halves(), WarmUp(steps=2, start=0.5)], [WarmUp(steps=2, start=0.5), Halves()]):
        rates = Rates()
        tiny_manager(rates, *extensions).train()
        assert rates.stepped == pytest.approx([0.25, 0.1875, 0.125])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_rate_that_a_hook_sets_before_the_step_is_multiplied(reverse: bool) -> None:
    class Sets(Extension):
        def pre_train_optimizer_step(self, train_manager: TrainManager) -> None:
            assert train_manager.optimizer is not None
            train_manager.optimizer.param_groups[0]["lr"] = 0.25

    rates = Rates()
    recipes = [WarmUp(steps=4, start=0.2), Sets()]
    tm = tiny_manager(rates, *(recipes[::-1] if reverse else recipes))
    tm.train()
    assert rates.stepped == pytest.approx([0.05, 0.1, 0.15])
    assert rate_of(tm) == 0.25


def test_it_counts_steps_of_the_optimizer_not_batches() -> None:
    class EverySecond(Extension):
        def pre_train_optimizer_step(self, step_num: int) -> None:
            if step_num % 2 == 0:
                raise SkipStage

    rates = Rates()
    tiny_manager(rates, EverySecond(), WarmUp(steps=2, start=0.5), epochs=2).train()
    assert rates.stepped == pytest.approx([0.25, 0.375, 0.5])


@pytest.mark.parametrize("priority", [50, 150])
def test_a_skipped_step_restores_the_rate(priority: int) -> None:
    def never() -> None:
        raise SkipStage

    leaves_out = Extension.of(pre_train_optimizer_step=never)
    leaves_out.priority = priority
    tm = tiny_manager(WarmUp(steps=5), leaves_out)
    tm.train()
    assert rate_of(tm) == 0.5


@pytest.mark.parametrize("hook", ["pre_train_optimizer_step", "post_train_optimizer_step"])
def test_an_error_in_the_step_restores_the_rate(hook: str) -> None:
    def fails() -> None:
        raise ValueError("on purpose")

    other = Extension.of(**{hook: fails})
    other.priority = 150 if hook.startswith("pre") else -150
    tm = tiny_manager(WarmUp(steps=5), other)
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    assert rate_of(tm) == 0.5


def test_a_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    rate = torch.tensor(0.5)

    def optimizer(parameters: Any) -> Optimizer:
        return SGD(parameters, lr=rate, foreach=False)

    rates = Rates()
    tm = tiny_manager(rates, WarmUp(steps=4, start=0.2), optimizer=optimizer)
    tm.train()
    assert tm.optimizer is not None
    assert tm.optimizer.param_groups[0]["lr"] is rate
    assert rates.stepped == pytest.approx([0.1, 0.2, 0.3])
    assert rate.item() == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "WarmUp needs steps or epochs, but was given neither\n  give one of them: WarmUp(steps=500)"),
        (
            {"steps": 1, "epochs": 1},
            "WarmUp needs steps or epochs, but was given both\n  give one of them: WarmUp(steps=500)",
        ),
        ({"steps": 0}, "steps must be a whole number of at least 1, but is 0"),
        ({"epochs": 0.5}, "epochs must be a whole number of at least 1, but is 0.5"),
        ({"steps": 5, "start": 2}, "start must be a number of at least 0 and of at most 1, but is 2"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        WarmUp(**options)
    assert str(error.value) == message


# ---- one of several optimizers ---------------------------------------------------------------------------------------


def test_one_of_several_optimizers_warms_up_by_its_own_steps() -> None:
    seen: list[Any] = []

    def note(optimizer_name: str, train_manager: TwoOptimizers) -> None:
        seen.append((optimizer_name, train_manager.rate(optimizer_name)))

    show = Extension.of(pre_train_optimizer_step=note)
    show.priority = 200
    loop = TwoOptimizers(WarmUp(2, start=0.5, optimizer="d"), WarmUp(1, start=0.1, optimizer="g"), show)
    loop.train("ggd", "dg", "d")
    assert seen == [("g", 0.05), ("g", 0.5), ("d", 0.25), ("d", 0.375), ("g", 0.5), ("d", 0.5)]


def test_a_skipped_step_of_one_optimizer_does_not_count_for_it() -> None:
    def skips(optimizer_name: str) -> None:
        if optimizer_name == "d":
            raise SkipStage

    first = Extension.of(pre_train_optimizer_step=skips)
    first.priority = -10
    warm_up = WarmUp(4, optimizer="d")
    TwoOptimizers(first, warm_up).train("dg", "gd")
    assert warm_up.state_dict()["steps"] == 0


def test_each_of_several_optimizers_has_a_factor_of_its_own() -> None:
    seen: list[Any] = []
    show = Extension.of(
        post_train_step_batch=lambda warm_up_factor_d, warm_up_factor_g: seen.append(
            (warm_up_factor_d, warm_up_factor_g)
        )
    )
    TwoOptimizers(WarmUp(2, start=0.5, optimizer="d"), WarmUp(1, start=0.25, optimizer="g"), show).train("dg", "dg")
    assert seen == [(0.5, 0.25), (0.75, 1.0)]


RATES = [0.5, 0.25, 0.125, 0.0625]

# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_anywhere_in_the_clean_up_leaves_rates_that_the_end_of_the_run_restores() -> None:
    for at_point in count(1, stride(4)):
        tm = tiny_manager(WarmUp(steps=9))
        tm.optimizer = SGD(
            [{"params": [one], "lr": rate} for one, rate in zip(tm.model.parameters(), RATES, strict=True)]
        )
        with CtrlC(at_point, inside="post_train_optimizer_step") as ctrl_c:
            tm.train()
        assert [group["lr"] for group in tm.optimizer.param_groups] == RATES
        if not ctrl_c.has_come:
            break
    assert at_point > 7  # at least one for each group, and one for each function
