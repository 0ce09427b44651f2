"""What is trained: set on the manager at any time, replaced by a phase, refused where it would be two things."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.training import make_batches
from train_manager import InputError, TrainManager
from train_manager.testing import tiny_manager


def test_a_subclass_may_set_its_model_before_it_calls_super() -> None:
    class Own(TrainManager):
        def __init__(self) -> None:
            self.model = nn.Linear(2, 2)
            loss = nn.functional.cross_entropy
            super().__init__(model=self.model, loss=loss, optimizer=torch.optim.SGD, train_data=make_batches(1))

    assert Own().train().steps == 1


@pytest.mark.parametrize(
    ("name", "cure"), [("epochs", "give it to the constructor: epochs=..."), ("loss", "override loss_forward")]
)
def test_a_subclass_that_defines_what_each_manager_has_of_its_own_is_refused(name: str, cure: str) -> None:
    with pytest.raises(TypeError) as caught:
        type("Own", (TrainManager,), {name: 4})

    assert str(caught.value) == f"Own defines {name!r}, which each TrainManager has of its own ({cure})"


def test_an_unusable_loss_is_refused_before_an_optimizer_is_made() -> None:
    made: list[Any] = []

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made.append(parameters)
        return torch.optim.SGD(parameters)

    with pytest.raises(InputError, match="cannot be called as loss"):
        TrainManager(model=nn.Linear(2, 2), loss=lambda: torch.zeros(()), optimizer=optimizer)

    assert made == []


def test_a_device_that_is_set_in_a_phase_stays() -> None:
    tm = tiny_manager()
    with tm.run(), tm.phase("a"):
        tm.device = torch.device("cpu")

    assert tm.device == torch.device("cpu")


def test_a_state_that_is_loaded_inside_a_phase_that_it_calls_completed_is_trained_on() -> None:
    tm, other = tiny_manager(), tiny_manager()
    with tm.run(), tm.phase("warm"):
        tm.train_steps(2)
    state = tm.state_dict()
    with other.run(), other.phase("warm"):
        other.load_state_dict(state)

        assert other.train_steps(2).steps == 2


@pytest.mark.parametrize(("name", "value"), [("eval_data", None), ("epochs", "3"), ("epoch_num", None)])
def test_an_attribute_of_another_kind_does_not_keep_a_manager_from_being_shown(name: str, value: Any) -> None:
    tm = tiny_manager()
    setattr(tm, name, value)

    assert repr(tm).startswith("TrainManager(model=Sequential(")
