"""The inner stages of a batch: which of them stay closed, what opens them, and that a training is the same in both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tests.support.training import At, Batch, Values, make_batches, skip_batch, weights
from train_manager import Extension, NonFiniteLoss, Objective, TrainManager, add_loss, every, fixture, modifies
from train_manager.errors import StageError
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
from train_manager.loop.ranks import Ranks
from train_manager.model.optimizers import parameters_in
from train_manager.model.weighted_loss import WeightedLoss
from train_manager.testing import Recorder, tiny_manager

FORWARDS = ("model_forward", "train_model_forward", "loss_forward", "train_loss_forward")
INNER = ("train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step")
PARTS = ("train_batch", "forward", "update", "backward", "step")


class Looker(Extension):
    """Looks into the inner stages and does nothing there, so that they are opened."""

    def pre_train_model_forward(self) -> None: ...
    def pre_train_loss_forward(self) -> None: ...
    def pre_train_backward(self) -> None: ...
    def pre_train_optimizer_step(self) -> None: ...


def manager(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    """Return a manager of a class of its own, with four batches and two epochs."""
    usual: dict[str, Any] = {"model": net(), "loss": F.cross_entropy, "optimizer": slow, "epochs": 2}
    usual |= {"train_data": make_batches(4), "extensions": list(extensions)}
    return kind(**{**usual, **options})


def net(seed: int = 1) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))


def slow(parameters: Any) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9)


def by_hand(
    model: nn.Module,
    batches: list[Batch],
    loss_of: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    optimizer: Optimizer | None = None,
) -> Tensor:
    """Train as a bare loop does; return the weights."""
    optimizer = optimizer or slow(model.parameters())
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
    return weights(model)


def needs(tm: TrainManager) -> str:
    """Return what opens the inner stages, by ``explain``; an empty text if nothing does."""
    notes = tm._notes_on_stages()
    openers = [notes[stage].removeprefix("opened for ") for stage in INNER if notes[stage].startswith("opened")]
    return ", ".join(dict.fromkeys(", ".join(openers).split(", ")))


def runs(tm: TrainManager) -> bool:
    """Return whether the inner stages of the next batch stay closed."""
    return tm._store.closed.issuperset(INNER)


def same_in_stages(train: Callable[..., TrainManager]) -> bool:
    """Return whether a training has the same weights if an extension looks into the inner stages."""
    return torch.equal(weights(train().model), weights(train(Looker()).model))


def doubled_model(self: Any, model: Any, inputs: Tensor) -> Any:
    return model(inputs * 2)


def doubled_loss(self: Any, prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction, targets) * 2


OWN_FORWARDS = dict(zip(FORWARDS, [doubled_model, doubled_model, doubled_loss, doubled_loss], strict=True))
OWN_CLASSES = {name: type("Own", (TrainManager,), {name: method}) for name, method in OWN_FORWARDS.items()}


# ---- what runs in closed stages -------------------------------------------------------------------------------------


def test_the_stages_stay_closed_if_nothing_looks_into_the_inner_stages() -> None:
    tm = tiny_manager()
    tm.train()

    assert runs(tm)


def test_a_training_in_closed_stages_equals_a_loop_by_hand() -> None:
    tm = manager(TrainManager)
    tm.train()

    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4) * 2))


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


def replace(tm: Any, name: str, calls: list[str]) -> None:
    """Replace a method on the object by a function that notes its calls."""
    before = getattr(TrainManager, name)

    def own(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return before(tm, *arguments, **named)

    def own_batch() -> None:
        calls.append(name)
        tm.update(tm.forward())

    setattr(tm, name, own_batch if name == "train_batch" else own)


@pytest.mark.parametrize("name", ["train_batch", "forward", "update"])
def test_a_part_that_is_replaced_on_the_object_between_two_calls_is_called(name: str) -> None:
    calls: list[str] = []
    tm = tiny_manager(epochs=9)
    tm.train_steps(3)
    replace(tm, name, calls)
    tm.train_steps(2)

    assert calls == [name] * 2


def test_a_part_that_a_hook_replaces_on_the_object_is_called_in_this_batch() -> None:
    calls: list[str] = []

    def hook(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 1:
            replace(train_manager, "update", calls)

    tiny_manager(At("pre_train_step_batch", hook)).train()

    assert calls == ["update"] * 2


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


def test_an_own_update_is_called_in_each_batch() -> None:
    class Own(TrainManager):
        def update(self, loss: Any, *arguments: Any, **named: Any) -> None:
            calls.append(self.step_num)
            super().update(loss, *arguments, **named)

    calls: list[int] = []
    manager(Own).train()

    assert calls == [*range(8)]


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


# ---- the present stage, which code may read --------------------------------------------------------------------------


def test_a_loss_that_reads_the_stage_finds_its_own() -> None:
    def loss(prediction: Tensor, targets: Tensor, stage: Any) -> Tensor:
        names.append(stage.name)
        return F.cross_entropy(prediction, targets)

    names: list[str] = []
    manager(TrainManager, loss=loss).train()

    assert names == ["train_loss_forward"] * 8


def test_an_objective_that_reads_the_stage_finds_its_own() -> None:
    class Reads(Objective):
        def loss(self, prediction: Tensor, targets: Tensor, stage: Any) -> Tensor:
            names.append(stage.name)
            return F.cross_entropy(prediction, targets)

    names: list[str] = []
    manager(TrainManager, loss=Reads()).train()

    assert names == ["train_loss_forward"] * 8


def test_a_lazy_fixture_that_reads_the_stage_finds_the_one_that_asks() -> None:
    class Own(TrainManager):
        @fixture("train_step_batch")
        def place(self, stage: Any) -> str:
            return str(stage.name)

    def loss(prediction: Tensor, targets: Tensor, place: str) -> Tensor:
        places.append(place)
        return F.cross_entropy(prediction, targets)

    places: list[str] = []
    manager(Own, loss=loss).train()

    assert places == ["train_loss_forward"] * 8


def test_an_own_forward_method_that_reads_the_path_finds_its_stage() -> None:
    class Reads(TrainManager):
        def model_forward(self, model: Any, inputs: Tensor) -> Any:
            paths.append(self.fixtures.path[-1])
            return model(inputs)

    paths: list[str] = []
    manager(Reads).train()

    assert paths == ["train_model_forward"] * 8


def test_a_model_that_reads_the_path_finds_its_stage() -> None:
    paths: list[str] = []
    model = net()
    tm = manager(TrainManager, model=model)
    model.register_forward_hook(lambda part, inputs, output: paths.append(tm.fixtures.path[-1]))
    tm.train()

    assert paths == ["train_model_forward"] * 8


# ---- what is written or replaced late --------------------------------------------------------------------------------


def test_targets_that_a_model_modifies_from_its_third_batch_on_are_trained_on() -> None:
    """The first batch has shown nothing."""
    passes: list[int] = []
    model = net()
    tm = manager(TrainManager, model=model, epochs=1)

    def flip(part: nn.Module, inputs: Any, output: Tensor) -> None:
        passes.append(1)
        if len(passes) >= 3:
            tm.fixtures.modify("targets", 1 - tm.fixtures["targets"])

    model.register_forward_hook(flip)
    tm.train()
    batches = make_batches(4)
    flipped = batches[:2] + [(inputs, 1 - targets) for inputs, targets in batches[2:]]

    assert torch.equal(weights(tm.model), by_hand(net(), flipped))


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_a_part_of_the_batch_that_an_own_batch_size_modifies_is_trained_on(name: str) -> None:
    class Sized(TrainManager):
        def get_true_batch_size(self, batch: Any) -> int:
            self.fixtures.modify(name, 1 - self.fixtures[name])
            return len(batch[0])

    changed = [(1 - x, y) if name == "inputs" else (x, 1 - y) for x, y in make_batches(4)]
    tm = manager(Sized)
    tm.train()

    assert torch.equal(weights(tm.model), by_hand(net(), changed * 2))


@pytest.mark.parametrize("what", ["model", "loss", "called_model", "optimizer"])
def test_a_part_that_is_replaced_between_two_calls_is_used(what: str) -> None:
    def train(*extensions: Extension) -> TrainManager:
        tm = manager(TrainManager, *extensions)
        tm.train_steps(3)
        exchange(tm, what)
        tm.train_steps(3)
        return tm

    assert same_in_stages(train)
    assert not torch.equal(weights(train().model), by_hand(net(), (make_batches(4) * 2)[:6]))


@pytest.mark.parametrize("what", ["loss", "called_model", "optimizer"])
def test_a_part_that_a_hook_replaces_is_used_in_this_batch(what: str) -> None:
    def train(*extensions: Extension) -> TrainManager:
        def hook(train_manager: TrainManager, step_num: int) -> None:
            if step_num == 3:
                exchange(train_manager, what)

        tm = manager(TrainManager, At("pre_train_step_batch", hook), *extensions, epochs=1)
        tm.train()
        return tm

    assert same_in_stages(train)
    assert not torch.equal(weights(train().model), by_hand(net(), make_batches(4)))


def exchange(tm: Any, what: str) -> None:
    """Replace a part of what is trained."""
    if what == "loss":
        tm.loss = F.multi_margin_loss
    elif what == "called_model":
        tm.called_model = nn.Sequential(tm.model, nn.Softmax(dim=1))
    else:
        tm.model = tm.model if what == "optimizer" else net(seed=2)
        tm.optimizer = SGD(tm.model.parameters(), lr=0.7)


def test_the_stages_close_again_after_a_part_was_replaced() -> None:
    tm = manager(TrainManager)
    tm.train_steps(2)
    tm.loss = F.multi_margin_loss
    tm.train_steps(2)

    assert runs(tm)


def test_two_optimizers_may_take_the_place_of_one() -> None:
    class Either(TrainManager):
        def train_batch(self) -> None:
            loss = self.forward()
            for name in self.optimizers:
                self.backward(loss, name, retain_graph=True)
                self.step(name)

    tm = manager(Either)
    tm.train_steps(3)
    tm.optimizer = {
        "front": SGD(tm.model[0].parameters(), lr=0.1),
        "back": SGD(tm.model[2].parameters(), lr=0.0),
    }
    tm.train_steps(3)

    assert tm.optimizer_updates == {"optimizer": 3, "front": 3, "back": 3}


# ---- extensions that come and go -------------------------------------------------------------------------------------


def test_an_extension_that_is_added_between_two_calls_opens_the_stages() -> None:
    clip = ClipGradients(1.0)
    tm = tiny_manager(epochs=9)
    tm.train_steps(3)
    tm.add_extension(clip)
    tm.train_steps(1)

    assert needs(tm) == "ClipGradients"


def test_the_stages_close_again_once_the_extension_is_removed() -> None:
    tm = tiny_manager(epochs=9, extensions={"clip": ClipGradients(1.0)})
    tm.train_steps(3)
    tm.remove_extension("clip")
    tm.train_steps(2)

    assert runs(tm)


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_step_batch", "pre_train_step_epoch"])
def test_an_extension_that_a_hook_adds_is_called_from_then_on(hook: str) -> None:
    """Three batches in each epoch; it comes in the second batch, after it, or with the second epoch."""
    stepped = Values("post_train_optimizer_step", "step_num")

    def add(train_manager: TrainManager, step_num: int) -> None:
        if step_num == (3 if hook == "pre_train_step_epoch" else 1):
            train_manager.add_extension(stepped)

    tiny_manager(At(hook, add), epochs=2).train()

    assert stepped.seen == [*range(3 if hook == "pre_train_step_epoch" else 1, 6)]


def test_an_extension_that_a_hook_removes_is_not_called_any_more() -> None:
    stepped = Values("post_train_optimizer_step", "step_num")

    def remove(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 2:
            train_manager.remove_extension("stepped")

    tm = tiny_manager(extensions={"stepped": stepped, "at": At("pre_train_step_batch", remove)}, epochs=2)
    tm.train()

    assert stepped.seen == [0, 1]
    assert runs(tm)


def test_an_extension_that_a_model_adds_in_a_closed_stage_is_refused() -> None:
    class Adds(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if tm.step_num == 2:
                tm.add_extension(ClipGradients(1.0), name="clip")
            return super().forward(x)

    tm = tiny_manager(model=Adds(2, 3), epochs=2)

    with pytest.raises(StageError, match="changed inside stage 'train_model_forward', which is too late"):
        tm.train()
    assert "clip" not in tm.extensions


def test_an_extension_that_a_phase_adds_opens_the_stages_in_the_phase_only() -> None:
    stepped = Values("post_train_optimizer_step", "step_num")
    tm = tiny_manager(epochs=9)
    with tm.run():
        tm.train_steps(3)
        with tm.phase("looking", extensions=[stepped]):
            tm.train_steps(2)
        tm.train_steps(3)

    assert stepped.seen == [3, 4]
    assert runs(tm)


def test_a_copy_of_the_manager_trains_its_own_model() -> None:
    tm = manager(TrainManager)
    tm.train_steps(4)
    copied = copy.deepcopy(tm)
    copied.train_steps(4)

    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4)))
    assert torch.equal(weights(copied.model), by_hand(net(), make_batches(4) * 2))


# ---- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_that_the_datas_iterator_leaves_are_not_learnt_from() -> None:
    class Stains:
        def __iter__(self) -> Iterator[Batch]:
            for inputs, targets in make_batches(4):
                model(inputs).sum().backward()
                yield inputs, targets

    model = net()
    tm = manager(TrainManager, model=model, train_data=Stains())
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(model), by_hand(net(), make_batches(4) * 2))


def test_gradients_that_a_loop_around_train_on_batch_leaves_are_not_learnt_from() -> None:
    tm = manager(TrainManager)
    with tm.run():
        for inputs, targets in make_batches(4):
            tm.model(inputs).sum().backward()
            tm.train_on_batch((inputs, targets))

    assert runs(tm)
    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4)))


def test_gradients_that_a_hook_of_a_module_leaves_are_not_learnt_from() -> None:
    model = net()
    model[0].register_forward_hook(lambda part, inputs, output: output.sum().backward(retain_graph=True))
    tm = manager(TrainManager, model=model)
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(model), by_hand(net(), make_batches(4) * 2))


def test_a_step_leaves_no_gradients() -> None:
    tm = manager(TrainManager)
    tm.train()

    assert runs(tm)
    assert all(parameter.grad is None for parameter in tm.model.parameters())


def test_an_own_zero_grad_of_an_optimizer_is_called() -> None:
    class Counts(SGD):
        calls = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.calls += 1
            super().zero_grad(set_to_none)

    tm = manager(TrainManager, optimizer=lambda parameters: Counts(parameters, lr=0.1))
    tm.train()

    assert tm.optimizer.calls >= 8  # type: ignore[attr-defined]


class Alone(WeightedLoss):
    """Calls a function with the optimizer whose gradients are complete."""

    def __init__(self, gather: Callable[[Optimizer], None]) -> None:
        super().__init__(number=1)
        self._gather = gather

    def gather(self, optimizer: Optimizer) -> None:
        self._gather(optimizer)

    def mean_loss(self, loss: Tensor) -> Tensor:
        return loss

    def mean_gradients(self, optimizer: Optimizer) -> list[Tensor | None]:
        return [parameter.grad for parameter in parameters_in(optimizer)]


class Gathering(Extension):
    """Has a function called with the optimizer whose gradients are complete, as ``Distributed`` does."""

    def __init__(self, gather: Callable[[Optimizer], None]) -> None:
        self.joined = Ranks()
        self.joined.gradients = Alone(gather)

    def pre_run(self) -> None: ...  # an extension without a hook is a mistake


def halves(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.mul_(0.5)


def test_gradients_are_made_one_in_closed_stages() -> None:
    tm = manager(TrainManager, Gathering(halves))
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4) * 2, lambda p, t: F.cross_entropy(p, t) * 0.5))


def test_gradients_are_made_one_from_the_call_on_after_which_something_does_so() -> None:
    calls: list[int] = []
    tm = manager(TrainManager)
    tm.train_steps(3)
    tm.add_extension(Gathering(lambda optimizer: calls.append(tm.step_num)))
    tm.train_steps(3)

    assert calls == [3, 4, 5]


@pytest.mark.parametrize("extension", [Looker, lambda: SAM(0.05)], ids=["stages", "SAM"])
def test_gradients_are_made_one_in_open_stages_too(extension: Callable[[], Extension]) -> None:
    calls: list[int] = []
    tm = manager(TrainManager, extension(), Gathering(lambda optimizer: calls.append(tm.step_num)))
    tm.train_steps(2)

    assert set(calls) == {0, 1}


def test_gradients_of_a_window_are_made_one_with_its_last_batch_only() -> None:
    calls: list[int] = []
    tm = manager(TrainManager, every_second_ends(), Gathering(lambda optimizer: calls.append(tm.step_num)))
    tm.train()

    assert calls == [1, 3, 5, 7]


def every_second_ends() -> Extension:
    def hook(step_num: int) -> bool:
        return step_num % 2 == 1

    return At("pre_train_step_batch", modifies("update_ends")(hook))


def test_a_window_of_two_batches_gathers_their_gradients() -> None:
    tm = manager(TrainManager, every_second_ends())
    tm.train()
    model = net()
    optimizer = slow(model.parameters())
    for number, (inputs, targets) in enumerate(make_batches(4) * 2):
        F.cross_entropy(model(inputs), targets).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()

    assert torch.equal(weights(tm.model), weights(model))


def test_a_batch_whose_window_continues_leaves_its_gradients() -> None:
    found: list[bool] = []
    tm = manager(TrainManager, At("pre_train_step_batch", modifies("update_ends")(lambda step_num: step_num < 2)))

    def train() -> None:
        with tm.run():
            tm.train_steps(3)
            found.extend([runs(tm), tm.open_windows == ("optimizer",), tm.model[0].weight.grad is not None])

    with pytest.warns(UserWarning, match="the run ended within a window"):
        train()

    assert found == [True] * 3


def test_the_loss_of_a_window_that_closed_stages_have_opened_can_be_computed_anew() -> None:
    def hook(train_manager: TrainManager, step_num: int, loss: Tensor) -> None:
        if step_num == 3:
            again.append((float(train_manager.closure()().detach()), float(loss.detach())))

    again: list[tuple[float, float]] = []
    update_ends = modifies("update_ends")(lambda step_num: step_num != 2)
    manager(TrainManager, At("pre_train_step_batch", update_ends), At("post_train_step_batch", hook)).train()

    assert len(again) == 1
    assert again[0][0] == again[0][1]


def test_a_hook_of_torch_at_the_step_finds_the_window_open() -> None:
    open_windows: list[tuple[str, ...]] = []
    tm = manager(TrainManager)
    tm.optimizer.register_step_pre_hook(lambda *step: open_windows.append(tm.open_windows))
    tm.train()

    assert open_windows == [("optimizer",)] * 8


def test_an_optimizer_may_compute_its_loss_anew() -> None:
    class Twice(SGD):
        def step(self, closure: Any = None) -> Any:
            losses.append(float(tm.closure()().detach()))
            return super().step(closure)

    losses: list[float] = []
    tm = manager(TrainManager, optimizer=lambda parameters: Twice(parameters, lr=0.1))
    tm.train()

    assert len(losses) == 8


# ---- what else works in closed stages -------------------------------------------------------------------------------


class Sparse(nn.Module):
    """Adds a loss in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, inputs: Tensor) -> Any:
        outputs = self.net(inputs)
        add_loss(outputs.square().mean(), "size")
        return outputs


