"""The inner stages of a batch, as code reads the present stage, and as parts and extensions come and go."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.loop.closed_stages import (
    by_hand,
    manager,
    needs,
    net,
    runs,
    same_in_stages,
)
from tests.support.training import At, Values, make_batches, weights
from train_manager import Extension, TrainManager, fixture
from train_manager.errors import StageError
from train_manager.extensions import (
    ClipGradients,
)
from train_manager.testing import tiny_manager

# ---- the present stage, which code may read --------------------------------------------------------------------------


def test_a_loss_that_reads_the_stage_finds_its_own() -> None:
    def loss(prediction: Tensor, targets: Tensor, stage: Any) -> Tensor:
        names.append(stage.name)
        return F.cross_entropy(prediction, targets)

    names: list[str] = []
    manager(TrainManager, loss=loss).train()

    assert names == ["train_loss_forward"] * 8


def test_a_lazy_fixture_that_reads_the_stage_finds_the_one_that_asks() -> None:
    class Own(TrainManager):
        @fixture("train_step_batch")
        def place(self, stage: Any) -> str:
            return str(stage.name)

    def loss(prediction: Tensor, targets: Tensor, place: str) -> Tensor:
        places.append(place)
        return F.cross_entropy(prediction, targets)

    places: list[str] = []
    manager(Own, loss=loss).train()

    assert places == ["train_loss_forward"] * 8


def test_an_own_forward_method_that_reads_the_path_finds_its_stage() -> None:
    class Reads(TrainManager):
        def model_forward(self, model: Any, inputs: Tensor) -> Any:
            paths.append(self.fixtures.path[-1])
            return model(inputs)

    paths: list[str] = []
    manager(Reads).train()

    assert paths == ["train_model_forward"] * 8


def test_a_model_that_reads_the_path_finds_its_stage() -> None:
    paths: list[str] = []
    model = net()
    tm = manager(TrainManager, model=model)
    model.register_forward_hook(lambda part, inputs, output: paths.append(tm.fixtures.path[-1]))
    tm.train()

    assert paths == ["train_model_forward"] * 8


# ---- what is written or replaced late --------------------------------------------------------------------------------


def test_targets_that_a_model_modifies_from_its_third_batch_on_are_trained_on() -> None:
    """The first batch has shown nothing."""
    passes: list[int] = []
    model = net()
    tm = manager(TrainManager, model=model, epochs=1)

    def flip(part: nn.Module, inputs: Any, output: Tensor) -> None:
        passes.append(1)
        if len(passes) >= 3:
            tm.fixtures.modify("targets", 1 - tm.fixtures["targets"])

    model.register_forward_hook(flip)
    tm.train()
    batches = make_batches(4)
    flipped = batches[:2] + [(inputs, 1 - targets) for inputs, targets in batches[2:]]

    assert torch.equal(weights(tm.model), by_hand(net(), flipped))


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_a_part_of_the_batch_that_an_own_batch_size_modifies_is_trained_on(name: str) -> None:
    class Sized(TrainManager):
        def get_true_batch_size(self, batch: Any) -> int:
            self.fixtures.modify(name, 1 - self.fixtures[name])
            return len(batch[0])

    changed = [(1 - x, y) if name == "inputs" else (x, 1 - y) for x, y in make_batches(4)]
    tm = manager(Sized)
    tm.train()

    assert torch.equal(weights(tm.model), by_hand(net(), changed * 2))


@pytest.mark.parametrize("what", ["model", "loss", "called_model", "optimizer"])
def test_a_part_that_is_replaced_between_two_calls_is_used(what: str) -> None:
    def train(*extensions: Extension) -> TrainManager:
        tm = manager(TrainManager, *extensions)
        tm.train_steps(3)
        exchange(tm, what)
        tm.train_steps(3)
        return tm

    assert same_in_stages(train)
    assert not torch.equal(weights(train().model), by_hand(net(), (make_batches(4) * 2)[:6]))


@pytest.mark.parametrize("what", ["loss", "called_model", "optimizer"])
def test_a_part_that_a_hook_replaces_is_used_in_this_batch(what: str) -> None:
    def train(*extensions: Extension) -> TrainManager:
        def hook(train_manager: TrainManager, step_num: int) -> None:
            if step_num == 3:
                exchange(train_manager, what)

        tm = manager(TrainManager, At("pre_train_step_batch", hook), *extensions, epochs=1)
        tm.train()
        return tm

    assert same_in_stages(train)
    assert not torch.equal(weights(train().model), by_hand(net(), make_batches(4)))


def exchange(tm: Any, what: str) -> None:
    """Replace a part of what is trained."""
    if what == "loss":
        tm.loss = F.multi_margin_loss
    elif what == "called_model":
        tm.called_model = nn.Sequential(tm.model, nn.Softmax(dim=1))
    else:
        tm.model = tm.model if what == "optimizer" else net(seed=2)
        tm.optimizer = SGD(tm.model.parameters(), lr=0.7)


def test_the_stages_close_again_after_a_part_was_replaced() -> None:
    tm = manager(TrainManager)
    tm.train_steps(2)
    tm.loss = F.multi_margin_loss
    tm.train_steps(2)

    assert runs(tm)


# ---- extensions that come and go -------------------------------------------------------------------------------------


def test_an_extension_that_is_added_between_two_calls_opens_the_stages() -> None:
    clip = ClipGradients(1.0)
    tm = tiny_manager(epochs=9)
    tm.train_steps(3)
    tm.add_extension(clip)
    tm.train_steps(1)

    assert needs(tm) == "ClipGradients"


def test_the_stages_close_again_once_the_extension_is_removed() -> None:
    tm = tiny_manager(epochs=9, extensions={"clip": ClipGradients(1.0)})
    tm.train_steps(3)
    tm.remove_extension("clip")
    tm.train_steps(2)

    assert runs(tm)


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_step_batch", "pre_train_step_epoch"])
def test_an_extension_that_a_hook_adds_is_called_from_then_on(hook: str) -> None:
    """Three batches in each epoch; it comes in the second batch, after it, or with the second epoch."""
    stepped = Values("post_train_optimizer_step", "step_num")

    def add(train_manager: TrainManager, step_num: int) -> None:
        if step_num == (3 if hook == "pre_train_step_epoch" else 1):
            train_manager.add_extension(stepped)

    tiny_manager(At(hook, add), epochs=2).train()

    assert stepped.seen == [*range(3 if hook == "pre_train_step_epoch" else 1, 6)]


def test_an_extension_that_a_hook_removes_is_not_called_any_more() -> None:
    stepped = Values("post_train_optimizer_step", "step_num")

    def remove(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 2:
            train_manager.remove_extension("stepped")

    tm = tiny_manager(extensions={"stepped": stepped, "at": At("pre_train_step_batch", remove)}, epochs=2)
    tm.train()

    assert stepped.seen == [0, 1]
    assert runs(tm)


def test_an_extension_that_a_model_adds_in_a_closed_stage_is_refused() -> None:
    class Adds(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if tm.step_num == 2:
                tm.add_extension(ClipGradients(1.0), name="clip")
            return super().forward(x)

    tm = tiny_manager(model=Adds(2, 3), epochs=2)

    with pytest.raises(StageError, match="changed inside stage 'train_model_forward', which is too late"):
        tm.train()
    assert "clip" not in tm.extensions


def test_an_extension_that_a_phase_adds_opens_the_stages_in_the_phase_only() -> None:
    stepped = Values("post_train_optimizer_step", "step_num")
    tm = tiny_manager(epochs=9)
    with tm.run():
        tm.train_steps(3)
        with tm.phase("looking", extensions=[stepped]):
            tm.train_steps(2)
        tm.train_steps(3)

    assert stepped.seen == [3, 4]
    assert runs(tm)
