"""What of a checkpoint fits a training and its data; what a checkpoint holds is in tests/test_resuming.py."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset, WeightedRandomSampler

from tests.support.checkpointing import Fails, interrupted, path_of, steps_in
from tests.support.training import At, weights
from train_manager import (
    Endless,
    Extension,
    InMemory,
    InputError,
    Interleaved,
    SeededDataLoader,
    TrainManager,
    every,
    recorded,
)
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.core.fixtures import Fixtures
from train_manager.data.seeded_dataset import SeededSampler
from train_manager.errors import CheckpointError
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


def test_not_strict_says_what_the_model_lacks(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), model=nn.Linear(2, 2), train_dir=tmp_path).train()
    tm = tiny_manager(
        Checkpoints(resume=True, strict=False), model=nn.Linear(2, 2, bias=False), epochs=1, train_dir=tmp_path
    )

    with pytest.warns(RuntimeWarning, match="model: the checkpoint has bias, which the model lacks"):
        tm.eval()


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (
            {"exclude": ("backbone.*", "0.*")},
            "exclude has 'backbone.*', which matches nothing in the model: its state has",
        ),
        ({"only": ("*.lora_*", "2.*")}, "only has '*.lora_*', which matches nothing in the model: its state has"),
    ],
)
def test_a_pattern_that_matches_nothing_is_told(tmp_path: Path, which: dict[str, Any], told: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(f"{told} 0.weight, 0.bias, 2.weight")):
        tiny_manager(Checkpoints(**which), train_dir=tmp_path).train()


@pytest.mark.parametrize("which", [{"exclude": "0.*"}, {"only": "2.*"}])
def test_only_the_named_weights_are_saved_and_the_others_are_left_as_they_are(
    tmp_path: Path, which: dict[str, Any]
) -> None:
    first = tiny_manager(Checkpoints(**which), train_dir=tmp_path)
    first.train()
    assert set(read_checkpoint(path_of(tmp_path, 3), ["model"])["model"]) == {"2.weight", "2.bias"}

    tm = tiny_manager(Checkpoints(resume=True, **which), train_dir=tmp_path)
    before = tm.model[0].weight.clone()
    tm.eval()
    assert torch.equal(tm.model[0].weight, before)
    assert torch.equal(tm.model[2].weight, first.model[2].weight)


def test_saved_weights_are_named_by_exclude_or_by_only() -> None:
    with pytest.raises(InputError) as caught:
        Checkpoints(exclude="0.*", only=["2.*"])
    assert str(caught.value) == (
        "exclude=('0.*',) and only=('2.*',) are both given\n"
        "  give one of them: only names the weights that are saved, exclude those that are not"
    )


@pytest.mark.parametrize("which", [Checkpoints(exclude="0.*"), Checkpoints(only="2.*")])
def test_a_model_that_is_given_to_from_checkpoint_keeps_its_weights_that_were_not_saved(
    tmp_path: Path, which: Checkpoints
) -> None:
    first = tiny_manager(which, optimizer=SGD, train_dir=tmp_path)
    first.train()
    given = tiny_manager(seed=1).model
    before = given[0].weight.clone()
    tm = TrainManager.from_checkpoint(tmp_path, model=given, loss=F.cross_entropy)
    assert torch.equal(tm.model[0].weight, before)
    assert torch.equal(tm.model[2].weight, first.model[2].weight)


def test_from_checkpoint_refuses_a_model_of_its_own_whose_weights_were_not_saved(tmp_path: Path) -> None:
    made = recorded(type("Rebuilt", (nn.Linear,), {"__module__": "nets_of_saved_weights"}))
    tiny_manager(Checkpoints(only="bias"), model=made(2, 2), optimizer=SGD, train_dir=tmp_path).train()
    with pytest.raises(CheckpointError, match="model: the checkpoint lacks weight"):
        TrainManager.from_checkpoint(tmp_path, loss=F.cross_entropy)


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


def test_a_model_whose_shapes_are_not_known_yet_takes_those_of_the_checkpoint(tmp_path: Path) -> None:
    def lazy() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2))

    tiny_manager(Checkpoints(), model=lazy(), seed=0, epochs=1, train_dir=tmp_path).train()
    resumed, whole = lazy(), lazy()
    tiny_manager(Checkpoints(resume=True), model=resumed, seed=0, epochs=2, train_dir=tmp_path).train()
    tiny_manager(model=whole, seed=0, epochs=2).train()

    assert weights(whole).equal(weights(resumed))


class Masked(nn.Module):
    """A buffer whose numbers share one place in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(1).expand(2))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(inputs) * self.mask


def test_a_model_with_an_expanded_buffer_is_resumed(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), model=Masked(), train_dir=tmp_path).train()
    tm = tiny_manager(Checkpoints(resume=True), model=Masked(), epochs=2, train_dir=tmp_path)
    tm.train()

    assert tm.epoch_num == 2


@pytest.mark.parametrize("prefix", ["_orig_mod.", "model."])
def test_weights_of_a_model_that_was_wrapped_are_loaded(tmp_path: Path, prefix: str) -> None:
    first, other = tiny_manager(), tiny_manager()
    first.train()
    torch.save({prefix + name: value for name, value in first.model.state_dict().items()}, tmp_path / "weights.pt")
    other.load_weights(tmp_path / "weights.pt")

    assert weights(other.model).equal(weights(first.model))