def with_size(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction, targets) + prediction.square().mean()


def test_a_loss_that_the_model_adds_is_trained_on() -> None:
    tm = manager(TrainManager, model=Sparse())
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4) * 2, with_size))


def test_the_loss_of_the_epoch_has_what_the_model_adds() -> None:
    by_model, by_loss = manager(TrainManager, model=Sparse()), manager(TrainManager, loss=with_size)
    by_model.train()
    by_loss.train()

    assert [row["loss"] for row in by_model.history.epochs] == [row["loss"] for row in by_loss.history.epochs]


def test_the_epochs_row_has_what_the_model_adds_by_name() -> None:
    tm = manager(TrainManager, model=Sparse())
    tm.train()
    in_stages = manager(TrainManager, Looker(), model=Sparse())
    in_stages.train()
    rows, others = ([{**row, "seconds": 0} for row in one.history.epochs] for one in (tm, in_stages))

    assert rows == others


def test_a_post_hook_of_the_batch_finds_prediction_and_loss() -> None:
    names = ("prediction", "loss", "losses", "inputs", "targets")
    seen, in_stages = Values("post_train_step_batch", *names), Values("post_train_step_batch", *names)
    manager(TrainManager, seen, model=Sparse()).train()
    manager(TrainManager, in_stages, Looker(), model=Sparse()).train()

    assert repr(seen.seen) == repr(in_stages.seen)


