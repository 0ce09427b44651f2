"""Random calls with random faults and requests, run by TrainManager and by the plain loop in ``reference_loop.py``.

A script stands at every hook of both: it writes down what it sees, and at the openings that a program names it stops,
ends the epoch, asks for an evaluation, skips or fails. Both logs must be equal, and the weights bit for bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from tests.support.reference_loop import ReferenceLoop
from tests.support.rotation import share_of
from train_manager import Extension, SkipBatch, SkipStage, TrainManager
from train_manager.extensions import Accumulate
from train_manager.reporting.results import TrainResult
from train_manager.schedules import every

Log = list[tuple[Any, ...]]
Program = dict[str, Any]

REQUESTS = ("stop at step", "stop at epoch", "end_epoch", "eval_soon")
SIZES = (2, 3, 1, 4)
OPTIMIZER_HOOKS = ("train_backward", "train_optimizer_step")


# ---- what is done with a batch ---------------------------------------------------------------------------------------


def update_once(loop: Any, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
    loop.update(loop.forward())


def several_backwards(loop: Any, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
    loop.backward(F.mse_loss(model(inputs), targets))
    loop.backward(model(inputs).square().mean())
    loop.step()


def update_twice(loop: Any, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
    loop.update(F.mse_loss(model(inputs), targets))
    loop.update(model(inputs).square().mean())


def update_both(loop: Any, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
    loop.update(F.mse_loss(model.last(model.first(inputs).detach()), targets), "last")
    loop.update(F.mse_loss(model(inputs), targets), "first")  # whose gradients reach the parameters of "last"


def update_first_now_and_then(loop: Any, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
    if batch_num % 2 == 0:
        loop.update(F.mse_loss(model(inputs), targets), "first")
    loop.update(F.mse_loss(model(inputs), targets), "last")


def gather_without_a_step(loop: Any, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
    loop.backward(F.mse_loss(model(inputs), targets), "first")
    if batch_num % 3 == 0:
        loop.step("first")
    if batch_num % 2 == 0:
        loop.update(F.mse_loss(model(inputs), targets), "last")


WITH_ONE = (update_once, several_backwards, update_twice)
WITH_TWO = (update_both, update_first_now_and_then, gather_without_a_step)
FORWARD_HOOKS = ("pre_train_model_forward", "post_train_model_forward", "post_train_loss_forward")


# ---- what both loops are made of -------------------------------------------------------------------------------------


class Known:
    """Batches of known number, which writes down each that it gives."""

    def __init__(self, batches: list[Any], log: Log) -> None:
        self.batches, self.log = batches, log

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return gives(self.batches, self.log)


class Unknown:
    """The same, but it does not say how many there are."""

    def __init__(self, batches: list[Any], log: Log) -> None:
        self.batches, self.log = batches, log

    def __iter__(self) -> Iterator[Any]:
        return gives(self.batches, self.log)


def gives(batches: list[Any], log: Log) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        log.append(("gives", number))
        yield batch


class Net(nn.Module):
    """Two layers, each of which an optimizer of its own may train."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, dtype=torch.float64)
        self.last = nn.Linear(2, 1, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Any:
        return self.last(self.first(inputs))


def make_net() -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net()


def make_batches(n: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(n)
    inputs = [torch.rand(SIZES[i % 4], 2, generator=generator, dtype=torch.float64) for i in range(n)]
    return [(x, x.sum(dim=1, keepdim=True)) for x in inputs]


def sgd(parameters: Any) -> SGD:
    return SGD(parameters, lr=0.02, momentum=0.9)


def decay(optimizer: Any) -> ExponentialLR:
    return ExponentialLR(optimizer, 0.5)


class ErrorOfScript(Exception):
    pass


@dataclass
class Script:
    """Stands at each hook: writes down what it sees, and does what a program says of this opening."""

    actions: dict[tuple[str, int], str]
    log: Log
    openings: dict[str, int] = field(default_factory=dict)

    def __call__(self, loop: Any, hook: str, seen: tuple[Any, ...]) -> str | None:
        self.openings[hook] = self.openings.get(hook, 0) + 1
        self.log.append((hook, loop.epoch_num, loop.step_num, loop.update_num, loop.samples_seen, *seen))
        action = self.actions.get((hook, self.openings[hook]))
        if action in REQUESTS:
            if action.startswith("stop"):
                loop.stop(f"{hook} {self.openings[hook]}", at=action.split()[-1])
            else:
                getattr(loop, action)()
        elif action == "SkipBatch":
            raise SkipBatch
        elif action == "error":
            raise ErrorOfScript
        return action


def gradients(parameters: Any) -> list[Any]:
    return [None if parameter.grad is None else parameter.grad.tolist() for parameter in parameters]


# ---- TrainManager ----------------------------------------------------------------------------------------------------


class Hooks(Extension):
    """The script at the hooks of a TrainManager."""

    def __init__(self, script: Script, hooks: list[str], looks_ahead: bool) -> None:
        self.looks_ahead = looks_ahead
        for hook in hooks:
            setattr(self, hook, self.at(hook, script))

    def at(self, hook: str, script: Script) -> Callable[..., None]:
        def run(train_manager: TrainManager, fixtures: Any) -> None:
            for count in ("epoch_num", "step_num", "update_num", "samples_seen"):
                assert fixtures[count] == getattr(train_manager, count)
            action = script(train_manager, hook, self.seen(hook, train_manager, fixtures))
            if action == "SkipStage":
                raise SkipStage

        return run

    def seen(self, hook: str, tm: TrainManager, fixtures: Any) -> tuple[Any, ...]:
        stage = hook.split("_", 1)[1]
        own: tuple[Any, ...] = (fixtures["start_step"], fixtures["end_step"]) if stage == "train" else ()
        if stage == "train_step_batch":
            names = ("batch_num", "update_begins", "update_ends", "start_step", "end_step")
            own = (fixtures["batch"][0].tolist(), *(fixtures[name] for name in names))
            own = (*own, fixtures["last_batch"]) if self.looks_ahead else own
        if hook == "post_train_step_batch":
            own = (*own, fixtures["loss"].item(), sorted(tm.open_windows))
        if stage in OPTIMIZER_HOOKS:
            name = fixtures["optimizer_name"]
            assert fixtures["optimizer"] is tm.optimizers[name]
            own = (name, gradients(tm.model.parameters()), dict(tm.optimizer_updates))
        return own


class Own(TrainManager):
    """Has the train_batch of a program."""

    def __init__(self, method: Callable[..., None], **options: Any) -> None:
        super().__init__(**options)
        self.method = method

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
        self.method(self, model, inputs, targets, batch_num)


def make_manager(program: Program, script: Script, data: Any, net: Net) -> TrainManager:
    method, accumulate = program["train_batch"], program["accumulate"]
    has_two = method in WITH_TWO
    schedules = {"first": decay, "last": decay} if has_two else decay
    options: dict[str, Any] = {
        "model": net,
        "loss": F.mse_loss,
        "optimizer": {"first": sgd, "last": sgd} if has_two else sgd,
        "lr_schedule": schedules if program["lr_schedule"] else None,
        "train_data": data,
        "eval_data": {"valid": make_batches(2)[1:]},
        "eval_at": [every(at) if isinstance(at, int) else at for at in program["eval_at"]],
        "epochs": program["epochs"],
        "steps_per_epoch": program["steps_per_epoch"],
        "extensions": [
            Hooks(script, hooks_of(method), program["looks_ahead"]),
            *([] if accumulate is None else [Accumulate(accumulate)]),
        ],
    }
    tm = TrainManager(**options) if method is update_once else Own(method, **options)
    tm._checked = {entry: [] for entry in (None, *ENTRIES)}  # to read the source takes longer than all else here
    return tm


# ---- the reference ---------------------------------------------------------------------------------------------------


def requested_end(loop: ReferenceLoop) -> int | None:
    return loop.expected_end if loop.end_step is None else loop.end_step


def make_reference(program: Program, script: Script, data: Any, net: Net) -> ReferenceLoop:
    method, hooks = program["train_batch"], hooks_of(program["train_batch"])
    optimizers: dict[str, Optimizer] = {"first": sgd(net.first.parameters()), "last": sgd(net.last.parameters())}
    if method in WITH_ONE:
        optimizers = {"optimizer": sgd(net.parameters())}

    def seen(loop: ReferenceLoop, hook: str) -> tuple[Any, ...]:
        stage = hook.split("_", 1)[1]
        own: tuple[Any, ...] = (loop.start_step, requested_end(loop)) if stage == "train" else ()
        if stage == "train_step_batch":
            own = (loop.batch[0].tolist(), loop.batch_num, loop.update_begins, loop.update_ends)
            own = (*own, loop.start_step, requested_end(loop))
            own = (*own, loop.is_last()) if program["looks_ahead"] else own
        if hook == "post_train_step_batch":
            assert loop.loss is not None
            own = (*own, loop.loss.item(), sorted(loop.windows))
        if stage in OPTIMIZER_HOOKS:
            own = (loop.optimizer_name, gradients(loop.model.parameters()), dict(loop.optimizer_updates))
        return own

    def at(loop: ReferenceLoop, hook: str) -> bool:
        return hook in hooks and script(loop, hook, seen(loop, hook)) == "SkipStage"

    return ReferenceLoop(
        model=net,
        optimizers=optimizers,
        schedulers=[decay(optimizer) for optimizer in optimizers.values()] if program["lr_schedule"] else [],
        train_data=data,
        eval_batch=make_batches(2)[1],
        hook=at,
        train_batch=method,
        eval_at=program["eval_at"],
        epochs=program["epochs"],
        steps_per_epoch=program["steps_per_epoch"],
        accumulate=program["accumulate"],
    )


# ---- programs --------------------------------------------------------------------------------------------------------

HOOKS = [
    f"{when}_{stage}"
    for stage in ("train", "train_step_epoch", "eval", "train_step_batch", *OPTIMIZER_HOOKS)
    for when in ("pre", "post")
]
IN_BATCH = ("train_step_batch", *OPTIMIZER_HOOKS, "train_model_forward", "train_loss_forward")
ENTRIES = ("train", "train_steps", "train_epochs", "train_epoch", "train_on_batch", "eval")
WARNINGS = ("within a window", "nothing to do", "was stopped")


def hooks_of(method: Callable[..., None]) -> list[str]:
    return [*HOOKS, *(FORWARD_HOOKS if method is update_once else ())]


@st.composite
def actions(draw: st.DrawFn, hooks: list[str]) -> tuple[tuple[str, int], str]:
    hook = draw(st.sampled_from(hooks))
    stage = hook.split("_", 1)[1]
    skips = ["SkipBatch"] if stage in IN_BATCH else []
    skips += ["SkipStage"] if hook in HOOKS and hook.startswith("pre") else []
    return (hook, draw(st.integers(1, 5))), draw(st.sampled_from([*REQUESTS, *skips, "error"]))


CALLS = st.one_of(
    st.tuples(st.just("train_steps"), st.integers(0, 5)),
    st.tuples(st.just("train_epochs"), st.integers(0, 2)),
    st.tuples(st.just("train_on_batch"), st.integers(0, 3), st.booleans()),
    st.sampled_from([("train",), ("train_epoch",), ("eval",)]),
)
RUNS = st.tuples(st.booleans(), st.lists(CALLS, min_size=1, max_size=4))
EVAL_AT = st.one_of(
    st.just(("start", "epoch")),
    st.lists(st.sampled_from(["start", "epoch", "end", 1, 2, 3]), max_size=3, unique=True).map(tuple),
)


@st.composite
def programs(draw: st.DrawFn, methods: Any, accumulates: Any, most_actions: int) -> Program:
    method = draw(st.sampled_from(methods))
    return {
        "train_batch": method,
        "accumulate": draw(accumulates),
        "batches": draw(st.integers(1, 4)),
        "is_known": draw(st.booleans()),
        "steps_per_epoch": draw(st.sampled_from([None, None, 2, 3])),
        "looks_ahead": draw(st.booleans()),
        "lr_schedule": draw(st.booleans()),
        "eval_at": draw(EVAL_AT),
        "epochs": draw(st.integers(0, 3)),
        "runs": draw(st.lists(RUNS, min_size=1, max_size=3)),
        "actions": dict(draw(st.lists(actions(hooks_of(method)), max_size=most_actions))),
    }


def play(make: Callable[..., Any], program: Program) -> tuple[Log, Any]:
    """Do what a program says with a loop; return what was written down, and the weights and gradients left."""
    log: Log = []
    net = make_net()
    kind = Known if program["is_known"] else Unknown
    script = Script(program["actions"], log)
    loop = make(program, script, kind(make_batches(program["batches"]), log), net)
    own_batches = make_batches(4)
    for is_held, calls in program["runs"]:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if is_held:
                with held(loop):
                    for call in calls:
                        do(loop, call, own_batches, log)
            else:
                for call in calls:
                    do(loop, call, own_batches, log)
        log.append(("warnings", [tag for w in warned for tag in WARNINGS if tag in str(w.message)]))
    return log, [(p.tolist(), None if p.grad is None else p.grad.tolist()) for p in net.parameters()]


def held(loop: Any) -> AbstractContextManager[None]:
    run: AbstractContextManager[None] = loop.run()
    return run


def do(loop: Any, call: tuple[Any, ...], own_batches: list[Any], log: Log) -> None:
    name, *arguments = call
    if name == "train_on_batch":
        arguments[0] = own_batches[arguments[0]]
    try:
        out = getattr(loop, name)(*arguments)
    except Exception as error:
        out = type(error)
    log.append((*call, shown(out), loop.epoch_num, loop.step_num, loop.update_num, dict(loop.optimizer_updates)))


def shown(out: Any) -> Any:
    if isinstance(out, TrainResult):
        metrics = {name: round(result["loss"], 9) for name, result in out.metrics.items()}
        return out.stopped, metrics, out.evaluated_at, out.epochs, out.steps, out.updates
    if isinstance(out, dict):
        return {name: round(result["loss"], 9) for name, result in out.items()}
    return out.item() if isinstance(out, Tensor) else out


def agree(program: Program) -> None:
    found, expected = play(make_manager, program), play(make_reference, program)
    for number, (one, other) in enumerate(zip(found[0], expected[0], strict=False)):
        assert one == other, f"entry {number}: {one} but {other}; before it {expected[0][max(0, number - 3) : number]}"
    assert len(found[0]) == len(expected[0])
    assert found[1] == expected[1]


# ---- the tests -------------------------------------------------------------------------------------------------------


def checked(max_examples: int) -> settings:
    """Return how many programs are tried: a ninth of them, but for ``--all-places``."""
    return settings(
        max_examples=share_of(share_of(max_examples)),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@checked(80)
@given(programs(methods=[update_once], accumulates=st.none(), most_actions=0))
def test_without_hooks_that_interfere_all_is_as_in_the_reference(program: Program) -> None:
    agree(program)


@checked(120)
@given(programs(methods=[update_once], accumulates=st.none(), most_actions=6))
def test_requests_and_faults_of_hooks_do_what_they_do_in_the_reference(program: Program) -> None:
    agree(program)


@checked(120)
@given(programs(methods=[*WITH_ONE, *WITH_TWO], accumulates=st.sampled_from([None, 1, 2, 3]), most_actions=0))
def test_windows_are_those_of_the_reference(program: Program) -> None:
    agree(program)


@checked(200)
@given(programs(methods=[*WITH_ONE, *WITH_TWO], accumulates=st.sampled_from([None, 2, 3]), most_actions=6))
def test_windows_that_faults_interrupt_are_those_of_the_reference(program: Program) -> None:
    agree(program)
