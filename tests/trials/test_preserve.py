"""That a training is put back whole, whatever was done with it, its extensions and the objects around it."""

from __future__ import annotations

import copy
import random
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.support.equal_states import assert_same
from train_manager import (
    Book,
    Extension,
    InMemory,
    Interleaved,
    SeededDataLoader,
    TrainManager,
    every,
    rehearse,
)
from train_manager.checks.contents import Contents
from train_manager.extensions import EMA, Accumulate, Checkpoints, Metrics, MetricStore, MixedPrecision, TensorBoard
from train_manager.metrics.averages import WeightedMean
from train_manager.testing import tiny_manager
from train_manager.trials.trial import Trial


class Remembering(nn.Module):
    """A network with dropout, running statistics, a generator of its own and a hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
        self.own = torch.Generator().manual_seed(3)
        self.hidden: Tensor | None = None
        self.calls: deque[int] = deque(maxlen=4)

    def forward(self, x: Tensor) -> Tensor:
        noise = 0.1 * torch.rand(x.shape, generator=self.own)
        out: Tensor = self.inner(x + noise)
        if self.hidden is not None:
            out = out + 0.01 * self.hidden.mean()
        self.hidden = out.detach()
        self.calls.append(len(x))
        return out


def data_of(kind: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(26, 2, generator=generator)
    y = (x.sum(dim=1) > 1).long()
    if kind == "several":
        halves = zip(x.split(13), y.split(13), strict=True)
        return Interleaved({str(n): InMemory(*half, batch_size=5, shuffle=True) for n, half in enumerate(halves)})
    if kind == "seeded":
        return SeededDataLoader(TensorDataset(x, y), batch_size=6, shuffle=True)
    if kind == "loader":
        return DataLoader(TensorDataset(x, y), batch_size=6, shuffle=True)
    return InMemory(x, y, batch_size=6, shuffle=True)


def noisy(kind: str = "loader", *extensions: Extension, **options: Any) -> TrainManager:
    torch.manual_seed(1)
    model = Remembering()
    given: dict[str, Any] = {"optimizer": torch.optim.AdamW, "train_data": data_of(kind), "epochs": 2, **options}
    given.setdefault("lr_schedule", lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    return tiny_manager(*extensions, model=model, **given)


def everything(tm: TrainManager) -> dict[str, Any]:
    state = tm.state_dict()
    state["history"] = str([{**row, "seconds": 0} for row in tm.history.epochs]), str(tm.history.evaluations)
    state["epoch"] = {**state["epoch"], "seconds": 0}
    model: Any = tm.model
    attributes = [model.own.get_state(), model.hidden, list(model.calls)]
    modes = [module.training for module in model.modules()]
    return {**state, "attributes": attributes, "modes": modes, "has_run": tm._has_run, "parameters": None}


def trained(tm: TrainManager, before: int, tries: Any) -> dict[str, Any]:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    if before:
        tm.train_steps(before)
    tries(tm)
    tm.train()
    found = everything(tm)
    found["run"]["call"]["number"] = 0  # it names the call: a rehearsal makes calls too
    return found


def nothing(tm: TrainManager) -> None:
    """Try nothing."""


# ---- the training after it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "seed", "before"),
    [
        ("loader", 3, 2),
        ("memory", None, 7),
        pytest.param("loader", None, 0, marks=pytest.mark.whole),
        pytest.param("memory", 3, 0, marks=pytest.mark.whole),
    ],
)
def test_a_training_after_a_rehearsal_is_to_the_bit_the_training_without_it(
    kind: str, seed: int | None, before: int
) -> None:
    found = []
    for tries in (nothing, lambda tm: rehearse(tm).require_none()):
        tm = noisy(kind, EMA(0.9), Metrics(), seed=seed)
        found.append(trained(tm, before, tries))

    assert_same(found[0], found[1])


@pytest.mark.whole
def test_it_is_with_mixed_precision_and_gathered_gradients_too() -> None:
    found = []
    for tries in (nothing, lambda tm: rehearse(tm).require_none()):
        tm = noisy("memory", MixedPrecision(torch.bfloat16), Accumulate(2))
        found.append(trained(tm, 4, tries))

    assert_same(found[0], found[1])


@pytest.mark.whole
def test_it_is_in_an_epoch_that_is_cut_from_a_pass_and_resumes_from_a_state_that_was_loaded() -> None:
    other = noisy("memory", steps_per_epoch=3)
    other.train_steps(4)
    found = []
    for tries in (nothing, lambda tm: rehearse(tm).require_none()):
        tm = noisy("memory", steps_per_epoch=3)
        tm.load_state_dict(copy.deepcopy(other.state_dict()))
        found.append(trained(tm, 0, tries))

    assert_same(found[0], found[1])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, pytest.param(ZeroDivisionError, marks=pytest.mark.whole)])
def test_it_is_after_an_error_in_the_middle_of_a_batch_too(kind: type[BaseException], tmp_path: Path) -> None:
    class Fails(Extension):
        def post_train_backward(self, train_manager: TrainManager) -> None:
            if train_manager.train_dir != tmp_path and train_manager.step_num == 4:
                raise kind

    def fails(tm: TrainManager) -> None:
        if kind is ZeroDivisionError:
            assert [one.what.split()[0] for one in rehearse(tm)] == ["ZeroDivisionError"]
        else:
            with pytest.raises(kind):
                rehearse(tm)
        assert list(tmp_path.iterdir()) == []

    found = [trained(noisy("loader", EMA(0.9), Fails(), train_dir=tmp_path), 2, tries) for tries in (nothing, fails)]

    assert_same(found[0], found[1])


def test_the_files_of_a_training_after_a_rehearsal_are_those_without_it(tmp_path: Path) -> None:
    found = []
    for name, tries in {"without": nothing, "with": lambda tm: rehearse(tm).require_none()}.items():
        tm = noisy("memory", Checkpoints(save_at=every(3)), MetricStore(), train_dir=tmp_path / name / "run")
        trained(tm, 0, tries)
        files = sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*"))
        weights = [(tmp_path / name / file).read_bytes() for file in files if file.suffix == ".safetensors"]
        found.append((files, weights))

    assert found[0] == found[1]
    assert found[0][1]


# ---- what is put back ------------------------------------------------------------------------------------------------


@contextmanager
def tried(tm: TrainManager) -> Iterator[dict[str, str]]:
    with Trial(tm, "the test", copied=list(tm.extensions)) as trial:
        tm.train()
        yield dict(trial.left_out)


@pytest.mark.parametrize("kind", ["loader", "memory", "seeded", "several"])
def test_data_are_where_they_were_also_if_all_of_them_were_trained_on(kind: str) -> None:
    def trains(tm: TrainManager) -> None:
        with tried(tm):
            pass

    found = [trained(noisy(kind, EMA(0.9)), 3, tries) for tries in (nothing, trains)]

    assert_same(found[0], found[1])


def test_what_a_dataset_counts_and_draws_by_itself_is_as_before() -> None:
    class Noisy(Dataset[Any]):
        def __init__(self) -> None:
            self.read, self.noise = 0, random.Random(1)

        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> Any:
            self.read += 1
            return torch.full((2,), self.noise.random()), 0

    data = Noisy()
    with tried(tiny_manager(train_data=DataLoader(data, batch_size=3), eval_data={})):
        assert data.read == 9

    assert (data.read, data.noise.random()) == (0, random.Random(1).random())


def test_it_is_in_the_middle_of_no_epoch_inside_and_of_the_same_one_after_it() -> None:
    tm = noisy("loader")
    tm.train_steps(2)
    with tried(tm):
        assert [row["step"] for row in tm.history.epochs if "partial" not in row] == [7, 12]

    result = tm.train_steps(3)

    assert (result.epochs, tm.epoch_num, tm.step_num) == (1, 1, 5)


def test_what_extensions_have_measured_of_the_whole_training_is_there_inside_and_continues_after_it() -> None:
    class Batches(Extension):
        def __init__(self) -> None:
            self.sizes = Book(WeightedMean, per="manager")

        def post_train_step_batch(self, train_manager: Any, step_num: int) -> None:
            mean = self.sizes.of(train_manager)
            mean.append(torch.tensor(float(step_num)), weight=1)
            means.append(mean.value())

    means: list[float] = []
    tm = tiny_manager(Batches(), epochs=1)
    tm.train_steps(2)
    with tried(tm):
        assert means == [1, 1.5, 2, 2.5, 3]
    tm.train()

    assert means == [1, 1.5, 2]


def test_extensions_that_know_each_other_and_hold_the_same_object_do_so_inside_too() -> None:
    class Counts(Extension):
        def __init__(self, log: list[int]) -> None:
            self.steps, self.log = 0, log

        def post_train_step_batch(self) -> None:
            self.steps += 1
            self.log.append(self.steps)

    class Reads(Extension):
        def __init__(self, counts: Counts, log: list[int]) -> None:
            self.counts, self.log = counts, log

        def post_train(self) -> None:
            self.counts.steps += 100
            self.log.append(self.counts.steps)

    log: list[int] = []
    counts = Counts(log)
    tm = tiny_manager(counts, Reads(counts, log))
    with tried(tm):
        assert (counts.steps, counts.log, log) == (103, [1, 2, 3, 103], [])

    assert (counts.steps, counts.log is log, log) == (0, True, [])


def test_an_extension_that_cannot_be_copied_pauses_and_that_is_told() -> None:
    class Locks(Extension):
        def __init__(self) -> None:
            self.lock, self.seen = threading.Lock(), list[int]()

        def post_train_step_batch(self, step_num: int) -> None:
            self.seen.append(step_num)

    tm = tiny_manager(Locks())
    with tried(tm) as paused:
        assert paused == {"locks": "it cannot be copied (TypeError: cannot pickle '_thread.lock' object)"}
        assert tm.paused_extensions == {"locks"}
    tm.train()

    assert tm.extension(Locks).seen == [1, 2, 3]


def test_an_extension_that_sends_metrics_away_pauses() -> None:
    tm = tiny_manager(TensorBoard())
    with tried(tm) as paused:
        assert paused == {"tensor_board": "it sends metrics away"}


GATHERED = {"steps": 0}


def test_what_hooks_that_are_functions_have_gathered_around_them_is_as_before() -> None:
    losses = [0.0]

    def note(loss: Tensor) -> None:
        GATHERED["steps"] += 1
        losses.append(loss.item())

    tm = tiny_manager(Extension.of(post_train_step_batch=note))
    with tried(tm):
        assert (len(losses), GATHERED) == (4, {"steps": 3})

    assert (losses, GATHERED) == ([0.0], {"steps": 0})


def test_gradients_are_not_there_inside_and_are_the_same_tensors_after_it() -> None:
    tm = tiny_manager()
    frozen, weight = tm.model[0].weight.requires_grad_(False), tm.model[2].weight
    weight.grad, frozen.grad = torch.ones_like(weight), torch.ones_like(frozen)
    of_weight, of_frozen = weight.grad, frozen.grad
    with Trial(tm, "the test"):
        assert (weight.grad, frozen.grad) == (None, None)

    assert weight.grad is of_weight
    assert frozen.grad is of_frozen


def test_what_the_class_of_an_extension_has_gathered_is_as_before() -> None:
    class Gathers(Extension):
        steps: ClassVar[list[int]] = []

        def post_train_step_batch(self, step_num: int) -> None:
            self.steps.append(step_num)

    with tried(tiny_manager(Gathers())):
        assert Gathers.steps == [1, 2, 3]

    assert Gathers.steps == []


def test_own_attributes_of_a_manager_are_as_before() -> None:
    class Counts(TrainManager):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            self.sizes, self.batches = Counter[int](), 0

        def model_forward(self, model: Any, inputs: Tensor) -> Any:
            self.sizes[len(inputs)] += 1
            self.batches += 1
            self.last = inputs
            return model(inputs)

    given = tiny_manager()
    tm = Counts(model=given.model, loss=given.loss, optimizer=torch.optim.SGD, train_data=given.train_data)
    with tried(tm):
        assert tm.batches == 3

    assert (tm.sizes, tm.batches, hasattr(tm, "last")) == (Counter(), 0, False)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_buffers_of_a_scripted_model_are_as_before() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with tried(tiny_manager(model=model, optimizer=torch.optim.SGD)):
        assert not torch.equal(model.state_dict()["1.running_mean"], before["1.running_mean"])

    assert_same(dict(model.state_dict()), before)


def test_parameters_that_were_frozen_and_a_group_that_was_added_are_as_before() -> None:
    def change(train_manager: TrainManager) -> None:
        train_manager.model[0].weight.requires_grad_(False)
        train_manager.optimizer.add_param_group({"params": [more]})

    more = nn.Parameter(torch.zeros(2))
    tm = tiny_manager(Extension.of(pre_train=change))
    vars(tm)["check_parameters"] = False  # what is tried here is told in a training
    with tried(tm):
        assert len(tm.optimizer.param_groups) == 2

    assert len(tm.optimizer.param_groups) == 1
    assert tm.model[0].weight.requires_grad


# ---- objects ---------------------------------------------------------------------------------------------------------


class Holder:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


def test_contents_are_put_back_in_place_in_everything_that_can_change() -> None:
    rows = [1, 2]
    holder: Any = Holder(
        rows=rows, own=random.Random(1), drawn=np.random.default_rng(2), array=np.zeros(2), names={"a"}
    )
    tensor = torch.zeros(2)
    model: Any = nn.Linear(1, 1)
    model.holder, model.pair = holder, (tensor, deque([1], maxlen=2))
    drawn = random.Random(1).random(), np.random.default_rng(2).random()
    before = Contents([model])
    rows += [3]
    holder.own.random(), holder.drawn.random()
    holder.array += 1
    holder.names.add("b")
    tensor += 1
    model.pair[1].extend([5, 6])
    model.weight.data = torch.full((1, 1), 7.0)
    holder.more = 1
    before.put_back()

    assert vars(holder) == {**vars(holder), "rows": rows, "names": {"a"}}
    assert (rows, [*model.pair[1]], hasattr(holder, "more")) == ([1, 2], [1], False)
    assert (holder.own.random(), holder.drawn.random()) == drawn
    assert (tensor.tolist(), holder.array.tolist()) == ([0, 0], [0, 0])
    assert model.weight.item() != 7


def test_contents_are_put_back_also_if_ctrl_c_comes_meanwhile() -> None:
    class Interrupted(list[int]):
        def clear(self) -> None:
            super().clear()
            if comes.pop():
                raise KeyboardInterrupt

    comes, before, after = [False, True], Interrupted([1]), [2]
    kept = Contents([before, after])
    before.append(3)
    after.append(3)
    with pytest.raises(KeyboardInterrupt):
        kept.put_back()

    assert (before, after) == ([1], [2])


def test_extensions_continue_if_ctrl_c_comes_while_they_are_told_to_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(names: list[str]) -> None:
        pause(names)
        raise KeyboardInterrupt

    tm = tiny_manager(Metrics())
    pause = tm._registry.pause
    monkeypatch.setattr(tm._registry, "pause", interrupted)
    with pytest.raises(KeyboardInterrupt), Trial(tm, "a test"):
        pass

    assert tm.paused_extensions == frozenset()


def test_a_buffer_that_was_written_into_with_a_graph_has_none_again() -> None:
    model, buffer = nn.Linear(2, 2), torch.zeros(2)
    model.register_buffer("mean", buffer)
    before = Contents([model])
    buffer += model(torch.ones(2))
    before.put_back()

    assert (buffer.tolist(), buffer.requires_grad, buffer.grad_fn) == ([0, 0], False, None)


def test_an_object_that_a_thread_uses_too_is_not_looked_into() -> None:
    shared: Any = Holder(lock=threading.Lock(), sent=[1])
    before = Contents([[shared]])
    shared.sent.append(2)
    before.put_back()

    assert shared.sent == [1, 2]