def test_counters_move_before_the_post_hooks_of_the_batch() -> None:
    counts = Values("post_train_step_batch", "step_num", "update_num", "samples_seen")
    manager(TrainManager, counts, epochs=1).train()

    assert counts.seen == [(1, 1, 4), (2, 2, 8), (3, 3, 12), (4, 4, 16)]


def test_a_loss_reads_the_counters_as_they_were_before_the_step() -> None:
    def loss(prediction: Tensor, targets: Tensor, step_num: int, update_num: int) -> Tensor:
        counts.append((step_num, update_num))
        return F.cross_entropy(prediction, targets)

    counts: list[tuple[int, int]] = []
    tm = manager(TrainManager, loss=loss, epochs=1)
    tm.train()

    assert runs(tm)
    assert counts == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_the_point_of_decision_is_asked_twice_for_each_batch() -> None:
    def decide(requests: Any) -> Any:
        asked.append(tm.fixtures.path[-1])
        return requests

    asked: list[str] = []
    tm = manager(TrainManager, epochs=1)
    tm.decide = decide  # type: ignore[method-assign]
    tm.train()

    assert runs(tm)
    assert asked.count("train_step_batch") == 4


def test_a_batch_that_the_point_of_decision_leaves_out_is_not_trained_on() -> None:
    tm = manager(TrainManager, epochs=1)
    tm.decide = lambda requests: requests._replace(skip_batch=tm._progress.feed.batch_num == 3)  # type: ignore[method-assign]
    tm.train()
    batches = make_batches(4)

    assert torch.equal(weights(tm.model), by_hand(net(), [batches[0], batches[1], batches[3]]))


