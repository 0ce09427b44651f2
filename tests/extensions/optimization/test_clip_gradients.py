from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tests.extensions.optimization.gan import gan_manager
from tests.support.host_reads import HostReads
from train_manager import Extension, InputError, SkipStage, TrainManager
from train_manager.extensions import ClipGradients
from train_manager.testing import tiny_manager


class Gradients(Extension):
    """Record the gradients of the optimizer's step, and the fixture ``grad_norm``."""

    priority = 20  # after the clipping

    def __init__(self) -> None:
        self.found: list[Tensor] = []
        self.norms: list[float] = []

    def pre_train_optimizer_step(self, train_manager: TrainManager) -> None:
        gradients = [p.grad.flatten() for p in train_manager.model.parameters() if p.grad is not None]
        self.found.append(torch.cat(gradients))

    def post_train_step_batch(self, grad_norm: Tensor) -> None:
        self.norms.append(grad_norm.item())


def parameters_with(*gradients: float) -> list[Tensor]:
    parameters = []
    for gradient in gradients:
        parameters.append(torch.zeros(1, requires_grad=True))
        parameters[-1].grad = torch.tensor([gradient])
    return parameters


def grads(parameters: list[Tensor]) -> list[float]:
    return [p.grad.item() for p in parameters if p.grad is not None]


def test_the_norm_of_all_gradients_together_is_clipped() -> None:
    parameters = parameters_with(3.0, 4.0)
    assert ClipGradients(max_norm=1.0).clip(parameters).item() == 5.0
    assert grads(parameters) == pytest.approx([0.6, 0.8], rel=1e-5)


def test_short_gradients_are_not_changed() -> None:
    parameters = parameters_with(0.3, 0.4)
    ClipGradients(max_norm=1.0).clip(parameters)
    assert grads(parameters) == pytest.approx([0.3, 0.4], rel=1e-7)


def test_each_number_of_a_gradient_is_clipped() -> None:
    parameters = parameters_with(3.0, -0.1)
    ClipGradients(value=0.5).clip(parameters)
    assert grads(parameters) == pytest.approx([0.5, -0.1])


def test_with_both_limits_the_norm_is_clipped_first() -> None:
    parameters = parameters_with(3.0, 4.0)
    ClipGradients(max_norm=1.0, value=0.7).clip(parameters)
    assert grads(parameters) == pytest.approx([0.6, 0.7], rel=1e-5)


def test_the_norm_may_be_the_largest_number() -> None:
    parameters = parameters_with(3.0, -4.0)
    assert ClipGradients(max_norm=2.0, norm_type=math.inf).clip(parameters).item() == 4.0
    assert grads(parameters) == pytest.approx([1.5, -2.0], rel=1e-5)


def test_grad_norm_is_the_norm_before_it_was_clipped() -> None:
    clipped, free = Gradients(), Gradients()
    tiny_manager(clipped, ClipGradients(max_norm=0.01)).train()
    tiny_manager(free, ClipGradients(max_norm=1000)).train()
    assert clipped.norms[0] == free.norms[0] == pytest.approx(free.found[0].norm().item())


def test_a_batch_after_which_the_optimizer_does_not_step_has_no_grad_norm() -> None:
    seen: list[object] = []

    def never() -> None:
        raise SkipStage

    tm = tiny_manager(ClipGradients(1.0), Extension.of(pre_train_optimizer_step=never))
    tm.add_extension(post_train_step_batch=lambda grad_norm=None: seen.append(grad_norm))
    tm.train()
    assert seen == [None, None, None]


