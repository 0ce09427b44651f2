"""What of a checkpoint fits a training and its data; what a checkpoint holds is in tests/test_resuming.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.checkpointing import interrupted, path_of, steps_in
from tests.training import At, shuffled, weights
from train_manager import (
    CheckpointError,
    Endless,
    Extension,
    SeededDataLoader,
    Together,
    every,
)
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.core.fixtures import Fixtures
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager

# ---- the training ----------------------------------------------------------------------------------------------------


def test_another_model_is_refused_with_all_that_differs_and_nothing_is_changed(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    other = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 2), nn.Linear(2, 2))
    tm = tiny_manager(Checkpoints(resume=True), model=other, train_dir=tmp_path)
    before = weights(other)

    with pytest.raises(CheckpointError) as caught:
        tm.train()
    assert str(caught.value).splitlines()[:7] == [
        "the checkpoint does not fit this training:",
        "  - model: the checkpoint lacks 3.weight, 3.bias",
        "  - model: 0.weight is 9x2 here, but 8x2 in the checkpoint",
        "  - model: 0.bias is 9 here, but 8 in the checkpoint",
        "  - model: 2.weight is 2x9 here, but 2x8 in the checkpoint",
        "  - optimizer 'optimizer' has groups of [6] parameters here, but of [4] in the checkpoint",
        "  give the training what the checkpoint was written with; strict=False loads the rest",
    ]
    assert weights(other).equal(before)


def test_not_strict_loads_what_fits_and_says_what_does_not(tmp_path: Path) -> None:
    first = tiny_manager(Checkpoints(), train_dir=tmp_path)
    first.train()
    other = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    tm = tiny_manager(Checkpoints(resume=True, strict=False), model=other, train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="fits this training in part"):
        tm.eval()
    assert weights(other[0]).equal(weights(first.model[0]))


def test_variables_that_are_left_out_are_left_as_they_are(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(exclude="0.*"), train_dir=tmp_path).train()
    assert set(read_checkpoint(path_of(tmp_path, 3), ["model"])["model"]) == {"2.weight", "2.bias"}

    tm = tiny_manager(Checkpoints(resume=True, exclude="0.*"), train_dir=tmp_path)
    before = tm.model[0].weight.clone()
    tm.eval()
    assert torch.equal(tm.model[0].weight, before)


def test_a_pattern_that_leaves_nothing_out_is_told(tmp_path: Path) -> None:
    told = "exclude has 'backbone.*', which matches nothing in the model: its state has 0.weight, 0.bias, 2.weight"
    with pytest.warns(UserWarning, match=re.escape(told)):
        tiny_manager(Checkpoints(exclude=("backbone.*", "0.*")), train_dir=tmp_path).train()


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def state_dict(self) -> dict[str, int]:
        return {"n": self.n}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.n = state["n"]


class Provides(Extension):
    def __init__(self) -> None:
        self.counter = Counter()

    def pre_run(self, fixtures: Fixtures) -> None:
        fixtures.update({"counter": self.counter, "level": 0})

    def post_train_step_batch(self, fixtures: Fixtures, level: int) -> None:
        self.counter.n += 1
        fixtures.modify("level", level + 2)


def test_named_fixtures_are_saved_and_restored(tmp_path: Path) -> None:
    names = ("counter", "level")
    tiny_manager(Checkpoints(fixtures=names), Provides(), train_dir=tmp_path).train()
    provides, seen = Provides(), []
    look = At("post_load_checkpoint", lambda level: seen.append(level))
    tiny_manager(Checkpoints(fixtures=names, resume=True), provides, look, train_dir=tmp_path).eval()

    assert (provides.counter.n, seen) == (3, [6])


def test_a_fixture_that_is_not_alive_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the fixture 'nobody' must be saved, but is not alive"):
        tiny_manager(Checkpoints(fixtures="nobody"), train_dir=tmp_path).train()


class KeepsALock(Extension):
    def state_dict(self) -> dict[str, Any]:
        return {"inner": {"lock": object()}}


def test_a_state_that_is_not_plain_is_refused_as_it_is_saved_and_named(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), KeepsALock(), train_dir=tmp_path)

    with pytest.raises(CheckpointError, match="extensions > keeps_a_lock > inner > lock is an object of type object"):
        tm.train()
    assert steps_in(tmp_path) == []


def test_a_model_whose_shapes_are_not_known_yet_takes_those_of_the_checkpoint(tmp_path: Path) -> None:
    def lazy() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2))

    tiny_manager(Checkpoints(), model=lazy(), seed=0, epochs=1, train_dir=tmp_path).train()
    resumed, whole = lazy(), lazy()
    tiny_manager(Checkpoints(resume=True), model=resumed, seed=0, epochs=2, train_dir=tmp_path).train()
    tiny_manager(model=whole, seed=0, epochs=2).train()

    assert weights(whole).equal(weights(resumed))


@pytest.mark.parametrize("prefix", ["_orig_mod.", "model."])
def test_weights_of_a_model_that_was_wrapped_are_loaded(tmp_path: Path, prefix: str) -> None:
    first, other = tiny_manager(), tiny_manager()
    first.train()
    torch.save({prefix + name: value for name, value in first.model.state_dict().items()}, tmp_path / "weights.pt")
    other.load_weights(tmp_path / "weights.pt")

    assert weights(other.model).equal(weights(first.model))


# ---- the data --------------------------------------------------------------------------------------------------------


def test_a_loader_that_shuffles_unseen_is_told_of_as_the_run_opens(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), train_data=shuffled(), train_dir=tmp_path)

    with pytest.warns(UserWarning, match="from a checkpoint within an epoch, the epoch begins anew; SeededDataLoader"):
        tm.train()


def test_so_is_one_inside_of_endless_sets_that_are_read_together(tmp_path: Path) -> None:
    data = Together({"first": Endless(shuffled()), "second": Endless(shuffled())})
    tm = tiny_manager(Checkpoints(), train_data=data, train_dir=tmp_path)

    with pytest.warns(UserWarning, match=r"train_data \(Together\) shuffles in an order that cannot be had again"):
        tm.open()
    tm.close()


def test_a_seeded_loader_is_not(tmp_path: Path) -> None:
    x, y = torch.rand(8, 2), torch.zeros(8, dtype=torch.long)
    data = SeededDataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    tiny_manager(Checkpoints(), train_data=data, train_dir=tmp_path).train()


def test_of_an_iterable_without_a_state_the_batches_that_were_given_are_read_again_and_left_out(tmp_path: Path) -> None:
    class Stream:
        given = 0

        def __iter__(self) -> Iterator[Any]:
            for batch in tiny_manager().train_data or ():
                self.given += 1
                yield batch

    interrupted(tmp_path, 2, Checkpoints(every(2)), train_data=Stream())  # of 3 batches
    tm = tiny_manager(Checkpoints(resume=True), train_data=(stream := Stream()), train_dir=tmp_path)

    with pytest.warns(
        RuntimeWarning, match=r"\(Stream\) does not tell its position, so its first 2 batches are read ag"
    ):
        tm.train()
    assert (tm.step_num, stream.given) == (3, 3)


@pytest.mark.filterwarnings("ignore:train_data .DataLoader. shuffles")
def test_within_an_epoch_of_such_a_loader_the_epoch_begins_anew(tmp_path: Path) -> None:
    interrupted(tmp_path, 4, Checkpoints(every(2)), train_data=shuffled())  # of 5 batches
    tm = tiny_manager(Checkpoints(resume=True), train_data=shuffled(), train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="its 4 batches are not counted off"):
        tm.train()
    assert (tm.step_num, tm.epoch_num) == (4 + 5, 1)