@pytest.mark.parametrize("where", ["model", "loss", "hook", "backward", "step"])
def test_a_batch_that_is_skipped_is_not_trained_on(where: str) -> None:
    def skip_third(here: str) -> None:
        if here == where and tm._progress.feed.batch_num == 3:
            skip_batch()

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        skip_third("loss")
        prediction.register_hook(lambda gradient: skip_third("backward"))
        return F.cross_entropy(prediction, targets)

    model = net()
    model.register_forward_hook(lambda *call: skip_third("model"))
    tm = manager(TrainManager, At("pre_train_step_batch", lambda: skip_third("hook")), model=model, loss=loss, epochs=1)
    tm.optimizer.register_step_pre_hook(lambda *step: skip_third("step"))
    tm.train()
    batches = make_batches(4)

    assert runs(tm)
    assert (tm.step_num, tm.update_num) == (3, 3)
    assert torch.equal(weights(model), by_hand(net(), [batches[0], batches[1], batches[3]]))


def test_a_loss_that_is_not_finite_is_an_error_that_names_its_step() -> None:
    def loss(prediction: Tensor, targets: Tensor, step_num: int) -> Tensor:
        return F.cross_entropy(prediction, targets) * (float("nan") if step_num == 2 else 1.0)

    tm = manager(TrainManager, loss=loss)
    with pytest.raises(NonFiniteLoss, match="the loss was nan in step 3"):
        tm.train()

    assert runs(tm)


