"""The rows on checkpoints: T20-T22, T34-T38 and T42, A16 and A22, G22 and G47, J25."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset

from tests.rebuilding.recorded_parts import Head, Net
from tests.support.resuming import differences, round_trip, state_of
from tests.support.training import stop_at, weights
from train_manager import Extension, SeededDataLoader, TrainManager, every
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.verification import read_manifest
from train_manager.errors import CheckpointError
from train_manager.extensions import EMA, Checkpoints
from train_manager.testing import tiny_manager


def names(train_dir: Path) -> list[str]:
    return sorted(path.name for path in (train_dir / "checkpoints").iterdir())


def steps(train_dir: Path) -> list[int]:
    return [int(name.split("-")[1]) for name in names(train_dir)]


def seeded(*extensions: Extension, **options: Any) -> TrainManager:
    """A training in which all is random: the weights, the order, the augmentation, the dropout."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
    examples = TensorDataset(torch.rand(40, 2), torch.randint(2, (40,)))
    data = SeededDataLoader(examples, batch_size=8, shuffle=True, seed=1, collate_fn=noisy)
    given = {"model": model, "optimizer": torch.optim.AdamW, "train_data": data, "epochs": 3}
    return tiny_manager(EMA(0.9), *extensions, **{**given, **options})


def noisy(examples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*examples, strict=True)
    return torch.stack(inputs) + 0.1 * torch.randn(len(inputs), 2), torch.stack(targets)


# ---- T: what is in a checkpoint, where it is loaded, and what comes of it --------------------------------------------


class Buffer:
    def __init__(self) -> None:
        self.seen = 3

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


class WithBuffer(TrainManager):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.replay_buffer = Buffer()


def test_t34_a_checkpoint_has_model_optimizer_schedule_random_states_and_found_attributes(
    tmp_path: Path,
) -> None:
    tm = WithBuffer(
        model=nn.Linear(2, 2),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
        lr_schedule=lambda optimizer: StepLR(optimizer, 1),
        train_data=[(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))],
        epochs=1,
        extensions=[Checkpoints()],
        train_dir=tmp_path,
    )
    tm.train()
    state = read_checkpoint(tmp_path / "checkpoints" / "step-000000000001")

    assert state["model"]["weight"].equal(tm.model.weight)
    assert state["optimizers"]["optimizer"]["state"][0]["momentum_buffer"].shape == (2, 2)
    assert state["lr_schedule"]["optimizer"]["last_epoch"] == 1
    assert state["attributes"] == {"replay_buffer": {"seen": 3}}
    assert {"python", "numpy", "torch"} <= state["random"].keys()


@pytest.mark.parametrize("at", ["last", 6, "step-000000000006"])
def test_t35_the_last_one_a_number_or_a_path_is_loaded(tmp_path: Path, at: Any) -> None:
    whole = tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path)
    whole.train()
    tm = tiny_manager(Checkpoints(resume=True, at=at), epochs=2, train_dir=tmp_path)
    with pytest.warns(UserWarning, match="nothing to do"):
        tm.train()

    assert tm.step_num == 6
    assert weights(tm.model).equal(weights(whole.model))


@pytest.mark.parametrize("stopped_after", [2, 5, 8])
def test_t36_a_resumed_training_comes_to_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, stopped_after: int
) -> None:
    """Five steps an epoch: within the first epoch, at the end of it, and within the second."""
    whole = seeded()
    whole.train()
    stop = stop_at("post_train_step_batch", when=lambda tm: tm.step_num == stopped_after)
    seeded(Checkpoints(), stop, train_dir=tmp_path).train()
    assert steps(tmp_path)[-1] == stopped_after

    resumed = seeded(Checkpoints(resume=True), train_dir=tmp_path)
    resumed.train()
    resumed.remove_extension("checkpoints")

    assert differences(state_of(whole)["model"], state_of(resumed)["model"]) == []
    assert differences(state_of(whole)["optimizers"], state_of(resumed)["optimizers"]) == []
    assert differences(state_of(whole)["extensions"]["ema"], state_of(resumed)["extensions"]["ema"]) == []


class Told(Extension):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def post_load_checkpoint(self, checkpoint_loaded: Path | bool) -> None:
        self.told.append(checkpoint_loaded)


def test_t37_a_hook_of_the_stage_that_loads_is_told_what_was_loaded(tmp_path: Path) -> None:
    told = Told()
    tiny_manager(Checkpoints(), told, epochs=1, train_dir=tmp_path).train()
    tiny_manager(Checkpoints(resume=True), told, epochs=2, train_dir=tmp_path).train()

    assert told.told == [False, tmp_path / "checkpoints" / "step-000000000003"]


def test_t42_a_train_dir_with_checkpoints_is_refused_unless_asked(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=1, train_dir=tmp_path / "run").train()
    before = names(tmp_path / "run")

    with pytest.raises(CheckpointError, match="has step-000000000003, which this training would not resume from"):
        tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path / "run").train()
    assert names(tmp_path / "run") == before


def test_t42_asked_for_a_fresh_start_the_old_folder_is_moved_aside(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path / "run").train()
    tiny_manager(Checkpoints(resume="fresh"), epochs=1, train_dir=tmp_path / "run").train()

    assert steps(tmp_path / "run") == [3]
    assert steps(tmp_path / "run-before-1") == [3, 6]


def recorded_net(tmp_path: Path) -> TrainManager[Any]:
    """A trained and saved manager whose model and optimizer tell what they were made with."""
    optimizer = partial(torch.optim.AdamW, lr=0.05)
    model = Net(8, head=Head(3))
    tm: TrainManager[Any] = tiny_manager(Checkpoints(), model=model, optimizer=optimizer, train_dir=tmp_path)
    tm.train()
    return tm


