"""`LRSchedule` with optimizers that are swapped, with one of several, and in phases."""

from __future__ import annotations

import copy
import gc
from collections.abc import Sequence
from typing import Any
from weakref import ref

import pytest
import torch
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import (
    ExponentialLR,
    OneCycleLR,
    ReduceLROnPlateau,
)

from tests.extensions.optimization.rates import Losses, Make, Rates, halving, rate_of
from tests.extensions.optimization.two_optimizers import TwoOptimizers
from train_manager import Extension, InputError, SkipStage, TrainManager
from train_manager.errors import CheckpointError
from train_manager.extensions import LRSchedule, WarmUp
from train_manager.testing import tiny_manager

# ---- optimizers that are swapped, and one of several -----------------------------------------------------------------


def one_cycle(optimizer: Optimizer) -> OneCycleLR:
    return OneCycleLR(optimizer, max_lr=1.0, total_steps=20)  # sets the momentum too


@pytest.mark.parametrize("make", [halving, one_cycle])
def test_an_optimizer_that_is_swapped_and_swapped_back_continues_with_its_schedule(make: Make) -> None:
    def settings(tm: TrainManager) -> dict[str, Any]:
        assert tm.optimizer is not None
        return {name: value for name, value in tm.optimizer.param_groups[0].items() if name != "params"}

    def with_momentum(parameters: Any) -> SGD:
        return SGD(parameters, lr=0.5, momentum=0.9)

    whole, tm = (tiny_manager(LRSchedule(make, per="step"), optimizer=with_momentum) for _ in range(2))
    seen: list[dict[str, Any]] = []
    for manager in (whole, tm):
        manager.add_extension(pre_train_optimizer_step=lambda train_manager: seen.append(settings(train_manager)))
    whole.train_epochs(2)
    expected, seen[:] = seen[:], []

    tm.train_epochs(1)
    first, tm.optimizer = tm.optimizer, with_momentum(list(tm.model.parameters()))
    tm.train_epochs(1)
    tm.optimizer = first
    tm.train_epochs(1)
    assert seen[:3] + seen[6:] == expected
    assert seen[3:6] == expected[:3]


def test_it_keeps_no_optimizer_alive_but_the_last() -> None:
    tm = tiny_manager(LRSchedule(halving))
    tm.train_epochs(1)
    kept = ref(tm.optimizer)
    tm.optimizer = SGD(tm.model.parameters(), lr=0.5)
    tm.train_epochs(1)
    gc.collect()
    assert kept() is None


def test_each_of_several_optimizers_has_a_schedule_and_rates_of_its_own() -> None:
    seen: list[Any] = []
    show = Extension.of(
        post_train_step_batch=lambda batch, learning_rates_g=None, learning_rates_d=None: seen.append(
            (batch, learning_rates_g, learning_rates_d)
        )
    )
    extensions = [LRSchedule(halving, per="step", optimizer=name) for name in "gd"]
    loop = TwoOptimizers(*extensions, show)
    loop.train("dg", "g", "dgd", "d")
    assert seen == [
        ("dg", (0.5,), (0.5,)),
        ("g", (0.25,), None),
        ("dgd", (0.125,), (0.125,)),  # the second step of d
        ("d", None, (0.0625,)),
    ]
    assert (loop.rate("g"), loop.rate("d")) == (0.5**4, 0.5**5)


def test_a_schedule_by_epoch_may_belong_to_one_of_several_optimizers() -> None:
    loop = TwoOptimizers(LRSchedule(halving, optimizer="d"))
    loop.train("dg", "dg")
    assert (loop.rate("g"), loop.rate("d")) == (0.5, 0.25)


@pytest.mark.parametrize("per", ["epoch", "step"])
def test_while_others_have_taken_the_place_of_its_optimizer_it_does_nothing(per: str) -> None:
    loop = TwoOptimizers(LRSchedule(halving, per=per, optimizer="d"))
    loop.train("dg")
    own = loop.optimizers
    loop.optimizers = {"e": SGD([torch.zeros(1)], lr=0.5)}
    loop.train("e")
    assert (loop.rate("e"), own["d"].param_groups[0]["lr"]) == (0.5, 0.25)
    loop.optimizers = own
    loop.train("dg")
    assert loop.rate("d") == 0.125


def test_a_skipped_step_of_one_optimizer_is_not_taken_for_that_of_another() -> None:
    def skips(optimizer_name: str) -> None:
        if optimizer_name == "d":
            raise SkipStage

    first = Extension.of(pre_train_optimizer_step=skips)
    first.priority = -10
    loop = TwoOptimizers(first, LRSchedule(halving, per="step", optimizer="d"))
    loop.train("dg", "gd")
    assert loop.rate("d") == 0.5


