"""Trainings of several processes of which one fails, sleeps or asks for something alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.support.rank_trainings import data, manager, net, rows, whole
from train_manager import Extension, SeededDataLoader, SkipBatch, TrainManager
from train_manager.distribution.failures import Failure, FailureWatch
from train_manager.extensions import Distributed
from train_manager.signals import stop_on_signals

TIMEOUT = 10.0
"""Of processes of which one sleeps or is killed."""

PATIENCE = 1000.0
"""Of others: longer than a test may take, so that a process that waits for it hangs, and is ended."""


class Fault(NamedTuple):
    """A fault: what happens, where, at which call of that place, and in which process."""

    act: str
    place: str  # a hook, or "forward" or "backward" of the model, or "before"
    rank: int
    call: int = 1


def timeout_with(fault: Fault) -> float:
    return TIMEOUT if fault.act in ("sleep", "_exit", "kill") else PATIENCE


class Act:
    """Does what a fault says, in its process."""

    def __init__(self, fault: Fault, tm: Callable[[], TrainManager]) -> None:
        self.fault, self._tm, self._calls = fault, tm, 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == self.fault.call:
            if own_rank() == self.fault.rank:
                self._act(self.fault.act, self._tm())
            elif self.fault.act == "come late":
                _tell_as_it_waits()

    def _act(self, act: str, tm: TrainManager) -> None:
        if act == "error":
            raise ValueError("no luck")
        elif act == "_exit":
            os._exit(9)
        elif act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "sleep":
            wait_for_files("out-*", int(os.environ["WORLD_SIZE"]) - 1, PATIENCE)
        elif act == "come late":
            wait_for_files("waits-*", int(os.environ["WORLD_SIZE"]) - 1, PATIENCE)
        elif act == "skip":
            raise SkipBatch
        elif act == "stop":
            tm.stop("enough")
        elif act == "end_epoch":
            tm.end_epoch()
        elif act == "eval_soon":
            tm.eval_soon()
        elif act == "save at end":
            tm.save_soon(at="end")
        elif act == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            raise AssertionError(act)


def _tell_as_it_waits() -> None:
    """Make a file as soon as this process, which waits for others, looks whether one of them has failed."""
    look = FailureWatch.failure

    def failure(self: FailureWatch) -> Failure | None:
        Path(f"waits-{own_rank()}").touch()
        return look(self)

    FailureWatch.failure = failure  # type: ignore[method-assign]


def own_rank() -> int:
    return int(os.environ.get("RANK", "0"))


def at_hook(place: str, act: Act) -> Extension:
    """Return an extension whose hook acts: "around_run before" and "around_run after" are the two halves of one."""
    name, half = place.split() if " " in place else (place, "")

    def hook(self: Any) -> None:
        act()

    def around(self: Any) -> Iterator[None]:
        if half == "before":
            act()
        yield
        if half == "after":
            act()

    extension: Extension = type("Faulty", (Extension,), {name: around if half else hook})()
    return extension


class InModel(nn.Module):
    def __init__(self, act: Act) -> None:
        super().__init__()
        self.inner, self.act = net(), act

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs)
        if self.training and self.act.fault.place == "forward":
            self.act()
        elif self.training and self.act.fault.place == "backward":
            outputs.register_hook(lambda _: self.act())
        return outputs


class Saves(Extension):
    """Counts the checkpoints that the loop saves, and asks for one."""

    def __init__(self, *, asks: bool) -> None:
        self.asks, self.saved = asks, 0

    def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        if self.asks and step_num == 2:
            train_manager.save_soon()

    def post_save_checkpoint(self) -> None:
        self.saved += 1


def training(fault: Fault, strategy: str | None, *, asks: bool = True, epochs: int = 1) -> tuple[TrainManager, Saves]:
    """A training of three steps an epoch, with a fault."""
    made: list[TrainManager] = []
    act, saves = Act(fault, lambda: made[0]), Saves(asks=asks)
    is_in_model = fault.place in ("forward", "backward")
    extensions = [saves] if is_in_model or fault.place == "before" else [saves, at_hook(fault.place, act)]
    if strategy is not None:
        extensions = [Distributed(strategy, timeout=timeout_with(fault)), *extensions]
    model = InModel(act) if is_in_model else net()
    eval_data = {"odd": data(11, batch_size=10, shuffle=False)}
    made.append(manager(*extensions, model=model, train_data=data(36), eval_data=eval_data, epochs=epochs))
    if fault.place == "before":
        act()
    return made[0], saves


class Out(NamedTuple):
    """How a process has come out of its training call."""

    kind: str  # the class of the error
    text: str  # with its notes
    next_use: str  # what the next use of the manager raises


def fail_at(fault: Fault, strategy: str) -> Out:
    """Train with a fault, catch the error, and live on until all others are out."""
    return _outcome(lambda: training(fault, strategy)[0].train(), fault.rank, timeout_with(fault))


def _outcome(train: Callable[[], Any], rank: int, timeout: float = PATIENCE) -> Out:
    _meet("in", PATIENCE)
    try:
        train()
        found: BaseException | None = None
    except BaseException as error:
        found = error  # with its traceback, as of a program that keeps its errors
    _meet("out", PATIENCE if own_rank() == rank else 0)  # it lives on: the others must not need its end
    again = ""
    try:
        manager(Distributed(timeout=timeout)).eval()
    except BaseException as error:
        again = f"{type(error).__name__}: {error}"
    notes = getattr(found, "__notes__", [])
    return Out(type(found).__name__, "\n".join([str(found), *notes]), again)


def _meet(name: str, seconds: float) -> None:
    """Wait until all processes are there, without a group."""
    Path(f"{name}-{own_rank()}").touch()
    wait_for_files(f"{name}-*", int(os.environ["WORLD_SIZE"]), seconds)


def wait_for_files(pattern: str, number: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while len(list(Path().glob(pattern))) < number and time.monotonic() < until:
        time.sleep(0.01)


def nan_in_last_step(rank: int, strategy: str) -> Out:
    def train() -> None:
        tm, _ = training(Fault("error", "pre_eval", -1), strategy)
        _nan_rows(tm, rank)
        tm.train()

    return _outcome(train, rank)


def _nan_rows(tm: TrainManager, rank: int) -> None:
    class Nan(Extension):
        def post_train_loss_forward(self, train_manager: TrainManager, step_num: int, loss: Tensor) -> None:
            if step_num == 2 and own_rank() == rank:
                train_manager.fixtures.modify("loss", loss * float("nan"))

    tm.add_extension(Nan(), "nan")


def wrong_on_one(what: str, rank: int) -> Out:
    """Make a mistake that is found before the first stage of a run, in one process."""

    class Misspelled(Extension):
        def post_train_step_batch(self, step_nun: int) -> None: ...

    def train() -> None:
        is_here = own_rank() == rank
        extensions = [Misspelled()] if is_here and what == "check" else []
        options: dict[str, Any] = {"train_data": []} if is_here and what == "data" else {}
        tm = manager(Distributed(timeout=PATIENCE), *extensions, **options)
        if is_here:
            time.sleep(0.3)  # the others wait already
        tm.train()

    return _outcome(train, rank)


def meets_within(seconds: float) -> None:
    """Train with the others, if they meet in time."""
    manager(Distributed(timeout=seconds)).train()


def opens_alone(rank: int) -> Out:
    """Open a second run in one process only, while the others predict."""
    tm = manager(Distributed(timeout=PATIENCE), epochs=1)
    tm.train()
    return _outcome(lambda: tm.ranks.sum([1.0]) if own_rank() == rank else tm.eval(), rank)


def agree_on(faults: list[Fault], strategy: str | None) -> list[dict[str, Any]]:
    """Train once for each request of one process; return how far each training came."""
    found = []
    for fault in faults:
        tm, saves = training(fault, strategy, asks=False, epochs=2)
        end = ""
        try:
            with stop_on_signals(tm):
                tm.train()
        except SystemExit as error:
            end = repr(error)
        counts = tm.step_num, tm.update_num, tm.epoch_num, tm.samples_seen
        evaluations = [row["step"] for row in tm.history.evaluations]
        found.append(
            {"counts": counts, "stop_reason": tm.stop_reason, "evaluations": evaluations, "saved": saves.saved}
            | ({"end": end} if strategy is None else {})
        )
    return found


# ---- whole programs --------------------------------------------------------------------------------------------------


def train_and_end(end: str, strategy: str = "ddp") -> None:
    """Train and evaluate, then end the program in some way: rank 1 alone, or all."""
    tm = manager(Distributed(strategy, timeout=PATIENCE), epochs=1)
    tm.train()
    if end == "workers":
        given = torch.utils.data.TensorDataset(*rows(12))
        loader = SeededDataLoader(given, batch_size=12, num_workers=2, multiprocessing_context="fork")
        tm.eval({"workers": loader})
    elif end == "exit" or (end == "exit alone" and own_rank()):
        sys.exit(3)
    elif end == "error alone" and own_rank():
        raise ValueError("no luck")
    elif end == "kill alone" and own_rank():
        os.kill(os.getpid(), signal.SIGKILL)
    elif end == "forked":
        pid = os.fork()
        if not pid:
            sys.exit(0)  # with all that is registered with atexit
        os.waitpid(pid, 0)
    tm.predict(tm.eval_data["odd"])
    tm.eval()


def train_with(act: str, place: str, rank: int) -> None:
    """Train in a program that catches no error, of which one process does something; write the weights."""
    fault = Fault(act, place, rank)
    _meet("in", PATIENCE)
    tm, _ = training(fault, "after")
    tm.train()
    torch.save(whole(tm), f"weights-{own_rank()}.pt")


def many_runs(times: int) -> int:
    """Train, predict and evaluate again and again, with managers of their own."""
    for _ in range(times):
        tm = manager(Distributed(timeout=PATIENCE), epochs=1, train_data=data(12), eval_data={"odd": data(3)})
        tm.train()
        tm.predict(data(3))
        tm.eval()
    return times


def in_group_of_program() -> tuple[Any, float]:
    """Train in a program that has made the default group itself; return whether it lives on, and its sum."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    tm = manager(Distributed(timeout=PATIENCE), epochs=1)
    tm.train()
    total = torch.ones(1)
    dist.all_reduce(total)
    return dist.is_initialized(), float(total)


def error_in_group_of_program(rank: int) -> Out:
    """Fail in such a program, in the forward pass of one process."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return fail_at(Fault("error", "forward", rank, 2), "ddp")