def test_t20_parameters_of_the_model_of_what_is_in_it_and_of_other_objects_are_kept(tmp_path: Path) -> None:
    recorded_net(tmp_path)
    parts: Any = read_checkpoint(tmp_path / "checkpoints" / "step-000000000003")["parameters"]["arguments"]

    assert parts["model"]["arguments"]["width"] == 8
    assert parts["model"]["arguments"]["head"]["arguments"] == {"classes": 3, "bias": True}
    assert parts["optimizer"]["arguments"] == {"lr": 0.05}
    assert parts["extensions"]["checkpoints"]["arguments"]["keep"] == 3


def test_t21_a_model_is_made_again_before_its_weights_are_loaded(tmp_path: Path) -> None:
    """In a fresh process: tests/test_from_checkpoint.py."""
    tm = recorded_net(tmp_path)
    again: TrainManager[Any] = TrainManager.from_checkpoint(tmp_path)

    assert (type(again.model), again.model.width, again.step_num) == (Net, 8, 3)
    assert weights(again.model).equal(weights(tm.model))


def test_t22_t38_a_parameter_is_overridden_and_an_unknown_one_refused(tmp_path: Path) -> None:
    recorded_net(tmp_path)
    again: TrainManager[Any] = TrainManager.from_checkpoint(tmp_path, {"model.threshold": 0.7})

    assert again.model.threshold == 0.7
    with pytest.raises(CheckpointError, match=r"no 'model.treshold' to override\n  did you mean 'model.threshold'"):
        TrainManager.from_checkpoint(tmp_path, {"model.treshold": 0.7})


# ---- A: a store of one's own, and the best epoch ---------------------------------------------------------------------


class Shelf(Extension):
    """A store of one's own: the newest state, in memory."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self.kept = kept

    def pre_load_checkpoint(self, train_manager: TrainManager) -> None:
        if "newest" in self.kept:
            train_manager.load_state_dict(self.kept["newest"])

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        train_manager.save_soon()

    def pre_save_checkpoint(self, train_manager: TrainManager) -> None:
        self.kept["newest"] = round_trip(train_manager.state_dict())


@pytest.mark.parametrize("own", [True, False], ids=["a store of one's own", "Checkpoints"])
def test_a16_every_store_passes_the_same_test(tmp_path: Path, own: bool) -> None:
    kept: dict[str, Any] = {}

    def store() -> Extension:
        return Shelf(kept) if own else Checkpoints(save_at=every(1), resume=True)

    whole = seeded()
    whole.train()
    stop = stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 7)
    seeded(store(), stop, train_dir=tmp_path).train()
    resumed = seeded(store(), train_dir=tmp_path)
    resumed.train()

    assert (resumed.step_num, len(resumed.history.epochs)) == (15, 3)
    assert weights(resumed.model).equal(weights(whole.model))


class Rises(Extension):
    """Let the loss fall for two epochs, and rise from then on."""

    def pre_train_step_batch(self, train_manager: TrainManager, epoch_num: int) -> None:
        for group in train_manager.optimizers["optimizer"].param_groups:
            group["lr"] = 0.1 if epoch_num < 2 else -0.5


def losses(tm: TrainManager) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in tm.history.evaluations if row["step"]}


@pytest.mark.filterwarnings("ignore:a learning rate is below 0")
@pytest.mark.parametrize("save_at", ["best", "epoch"])
def test_a22_the_best_checkpoint_is_that_of_the_best_epoch(tmp_path: Path, save_at: str) -> None:
    tm = tiny_manager(Checkpoints(save_at=save_at, keep=1), Rises(), epochs=5, train_dir=tmp_path)
    tm.train()
    best = min(losses(tm), key=losses(tm).__getitem__)
    resumed = tiny_manager(Checkpoints(resume=True, at="best"), epochs=5, train_dir=tmp_path)
    resumed.eval()

    assert best == 6
    assert best in steps(tmp_path)
    assert resumed.step_num == best
    assert read_manifest(tmp_path / "checkpoints" / "step-000000000006")["monitored"] == losses(tm)[best]


# ---- G: counters, and which checkpoints stay -------------------------------------------------------------------------


def test_g22_the_steps_of_a_resumed_run_count_on(tmp_path: Path) -> None:
    seen: list[int] = []

    class Steps(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            seen.append(step_num)

    tiny_manager(Checkpoints(), Steps(), epochs=1, train_dir=tmp_path).train()
    tiny_manager(Checkpoints(resume=True), Steps(), epochs=2, train_dir=tmp_path).train()

    assert seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("keep", "left"), [(1, [12]), (2, [9, 12]), (None, [3, 6, 9, 12])])
def test_g47_the_newest_n_are_kept(tmp_path: Path, keep: int | None, left: Iterable[int]) -> None:
    tiny_manager(Checkpoints(keep=keep), epochs=4, train_dir=tmp_path).train()

    assert steps(tmp_path) == left


def test_g47_the_mean_of_the_newest_n_can_be_loaded(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(keep=3), epochs=4, train_dir=tmp_path).train()
    models = [read_checkpoint(tmp_path / "checkpoints" / name)["model"] for name in names(tmp_path)[-2:]]
    tm = tiny_manager()
    tm.load_weights(tmp_path, mean_of=2)

    for name, value in tm.model.state_dict().items():
        torch.testing.assert_close(value, (models[0][name] + models[1][name]) / 2)


# ---- J: a round trip -------------------------------------------------------------------------------------------------


def test_j25_parameters_make_a_round_trip(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), train_dir=tmp_path)
    tm.train()
    other = tiny_manager()
    other.load_weights(tmp_path / "checkpoints" / "step-000000000003")

    assert differences(other.model.state_dict(), tm.model.state_dict()) == []
