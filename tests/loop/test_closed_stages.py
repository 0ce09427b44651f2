"""The inner stages of a batch: which of them stay closed, what opens them, and that a training is the same in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.loop.closed_stages import (
    FORWARDS,
    INNER,
    OWN_CLASSES,
    OWN_FORWARDS,
    Looker,
    by_hand,
    manager,
    needs,
    net,
    runs,
    same_in_stages,
)
from tests.support.training import At, make_batches, weights
from train_manager import Extension, TrainManager, every, fixture
from train_manager.extensions import (
    EMA,
    SAM,
    Accumulate,
    Avg,
    BatchLeakCheck,
    Checkpoints,
    ClipGradients,
    Constrain,
    EarlyStopping,
    EvalTotals,
    FreezeModules,
    LossCurves,
    LRSchedule,
    Metrics,
    MetricStore,
    MixedPrecision,
    NonFiniteFinder,
    Throughput,
    TimeLimit,
    WarmUp,
    WeightHistograms,
    default_extensions,
)
from train_manager.testing import Recorder, tiny_manager

# ---- what runs in closed stages -------------------------------------------------------------------------------------


def test_the_stages_stay_closed_if_nothing_looks_into_the_inner_stages() -> None:
    tm = tiny_manager()
    tm.train()

    assert runs(tm)


def test_the_stages_stay_closed_with_the_default_extensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tm = tiny_manager(train_dir=tmp_path, extensions=default_extensions())
    tm.train()

    assert runs(tm)


@pytest.mark.parametrize(
    "extension",
    [
        lambda: Avg("loss"),
        BatchLeakCheck,
        Checkpoints,
        EarlyStopping,
        EvalTotals,
        lambda: FreezeModules("0"),
        LossCurves,
        lambda: Metrics(spread=lambda prediction: prediction.std()),
        MetricStore,
        lambda: NonFiniteFinder(explain=False),
        lambda: TimeLimit(3600),
        Throughput,
        lambda: WeightHistograms(every=1),
    ],
    ids=str.split(
        "Avg BatchLeakCheck Checkpoints EarlyStopping EvalTotals FreezeModules LossCurves Metrics MetricStore "
        "NonFinite TimeLimit Throughput WeightHistograms"
    ),
)
def test_the_stages_stay_closed_with_an_extension_that_has_no_inner_hook(
    extension: Callable[[], Extension], tmp_path: Path
) -> None:
    tm = tiny_manager(extension(), train_dir=tmp_path)
    tm.train()

    assert runs(tm)


@pytest.mark.parametrize("hook", ["pre", "post", "around"])
def test_hooks_of_the_batch_leave_the_stages_closed(hook: str) -> None:
    def around() -> Iterator[None]:
        yield

    tm = tiny_manager(At(f"{hook}_train_step_batch", around if hook == "around" else lambda: None))
    tm.train()

    assert runs(tm)


@pytest.mark.parametrize("name", FORWARDS)
def test_the_stages_stay_closed_with_an_own_forward_method_that_writes_no_fixture(name: str) -> None:
    tm = manager(OWN_CLASSES[name])
    tm.train()

    assert runs(tm)


@pytest.mark.parametrize("name", FORWARDS)
def test_an_own_forward_method_is_called_in_closed_stages(name: str) -> None:
    def train(*extensions: Extension) -> TrainManager:
        tm = manager(OWN_CLASSES[name], *extensions)
        tm.train()
        return tm

    assert same_in_stages(train)
    assert not torch.equal(weights(train().model), by_hand(net(), make_batches(4) * 2))


# ---- what opens the stages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", INNER)
@pytest.mark.parametrize("kind", ["pre", "post", "around"])
def test_a_hook_of_an_inner_stage_opens_the_stages(kind: str, stage: str) -> None:
    def around() -> Iterator[None]:
        yield

    tm = tiny_manager(At(f"{kind}_{stage}", around if kind == "around" else lambda: None))
    tm.train()

    assert needs(tm) == "At"


@pytest.mark.parametrize(
    "extension",
    [
        lambda: EMA(decay=0.5),
        lambda: SAM(0.05),
        lambda: Accumulate(2),
        lambda: ClipGradients(1.0),
        lambda: WarmUp(steps=2),
        lambda: LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1)),
        lambda: MixedPrecision(torch.bfloat16),
        lambda: Constrain(lambda weight: weight.clamp(-1, 1), "0"),
    ],
    ids=["EMA", "SAM", "Accumulate", "ClipGradients", "WarmUp", "LRSchedule", "MixedPrecision", "Constrain"],
)
def test_an_extension_with_an_inner_hook_opens_the_stages(extension: Callable[[], Extension]) -> None:
    opener = extension()
    tm = tiny_manager(opener)
    tm.train()

    assert needs(tm) == type(opener).__name__


def test_what_opens_the_stages_is_told_by_name() -> None:
    tm = tiny_manager(ClipGradients(1.0), WarmUp(steps=2), Looker())
    tm.train()

    assert needs(tm) == "Looker, ClipGradients, WarmUp"


@pytest.mark.parametrize("stage", INNER)
def test_a_fixture_of_an_inner_stage_opens_the_stages(stage: str) -> None:
    def depth(self: Any, step_num: int) -> int:
        return step_num

    tm = manager(type("Deep", (TrainManager,), {"depth": fixture(stage)(depth)}))
    tm.train()

    assert needs(tm) == "Deep"


def test_a_hook_of_the_manager_itself_opens_the_stages() -> None:
    class Own(TrainManager):
        def post_train_backward(self) -> None: ...

    tm = manager(Own)
    tm.train()

    assert needs(tm) == "Own"


@pytest.mark.parametrize("stage", INNER)
def test_a_schedule_that_counts_an_inner_stage_opens_the_stages(stage: str) -> None:
    count: list[int] = []
    tm = tiny_manager(At("post_train_step_epoch", every(3, of=stage)(lambda: count.append(1))))
    tm.train()

    assert needs(tm) == "a schedule"
    assert count == [1]


def test_hooks_of_every_stage_open_the_stages() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    tm.train()

    assert needs(tm) == "Recorder"
    assert [recorder.stages.count(stage) for stage in INNER] == [3] * 4


def test_a_part_that_a_hook_replaces_on_the_object_is_called_in_this_batch() -> None:
    calls: list[int] = []

    def update(loss: Tensor) -> None:
        calls.append(tm.step_num)
        TrainManager.update(tm, loss)

    def hook(step_num: int) -> None:
        if step_num == 1:
            tm.update = update  # type: ignore[assignment, method-assign]

    tm = tiny_manager(At("pre_train_step_batch", hook))
    tm.train()

    assert calls == [1, 2]


def test_a_part_that_is_replaced_in_the_class_between_two_calls_is_called() -> None:
    class Own(TrainManager):
        pass

    def update(self: TrainManager, loss: Tensor) -> None:
        calls.append(self.step_num)
        TrainManager.update(self, loss)

    calls: list[int] = []
    tm = manager(Own)
    tm.train_steps(3)
    Own.update = update  # type: ignore[method-assign, assignment]
    tm.train_steps(2)

    assert calls == [3, 4]


@pytest.mark.parametrize("name", FORWARDS)
def test_a_forward_method_that_is_replaced_on_the_object_between_two_calls_is_called(name: str) -> None:
    def train(*extensions: Extension) -> TrainManager:
        tm: Any = manager(TrainManager, *extensions)
        tm.train_steps(3)
        own = OWN_FORWARDS[name]
        of_model = "model" in name
        setattr(
            tm,
            name,
            (lambda model, inputs: own(tm, model, inputs))
            if of_model
            else (lambda prediction, targets: own(tm, prediction, targets)),
        )
        tm.train_steps(3)
        return tm  # type: ignore[no-any-return]

    assert same_in_stages(train)


class Hidden(TrainManager):
    """Writes one fixture in both forward stages."""

    def model_forward(self, model: Any, inputs: Tensor) -> Any:
        self.fixtures["hidden"] = model[0](inputs)
        return model[2](model[1](self.fixtures["hidden"]))

    def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        self.fixtures["hidden"] = F.cross_entropy(prediction, targets)
        loss: Tensor = self.fixtures["hidden"]
        return loss


def test_own_forward_methods_that_write_fixtures_work_over_many_batches() -> None:
    tm = manager(Hidden)
    tm.train()

    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4) * 2))


def test_a_lazy_fixture_that_the_loss_reads_leaves_the_stages_closed() -> None:
    class Own(TrainManager):
        @fixture("train_step_batch")
        def scale(self, inputs: Tensor) -> Tensor:
            return inputs.mean()

    def loss(prediction: Tensor, targets: Tensor, scale: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets) * scale

    tm = manager(Own, loss=loss)
    tm.train()

    assert runs(tm)
