"""What comes out of modules: dead units, saturation, spread; and that hooks are taken away again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, InputError
from train_manager.extensions import ActivationStatistics
from train_manager.model.activations import Activations
from train_manager.testing import tiny_manager


def last_of(net: nn.Module, inputs: Tensor) -> dict[str, tuple[list[str], list[float]]]:
    with Activations(net) as activations:
        net(inputs)
    return {name: (labels, vector.tolist()) for name, (labels, vector) in activations.vectors().items()}


class Fixed(nn.Module):
    """Return the same numbers, whatever is given."""

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, inputs: Tensor) -> Tensor:
        return self.numbers


def test_a_unit_is_dead_if_it_is_0_for_all_examples() -> None:
    net = nn.Sequential(Fixed(torch.tensor([[1.0, -1.0], [-1.0, -1.0]])), nn.ReLU())

    assert last_of(net, torch.ones(2))["dead_units"] == (["1 ReLU"], [0.5])


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 5, 3)], ids=["channels of pictures", "features of tokens"])
def test_a_unit_is_a_channel_of_a_picture_and_a_feature_of_a_token(shape: tuple[int, ...]) -> None:
    numbers = torch.ones(shape)
    numbers.movedim(1 if len(shape) == 4 else -1, 0)[0] = -1

    found = last_of(nn.Sequential(Fixed(numbers), nn.ReLU()), torch.ones(2))["dead_units"]
    assert found[1] == [pytest.approx(1 / 3)]


def test_numbers_near_the_ends_of_a_range_are_saturated() -> None:
    net = nn.Sequential(Fixed(torch.tensor([[9.0, 0.0, -9.0, 0.1]])), nn.Tanh(), nn.Sigmoid())

    assert last_of(net, torch.ones(1))["saturated"] == (["1 Tanh", "2 Sigmoid"], [0.5, 0.0])


def test_4_examples_are_looked_at() -> None:
    numbers = torch.zeros(8, 1)
    numbers[4:] = 9

    assert last_of(nn.Sequential(Fixed(numbers), nn.ReLU()), torch.ones(8))["activation_spread"][1] == [0.0, 0.0]


def hooks_of(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def test_hooks_are_there_in_the_steps_that_are_looked_at_only() -> None:
    counts = []

    class Counts(Extension):
        def pre_train_model_forward(self, model: nn.Module) -> None:
            counts.append(hooks_of(model))

        def post_train_model_forward(self, model: nn.Module) -> None:
            counts.append(hooks_of(model))

        def pre_train_loss_forward(self, model: nn.Module) -> None:
            counts.append(hooks_of(model))

    tiny_manager(ActivationStatistics(every=2), Counts(), epochs=1).train()

    assert counts == [0, 0, 0, 3, 3, 0, 0, 0, 0]


def test_hooks_are_taken_away_after_an_error_in_the_model() -> None:
    class Broken(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            raise RuntimeError("broken")

    model = nn.Sequential(nn.Linear(2, 2), Broken())
    with pytest.raises(RuntimeError):
        tiny_manager(ActivationStatistics(every=1), model=model).train()

    assert hooks_of(model) == 0


def test_a_module_in_eval_mode_is_nan_for_a_hook_could_change_its_last_bits() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).eval())

    assert repr(last_of(net, torch.ones(4, 2))["activation_spread"][1][1]) == "nan"


def compiled(how: str) -> Any:
    model = nn.Sequential(nn.Linear(2, 2))
    if how == "in place":
        model.compile(backend="eager")
        return model
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("how", ["in place", "wrapped"])
def test_a_compiled_model_is_refused(how: str) -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(ActivationStatistics(), model=compiled(how)).train()
    assert str(error.value) == (
        "ActivationStatistics cannot see into the model, because torch.compile leaves out the hooks that it needs\n"
        "  leave ActivationStatistics out, or train some steps without torch.compile to look at the model"
    )


@pytest.mark.parametrize("is_packed", [False, True])
def test_the_first_of_several_outputs_counts(is_packed: bool) -> None:
    net, inputs = nn.LSTM(3, 2, batch_first=True), torch.rand(2, 5, 3)
    given = nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor([5, 5]), batch_first=True) if is_packed else inputs
    with Activations(net) as activations:
        net(given)
    _, (spread,) = activations.vectors()["activation_spread"]

    assert 0 < spread < 1


def test_a_module_that_is_replaced_by_several_begins_pictures_of_its_own() -> None:
    statistics = ActivationStatistics(every=1)
    tm = tiny_manager(statistics)
    tm.train_epochs(1)
    tm.model[1] = nn.Sequential(nn.ReLU(), nn.ReLU())
    tm.train_epochs(1)

    assert [*statistics.series] == [
        *("activation_spread", "dead_units"),
        *("activation_spread (2)", "dead_units (2)"),
    ]
    assert statistics._repr_html_().count("<img ") == 4
