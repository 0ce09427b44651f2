"""Parameters that take the place of others: in optimizers, in their states, and in the midst of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adafactor, Adagrad, AdamW, Optimizer, Rprop
from torch.optim.lr_scheduler import StepLR

from tests.support.rotation import share_of
from tests.support.training import At
from train_manager import Extension, InputError, TrainManager
from train_manager.model.replacement import replace_in_optimizer, replace_in_optimizers
from train_manager.testing import tiny_manager


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(shape))


def stepped(make: Callable[[Any], Optimizer], *parameters: nn.Parameter) -> Optimizer:
    """An optimizer that has a state."""
    optimizer = make(parameters)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = sum((p * p).sum() for p in parameters)  # type: ignore[assignment]
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    return optimizer


def refusal(optimizer: Optimizer, replaced: Mapping[Any, Any]) -> str:
    before = [list(group["params"]) for group in optimizer.param_groups], dict(optimizer.state)
    with pytest.raises(InputError) as caught:
        replace_in_optimizers([optimizer], replaced)
    after = [list(group["params"]) for group in optimizer.param_groups], dict(optimizer.state)
    assert list(map(id, before[0][0])) == list(map(id, after[0][0]))
    assert set(map(id, before[1])) == set(map(id, after[1]))
    return str(caught.value)


# ---- one optimizer -------------------------------------------------------------------------------------------------


def test_a_new_parameter_takes_the_place_of_the_old_one() -> None:
    first, old, last, new = (parameter(2) for _ in range(4))
    optimizer = SGD([{"params": [first, old]}, {"params": [last]}], lr=0.1)
    group = optimizer.param_groups[0]["params"]
    replace_in_optimizer(optimizer, {old: new})

    assert [group[0] is first, group[1] is new, optimizer.param_groups[1]["params"][0] is last] == [True] * 3


sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=0, max_size=3)


@settings(deadline=None, max_examples=share_of(40))
@given(sizes)
def test_moments_are_copied_as_far_as_both_shapes_reach(shapes: list[tuple[int, int]]) -> None:
    old, new = parameter(*(before for before, _ in shapes)), parameter(*(after for _, after in shapes))
    optimizer = stepped(AdamW, old)
    moments = {name: optimizer.state[old][name].clone() for name in ("exp_avg", "exp_avg_sq")}
    replace_in_optimizer(optimizer, {old: new})

    assert list(optimizer.state) == [new]
    block = tuple(slice(min(pair)) for pair in shapes)
    for name, before in moments.items():
        expected = torch.zeros(new.shape)
        expected[block] = before[block]
        assert torch.equal(optimizer.state[new][name], expected)


def test_the_number_of_steps_continues() -> None:
    old, new = parameter(2), parameter(3)
    optimizer = stepped(AdamW, old)
    replace_in_optimizer(optimizer, {old: new})

    assert optimizer.state[new]["step"] == 1


def test_a_parameter_without_a_state_yet_gets_none() -> None:
    old, new = parameter(2), parameter(3)
    optimizer = AdamW([old])
    replace_in_optimizer(optimizer, {old: new})

    assert not optimizer.state


@pytest.mark.parametrize("make", [AdamW, Adagrad, Adafactor, Rprop, lambda given: SGD(given, lr=0.1, momentum=0.9)])
@pytest.mark.parametrize("shape", [(5, 6), (2, 2), (3, 4)])
def test_optimizers_step_on_after_a_replacement(make: Any, shape: tuple[int, int]) -> None:
    old, kept, new = parameter(3, 4), parameter(2), parameter(*shape)
    optimizer = stepped(make, old, kept)
    replace_in_optimizer(optimizer, {old: new})
    (new.sum() + kept.sum()).backward()
    optimizer.step()

    assert not torch.equal(new, torch.ones(shape))


def test_a_factored_moment_grows_where_it_has_the_size_of_the_parameter() -> None:
    old, new = parameter(3, 4), parameter(5, 4)
    optimizer = stepped(Adafactor, old)
    replace_in_optimizer(optimizer, {old: new})

    assert [tuple(optimizer.state[new][name].shape) for name in ("row_var", "col_var")] == [(5, 1), (1, 4)]


def test_a_parameter_of_the_same_shape_keeps_the_very_same_state() -> None:
    old, new = parameter(2), parameter(2)
    optimizer = stepped(LBFGS, old)
    state = dict(optimizer.state[old])
    replace_in_optimizers([optimizer], {old: new})

    assert all(optimizer.state[new][name] is value for name, value in state.items())


def test_a_parameter_is_replaced_in_all_optimizers_that_have_it() -> None:
    old, new = parameter(2), parameter(3)
    optimizers = [SGD([old], lr=0.1), AdamW([old])]
    replace_in_optimizers(optimizers, {old: new})

    assert all(optimizer.param_groups[0]["params"][0] is new for optimizer in optimizers)


def test_the_gradient_of_the_old_parameter_is_dropped() -> None:
    old = parameter(2)
    old.grad = torch.ones(2)
    replace_in_optimizers([SGD([old], lr=0.1)], {old: parameter(3)})

    assert old.grad is None


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_a_parameter_that_no_optimizer_has_is_refused() -> None:
    assert refusal(SGD([parameter(1)], lr=0.1), {parameter(2, 3): parameter(4, 3)}) == (
        "no optimizer has the old parameter of shape (2, 3)\n  was it replaced already?"
    )


def test_a_new_parameter_that_an_optimizer_has_is_refused() -> None:
    old, other = parameter(2), parameter(3)

    assert refusal(SGD([old, other], lr=0.1), {old: other}) == (
        "the new parameter of shape (3,) is in use already\n  give each old one a new one"
    )


def test_another_number_of_dimensions_is_refused() -> None:
    old = parameter(2)

    assert refusal(SGD([old], lr=0.1), {old: parameter(2, 1)}) == (
        "the old parameter of shape (2,) and the new one of shape (2, 1) differ in dimensions\n"
        "  give one with as many dimensions, or make a new optimizer"
    )


@pytest.mark.parametrize("new", [2 * parameter(3), torch.ones(3).long()], ids=["computed", "integers"])
def test_a_new_parameter_that_cannot_be_trained_is_refused(new: Any) -> None:
    old = parameter(2)

    assert refusal(SGD([old], lr=0.1), {old: new}) == (
        "the new parameter of shape (3,) cannot be trained\n  wrap it: nn.Parameter(value)"
    )


def test_what_is_no_parameter_is_refused() -> None:
    old = parameter(2)

    assert refusal(SGD([old], lr=0.1), {old: nn.Linear(1, 1)}) == (
        "a Linear is not a parameter\n  give tensors: {old_layer.weight: new_layer.weight}"
    )


def test_an_optimizer_with_one_state_of_all_parameters_cannot_follow_a_change_of_shape() -> None:
    first, old = parameter(2), parameter(2)

    assert refusal(stepped(LBFGS, first, old), {old: parameter(3)}) == (
        "the state of LBFGS is not shaped like its parameters, so it cannot follow a change of shape\n"
        "  make a new optimizer: tm.optimizer = LBFGS(tm.model.parameters())"
    )


# ---- in a training -------------------------------------------------------------------------------------------------


class Grow(Extension):
    """Widen the hidden layer by two units, which change nothing at first."""

    def widen(self, train_manager: TrainManager) -> None:
        model = train_manager.model
        before: list[Any] = [model[0], model[2]]
        width = before[0].out_features
        model[0], model[2] = nn.Linear(2, width + 2), nn.Linear(width + 2, 2)
        with torch.no_grad():
            for old, new in zip(before, (model[0], model[2]), strict=True):
                for name in ("weight", "bias"):
                    value, source = getattr(new, name), getattr(old, name)
                    value.zero_()
                    value[tuple(map(slice, source.shape))] = source
        pairs = zip(before, (model[0], model[2]), strict=True)
        train_manager.replace_parameters(
            {getattr(old, name): getattr(new, name) for old, new in pairs for name in ("weight", "bias")}
        )


class GrowAfterEpochs(Grow):
    def post_train_step_epoch(self, train_manager: TrainManager) -> None:
        self.widen(train_manager)


def momentum(parameters: Any) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9)


def test_a_layer_that_grows_changes_nothing_if_its_new_units_are_zero() -> None:
    """They get no gradient either, for the weights on both of their sides are zero: so moments are compared too."""
    plain = tiny_manager(epochs=3, optimizer=momentum)
    grown = tiny_manager(GrowAfterEpochs(), epochs=3, optimizer=momentum)
    losses = [tm.train().metrics["valid"]["loss"] for tm in (plain, grown)]

    assert grown.model[0].out_features == 8 + 2 * 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert torch.allclose(plain.model[0].weight, grown.model[0].weight[:8], atol=1e-6)


def test_a_schedule_continues_after_a_replacement() -> None:
    tm = tiny_manager(GrowAfterEpochs(), epochs=3, lr_schedule=lambda optimizer: StepLR(optimizer, 1, gamma=0.5))
    tm.train()

    assert tm.optimizer.param_groups[0]["lr"] == 0.5 / 8


def test_a_layer_may_grow_inside_an_open_window() -> None:
    class InWindow(Grow):
        windows: list[tuple[str, ...]]

        def pre_train_step_batch(self, fixtures: Any, batch_num: int) -> None:
            fixtures.modify("update_ends", batch_num != 2)

        def post_train_step_batch(self, train_manager: TrainManager, batch_num: int) -> None:
            if batch_num == 2:
                self.windows = [train_manager.open_windows]
                self.widen(train_manager)
                self.windows.append(train_manager.open_windows)

    grow = InWindow()
    tm = tiny_manager(grow)
    tm.train()

    assert grow.windows == [("optimizer",)] * 2
    assert (tm.step_num, tm.update_num, tm.model[0].out_features) == (3, 2, 10)


def test_extensions_with_such_a_method_are_told() -> None:
    told: list[Any] = []

    class Listens(Extension):
        def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
            told.append(replaced)

    tm = tiny_manager(Listens(), At("post_run", lambda: None))
    old = tm.model[2].bias
    tm.model[2].bias = new = nn.Parameter(torch.zeros(2))
    tm.replace_parameters({old: new})

    assert told == [{old: new}]
