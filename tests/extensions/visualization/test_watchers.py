"""What all extensions that look into layers must do: change nothing, keep no graph, and resume after a kill."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.resuming import assert_resumes
from tests.support.rotation import in_turn, part_of
from train_manager import Extension, TrainManager
from train_manager.extensions import (
    Accumulate,
    ActivationStatistics,
    Checkpoints,
    ClipGradients,
    ConfusionMatrix,
    FreezeModules,
    GradientNorms,
    MetricStore,
    MixedPrecision,
    PredictionGallery,
    Throughput,
    UpdateRatios,
    WeightHistograms,
)
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager


def watchers() -> list[Extension]:
    return [
        GradientNorms(),
        UpdateRatios(every=2),
        ActivationStatistics(every=2),
        WeightHistograms(gradients=True, every=2),
        ConfusionMatrix(),
        PredictionGallery(),
        Throughput(seconds=0.001),
    ]


def net() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def tied() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Linear(2, 2)
        return nn.Sequential(layer, nn.Tanh(), layer)


def manager(*extensions: Extension, **options: Any) -> TrainManager:
    return tiny_manager(*extensions, **{"model": net(), "seed": 0, "epochs": 3, **options})


class TwoSteps(TrainManager):
    """Two optimizers, each of which steps in every batch."""

    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        for name in ("first", "last"):
            self.update(F.cross_entropy(self.model(inputs), targets), name)


def two_optimizers(*extensions: Extension, **options: Any) -> TrainManager:
    plain, model = tiny_manager(), net()
    parts = {"first": model[0].parameters(), "last": [*model[1].parameters(), *model[4].parameters()]}
    optimizers = {name: torch.optim.SGD(part, lr=0.1) for name, part in parts.items()}
    given = {"train_data": plain.train_data, "eval_data": plain.eval_data, "loss": F.cross_entropy, "seed": 0}
    return TwoSteps(model=model, optimizer=optimizers, extensions=list(extensions), epochs=3, **{**given, **options})


TRAININGS: dict[str, Callable[..., TrainManager]] = {
    "plain": manager,
    "accumulated": lambda *more: manager(*more, Accumulate(2), ClipGradients(0.1)),
    "bfloat16": lambda *more: manager(*more, MixedPrecision()),
    "float16": lambda *more: manager(*more, MixedPrecision(torch.float16)),
    "two optimizers": lambda *more: two_optimizers(*(one for one in more if not isinstance(one, ActivationStatistics))),
    "frozen": lambda *more: manager(*more, FreezeModules("0", "1", until=1)),
    "tied": lambda *more: manager(*more, model=tied()),
}
every_training = pytest.mark.parametrize("make", TRAININGS.values(), ids=TRAININGS)


class Losses(Extension):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.losses.append(loss.item())


@every_training
def test_the_losses_are_the_same_to_the_bit(make: Callable[..., TrainManager]) -> None:
    plain, watched = Losses(), Losses()
    make(plain).train()
    make(watched, *watchers()).train()

    assert watched.losses == plain.losses


@pytest.mark.parametrize(("name", "step"), in_turn(TRAININGS, (2, 4)))
def test_killed_within_an_epoch_they_continue_as_if_nothing_had_happened(name: str, step: int) -> None:
    assert_resumes(lambda: TRAININGS[name](*watchers()), TrainManager.train, [step])


def arrays(folder: Path) -> dict[str, list[tuple[int, list[float]]]]:
    found = MetricReader(folder).arrays().items()
    return {series.name: [(row.step, [*row.values]) for row in rows] for series, rows in found}


class Fails(Extension):
    def __init__(self, at: int) -> None:
        self.at = at

    def post_train_step_batch(self, step_num: int) -> None:
        if step_num == self.at:
            raise RuntimeError("as killed")


@pytest.mark.parametrize("at", part_of([4, 5, 6], 3))
def test_a_training_that_resumes_after_an_error_stores_each_number_once(at: int, tmp_path: Path) -> None:
    def make(folder: str, *more: Extension, resume: bool = False) -> TrainManager:
        seen: list[Extension] = [GradientNorms(), UpdateRatios(every=2), ActivationStatistics(every=2)]
        return manager(MetricStore(), Checkpoints(resume=resume), *seen, *more, train_dir=tmp_path / folder)

    make("whole").train()
    with pytest.raises(RuntimeError):
        make("broken", Fails(at)).train()
    make("broken", resume=True).train()

    assert repr(arrays(tmp_path / "broken")) == repr(arrays(tmp_path / "whole"))
    assert [step for step, _ in arrays(tmp_path / "whole")["gradient_norms"]] == [*range(1, 10)]


def test_a_watcher_before_or_after_the_store_gives_it_the_same(tmp_path: Path) -> None:
    manager(GradientNorms(), MetricStore(), train_dir=tmp_path / "before").train()
    manager(MetricStore(), GradientNorms(), train_dir=tmp_path / "after").train()

    assert arrays(tmp_path / "before") == arrays(tmp_path / "after")


def test_batches_of_a_loop_of_ones_own_are_stored_as_the_run_ends(tmp_path: Path) -> None:
    tm = manager(MetricStore(), GradientNorms(), train_dir=tmp_path)
    with tm.run():
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)

    assert [step for step, _ in arrays(tmp_path)["gradient_norms"]] == [1, 2, 3]


def test_a_phase_with_a_model_of_its_own_is_another_series(tmp_path: Path) -> None:
    norms = GradientNorms()
    tm = manager(norms, MetricStore(), train_dir=tmp_path, epochs=1)
    with tm.run():
        tm.train()
        with tm.phase("head", model=tied(), optimizer=tm_sgd, epochs=1):
            tm.train()
            assert norms.series["gradient_norms"].labels == ["0 Linear"]
        tm.train_epochs(1)

    assert len(norms.series["gradient_norms"].rows) == 6
    found = MetricReader(tmp_path).arrays("gradient_norms")
    assert {series.phase: (rows[0].labels, len(rows)) for series, rows in found.items()} == {
        "": (("0 Linear", "1 BatchNorm1d", "4 Linear"), 6),
        "head": (("0 Linear",), 3),
    }


def tm_sgd(parameters: Any) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=0.1)


def test_no_graph_is_kept() -> None:
    seen = watchers()
    manager(*seen).train()

    def tensors(value: Any) -> list[Tensor]:
        if isinstance(value, Tensor):
            return [value]
        if isinstance(value, dict | list | tuple):
            return [one for part in (value.values() if isinstance(value, dict) else value) for one in tensors(part)]
        return []

    kept = [tensor for each in seen for tensor in tensors(each.state_dict())]
    assert kept
    assert not any(tensor.requires_grad for tensor in kept)


def test_a_copy_of_a_training_has_numbers_of_its_own() -> None:
    tm = manager(GradientNorms(), epochs=1)
    tm.train()
    copied = copy.deepcopy(tm)
    copied.train_epochs(1)

    assert [len(each["gradient_norms"].series["gradient_norms"].rows) for each in (tm, copied)] == [3, 6]


@pytest.mark.parametrize("make", watchers(), ids=lambda each: type(each).__name__)
def test_a_notebook_shows_a_picture_before_and_after_the_training(make: Extension) -> None:
    made: Any = make
    assert made._repr_html_()
    manager(made).train()

    assert 'src="data:image/svg+xml;base64,' in made._repr_html_()


def test_the_inner_stages_stay_closed_with_weight_histograms_and_throughput() -> None:
    tm = manager(WeightHistograms(every=2), Throughput(), ConfusionMatrix(), PredictionGallery())
    tm.train()

    assert tm.explain(all=True).count("(stays closed: nothing looks into it)") == 6


def test_what_opens_an_inner_stage_is_named() -> None:
    tm = manager(GradientNorms())
    tm.train()

    assert "train_optimizer_step  (opened for GradientNorms)" in tm.explain(all=True)
    assert "GradientNorms.pre_train_optimizer_step of extension 'gradient_norms'" in tm.explain()
