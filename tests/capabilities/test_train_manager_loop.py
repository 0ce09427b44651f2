"""Rows T23-T33 of the capabilities: the loop of Train Manager. T33's writer comes with a later version."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import StepLR

from train_manager import Extension, TrainManager
from train_manager.stages import MAP
from train_manager.testing import Recorder, tiny_manager

Batch = tuple[Tensor, Tensor]


def some_batches(n: int) -> list[Batch]:
    x = torch.rand(n, 4, 2, generator=torch.Generator().manual_seed(0))
    return [(inputs, (inputs.sum(dim=1) > 1).long()) for inputs in x]


def manager(kind: type[TrainManager], **options: Any) -> TrainManager:
    torch.manual_seed(0)
    given: dict[str, Any] = {"model": nn.Linear(2, 2), "loss": F.cross_entropy, "train_data": some_batches(2)}
    given["optimizer"] = lambda parameters: SGD(parameters, lr=0.5)
    return kind(**{**given, **options})


@pytest.mark.parametrize(
    "model", [lambda: nn.Linear(2, 2), lambda: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))]
)
def test_t23_the_same_routines_train_and_evaluate_different_models(model: Callable[[], nn.Module]) -> None:
    tm = manager(TrainManager, model=model(), eval_data={"valid": some_batches(2)}, epochs=20)
    before = tm.eval()["valid"]["loss"]
    tm.train()

    assert tm.eval()["valid"]["loss"] < before


def test_t24_the_fixtures_of_each_stage_of_training_are_those_that_the_map_shows() -> None:
    """The document's tree, in this product's words: each name stands in the map behind the stage that owns it."""
    recorder = Recorder()
    tiny_manager(recorder).train()
    born = recorder.born[("run", "train", "train_step_epoch", "train_step_batch")]
    shown = re.search(r'staged\("train_step_batch"\): +# (.*)', MAP)
    assert shown is not None

    assert "epoch_num" in recorder.born[("run",)]
    assert {"batch", "true_batch_size", "prediction", "loss"} <= born
    assert set(shown[1].split(", ")) | {"prediction", "loss", "backward_loss"} == born


def test_t25_named_eval_sets_are_evaluated_before_the_first_epoch_and_after_each() -> None:
    class Evaluations(Extension):
        seen: list[tuple[str, int]] = []

        def post_eval_step_epoch(self, datasource_name: str, epoch_num: int) -> None:
            self.seen.append((datasource_name, epoch_num))

    tiny_manager(Evaluations(), epochs=2, eval_data={"valid": some_batches(1), "test": some_batches(2)}).train()

    assert Evaluations.seen == [(name, epoch) for epoch in range(3) for name in ("valid", "test")]


def test_t26_a_standalone_evaluation_gives_the_same_numbers_as_one_inside_training() -> None:
    class Evaluations(Extension):
        seen: list[tuple[object, bool]] = []

        def post_eval(self, eval_results: object, standalone_eval: bool) -> None:
            self.seen.append((eval_results, standalone_eval))

    tm = tiny_manager(Evaluations())
    tm.train()
    alone = tm.eval()

    assert Evaluations.seen[-2:] == [(alone, False), (alone, True)]


def test_t27_mode_switches_and_restores_each_submodule_also_after_an_exception() -> None:
    tm = manager(TrainManager, model=nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval()))
    with pytest.raises(ValueError, match="inside"), tm.mode(training=False):
        assert not tm.model.training
        raise ValueError("inside")

    assert [module.training for module in tm.model.modules()] == [True, True, False]


def test_t28_initialize_params_takes_fixtures_and_makes_xavier_weights() -> None:
    class Xavier(TrainManager):
        epoch: int | None = None

        def initialize_params(self, epoch_num: int) -> None:
            self.epoch = epoch_num
            for parameter in self.model.parameters():
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter, generator=torch.Generator().manual_seed(4))

    tm = manager(Xavier)
    tm.train_epochs(0)
    expected = nn.init.xavier_uniform_(torch.empty(2, 2), generator=torch.Generator().manual_seed(4))

    assert isinstance(tm, Xavier)
    assert tm.epoch == 0
    assert torch.equal(next(tm.model.parameters()), expected)


def test_t29_the_true_batch_size_of_a_dict_batch_is_that_of_its_first_tensor() -> None:
    class Dicts(TrainManager):
        def unpack_batch(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"inputs": batch["x"], "targets": batch["y"]}

    recorder = Sizes()
    manager(Dicts, train_data=[{"x": x, "y": y} for x, y in some_batches(2)], extensions=[recorder]).train()

    assert recorder.sizes == [4, 4]


def test_t29_the_true_batch_size_of_a_ragged_batch_is_what_the_override_says() -> None:
    class Ragged(TrainManager):
        def unpack_batch(self, batch: list[Batch]) -> dict[str, Tensor]:
            inputs, targets = zip(*batch, strict=True)
            return {"inputs": torch.cat(inputs), "targets": torch.cat(targets)}

        def get_true_batch_size(self, batch: list[Batch]) -> int:
            return sum(len(inputs) for inputs, _ in batch)

    recorder = Sizes()
    (x, y), more = some_batches(2)
    manager(Ragged, train_data=[[(x[:1], y[:1]), more], [more, more, more]], extensions=[recorder]).train()

    assert recorder.sizes == [5, 12]


class Sizes(Extension):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def post_train_step_batch(self, true_batch_size: int) -> None:
        self.sizes.append(true_batch_size)


@pytest.mark.parametrize("form", ["model_forward", "loss_forward"])
@pytest.mark.parametrize("phase", ["train", "eval"])
def test_t30_training_and_evaluation_have_forward_methods_of_their_own(phase: str, form: str) -> None:
    seen: list[str] = []

    def own(self: TrainManager) -> Tensor:
        seen.append(self.fixtures["stage"].name)
        common: Tensor = self.call_by_name(getattr(self, form))
        return common

    kind = type("Own", (TrainManager,), {f"{phase}_{form}": own})
    manager(kind, eval_data={"valid": some_batches(1)}, train_data=some_batches(1)).train()

    assert set(seen) == {f"{phase}_{form}"}


def test_t31_an_optimizer_is_given_as_a_callable_of_the_parameters_or_as_an_object() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.load_state_dict(first.state_dict())
    manager(TrainManager, model=first, optimizer=lambda parameters: SGD(parameters, lr=0.1)).train()
    manager(TrainManager, model=second, optimizer=SGD(second.parameters(), lr=0.1)).train()

    assert torch.equal(first.weight, second.weight)


def test_t32_the_learning_rate_schedule_is_stepped_after_each_epoch() -> None:
    class Rates(Extension):
        seen: list[float] = []

        def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
            optimizer = train_manager.optimizer
            assert isinstance(optimizer, Optimizer)
            self.seen.append(optimizer.param_groups[0]["lr"])

    tm = manager(TrainManager, epochs=3, lr_schedule=lambda optimizer: StepLR(optimizer, 1, 0.5), extensions=[Rates()])
    tm.train()

    assert Rates.seen == [0.5, 0.25, 0.125]


def test_t33_the_folder_of_a_run_is_a_fixture_where_extensions_write(tmp_path: Path) -> None:
    """The summary writer comes later."""

    class Notes(Extension):
        def post_train_step_epoch(self, train_dir: Path, epoch_num: int) -> None:
            (train_dir / f"epoch_{epoch_num}.txt").touch()

    tiny_manager(Notes(), epochs=2, train_dir=tmp_path / "run").train()

    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["epoch_1.txt", "epoch_2.txt"]


def test_t33_the_folder_is_decided_when_the_manager_is_made(tmp_path: Path) -> None:
    first, second = (tiny_manager(train_dir=tmp_path / name) for name in ("first", "second"))

    assert (first.train_dir, second.train_dir) == (tmp_path / "first", tmp_path / "second")
