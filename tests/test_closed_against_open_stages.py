"""A training is the same to the bit, whether the inner stages of its batches are open or not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations
from typing import Any, Final, Protocol

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, AdamW, Optimizer
from torch.utils.checkpoint import checkpoint

from tests.support.rotation import places_of
from tests.support.training import At, Batch, make_batches, sgd, skip_batch, stop_at, warm_up
from train_manager import (
    Extension,
    Objective,
    SkipBatch,
    TrainManager,
    WeightedLosses,
    add_loss,
    always,
    modifies,
    report_loss,
)
from train_manager.extensions import EMA, SAM, Accumulate, ClipGradients, EarlyStopping, LRSchedule, Metrics, WarmUp

KINDS: Final = ("pre", "post")
INNER: Final = ("train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step")
SUBSETS: Final = tuple(chain.from_iterable(combinations(INNER, count) for count in range(1, 5)))
"""The inner stages that are open, beside those that the program itself opens; the others stay closed."""


def looking_into(stages: Iterable[str]) -> Extension:
    """Return an extension that looks into these stages and does nothing there, so that they are opened."""
    hooks: dict[str, Callable[[], None]] = {f"{kind}_{stage}": lambda: None for stage in stages for kind in KINDS}
    return Extension.of(**hooks)


class Batches(Extension):
    """What is alive at the end of each batch, as text."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        fixtures = train_manager.fixtures
        values = {name: plain(fixtures[name]) for name in ("prediction", "loss", "losses") if name in fixtures}
        values |= {name: fixtures[name] for name in ("step_num", "update_num", "samples_seen", "batch_num")}
        self.seen.append(f"{sorted(fixtures)} {values}")


class Make(Protocol):
    """Makes a manager of a training; the extensions of the comparison are added to those that are given."""

    def __call__(self, *extensions: Any, kind: type[TrainManager] = TrainManager, **options: Any) -> Any: ...


Program = Callable[[Make], object]


# ---- what a training leaves behind -----------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value with lists in the place of tensors, whose text tells every bit."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def left_by(tm: TrainManager, batches: Batches) -> dict[str, str]:
    """Return all that a training leaves, as text by what it is."""
    loss = tm.loss.state_dict() if isinstance(tm.loss, nn.Module) else None
    left = {
        "weights": plain(tm.model.state_dict()),
        "weights of the loss": plain(loss),
        "optimizers": [plain(optimizer.state_dict()) for optimizer in tm.optimizers.values()],
        "epochs": without_seconds(tm.history.epochs),
        "evaluations": without_seconds(tm.history.evaluations),
        "counts": (tm.epoch_num, tm.step_num, tm.update_num, tm.samples_seen, tm.optimizer_updates),
        "gradients": {name: plain(parameter.grad) for name, parameter in tm.model.named_parameters()},
        "open windows": tm.open_windows,
        "modes": [module.training for module in tm.model.modules()],
        "stop": tm.stop_reason,
        "open stages": tm.fixtures.path,
        "batches": batches.seen,
    }
    return {name: repr(value) for name, value in left.items()}


def observed(program: Program, *lookers: Extension) -> tuple[dict[str, str], list[TrainManager]]:
    """Run a program; return all that it leaves and says, as text, and its managers."""
    managers: list[tuple[TrainManager, Batches]] = []

    def make(*extensions: Any, kind: type[TrainManager] = TrainManager, **options: Any) -> Any:
        batches = Batches()
        usual: dict[str, Any] = {"model": net(), "loss": F.cross_entropy, "optimizer": slow, "epochs": 2}
        usual |= {"train_data": make_batches(4), "extensions": [*extensions, *lookers, batches]}
        managers.append((kind(**{**usual, **options}), batches))
        TRAINING[:] = [managers[-1][0]]
        return managers[-1][0]

    said = {"error": ""}
    NOTED.clear()
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            program(make)
        except (Exception, KeyboardInterrupt) as error:
            said = {"error": f"{type(error).__name__}: {error}", "notes": repr(getattr(error, "__notes__", []))}
    said["warnings"] = repr([str(one.message) for one in told])
    said["noted"] = repr(NOTED)
    said["random state"] = repr(torch.rand(1).item())
    for number, (tm, batches) in enumerate(managers):
        said |= {f"{what} of manager {number}": text for what, text in left_by(tm, batches).items()}
    return said, [tm for tm, _ in managers]


