"""What states leave out: saved all the same, told, or refused before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.checkpointing import interrupted, losses, path_of, steps_in
from tests.support.training import weights
from train_manager import Extension, TrainManager, every
from train_manager.errors import CheckpointError
from train_manager.extensions import Checkpoints, EarlyStopping
from train_manager.testing import tiny_manager


class Noisy(nn.Module):
    """Has a number that counts, a buffer that is not persistent, and a norm."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.calls = 0
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            self.scale *= 0.5
        output: Tensor = self.last(self.norm(self.first(inputs)) * (1 + self.scale) * (1 + 1 / (1 + self.calls)))
        return output


class Slower(Extension):
    def post_train_step_batch(self, train_manager: TrainManager[Any], step_num: int) -> None:
        if step_num == 1:
            train_manager.model.norm.momentum = 0.5


def test_numbers_and_buffers_of_the_model_that_have_changed_resume_from_a_checkpoint(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, Checkpoints(every(1)), Slower(), model=Noisy())
    resumed = tiny_manager(Checkpoints(every(1), resume=True), Slower(), model=Noisy(), train_dir=tmp_path)
    whole = tiny_manager(Slower(), model=Noisy())
    resumed.train()
    whole.train()

    assert weights(resumed.model).equal(weights(whole.model))
    assert (resumed.model.norm.momentum, resumed.model.calls) == (0.5, 3)
    assert torch.equal(resumed.model.scale, whole.model.scale)


def test_what_was_loaded_outside_of_a_run_is_in_the_next_state_too() -> None:
    tm, other = tiny_manager(Slower(), model=Noisy()), tiny_manager(model=Noisy(), epochs=2)
    tm.train()
    other.load_state_dict(tm.state_dict())
    other.train()

    assert other.state_dict()["fit"]["model"][""]["left_out"].keys() == {"calls", "scale", "norm.momentum"}


class Counts(Extension):
    def __init__(self) -> None:
        self.largest = 0.0

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.largest = max(self.largest, loss.item())


class CountingManager(TrainManager[Any]):
    """Counts in a plain attribute."""

    calls = 0

    def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.cross_entropy(prediction, targets)


def test_a_number_that_an_extension_counts_and_no_checkpoint_holds_is_told_once(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(1)), Counts(), train_dir=tmp_path)

    with pytest.warns(UserWarning, match="no checkpoint holds") as caught:
        tm.train()
    assert [str(one.message) for one in caught] == [
        "no checkpoint holds largest of extension 'counts', which has changed since the training began: a training "
        "that resumes begins it anew (return it in state_dict(), and set it in load_state_dict())"
    ]


def test_so_is_one_of_a_manager(tmp_path: Path) -> None:
    tiny = tiny_manager()
    tm = CountingManager(
        model=tiny.model,
        optimizer=torch.optim.SGD(tiny.model.parameters(), lr=0.1),
        train_data=tiny.train_data,
        train_dir=tmp_path,
        extensions=[Checkpoints()],
    )
    tm.calls = 0

    with pytest.warns(UserWarning, match="no checkpoint holds calls of CountingManager, which has changed"):
        tm.train()


# ---- the best one ----------------------------------------------------------------------------------------------------


def test_the_best_of_another_monitor_begins_anew_and_that_is_told(tmp_path: Path) -> None:
    best = Checkpoints(save_at="best", monitor="valid/accuracy", mode="min")
    scores = Extension.of(post_eval_step_epoch=lambda eval_result: eval_result.update(accuracy=0.0))
    tiny_manager(best, scores, train_dir=tmp_path).train()
    other = Checkpoints(save_at="best", monitor="valid/loss", resume=True)
    tm = tiny_manager(other, losses(5.0, 4.0), epochs=3, train_dir=tmp_path)

    told = r"monitor of Checkpoints: program valid/loss \(min\), checkpoint valid/accuracy \(min\)"
    with pytest.warns(RuntimeWarning, match=told):
        tm.train()
    assert (other.best, steps_in(tmp_path)) == (4.0, [3, 6, 9])


def test_early_stopping_forgets_the_best_of_another_monitor(tmp_path: Path) -> None:
    stopping = EarlyStopping("valid/accuracy", patience=5)
    scores = Extension.of(post_eval_step_epoch=lambda eval_result: eval_result.update(accuracy=100.0))
    tiny_manager(Checkpoints(), stopping, scores, train_dir=tmp_path).train()
    other = EarlyStopping("valid/loss", patience=5)

    with pytest.warns(RuntimeWarning, match="monitor of extension 'early_stopping'"):
        tiny_manager(Checkpoints(resume=True), other, losses(4.0), epochs=2, train_dir=tmp_path).train()
    assert other.state_dict()["found"][""]["best"] == 4.0


# ---- refused ---------------------------------------------------------------------------------------------------------


class KeepsALock(Extension):
    has_stepped = False

    def post_train_step_batch(self) -> None:
        self.has_stepped = True

    def state_dict(self) -> dict[str, Any]:
        return {"inner": {"lock": object()}}


def test_what_cannot_be_stored_is_refused_before_the_first_step(tmp_path: Path) -> None:
    keeps = KeepsALock()

    with pytest.raises(CheckpointError, match="extensions > keeps_a_lock > inner > lock is an object of type object"):
        tiny_manager(Checkpoints(), keeps, train_dir=tmp_path).train()
    assert not keeps.has_stepped


def test_if_all_checkpoints_are_damaged_each_start_is_refused(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    (path_of(tmp_path, 3) / "state.json").write_text("{}")

    for _ in range(2):
        with pytest.raises(CheckpointError) as refused:
            tiny_manager(Checkpoints(resume=True), train_dir=tmp_path).train()
        assert refused.value.what.startswith(f"{path_of(tmp_path, 3)} is damaged: state.json has 2 of ")
        cure = 'no other checkpoint can be used; resume="fresh" moves all aside and begins anew'
        assert refused.value.cure == cure
