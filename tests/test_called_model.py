"""A model that is called in place of the user's: a compiled or wrapped one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.training import At, weights
from train_manager import TrainManager
from train_manager.testing import tiny_manager


class Wrapper(nn.Module):
    """Wraps a model, as those for several processes do: it is a parent of the model, with modes of its own."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.module = inside
        self.modes: list[tuple[bool, bool]] = []

    def forward(self, inputs: Tensor) -> Any:
        self.modes.append((self.training, self.module.training))
        return self.module(inputs)


class Beside:
    """Calls a model without being a module; a compiled function, for example."""

    def __init__(self, inside: nn.Module) -> None:
        self.inside = inside
        self.calls = 0

    def __call__(self, inputs: Tensor) -> Any:
        self.calls += 1
        return self.inside(inputs)


def wrapped() -> tuple[TrainManager, Wrapper]:
    tm = tiny_manager()
    tm.called_model = wrapper = Wrapper(tm.model)
    return tm, wrapper


def test_the_users_model_keeps_its_names() -> None:
    tm, _ = wrapped()
    tm.train()

    assert list(tm.model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_the_wrapper_is_called_in_training_and_evaluation_and_the_model_is_trained() -> None:
    plain = tiny_manager()
    plain.train()
    tm, wrapper = wrapped()
    tm.train()

    assert len(wrapper.modes) == 2 + 3 + 2
    assert torch.equal(weights(tm.model), weights(plain.model))


def test_modes_are_set_on_both_and_restored_on_both() -> None:
    tm, wrapper = wrapped()
    wrapper.train()
    tm.model.eval()
    tm.train()

    assert set(wrapper.modes) == {(True, True), (False, False)}
    assert (wrapper.training, tm.model.training) == (True, False)


def test_what_is_called_is_the_fixture_model() -> None:
    seen: list[Any] = []
    tm = tiny_manager(At("pre_train_step_batch", lambda model: seen.append(model)))
    tm.called_model = wrapper = Wrapper(tm.model)
    tm.train()

    assert all(model is wrapper for model in seen)


def test_a_function_may_be_called_in_place_of_the_model() -> None:
    tm = tiny_manager()
    tm.called_model = beside = Beside(tm.model)
    tm.train()

    assert beside.calls == 2 + 3 + 2


def test_prediction_calls_the_wrapper() -> None:
    tm, wrapper = wrapped()
    tm.predict(torch.ones(3, 2))

    assert wrapper.modes == [(False, False)]


def test_the_parameters_of_the_optimizer_may_be_those_of_the_wrapper() -> None:
    """Some wrappers flatten the parameters of the model into their own."""

    class Flat(Wrapper):
        def __init__(self, inside: nn.Module) -> None:
            super().__init__(inside)
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, inputs: Tensor) -> Any:
            return super().forward(inputs) * self.scale

    tm = tiny_manager()
    tm.called_model = flat = Flat(tm.model)
    tm.optimizer = torch.optim.SGD([flat.scale], lr=0.1)
    tm.train()

    assert flat.scale != 1


def test_the_model_is_called_itself_again_once_it_is_set() -> None:
    tm, wrapper = wrapped()
    tm.called_model = tm.model
    tm.train()

    assert wrapper.modes == []