# ---- parts of trainings ----------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A small model; each hook of its own is called with how many forward passes in train mode have begun."""

    def __init__(self, *parts: nn.Module, at_pass: Callable[[int], object] | None = None, adds: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.first, self.parts, self.last = nn.Linear(2, 6), nn.Sequential(*parts, nn.ReLU()), nn.Linear(6, 2)
        self.passes, self.at_pass, self.adds = 0, at_pass, adds

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        if self.at_pass is not None and self.training:
            self.at_pass(self.passes)
        hidden: Tensor = self.parts(self.first(inputs))
        if self.adds:
            add_loss(hidden.square() * 0.1, "sparsity")
            add_loss(hidden.abs().mean() * 0.1)
        outputs: Tensor = self.last(hidden)
        return outputs


def net(*parts: nn.Module, at_pass: Callable[[int], object] | None = None, adds: bool = False) -> Net:
    return Net(*parts, at_pass=at_pass, adds=adds)


def slow(parameters: Any) -> Optimizer:
    return SGD(parameters, lr=0.1)


def adamw(parameters: Any) -> Optimizer:
    return AdamW(parameters, lr=0.01, weight_decay=0.1)


def raising(error: BaseException, at: int) -> Callable[[int], None]:
    """Return a function that raises an error when it is called with this number."""

    def check(number: int) -> None:
        if number == at:
            raise error

    return check


class Failing(SGD):
    """Fails in its third step, after the parameters have changed."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        super().step(closure)
        if self.steps == 3:
            raise RuntimeError("the third step fails")


class TornBackward(torch.autograd.Function):
    """The identity; its backward pass fails."""

    @staticmethod
    def forward(context: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError("half a backward pass")


class Classify(Objective):
    """An objective with a prediction, a loss and a metric of its own."""

    def predict(self, model: nn.Module, inputs: Any) -> Any:
        return model(inputs * 2)

    def loss(self, prediction: Tensor, targets: Tensor, inputs: Tensor) -> Tensor:
        report_loss(prediction.square().mean(), "size")
        return F.cross_entropy(prediction, targets) + inputs.mean() * prediction.square().mean()

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"accuracy": (prediction.argmax(dim=1) == targets).float().mean()}


class Checkpointed(Net):
    """Runs its forward a second time in the backward pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = checkpoint(super().forward, inputs, use_reentrant=False)
        return outputs


class Tempered(nn.Module):
    """A loss with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction * self.scale, targets) + self.scale.square() * 0.1


class Heads(nn.Module):
    """A model with two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        outputs: Tensor = self.net(inputs)
        return {"label": outputs, "size": outputs.square().mean(dim=1)}


class Pair(nn.Module):
    """Two parts, each with an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.front, self.back = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Any:
        return self.back(self.front(inputs))


def named_loss(prediction: Tensor, targets: Tensor, inputs: Tensor, step_num: int) -> Tensor:
    return F.cross_entropy(prediction, targets) + inputs.mean() * prediction.square().mean() * (1 + step_num)


def nan_at(bad: int) -> Callable[..., Tensor]:
    def loss(prediction: Tensor, targets: Tensor, step_num: int) -> Tensor:
        return F.cross_entropy(prediction, targets) * (float("nan") if step_num == bad else 1.0)

    return loss


def every_second_ends(step_num: int) -> bool:
    return step_num % 2 == 1


def update_ends(when: Callable[[int], bool]) -> Extension:
    def pre_train_step_batch(step_num: int) -> bool:
        return when(step_num)

    return At("pre_train_step_batch", modifies("update_ends")(pre_train_step_batch))


def train(*extensions: Callable[[], Extension], kind: type[TrainManager] = TrainManager, **made: Any) -> Program:
    """Return a program that makes a manager and trains it; what is callable with no argument is made anew in it.

    Args:
        extensions: make the extensions.
        kind: the class of the manager.
        made: functions that make the options.
    """

    def program(make: Make) -> None:
        options = {name: value() for name, value in made.items()}
        make(*(extension() for extension in extensions), kind=kind, **options).train()

    return program


def two_optimizers() -> dict[str, Any]:
    return {"front": slow, "back": sgd}


class Alternating(TrainManager):
    """Updates both parts of a pair in one batch."""

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(self.forward(), "front")
        self.update(lambda: F.cross_entropy(model(inputs), targets) * 2, "back")


class Twice(TrainManager):
    """Updates twice with each batch."""

    def train_batch(self, model: Any, inputs: Tensor) -> None:
        self.update(self.forward())
        self.update(model(inputs).square().mean())


class Scaled(TrainManager):
    """Has its own forward methods, which write no fixture."""

    def model_forward(self, model: Any, inputs: Tensor) -> Any:
        return model(inputs * 2)

    def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        report_loss(prediction.mean(), "mean")
        return F.cross_entropy(prediction, targets) + prediction.square().mean()


def ask(request: Callable[[TrainManager], object], at_step: int) -> Extension:
    def post_train_step_batch(train_manager: TrainManager, step_num: int) -> None:
        if step_num == at_step:
            request(train_manager)

    return At("post_train_step_batch", post_train_step_batch)


def skip_second(batch_num: int) -> None:
    if batch_num == 2:
        skip_batch()


def on_batches(make: Make) -> None:
    tm = make(At("post_train_step_batch", lambda loss: None), model=net(nn.Dropout(0.5)))
    with tm.run():
        for number, batch in enumerate(make_batches(6)):
            tm.model.eval()
            tm.model(batch[0]).sum().backward()
            tm.train_on_batch(batch, last_batch=number == 5)
            tm.eval_on_batch(batch)


def in_phases(make: Make) -> None:
    tm = make(epochs=3)
    with tm.run():
        tm.train_steps(3)
        with tm.phase("head", optimizer=lambda _: SGD(tm.model.last.parameters(), lr=0.2), epochs=1):
            tm.train()
        with tm.phase("other", model=net(nn.Tanh()), loss=F.multi_margin_loss, optimizer=adamw):
            tm.train_steps(3)
            tm.model.last.bias.data.zero_()
            tm.train_steps(2)
        tm.train()


def reloaded(make: Make) -> None:
    first = make(update_ends(every_second_ends), epochs=3, optimizer=sgd)
    with first.run():
        first.train_steps(5)
        second = make(update_ends(every_second_ends), epochs=3, optimizer=sgd)
        second.load_state_dict(first.state_dict())
        first.train_steps(3)
    second.train()


def after_an_error(make: Make) -> None:
    """The manager trains on after a batch has failed."""
    tm = make(model=net(at_pass=raising(RuntimeError("torn"), 3)), optimizer=sgd)
    try:
        tm.train()
    except RuntimeError:
        tm.train()


def replaced_between_calls(make: Make) -> None:
    tm = make(optimizer=sgd, epochs=20)
    tm.train_steps(3)
    tm.loss = named_loss
    tm.train_steps(3)
    tm.model = net(nn.Tanh(), adds=True)
    tm.optimizer = adamw(tm.model.parameters())
    tm.train_steps(3)
    tm.called_model = nn.Sequential(tm.model)
    tm.train_steps(3)
    tm.optimizer = LBFGS(tm.model.parameters(), max_iter=3)
    tm.train_steps(3)
    tm.add_extension(Accumulate(2), "accumulate")
    tm.optimizer = slow(tm.model.parameters())
    tm.train_steps(3)
    tm.remove_extension("accumulate")
    tm.train_steps(3)


def replaced_in_hooks(make: Make) -> None:
    def replace(train_manager: Any, step_num: int) -> None:
        if step_num == 2:
            train_manager.loss = F.multi_margin_loss
        elif step_num == 4:
            train_manager.called_model = nn.Sequential(train_manager.model, nn.Softmax(dim=1))
        elif step_num == 6:
            train_manager.optimizer = adamw(train_manager.model.parameters())

    make(At("pre_train_step_batch", replace), epochs=2).train()


def of_a_part(make: Make) -> None:
    """The third loss is of parameters that the optimizer does not have, which is a warning."""
    model = net()
    loss = counted(lambda call, p, targets: model.first.weight.sum() if call == 3 else F.cross_entropy(p, targets))
    make(model=model, optimizer=SGD(model.last.parameters(), lr=0.1), loss=loss).train()


def gradients_at_an_error(make: Make) -> None:
    """A hook that always runs looks at the gradients of a step that has failed."""

    def note(train_manager: Any) -> None:
        gradients = [plain(parameter.grad) for parameter in train_manager.model.parameters()]
        if train_manager.step_num == 2:
            warnings.warn(f"{train_manager.open_windows} {gradients}", stacklevel=2)

    make(At("post_train_step_batch", always(note)), optimizer=lambda parameters: Failing(parameters, lr=0.1)).train()


def stained_data(make: Make) -> None:
    """The iterator of the data leaves gradients."""
    model = net()

    class Stained:
        def __iter__(self) -> Iterator[Batch]:
            for x, y in make_batches(4):
                model(x).sum().backward()
                yield x, y

    make(model=model, train_data=Stained(), optimizer=sgd).train()


def counted(function: Callable[[int, Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
    """Return a loss of ``(prediction, targets)`` that knows how often it was called in training."""
    calls = 0

    def loss(prediction: Tensor, targets: Tensor) -> Any:
        nonlocal calls
        calls += torch.is_grad_enabled()
        return function(calls, prediction, targets)

    return loss


def failing_loss(at: int) -> Callable[..., Any]:
    check = raising(ValueError("no loss today"), at)
    return counted(lambda call, prediction, targets: check(call) or F.cross_entropy(prediction, targets))


def skipping_loss(at: int) -> Callable[..., Any]:
    check = raising(SkipBatch(), at)
    return counted(lambda call, prediction, targets: check(call) or F.cross_entropy(prediction, targets))


def torn_loss(at: int) -> Callable[..., Any]:
    tear: Any = TornBackward.apply

    def of(call: int, prediction: Tensor, targets: Tensor) -> Any:
        return F.cross_entropy(tear(prediction) if call == at else prediction, targets)

    return counted(of)


def detached_at(at: int) -> Callable[..., Any]:
    return counted(lambda call, p, targets: F.cross_entropy(p.detach() if call == at else p, targets))


def unreduced_at(at: int) -> Callable[..., Any]:
    return counted(lambda call, p, targets: F.cross_entropy(p, targets, reduction="none" if call == at else "mean"))


NOTED: Final[list[Any]] = []


def here() -> Any:
    """Return the manager that trains, as code without a reference to it finds it."""
    return TRAINING[-1]


TRAINING: Final[list[TrainManager]] = []


def note(value: Any) -> None:
    NOTED.append(value)


def write(name: str, value: Any) -> None:
    here().fixtures[name] = value


def after(do: Callable[[], object]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a loss that does something first, in training."""

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        do()
        return F.cross_entropy(prediction, targets)

    return loss


def open_stage(count: int) -> None:
    with here().staged("deep", {"depth": count}):
        note(here().fixtures.path)


PROGRAMS: Final[dict[str, Program]] = {
    "plain": train(),
    "adamw": train(optimizer=lambda: adamw),
    "dropout": train(model=lambda: net(nn.Dropout(0.5))),
    "batch norm": train(model=lambda: net(nn.BatchNorm1d(6))),
    "add_loss": train(model=lambda: net(adds=True), eval_data=lambda: make_batches(2)),
    "add_loss alone": train(model=lambda: net(adds=True), loss=lambda: lambda prediction, targets: None),
    "objective": train(loss=Classify, eval_data=lambda: make_batches(2)),
    "activation checkpoints": train(model=lambda: Checkpointed(adds=True)),
    "named loss": train(loss=lambda: named_loss),
    "weighted losses": train(
        model=Heads,
        loss=lambda: WeightedLosses({"label": (F.cross_entropy, 1.0), "size": (lambda p, t: p.mean(), 0.5)}),
    ),
    "loss with a parameter": train(loss=Tempered, optimizer=lambda: sgd),
    "Accumulate": train(lambda: Accumulate(3)),
    "SAM": train(lambda: SAM(0.05)),
    "ClipGradients": train(lambda: ClipGradients(0.1)),
    "EMA": train(lambda: EMA(decay=0.9), eval_data=lambda: make_batches(2)),
    "EarlyStopping": train(
        lambda: EarlyStopping("eval/loss", patience=1, min_delta=1.0),
        eval_data=lambda: make_batches(2),
        epochs=lambda: 5,
    ),
    "Metrics": train(lambda: Metrics(spread=lambda prediction: prediction.std()), eval_data=lambda: make_batches(2)),
    "lr_schedule": train(lr_schedule=lambda: warm_up),
    "LRSchedule": train(lambda: LRSchedule(warm_up, per="step")),
    "WarmUp": train(lambda: WarmUp(steps=3)),
    "two optimizers": train(kind=Alternating, model=Pair, optimizer=two_optimizers),
    "LBFGS": train(optimizer=lambda: lambda p: LBFGS(p, max_iter=4)),
    "own train_batch": train(kind=Twice),
    "own model_forward": train(kind=Scaled, eval_data=lambda: make_batches(2)),
    "skipped in the model": train(model=lambda: net(at_pass=raising(SkipBatch(), 3))),
    "skipped in the loss": train(loss=lambda: skipping_loss(3)),
    "skipped in a hook": train(lambda: At("pre_train_step_batch", skip_second)),
    "skipped in a post hook": train(lambda: At("post_train_step_batch", skip_second)),
    "windows of two batches": train(lambda: update_ends(every_second_ends)),
    "a window that ends with the run": train(lambda: update_ends(lambda step_num: step_num < 5)),
    "nan": train(loss=lambda: nan_at(2)),
    "error in the model": train(model=lambda: net(at_pass=raising(RuntimeError("torn"), 3))),
    "error in the loss": train(loss=lambda: failing_loss(3)),
    "error in the backward pass": train(loss=lambda: torn_loss(3)),
    "error in the step": train(optimizer=lambda: lambda p: Failing(p, lr=0.1)),
    "loss without a gradient": train(loss=lambda: detached_at(3)),
    "loss that is not a scalar": train(loss=lambda: unreduced_at(3)),
    "Ctrl-C in the model": train(model=lambda: net(at_pass=raising(KeyboardInterrupt("enough"), 3))),
    "stop": train(lambda: stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 3)),
    "end_epoch": train(lambda: ask(TrainManager.end_epoch, 3)),
    "eval_soon": train(lambda: ask(TrainManager.eval_soon, 3), eval_data=lambda: make_batches(2)),
    "steps_per_epoch": train(steps_per_epoch=lambda: 3, epochs=lambda: 3),
    "train_on_batch": on_batches,
    "phases": in_phases,
    "reloaded": reloaded,
    "trained on after an error": after_an_error,
    "replaced between calls": replaced_between_calls,
    "replaced in hooks": replaced_in_hooks,
    "a look at the gradients of a failed step": gradients_at_an_error,
    "loss of other parameters": of_a_part,
    "gradients of the data": stained_data,
    "a model that writes a fixture": train(model=lambda: net(at_pass=lambda count: write("hidden", count))),
    "a loss that writes a fixture": train(loss=lambda: after(lambda: write("hidden", 1))),
    "a model that writes for the stage": train(
        model=lambda: net(at_pass=lambda count: here().fixtures.define("aux", count, stage="train_model_forward"))
    ),
    "a model that reads the stage": train(model=lambda: net(at_pass=lambda count: note(here().fixtures["stage"].path))),
    "a model that writes a fixture of the batch": train(
        model=lambda: net(at_pass=lambda count: here().fixtures.define("aux", count, stage="train_step_batch"))
    ),
    "a model that opens a stage": train(model=lambda: net(at_pass=lambda count: open_stage(count))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training_leaves_the_same_with_and_without_the_inner_stages(name: str) -> None:
    as_it_is, _ = observed(PROGRAMS[name])

    for stages in places_of(list(PROGRAMS).index(name), SUBSETS):
        opened, _ = observed(PROGRAMS[name], looking_into(stages))
        assert opened == as_it_is, stages