@pytest.mark.parametrize("part", range(4), ids=INNER)
def test_an_error_names_the_part_of_the_batch(part: int) -> None:
    def fail(here: int) -> None:
        if here == part and tm.step_num == 2:
            raise ValueError("torn")

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        fail(1)
        prediction.register_hook(lambda gradient: fail(2))
        return F.cross_entropy(prediction, targets)

    model = net()
    model.register_forward_hook(lambda *call: fail(0))
    tm = manager(TrainManager, model=model, loss=loss)
    tm.optimizer.register_step_pre_hook(lambda *step: fail(3))
    with pytest.raises(ValueError, match="torn") as caught:
        tm.train()

    assert runs(tm)
    assert caught.value.__notes__[0] == f"at stage run > train > train_step_epoch > train_step_batch > {INNER[part]}"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_within_the_backward_pass_leaves_no_gradients(error: type[BaseException]) -> None:
    def tear(gradient: Tensor) -> None:
        if tm.step_num == 2:
            raise error

    model = net()
    model[0].register_forward_hook(lambda part, inputs, output: output.register_hook(tear) and None)
    tm = manager(TrainManager, model=model)
    with pytest.raises(error):
        tm.train()

    assert runs(tm)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_training_continues_after_an_error() -> None:
    def fail(*call: Any) -> None:
        if tm.step_num == 2 and not failed:
            failed.append(1)
            raise ValueError("torn")

    failed: list[int] = []
    model = net()
    model.register_forward_hook(fail)
    tm = manager(TrainManager, model=model)
    with pytest.raises(ValueError, match="torn"):
        tm.train()
    tm.train_on_batch(make_batches(4)[2])
    batches = make_batches(4)

    assert torch.equal(weights(model), by_hand(net(), batches[:3]))