# ---- the data --------------------------------------------------------------------------------------------------------


class Noisy(Dataset[Any]):
    """Draws a random number for each example."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, row: int) -> Any:
        return torch.rand(2) + row, row % 2


class Numbers(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for row in range(12):
            yield torch.full((2,), float(row)), row % 2


def examples() -> tuple[torch.Tensor, ...]:
    return torch.arange(24.0).reshape(12, 2), torch.arange(12) % 2


def loader(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*examples()) if dataset is None else dataset, **{"batch_size": 4, **options})


def opened(data: Any, train_dir: Path, **options: Any) -> list[str]:
    """Return what is told as a run opens."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tm = tiny_manager(Checkpoints(**options), train_data=data, train_dir=train_dir)
        tm.open()
        tm.close()
    return [str(one.message) for one in told]


def test_of_a_stream_in_a_loader_with_workers_the_loader_must_tell_its_position(tmp_path: Path) -> None:
    (told,) = opened(loader(Numbers(), num_workers=1), tmp_path)

    assert told.startswith("train_data (DataLoader) does not tell its position: from a checkpoint within an epoch")
    assert told.endswith("; give the loader, since workers read its dataset, state_dict() and load_state_dict()")


def test_a_loader_that_keeps_its_workers_is_told_of_as_the_run_opens(tmp_path: Path) -> None:
    data = loader(Noisy(), num_workers=1, persistent_workers=True)

    assert opened(data, tmp_path, save_at="epoch") == [
        "train_data (DataLoader) keeps its workers, whose random states are in no checkpoint: from any checkpoint, "
        "also at the end of an epoch, its dataset draws otherwise; persistent_workers=False resumes exactly"
    ]


def test_one_whose_dataset_draws_nothing_is_not(tmp_path: Path) -> None:
    assert opened(loader(num_workers=1, persistent_workers=True), tmp_path) == []


def test_a_loader_over_a_stream_is_told_of_if_a_checkpoint_may_be_within_an_epoch(tmp_path: Path) -> None:
    assert opened(loader(Numbers()), tmp_path, save_at="epoch") == []
    assert opened(loader(Numbers()), tmp_path, save_at="end") == [
        "train_data (DataLoader) does not tell its position: from a checkpoint within an epoch, also that of a signal "
        "or a time limit, it must give the same batches again; give its dataset state_dict() and load_state_dict()"
    ]


def test_a_loader_with_a_sampler_of_an_unknown_class_is_told_of_too(tmp_path: Path) -> None:
    class Mine(RandomSampler):
        """Its order may depend on anything."""

    (told,) = opened(loader(sampler=Mine(range(12))), tmp_path)

    assert told.endswith("; give its sampler set_epoch(), if its order depends on the epoch alone")


def test_a_checkpoint_of_before_the_first_batch_of_an_epoch_draws_its_order_once(tmp_path: Path) -> None:
    def training(*extensions: Extension, **options: Any) -> TrainManager:
        data = loader(shuffle=True)
        return tiny_manager(*extensions, train_data=data, epochs=3, seed=0, **options)

    ask = At("pre_train_step_epoch", lambda train_manager: train_manager.save_soon())
    (whole := training()).train()
    with pytest.raises(ZeroDivisionError):
        training(Checkpoints(()), ask, Fails(3), train_dir=tmp_path).train()
    (resumed := training(Checkpoints((), resume=True), train_dir=tmp_path)).train()

    assert steps_in(tmp_path) == [0, 3]
    assert weights(resumed.model).equal(weights(whole.model))


def test_the_position_of_data_of_another_class_is_refused_as_the_epoch_begins(tmp_path: Path) -> None:
    tm = resumed_with(Endless([*loader()]), in_memory(), tmp_path)
    tm.steps_per_epoch = 3

    with pytest.raises(CheckpointError) as refused:
        tm.train()
    assert str(refused.value).splitlines()[0] == "the position in the data cannot be restored (KeyError: 'sets')"


def resumed_with(data: Any, before: Any, train_dir: Path, *, step: int = 2, **options: Any) -> TrainManager:
    """Return a training that is to resume with other data; an epoch has 3 steps."""
    interrupted(train_dir, step, Checkpoints(every(1), keep=None), train_data=before, epochs=2)
    return tiny_manager(Checkpoints(resume=True, **options), train_data=data, epochs=2, train_dir=train_dir)


def weighted(first: float) -> DataLoader[Any]:
    return loader(sampler=WeightedRandomSampler([first, *[1.0] * 11], 12))


def in_memory(**options: Any) -> InMemory:
    return InMemory(*examples(), batch_size=4, shuffle=True, **options)


