"""The rows of the proposed Learner design (F) about its tree, stages that run again, and stages that run at once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD, AdamW

from examples import learner_of_stages as example
from train_manager import Extensible, Extension, Fixtures, TrainManager, modifies
from train_manager.core.stage import Stage
from train_manager.errors import StageError
from train_manager.testing import tiny_manager
from train_manager.tools import Moment, in_parallel

DOCUMENT = """\
Learner
  Epoch Stage
    Fit Stage
      Before Batch Callback
      Fit Batch Stage
        Fit Gradient/Loss Stage
          After Gradient Loss Callback 1
          After Gradient Loss Callback 2
        Fit Update Model Stage
    Validate Stage
      Validate Batch Stage
        Validate Loss Stage
      After Validate Callback"""
"""The "Example Learner" of the document."""

STAGES = {
    "epoch": "Epoch Stage",
    "fit": "Fit Stage",
    "fit_batch": "Fit Batch Stage",
    "fit_gradient_loss": "Fit Gradient/Loss Stage",
    "fit_update_model": "Fit Update Model Stage",
    "validate": "Validate Stage",
    "validate_batch": "Validate Batch Stage",
    "validate_loss": "Validate Loss Stage",
}
CALLBACKS: list[tuple[type[Extension], str, str]] = [
    (example.Noise, "pre_fit_batch", "Before Batch Callback"),
    (example.ClipGradients, "post_fit_gradient_loss", "After Gradient Loss Callback 1"),
    (example.NoteLoss, "post_fit_gradient_loss", "After Gradient Loss Callback 2"),
    (example.PrintValidation, "post_validate", "After Validate Callback"),
]


class EveryStage(Extension):
    """Writes the title of each stage that opens, after the callbacks before the stage."""

    priority = 1

    def __init__(self) -> None:
        self.lines = ["Learner"]

    def pre_stage(self, stage: Stage) -> None:
        self.lines.append("  " * stage.depth + STAGES[stage.name])

    def notes(self, hook: Callable[..., Any], title: str, depth: int) -> Callable[..., Any]:
        @wraps(hook)
        def noting(*given: Any) -> Any:
            self.lines.append("  " * depth + title)
            return hook(*given)

        return noting


def test_f10_the_documents_tree_is_printed_and_executed_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, depths = EveryStage(), [3, 5, 5, 3]  # of the callbacks: a stage inside the one that they belong to
    for (kind, hook, title), depth in zip(CALLBACKS, depths, strict=True):
        monkeypatch.setattr(kind, hook, recorder.notes(vars(kind)[hook], title, depth))
    learner = example.new_learner()
    learner.add_extension(recorder)
    learner.fit_data, learner.valid_data = learner.fit_data[:1], learner.valid_data[:1]
    learner.epoch()
    printed = [re.fullmatch(r"((?:[│ ]*[├└]─ )?)(\w+)", line) for line in learner.explain(all=True).splitlines()[1:]]
    stages = [f"{'  ' * (len(found[1]) // 3 + 1)}{STAGES[found[2]]}" for found in printed if found]

    assert "\n".join(recorder.lines) == DOCUMENT
    assert stages == [line for line in DOCUMENT.splitlines() if line.endswith("Stage")]


# ---- a stage again ---------------------------------------------------------------------------------------------------


def state_of(tm: TrainManager) -> list[Tensor]:
    counts = torch.tensor([tm.update_num, tm.step_num])
    tensors = [tm.fixtures["prediction"], tm.fixtures["loss"], *tm.model.state_dict().values(), counts]
    return [one.detach().clone() for one in tensors]


def trained(kind: type[TrainManager], optimizer: Any) -> TrainManager:
    tiny = tiny_manager()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    tm = kind(model=model, loss=tiny.loss, optimizer=optimizer, train_data=tiny.train_data, epochs=2)
    tm.train()
    return tm


@pytest.mark.parametrize("optimizer", [partial(SGD, lr=0.1, momentum=0.9), AdamW])
def test_f19_a_moment_holds_every_live_fixture_and_the_stage_gives_the_same_output_again(optimizer: Any) -> None:
    held: list[set[str]] = []
    outputs: list[list[Tensor]] = []

    class Again(TrainManager):
        def train_batch(self) -> None:
            moment = Moment(self)
            held.append(set(moment.fixtures) ^ (set(self.fixtures) - self._store.lazy))
            self.update(self.forward())
            outputs.append(state_of(self))
            moment.restore()
            assert "prediction" not in self.fixtures
            self.update(self.forward())
            outputs.append(state_of(self))

    again, plain = trained(Again, optimizer), trained(TrainManager, optimizer)

    assert held == [set()] * 6
    assert len(outputs) == 12
    for first, second in zip(outputs[::2], outputs[1::2], strict=True):
        assert all(map(torch.equal, first, second))
    assert torch.equal(parameters_to_vector(again.model.parameters()), parameters_to_vector(plain.model.parameters()))
    assert again.update_num == plain.update_num == 6


class Doubler(Extensible):
    """Changes its input in place."""

    def work(self, numbers: Tensor) -> list[Tensor]:
        results = []
        with self.staged("work", {"numbers": numbers}):
            moment = Moment(self)
            for _ in range(2):
                self.fixtures["result"] = self.fixtures["numbers"].mul_(2).sum()
                results.append(self.fixtures["result"])
                moment.restore()
        return results


def test_f19_an_input_that_is_changed_in_place_is_put_back() -> None:
    numbers = torch.tensor([1.0, 2.0])

    assert Doubler().work(numbers) == [torch.tensor(6.0), torch.tensor(6.0)]
    assert numbers.tolist() == [1.0, 2.0]


def test_f19_a_moment_is_refused_in_another_stage() -> None:
    worker = Extensible()
    with worker.staged("first"):
        moment = Moment(worker)

    with worker.staged("first"), pytest.raises(StageError, match="a Moment of first is restored where"):
        moment.restore()


# ---- stages and hooks at once ----------------------------------------------------------------------------------------


class Sums(Extensible):
    """Sums numbers in a stage."""

    def total(self, numbers: Tensor, wait: Callable[[], object] = lambda: None) -> float:
        with self.staged("total", {"numbers": numbers}) as stage:
            wait()
            self.fixtures["result"] = self.fixtures["numbers"].sum()
            stage.keep("result")
        return float(stage.kept["result"])


class AddOne(Extension):
    shared = True

    @modifies("numbers")
    def pre_total(self, numbers: Tensor) -> Tensor:
        return numbers + 1


PARTS = torch.arange(6.0).view(2, 3).unbind()


def delayed(barrier: Barrier, turns: int) -> None:
    for _ in range(turns):
        pass
    barrier.wait()


def test_f17_two_stages_in_parallel_overlap_and_give_the_result_of_the_sequence() -> None:
    sums, draw = Sums([AddOne()]), random.Random(0)
    in_sequence = [sums.total(part) for part in PARTS]
    for _ in range(100):
        barrier = Barrier(2, timeout=60)  # a work that is alone in its stage would never come past it
        waits = [partial(delayed, barrier, draw.randrange(1000)) for _ in PARTS]
        works = [partial(Sums.total, numbers=part, wait=wait) for part, wait in zip(PARTS, waits, strict=True)]

        assert in_parallel(sums, *works) == in_sequence == [6.0, 15.0]


def test_f17_an_extension_that_keeps_state_is_refused_before_a_thread_starts() -> None:
    class KeepState(AddOne):
        shared = False

    begun: list[Sums] = []
    with pytest.raises(StageError) as caught:
        in_parallel(Sums([KeepState()]), begun.append, begun.append)

    assert begun == []
    assert str(caught.value) == (
        "extension 'keep_state' may keep state, so it cannot serve the branches of in_parallel at once\n"
        "  set `shared = True` in class KeepState if it keeps none, or remove it before"
    )


def test_f24_stages_of_one_object_are_synchronous_and_refuse_another_thread() -> None:
    sums = Sums()
    with sums.staged("around"), pytest.raises(StageError, match="another thread than the one that opened") as caught:
        in_parallel(sums, *(lambda branch, part=part: sums.total(part) for part in PARTS))

    assert "also failed" in caught.value.__notes__[0]
    assert sums.total(PARTS[0]) == 3.0


class Handing(Extension):
    """Hands the numbers to a thread, and lets threads touch the fixtures."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.means: list[float] = []
        self.refused: list[BaseException | None] = []

    def pre_total(self, numbers: Tensor, fixtures: Fixtures) -> None:
        self.means.append(self.pool.submit(lambda: float(numbers.mean())).result())
        touching = [(fixtures.__getitem__, "numbers"), (fixtures.__setitem__, "x", 1), (fixtures.modify, "numbers", 1)]
        self.refused += [self.pool.submit(*one).exception() for one in touching]  # type: ignore[arg-type]


def test_f25_a_hook_that_reads_may_use_a_thread_and_a_thread_that_writes_is_refused() -> None:
    with ThreadPoolExecutor(1) as pool:
        handing = Handing(pool)
        totals = [Sums([handing]).total(part) for part in PARTS]

    assert handing.means == [float(part.mean()) for part in PARTS]
    assert [type(error) for error in handing.refused] == [StageError] * 6
    assert totals == [3.0, 12.0]