def test_a_warm_up_of_the_same_optimizer_multiplies_its_rates() -> None:
    seen: list[Any] = []
    show = Extension.of(post_train_step_batch=lambda learning_rates_d: seen.append(*learning_rates_d))
    TwoOptimizers(LRSchedule(halving, per="step", optimizer="d"), WarmUp(2, start=0.5, optimizer="d"), show).train(
        "dg", "dg", "dg"
    )
    assert seen == [0.25, 0.1875, 0.125]


@pytest.mark.parametrize("name", [None, "optimizer"])
@pytest.mark.parametrize("reverse", [False, True])
def test_its_rates_have_the_factor_of_a_warm_up_that_names_the_optimizer_or_does_not(
    name: str | None, reverse: bool
) -> None:
    rates = Rates()
    recipes = [WarmUp(2, start=0.5, optimizer=name), LRSchedule(halving)]
    tiny_manager(rates, *(recipes[::-1] if reverse else recipes)).train()

    assert rates.seen == [0.25, 0.375, 0.5]


def test_its_rates_are_those_that_another_hook_sets_for_the_step() -> None:
    class Quarter(Extension):
        def pre_train_optimizer_step(self, optimizer: Optimizer) -> None:
            optimizer.param_groups[0]["lr"] /= 4

        def post_train_optimizer_step(self, optimizer: Optimizer) -> None:
            optimizer.param_groups[0]["lr"] *= 4

    rates = Rates()
    tiny_manager(rates, LRSchedule(halving), Quarter(), epochs=2).train()

    assert rates.seen == [0.125, 0.125, 0.125, 0.0625, 0.0625, 0.0625]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "LRSchedule works on one optimizer, but there are 2: 'g', 'd'\n  name it: optimizer='g'"),
        ("e", "LRSchedule finds no optimizer 'e'\n  they are 'g', 'd'"),
    ],
)
def test_of_several_optimizers_one_must_be_named(name: str | None, message: str) -> None:
    with pytest.raises(InputError) as error:
        TwoOptimizers(LRSchedule(halving, optimizer=name)).train("dg")
    assert str(error.value) == message


# ---- phases ----------------------------------------------------------------------------------------------------------


def test_a_plateau_is_not_found_by_comparing_a_phase_with_what_is_around_it() -> None:
    schedule = LRSchedule(lambda optimizer: ReduceLROnPlateau(optimizer, patience=1), monitor="valid/loss")
    tm = tiny_manager(schedule, Losses(9, 1, 50, 40, 30, 20, 0.9, 0.8, 0.7), epochs=4)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("head", epochs=3):
            tm.train()
        tm.train()
    assert rate_of(tm) == 0.5


@pytest.mark.filterwarnings("ignore:train\\(\\) has nothing to do")
def test_a_plateau_around_a_phase_resumes_from_a_checkpoint_of_the_phase() -> None:
    def program(values: Sequence[float], state: Any = None) -> tuple[TrainManager, Any]:
        schedule = LRSchedule(lambda optimizer: ReduceLROnPlateau(optimizer, patience=2), monitor="valid/loss")
        tm = tiny_manager(schedule, Losses(*values), epochs=4, eval_at=("epoch",))
        if state is not None:
            tm.add_extension(pre_load_checkpoint=lambda: tm.load_state_dict(state))
        with tm.run():
            tm.train_epochs(2)
            with tm.phase("head", epochs=1):
                tm.train()
                saved = copy.deepcopy(tm.state_dict())
            tm.train()
        return tm, saved

    whole, saved = program([1, 2, 50, 2, 2])
    assert rate_of(whole) == pytest.approx(0.05)  # after three evaluations around the phase
    again, _ = program([2, 2], saved)
    assert rate_of(again) == pytest.approx(0.05)


def test_a_saved_scheduler_of_another_optimizer_is_refused_with_the_words_of_lr_schedule() -> None:
    def manager(kind: type[torch.optim.Optimizer]) -> TrainManager:
        schedule = LRSchedule(lambda optimizer: ExponentialLR(optimizer, 0.5))
        return tiny_manager(schedule, optimizer=lambda parameters: kind(parameters, lr=0.1), epochs=3)  # type: ignore[call-arg]

    saved, other = manager(torch.optim.SGD), manager(torch.optim.AdamW)
    saved.train_epochs(1)
    other.train_epochs(0)

    with pytest.raises(CheckpointError) as refused:
        other.load_state_dict(saved.state_dict())

    assert "  - the scheduler of LRSchedule (ExponentialLR) is of another optimizer in the checkpoint" in str(
        refused.value
    )