@pytest.mark.parametrize(
    ("data", "before", "told"),
    [
        (
            lambda: loader(batch_size=2),
            loader,
            [
                "train_data, within an epoch: batches = 6 here, but 3 in the checkpoint",
                "train_data, within an epoch: batch_size = 2 here, but 4 in the checkpoint",
            ],
        ),
        (
            lambda: loader(shuffle=True),
            loader,
            ["train_data, within an epoch: sampler = RandomSampler here, but SequentialSampler in the checkpoint"],
        ),
        (
            lambda: loader(sampler=SeededSampler(range(12), seed=1)),
            lambda: loader(sampler=SeededSampler(range(12))),
            ["train_data, within an epoch: seed of SeededSampler = 1 here, but 0 in the checkpoint"],
        ),
        (
            loader,
            in_memory,
            ["train_data, within an epoch: position = counted off here, but its own in the checkpoint"],
        ),
        (
            lambda: Interleaved({"one": loader(), "other": loader(batch_size=3)}),
            lambda: Interleaved({"one": loader(), "other": loader()}),
            ["train_data, within an epoch: batch_size of loader 2 = 3 here, but 4 in the checkpoint"],
        ),
        (
            lambda: [*loader()][:2],
            lambda: [*loader()],
            ["train_data, within an epoch: batches = 2 here, but 3 in the checkpoint"],
        ),
    ],
    ids=["batch size", "order", "seed", "kind", "of a set", "length"],
)
def test_within_an_epoch_data_that_give_other_batches_are_refused(
    data: Any, before: Any, told: list[str], tmp_path: Path
) -> None:
    tm = resumed_with(data(), before(), tmp_path)

    with pytest.raises(CheckpointError) as caught:
        tm.train()
    assert str(caught.value).splitlines() == [
        "the checkpoint does not fit this training:",
        *(f"  - {one}" for one in told),
        "  give the training what the checkpoint was written with; strict=False loads the rest",
    ]


def test_at_the_end_of_an_epoch_they_are_used(tmp_path: Path) -> None:
    tm = resumed_with(loader(batch_size=2), loader(), tmp_path, step=3)

    tm.train()
    assert (tm.step_num, tm.epoch_num) == (3 + 6, 2)


def test_not_strict_begins_an_epoch_of_other_batches_anew(tmp_path: Path) -> None:
    tm = resumed_with(loader(batch_size=2), loader(), tmp_path, strict=False)

    with pytest.warns(RuntimeWarning) as told:
        tm.train()
    assert str(told[1].message) == (
        "train_data (DataLoader) gives other batches than those that the checkpoint was written among, so the epoch "
        "begins anew: its 2 batches are not counted off"
    )
    assert (tm.step_num, tm.epoch_num) == (2 + 6 + 6, 2)


@pytest.mark.parametrize(
    ("data", "before", "told"),
    [
        (
            lambda: loader(shuffle=True, generator=torch.Generator().manual_seed(1)),
            lambda: loader(shuffle=True, generator=torch.Generator().manual_seed(2)),
            "train_data (DataLoader): the seed of its generator is 1 here, but 2 in the checkpoint; the latter is used",
        ),
        (
            lambda: loader(Noisy(), num_workers=1),
            lambda: loader(Noisy()),
            "train_data (DataLoader): num_workers is 1 here, but 0 in the checkpoint; so its dataset draws otherwise",
        ),
        (
            lambda: weighted(3.0),
            lambda: weighted(1.0),
            "train_data (DataLoader): its sampler has other weights than in the checkpoint, and those here are used",
        ),
    ],
    ids=["generator", "workers", "weights"],
)
def test_what_draws_otherwise_from_an_end_of_an_epoch_on_is_told(
    data: Any, before: Any, told: str, tmp_path: Path
) -> None:
    tm = resumed_with(data(), before(), tmp_path, step=3)

    with pytest.warns(RuntimeWarning) as found:
        tm.train()
    assert [str(one.message) for one in found] == [told]


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
    tm.train()

    assert (tm.step_num, stream.given) == (3, 3)


class Wrapper:
    def __init__(self, **options: Any) -> None:
        self.loader = loader(**options)

    def __iter__(self) -> Iterator[Any]:
        yield from self.loader


def test_within_an_epoch_the_batch_size_of_a_wrapped_loader_is_compared(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, Checkpoints(every(2)), train_data=Wrapper())
    other = Wrapper(batch_size=5)
    tm = tiny_manager(Checkpoints(resume=True), train_data=other, train_dir=tmp_path)

    with pytest.raises(CheckpointError, match="batch_size of loader 1 = 5 here, but 4 in the checkpoint"):
        tm.train()


def test_within_an_epoch_the_seed_of_the_checkpoint_is_used_and_told(tmp_path: Path) -> None:
    tm = resumed_with(in_memory(seed=1), in_memory(), tmp_path)

    with pytest.warns(RuntimeWarning) as found:
        tm.train()
    assert [str(one.message) for one in found] == [
        "train_data (InMemory): its seed is 1 here, but 0 in the checkpoint; the latter is used"
    ]


def test_within_an_epoch_other_weights_of_a_sampler_are_refused(tmp_path: Path) -> None:
    tm = resumed_with(weighted(3.0), weighted(1.0), tmp_path)

    with pytest.raises(CheckpointError, match="weights of the sampler = sha256 474a99f0 here, but sha256 cf966f10 in"):
        tm.train()
