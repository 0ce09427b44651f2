"""The example ``examples/grow.py``: a layer gets more units in the middle of a training, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from train_manager import Extension, TrainManager

pytest.importorskip("sklearn")

from examples import grow as example


@pytest.fixture(autouse=True, scope="module")
def four_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "EPOCHS", 4)
        patch.setattr(example, "GROWN_AFTER", 2)
        yield


class Around(Extension):
    """What a call finds as an epoch begins, before and after the model grows: hooks of two priorities."""

    def __init__(self, look: Any) -> None:
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.look = look


class Before(Around):
    priority = -10

    def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
        self.before.append(self.look(train_manager))


class After(Around):
    priority = 10

    def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
        self.after.append(self.look(train_manager))


def around_growth(look: Any) -> tuple[Any, Any]:
    """Return what a look at the manager finds right before and right after its model grows."""
    tm, before, after = example.manager(), Before(look), After(look)
    tm.add_extension(before)
    tm.add_extension(after)
    tm.train()
    return before.before[2], after.after[2]


def outputs(tm: TrainManager) -> Tensor:
    with torch.no_grad():
        prediction: Tensor = tm.model(torch.rand(100, 64, generator=torch.Generator().manual_seed(1)))
    return prediction


def averaged_outputs(tm: TrainManager) -> Tensor:
    with tm["ema"].applied(tm.model):
        return outputs(tm)


def moments(tm: TrainManager) -> list[dict[str, Tensor]]:
    assert isinstance(tm.optimizer, torch.optim.Optimizer)
    state = tm.optimizer.state
    return [{name: value.clone() for name, value in state[one].items()} for one in tm.model.parameters()]


@pytest.mark.parametrize("look", [outputs, averaged_outputs])
def test_the_outputs_stay_within_1e_5_as_the_layer_grows(look: Any) -> None:
    before, after = around_growth(look)

    assert (before - after).abs().max() < 1e-5
    assert before.abs().max() > 0.5


def test_the_layer_has_grown() -> None:
    before, after = around_growth(lambda tm: [tuple(one.shape) for one in tm.model.parameters()])

    assert before == [(8, 64), (8,), (10, 8), (10,)]
    assert after == [(32, 64), (32,), (10, 32), (10,)]


def test_the_moments_of_the_optimizer_are_kept_and_those_of_new_weights_begin_at_0() -> None:
    before, after = around_growth(moments)

    for old, new in zip(before, after, strict=True):
        assert new["step"] == old["step"] > 0
        for name in ("exp_avg", "exp_avg_sq"):
            block = tuple(slice(size) for size in old[name].shape)
            assert new[name][block].equal(old[name])
            assert new[name].count_nonzero() == old[name].count_nonzero()


def test_the_schedule_of_the_learning_rate_continues() -> None:
    def rates(tm: TrainManager) -> list[float]:
        seen: list[float] = []
        note = Extension.of(
            pre_train_step_epoch=lambda train_manager: seen.append(train_manager.optimizer.param_groups[0]["lr"])
        )
        tm.add_extension(note)
        tm.train()
        return seen

    without = example.manager()
    without.remove_extension("grow")

    assert rates(example.manager()) == rates(without)


def test_copies_of_a_unit_are_trained_apart() -> None:
    tm = example.manager()
    tm.train()
    answers = torch.relu(tm.model[0](torch.rand(100, 64, generator=torch.Generator().manual_seed(1)))).T
    alive = answers[answers.any(dim=1)]
    closest = torch.nn.functional.cosine_similarity(alive[:, None], alive[None], dim=-1).fill_diagonal_(0).max()

    assert len(alive) > 20
    assert closest < 1 - 1e-6


def test_the_average_follows_the_grown_weights() -> None:
    tm = example.manager()
    tm.train()

    assert tm["ema"].average["0.weight"].shape == (32, 64)
    assert (averaged_outputs(tm) - outputs(tm)).abs().max() > 1e-3


def test_the_program_prints_the_accuracy_of_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    *epochs, units = capsys.readouterr().out.splitlines()

    assert units == "32 units"
    assert all(re.fullmatch(r"after epoch [ \d]\d  accuracy \d+\.\d%", line) for line in epochs)