def test_it_equals_the_training_written_by_hand() -> None:
    tm, by_hand = tiny_manager(ClipGradients(0.1), epochs=2), tiny_manager()
    tm.train()
    optimizer = torch.optim.SGD(by_hand.model.parameters(), lr=0.5)
    for inputs, targets in [*(by_hand.train_data or ()), *(by_hand.train_data or ())]:
        nn.functional.cross_entropy(by_hand.model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(by_hand.model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    for one, other in zip(tm.model.parameters(), by_hand.model.parameters(), strict=True):
        assert one.equal(other)


# ---- several optimizers --------------------------------------------------------------------------------------------


def deep() -> nn.Module:
    torch.manual_seed(0)
    layers = (one for width in (2, 8, 8) for one in (nn.Linear(width, 8), nn.Tanh()))
    return nn.Sequential(*layers, nn.Linear(8, 2))


def biases_first(model: nn.Module) -> Optimizer:
    named = dict(model.named_parameters())
    groups = [[one for name, one in named.items() if name.endswith(kind)] for kind in ("bias", "weight")]
    return SGD([{"params": group} for group in groups], lr=0.5)


def norms_by_hand(model: nn.Module, optimizer: Optimizer, change: Callable[[int], None] = lambda step: None) -> Any:
    """Train a model as PyTorch's users do, and return the norms."""
    norms = []
    for step, (inputs, targets) in enumerate(4 * list(tiny_manager().train_data or ())):
        change(step)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        optimizer.step()
    return norms


def test_the_order_of_groups_changes_no_bit_of_the_norm_nor_of_the_weights() -> None:
    recorder, model = Gradients(), deep()
    tm = tiny_manager(ClipGradients(0.1), recorder, model=deep(), optimizer=biases_first, epochs=4)
    tm.train()

    assert recorder.norms == norms_by_hand(model, biases_first(model))
    assert all(one.equal(other) for one, other in zip(tm.model.parameters(), model.parameters(), strict=True))


def test_a_group_that_is_added_later_has_its_place_in_the_order_of_the_model() -> None:
    def without_the_first(model: nn.Module) -> Optimizer:
        return SGD([*model.parameters()][2:], lr=0.5)

    recorder, model = Gradients(), deep().requires_grad_(True)
    tm = tiny_manager(ClipGradients(0.1), recorder, model=deep(), optimizer=without_the_first, epochs=4)
    tm.model[0].requires_grad_(False)
    model.get_submodule("0").requires_grad_(False)

    def thaw(module: nn.Module, optimizer: Optimizer, step: int) -> None:
        if step == 4:
            first = module.get_submodule("0").requires_grad_(True)
            optimizer.add_param_group({"params": [*first.parameters()]})

    tm.add_extension(pre_train_step_batch=lambda step_num: thaw(tm.model, tm.optimizers["optimizer"], step_num))
    tm.train()
    optimizer = without_the_first(model)

    assert recorder.norms == norms_by_hand(model, optimizer, lambda step: thaw(model, optimizer, step))


def test_a_parameter_that_was_replaced_is_clipped_in_place_of_the_old_one() -> None:
    recorder = Gradients()
    tm = tiny_manager(ClipGradients(max_norm=0.01), recorder, epochs=2)
    tm.train_steps(1)
    old, tm.model[0] = tm.model[0], nn.Linear(2, 8)
    tm.replace_parameters(dict(zip(old.parameters(), tm.model[0].parameters(), strict=True)))
    tm.train_steps(1)

    assert [round(found.norm().item(), 4) for found in recorder.found] == [0.01, 0.01]


def test_two_of_them_for_two_optimizers_leave_two_norms() -> None:
    norms: list[tuple[float, float]] = []
    tm = gan_manager(ClipGradients(0.1, optimizer="critic"), ClipGradients(0.1, optimizer="generator"))
    tm.add_extension(
        post_train_step_batch=lambda grad_norm_critic, grad_norm_generator: norms.append(
            (float(grad_norm_critic), float(grad_norm_generator))
        )
    )
    tm.train()
    assert len(norms) == 6
    assert all(0 < critic != generator > 0 for critic, generator in norms)


def test_a_hook_of_each_step_reads_its_own_norm() -> None:
    seen: list[str] = []
    tm = gan_manager(ClipGradients(1000))
    tm.add_extension(
        post_train_optimizer_step=lambda grad_norm, optimizer_name: seen.append(f"{optimizer_name} {grad_norm:.3f}")
    )
    tm.train_steps(1)
    names, values = zip(*(line.split() for line in seen), strict=True)
    assert names == ("critic", "generator")
    assert values[0] != values[1]


def test_a_norm_that_is_not_finite_is_not_an_error() -> None:
    assert math.isnan(ClipGradients(1.0).clip(parameters_with(math.nan)).item())


def test_nothing_is_read_on_the_host() -> None:
    with HostReads() as reads:
        ClipGradients(max_norm=1.0, value=0.5).clip(parameters_with(3.0, 4.0))
    assert reads.count == 0


def test_it_is_refused_without_a_limit() -> None:
    with pytest.raises(InputError) as error:
        ClipGradients()
    assert str(error.value) == (
        "ClipGradients needs max_norm or value, but was given neither\n  give one of them: ClipGradients(max_norm=1.0)"
    )


@pytest.mark.parametrize("name", ["max_norm", "value", "norm_type"])
@pytest.mark.parametrize("value", [0, -1.0, "1"])
def test_an_invalid_limit_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError) as error:
        ClipGradients(**{"max_norm": 1.0, name: value})
    assert str(error.value) == f"{name} must be a number above 0, but is {value!r}"
