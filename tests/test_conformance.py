"""What every shipped extension must do. A new extension needs an entry in ``CASES``.

All train the same small model, with parts that an extension easily disturbs: BatchNorm (buffers), Dropout (the random
state of torch) and a smaller last batch.
"""

from __future__ import annotations

import copy
import functools
import io
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import train_manager.extensions as shipped
from tests.support.equal_states import same
from tests.support.host_reads import HostReads
from tests.support.resuming import END, assert_resumes, comparable, differences, states_of
from tests.support.rotation import in_turn, part_of
from train_manager import (
    Extension,
    InMemory,
    Interleaved,
    TrainManager,
    always,
    priority,
    report_loss,
    scheduled,
    schedules,
)
from train_manager.core.hooks import read_hooks
from train_manager.loop import graphs
from train_manager.model.constraints import max_norm
from train_manager.testing import tiny_manager

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def no_graphs() -> Iterator[None]:
    """Let ``Compile`` make no graph, which takes seconds; test_conformance_compile.py has graphs that are functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "TIMES", 1000)
        yield


@dataclass(frozen=True)
class Case:
    """How to make an extension, and whether it only watches: then it must not change a weight."""

    make: Callable[[], Extension]
    watches: bool = False
    reads: bool = False  # made so, it reads a number on the host in each step


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def undrawn() -> shipped.LossCurves:
    """Return LossCurves without its files, each of which takes a fifth of a second to draw."""
    curves = shipped.LossCurves()
    vars(curves)["_draw_once"] = lambda *_: None
    return curves


def teacher() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


@functools.cache
def without_changes() -> Path:
    """Return the folder of an empty repository: that of the library has a state that depends on the day."""
    folder = tempfile.mkdtemp()
    subprocess.run(["git", "init", "-q", folder], check=True)
    return Path(folder)


CASES = {
    "Accumulate": Case(lambda: shipped.Accumulate(2)),
    "Avg": Case(lambda: shipped.Avg("loss", weight="true_batch_size"), watches=True),
    "ChangeLog": Case(lambda: shipped.ChangeLog(), watches=True),
    "ChangeLog that looks deep": Case(lambda: shipped.ChangeLog(deep=True), watches=True, reads=True),
    "Checkpoints": Case(lambda: shipped.Checkpoints(schedules.every(1)), watches=True),
    "Checkpoints in the background": Case(lambda: shipped.Checkpoints(in_background=True), watches=True),
    "TestTimeTraining": Case(lambda: shipped.TestTimeTraining(lr=0.1), watches=True, reads=True),  # torch's Adam does
    "Curriculum": Case(lambda: shipped.Curriculum({"a": some_batches()[0], "b": some_batches()[1]})),
    "ClipGradients": Case(lambda: shipped.ClipGradients(max_norm=0.1)),
    "CombineGradients": Case(lambda: shipped.CombineGradients(lambda matrix: matrix.mean(0))),
    "Compile": Case(lambda: shipped.Compile()),
    "Constrain": Case(lambda: shipped.Constrain(max_norm, "1", limit=0.5)),
    "CodeRecord": Case(lambda: shipped.CodeRecord(folder=without_changes()), watches=True),
    "CutMix": Case(lambda: shipped.CutMix(num_classes=2)),
    "Distributed": Case(lambda: shipped.Distributed(), watches=True),
    "Distil": Case(lambda: shipped.Distil(teacher())),
    "Deterministic": Case(lambda: shipped.Deterministic(), watches=True),
    "EarlyStopping": Case(lambda: shipped.EarlyStopping("valid/loss", patience=100), watches=True),
    "EMA": Case(lambda: shipped.EMA(decay=0.5, use_buffers=True)),
    "EWC": Case(lambda: shipped.EWC(1.0, "first")),
    "Attribution": Case(lambda: shipped.Attribution(2), watches=True),
    "OutOfDistribution": Case(lambda: shipped.OutOfDistribution("valid"), watches=True),
    "Profile": Case(lambda: shipped.Profile(1, 2), watches=True),
    "EvalTotals": Case(lambda: shipped.EvalTotals(), watches=True),
    "FreezeModules": Case(lambda: shipped.FreezeModules("1", "2")),
    "HardExamples": Case(lambda: shipped.HardExamples(), watches=True),
    "Live": Case(lambda: shipped.Live(), watches=True),
    "LossCurves": Case(lambda: undrawn(), watches=True),
    "Log of epochs": Case(lambda: shipped.Log(file=io.StringIO()), watches=True),
    "Log": Case(lambda: shipped.Log(every=1, file=io.StringIO()), watches=True, reads=True),
    "Log printed seldom": Case(lambda: shipped.Log(every=1000, file=io.StringIO()), watches=True),
    "ActivationStatistics": Case(lambda: shipped.ActivationStatistics(every=2), watches=True),
    "ConfusionMatrix": Case(lambda: shipped.ConfusionMatrix(), watches=True),
    "GradientNorms": Case(lambda: shipped.GradientNorms(), watches=True),
    "PredictionGallery": Case(lambda: shipped.PredictionGallery(), watches=True),
    "Throughput": Case(lambda: shipped.Throughput(seconds=0.001), watches=True),
    "UpdateRatios": Case(lambda: shipped.UpdateRatios(every=2), watches=True),
    "WeightHistograms": Case(lambda: shipped.WeightHistograms(every=2), watches=True),
    "WeightHistograms and gradients": Case(lambda: shipped.WeightHistograms(gradients=True, every=2), watches=True),
    "LRSchedule": Case(lambda: shipped.LRSchedule(lambda optimizer: StepLR(optimizer, 1, gamma=0.5), per="step")),
    "LRSchedule by metric": Case(
        lambda: shipped.LRSchedule(lambda optimizer: ReduceLROnPlateau(optimizer, patience=0), monitor="valid/loss")
    ),
    "Metrics": Case(lambda: shipped.Metrics(accuracy=accuracy, file=io.StringIO()), watches=True),
    "MetricStore": Case(lambda: shipped.MetricStore(), watches=True),
    "MixedPrecision": Case(lambda: shipped.MixedPrecision()),
    "MixedPrecision in float16": Case(lambda: shipped.MixedPrecision(torch.float16)),
    "Mixup": Case(lambda: shipped.Mixup(num_classes=2)),
    "NonFiniteFinder": Case(lambda: shipped.NonFiniteFinder(), watches=True, reads=True),
    "NonFiniteFinder that does not explain": Case(lambda: shipped.NonFiniteFinder(explain=False), watches=True),
    "NonFiniteFinder that looks seldom": Case(lambda: shipped.NonFiniteFinder(1000), watches=True),
    "ProgressBar": Case(
        lambda: shipped.ProgressBar(force=True, interval=0, file=io.StringIO()), watches=True, reads=True
    ),
    "ProgressBar drawn seldom": Case(
        lambda: shipped.ProgressBar(force=True, interval=3600, file=io.StringIO()), watches=True
    ),
    "RunRecord": Case(lambda: shipped.RunRecord(), watches=True),
    "SAM": Case(lambda: shipped.SAM()),
    "BatchLeakCheck": Case(lambda: shipped.BatchLeakCheck(), watches=True, reads=True),
    "TimeLimit": Case(lambda: shipped.TimeLimit("1:00:00"), watches=True),
    "WarmUp": Case(lambda: shipped.WarmUp(steps=4)),
}

AFTER_A_STORE = (shipped.MLflow, shipped.Report, shipped.TensorBoard, shipped.WandB)  # which they read
SLOW = {"LossCurves drawn": Case(lambda: shipped.LossCurves(), watches=True)}

every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def some(one_in: int, first: int = 0) -> pytest.MarkDecorator:
    """Return the cases of a claim that takes some extensions, from the first, in turn with other claims."""
    names = part_of([*CASES], one_in, first)
    return pytest.mark.parametrize("case", [CASES[name] for name in names], ids=names)


every_and_the_slow = pytest.mark.parametrize("case", [*CASES.values(), *SLOW.values()], ids=[*CASES, *SLOW])
WATCHING = {name: case for name, case in CASES.items() if case.watches}
every_that_watches = pytest.mark.parametrize("case", WATCHING.values(), ids=WATCHING)


def shipped_classes() -> set[type[Extension]]:
    """All but those that send what MetricStore stores: they need it, and packages (tests/extensions/logging)."""
    found = (getattr(shipped, name) for name in shipped.__all__)
    return {one for one in found if isinstance(one, type) and issubclass(one, Extension)} - {*AFTER_A_STORE}


def test_every_shipped_extension_has_a_case() -> None:
    missing = shipped_classes() - {type(case.make()) for case in CASES.values()}
    names = sorted(one.__name__ for one in missing)
    assert not names, (
        f"add to CASES in {Path(__file__).name}, with how to make one and whether it only watches: {names}"
    )


@every
def test_its_repr_is_short_and_says_what_it_is(case: Case) -> None:
    shown = repr(case.make())

    assert shown.startswith(f"{type(case.make()).__name__}(")
    assert "object at 0x" not in shown
    assert len(shown) <= 100


# ---- what is trained -------------------------------------------------------------------------------------------------


def some_batches(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    """Return batches of which the last is half as large."""
    size = 16 * count - 8
    inputs = torch.rand(size, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return list(zip(inputs.split(16), (inputs.mean(dim=(1, 2, 3)) > 0.5).long().split(16), strict=True))


def numbered(batches: list[tuple[Tensor, Tensor]]) -> InMemory:
    """Return the same batches, of data that number their examples."""
    return InMemory(*map(torch.cat, zip(*batches, strict=True)), batch_size=16)


def loss_of_two_parts(prediction: Tensor, targets: Tensor) -> Tensor:
    """Return the usual loss, of which each part is a half."""
    loss = nn.functional.cross_entropy(prediction, targets)
    report_loss(loss, "first", weight=0.5)
    report_loss(loss, "second", weight=0.5)
    return loss


def manager(
    folder: Path | None, *extensions: Extension, kind: type[TrainManager] = TrainManager, **options: Any
) -> TrainManager:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
        )
    data = some_batches()
    folder = None if folder is None else Path(tempfile.mkdtemp(dir=folder))  # not that of another manager
    given: dict[str, Any] = {"model": model, "train_data": data, "eval_data": {"valid": data[1:]}}
    given |= {"seed": 0, "train_dir": folder}
    given |= options
    if any(isinstance(one, shipped.HardExamples) for one in extensions):
        given["train_data"] = numbered(given["train_data"])
    if any(isinstance(one, shipped.CombineGradients) for one in extensions):
        given["loss"] = loss_of_two_parts
    for one in extensions:
        if isinstance(one, shipped.Curriculum):  # which chooses what is trained on
            sets = dict(zip("ab", (given["train_data"][:1], given["train_data"][1:2]), strict=True))
            given["train_data"] = Interleaved(sets, choose=one.choose)
            given["steps_per_epoch"] = 3
    if kind is TrainManager:
        return tiny_manager(*extensions, **given)
    plain = tiny_manager(**given)
    return kind(**{"loss": plain.loss, "optimizer": plain.optimizer, "extensions": list(extensions), **given})


def numbers(tm: TrainManager) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in tm.model.state_dict().items()}


def settings(tm: TrainManager) -> list[Any]:
    """Return the settings that a run, or a removed extension, must restore."""
    modules, parameters = [*tm.model.modules()], [*tm.model.parameters()]
    return [[one.training for one in modules], [one.requires_grad for one in parameters], dict(tm.fixtures)]


def rates(tm: TrainManager) -> list[Any]:
    assert tm.optimizer is not None
    return [group["lr"] for group in tm.optimizer.param_groups]


# ---- training --------------------------------------------------------------------------------------------------------


@every_and_the_slow
def test_it_trains(case: Case, tmp_path: Path) -> None:
    tm = manager(tmp_path, case.make(), epochs=2)
    before, found = numbers(tm), settings(tm)
    result = tm.train()
    assert (tm.check(), result.epochs, result.steps) == ([], 2, 6)
    assert not same(before, numbers(tm))
    assert all(value.isfinite().all() for value in numbers(tm).values())
    assert settings(tm) == found


@some(4)
def test_two_trainings_equal_a_longer_one(case: Case, tmp_path: Path) -> None:
    once, twice = manager(tmp_path, case.make()), manager(tmp_path, case.make())
    once.train_epochs(2)
    twice.train_epochs(1)
    twice.train_epochs(1)
    assert same(numbers(once), numbers(twice))


@some(2)
def test_it_works_with_every_way_to_train_and_to_evaluate(case: Case, tmp_path: Path) -> None:
    tm = manager(tmp_path, case.make())
    batch = some_batches()[0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the run ended within a window")  # expected: a single batch
        assert tm.train_on_batch(batch) is not None
    assert tm.train_steps(4).steps == 4  # ends in the middle of an epoch
    assert tm.train_epoch().epochs == 1
    assert set(tm.eval()) == {"valid"}
    assert "loss" in tm.eval_on_batch(batch)
    with tm.run():
        tm.train_on_batch(batch)
        tm.train_epochs(1)
        tm.eval()
    assert dict(tm.fixtures) == {}


@some(4, 1)
def test_an_evaluation_that_is_a_run_of_its_own_is_not_part_of_the_training(case: Case, tmp_path: Path) -> None:
    tm = manager(tmp_path, extension := case.make())
    tm.train_epochs(1)
    before = copy.deepcopy(extension.state_dict())
    if isinstance(extension, shipped.Metrics):
        del before["eval_sets"]  # the last results of any evaluation, on which nothing depends
    if isinstance(extension, shipped.ConfusionMatrix | shipped.PredictionGallery):
        del before["sets"]  # likewise
    tm.eval()
    tm.eval_on_batch(some_batches()[0])
    assert same(before, {name: extension.state_dict()[name] for name in before})


# ---- errors ----------------------------------------------------------------------------------------------------------


class Breaks(Extension):
    """Raise an error in one hook of the loop, the second time it runs; before or after all other hooks."""

    def __init__(self, point: str, rank: int) -> None:
        self._visits = 0

        @priority(rank)
        def hook() -> None:
            self._visits += 1
            if self._visits == 2:
                raise RuntimeError("broken")

        setattr(self, point, hook)


POINTS = [
    ("post_train_model_forward", -2000),
    ("pre_train_optimizer_step", 2000),
    ("post_train_step_batch", 2000),
    ("post_eval_step_batch", -2000),
]
every_with_a_point = pytest.mark.parametrize(
    ("case", "point", "rank"),
    [
        pytest.param(CASES[name], point, rank, id=f"{name}-{point}")
        for name, (point, rank) in in_turn(part_of([*CASES], 2, 1), POINTS)
    ],
)


def broken(folder: Path | None, point: str, rank: int, *extensions: Extension) -> TrainManager:
    """Return a manager that has trained on after an error at this point."""
    tm = manager(folder, *extensions, Breaks(point, rank))
    found = settings(tm)
    with pytest.raises(RuntimeError, match=r"^broken"):
        tm.train_epochs(2)
    assert settings(tm) == found
    assert rates(tm) == [0.5] or any(isinstance(one, shipped.LRSchedule) for one in extensions)
    tm.remove_extension("breaks")
    assert tm.train_epochs(1).epochs == 1
    assert settings(tm) == found
    return tm


@functools.cache
def broken_without(point: str, rank: int) -> dict[str, Tensor]:
    return numbers(broken(None, point, rank))


@every_with_a_point
def test_it_survives_an_error_in_the_middle(case: Case, tmp_path: Path, point: str, rank: int) -> None:
    after_error = numbers(broken(tmp_path, point, rank, case.make()))
    assert all(value.isfinite().all() for value in after_error.values())
    if case.watches:
        assert same(after_error, broken_without(point, rank))


# ---- adding and removing ---------------------------------------------------------------------------------------------


@some(4, 2)
def test_removed_before_the_first_run_it_has_no_effect(case: Case, tmp_path: Path) -> None:
    tm = manager(tmp_path, case.make())
    plain = manager(tmp_path, train_data=tm.train_data, steps_per_epoch=tm.steps_per_epoch)
    tm.remove_extension(next(iter(tm.extensions)))
    for one in (tm, plain):
        one.train_epochs(2)
    assert same(numbers(tm), numbers(plain))


@some(4, 3)
def test_it_can_be_removed_and_added_at_any_time(case: Case, tmp_path: Path) -> None:
    """That is, while no hook runs: between the steps of an epoch, in an open run, between two runs."""
    tm = manager(tmp_path, case.make())
    name = next(iter(tm.extensions))
    found = settings(tm)
    with tm.run():
        tm.train_steps(4)
        extension = tm.remove_extension(name)
        assert tm.train_epochs(1).updates == 2  # the rest of the epoch
        tm.add_extension(extension, name)
        assert tm.train_epochs(1).epochs == 1
    assert settings(tm) == found
    tm.remove_extension(name)
    assert tm.train_epochs(1).updates == 3
    assert settings(tm) == found


# ---- watching --------------------------------------------------------------------------------------------------------


@functools.cache
def unwatched() -> dict[str, Tensor]:
    tm = manager(None)
    tm.train_epochs(1)
    tm.train_steps(4)
    return numbers(tm)


@every_that_watches
def test_an_extension_that_only_watches_changes_no_weight(case: Case, tmp_path: Path) -> None:
    watched = manager(tmp_path, case.make())
    watched.train_epochs(1)
    watched.train_steps(4)
    assert same(numbers(watched), unwatched())


class CountedSteps(Extension):
    """Count the reads on the host in training and evaluation steps, from the end of one to the end of the next."""

    def __init__(self) -> None:
        self.reads = HostReads()
        self.in_steps = 0
        self._before = 0

    @priority(-2000)
    def pre_train_step_batch(self) -> None:
        self._before = self.reads.count

    @always
    @priority(2000)
    def post_train_step_batch(self) -> None:
        self.in_steps += self.reads.count - self._before

    @priority(-2000)
    def pre_eval_step_batch(self) -> None:
        self._before = self.reads.count

    @always
    @priority(2000)
    def post_eval_step_batch(self) -> None:
        self.in_steps += self.reads.count - self._before


def reads_in_steps(folder: Path | None, *extensions: Extension) -> int:
    counted = CountedSteps()
    data = some_batches(8)
    tm = manager(folder, *extensions, counted, train_data=data, eval_data={"valid": data})
    with counted.reads:
        tm.train_epochs(1)
    return counted.in_steps


@functools.cache
def reads_of_the_loop() -> int:
    return reads_in_steps(None)


@every_that_watches
def test_an_extension_that_only_watches_reads_no_number_in_a_step(case: Case, tmp_path: Path) -> None:
    assert (reads_in_steps(tmp_path, case.make()) > reads_of_the_loop()) is case.reads


# ---- saved state -----------------------------------------------------------------------------------------------------


@pytest.fixture
def _random_state() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


@pytest.mark.usefixtures("_random_state")
@some(4)
def test_it_continues_from_its_saved_state(case: Case, tmp_path: Path) -> None:
    """The weights, the optimizer and the counters are copied by hand, because they do not belong to the extension."""
    first = manager(tmp_path, extension := case.make())
    first.train_epochs(2)
    torch.save(extension.state_dict(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)

    second = manager(tmp_path, fresh := case.make(), seed=None)
    fresh.load_state_dict(saved)
    assert same(fresh.state_dict(), saved)
    assert first.optimizer is not None
    assert second.optimizer is not None
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.epoch_num, second.step_num, second.update_num = first.epoch_num, first.step_num, first.update_num
    second.samples_seen = first.samples_seen

    results = []
    for tm in (first, second):
        torch.manual_seed(1)
        results.append(tm.train_epochs(2).metrics)
    assert results[0] == results[1]
    assert same(numbers(first), numbers(second))
    assert same(extension.state_dict(), fresh.state_dict())


class TensorSizes(TrainManager):
    def get_true_batch_size(self, targets: Tensor) -> Any:
        return torch.tensor(len(targets))


def kinds(value: Any) -> Any:
    """Return the types of what is in a state."""
    if isinstance(value, Mapping):
        return {name: kinds(one) for name, one in value.items()}
    return [kinds(one) for one in value] if isinstance(value, list | tuple) else type(value)


@some(4, 1)
def test_its_state_has_numbers_where_batch_sizes_are_tensors_too(case: Case, tmp_path: Path) -> None:
    states = []
    for kind in (TrainManager, TensorSizes):
        tm = manager(tmp_path, extension := case.make(), kind=kind)
        tm.train_epochs(2)
        states.append(kinds(extension.state_dict()))
    assert states[0] == states[1]


@some(4, 2)
def test_its_state_is_a_copy_that_more_training_does_not_change(case: Case, tmp_path: Path) -> None:
    tm = manager(tmp_path, extension := case.make())
    tm.train_epochs(1)
    state = extension.state_dict()
    torch.save(state, tmp_path / "state.pt")
    tm.train_epochs(1)
    assert same(state, torch.load(tmp_path / "state.pt", weights_only=True))


@some(4, 3)
def test_the_state_from_before_the_first_run_can_be_loaded(case: Case, tmp_path: Path) -> None:
    extension = case.make()
    extension.load_state_dict(case.make().state_dict())
    tm, plain = manager(tmp_path, extension), manager(tmp_path, case.make())
    for one in (tm, plain):
        one.train_epochs(1)
    assert same(numbers(tm), numbers(plain))


@some(4)
def test_a_schedule_on_one_of_its_hooks_is_part_of_its_state(case: Case, tmp_path: Path) -> None:
    def made() -> Extension:
        return scheduled(case.make(), hook, schedules.every(1))

    first = read_hooks(case.make(), "extension")[0]
    hook = f"{first.kind}_{first.stage}"
    manager(tmp_path, extension := made()).train_epochs(2)
    torch.save(extension.state_dict(), tmp_path / "state.pt")
    fresh = made()
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))

    assert same(fresh.state_dict(), extension.state_dict())
    if extension.ranks not in (None, 0):  # Distributed plans no hook in a process that trains alone
        return
    manager(tmp_path, fresh).train_epochs(1)
    before, after = (one.state_dict()["schedules"][hook][0]["count"] for one in (extension, fresh))
    assert 0 < before < after


# ---- resuming from a checkpoint --------------------------------------------------------------------------------------


STEPS = [2, 4]  # in the first epoch; and in the second, where Accumulate has a window open


@pytest.mark.parametrize(
    ("case", "step"), [pytest.param(CASES[name], step, id=f"{name}-{step}") for name, step in in_turn(CASES, STEPS)]
)
def test_killed_within_an_epoch_it_continues_as_if_nothing_had_happened(case: Case, step: int, tmp_path: Path) -> None:
    def make() -> TrainManager:
        return manager(tmp_path, case.make(), epochs=2)

    assert_resumes(make, TrainManager.train, [step])


@some(4, 2)
def test_a_look_at_its_state_after_every_step_changes_nothing(case: Case, tmp_path: Path) -> None:
    plain = manager(tmp_path, case.make(), epochs=2)
    plain.train()
    looked_at = states_of(manager(tmp_path, case.make(), epochs=2), TrainManager.train)[END]
    assert differences(comparable(plain.state_dict()), comparable(looked_at)) == []