def test_a_loss_with_parameters_is_trained() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction * self.scale, targets)

    with pytest.warns(UserWarning, match="which are trained too"):
        tm = manager(TrainManager, loss=Scaled())
    tm.train()
    model, loss = net(), Scaled()
    by_hand(model, make_batches(4) * 2, loss, slow([*model.parameters(), *loss.parameters()]))

    assert runs(tm)
    assert torch.equal(weights(tm.model), weights(model))
    assert torch.equal(weights(tm.loss), weights(loss))


def test_an_objective_trains_in_closed_stages() -> None:
    class Squared(Objective):
        def predict(self, model: nn.Module, inputs: Any) -> Any:
            return model(inputs * 2)

        def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return with_size(prediction, targets)

    tm = manager(TrainManager, loss=Squared())
    tm.train()

    assert runs(tm)
    assert torch.equal(
        weights(tm.model), by_hand(net(), [(inputs * 2, targets) for inputs, targets in make_batches(4) * 2], with_size)
    )


def test_a_stage_that_has_opened_late_is_explained_as_open_until_it_ends() -> None:
    class Reads(TrainManager):
        def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            before, _, after = self.explain(all=True), self.fixtures["stage"], self.explain(all=True)
            seen.append(["train_loss_forward  (opened late" in text for text in (before, after)])
            return nn.functional.cross_entropy(prediction, targets)

    seen: list[list[bool]] = []
    toy = tiny_manager()
    tm = Reads(model=toy.model, optimizer=toy.optimizer, train_data=toy.train_data)
    tm.train_steps(1)

    assert seen == [[False, True]]
    assert "opened late" not in tm.explain(all=True)


def test_a_hook_that_probes_with_another_batch_leaves_the_stages_closed() -> None:
    seen: list[Any] = []
    look = At("post_train_step_batch", lambda train_manager, batch: seen.append(train_manager.probe(batch)))
    tm = tiny_manager(look)
    tm.train()

    assert "train_model_forward  (stays closed: nothing looks into it)" in tm.explain(all=True)
    assert len(seen) == 3
