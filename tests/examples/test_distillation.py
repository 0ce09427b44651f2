"""The example ``examples/distillation.py``: a teacher and its student, two trainings with the same settings."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch

from examples import distillation as example
from tests.examples.comparison import assert_equal, by_hand, by_manager
from tests.examples.twins import distillation as twin
from train_manager import TrainManager


@pytest.fixture(autouse=True, scope="module")
def three_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (example, twin):
            patch.setattr(module, "EPOCHS", 3)
        yield


def student() -> TrainManager:
    teacher = example.teacher_manager()
    teacher.train()
    return example.student_manager(teacher.model)


def test_it_trains_and_prints_as_the_loop_by_hand_does() -> None:
    assert_equal(by_manager(student), by_hand(twin.train))


def test_the_student_leaves_its_teacher_as_it_was() -> None:
    teacher = example.network(64, dropout=0.1)
    before = copy.deepcopy(teacher.state_dict())
    example.student_manager(teacher).train()

    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
    assert not any(module.training for module in teacher.modules())
