"""The metrics that all measuring extensions show together, against sums by hand, in random programs.

The programs have phases, epochs that are left open, batches of one's own, skipped batches, stops, errors that they
catch, and are resumed. ``metrics_oracle.py`` has the programs and the sums.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ExponentialLR, LRScheduler, ReduceLROnPlateau

from tests.support.metrics_oracle import UPDATES, Batch, Call, FailError, Oracle, Program, random_program
from tests.support.resuming import round_trip
from tests.support.rotation import share_of
from train_manager import Extension, SkipBatch, TrainManager, add_loss, modifies, provides
from train_manager.checkpoints.manifest import MANIFEST
from train_manager.extensions import (
    EMA,
    Accumulate,
    Avg,
    EarlyStopping,
    Log,
    LossCurves,
    LRSchedule,
    Metrics,
    MetricStore,
    ProgressBar,
)
from train_manager.tools import read_run


class Part(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))


class Sum(nn.Module):
    def __init__(self, kind: str, weight: float) -> None:
        super().__init__()
        self.kind, self.a = kind, Part(weight)
        self.b = Part(weight) if kind == "two" else None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.kind == "added":
            add_loss(inputs.mean() / 8, "extra")
        return inputs + self.a.weight - (0 if self.b is None else self.b.weight)


def product(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction * targets).mean()


def height(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction


class Updates(TrainManager):
    """Updates each optimizer several times in a batch, with losses of their own."""

    def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        for name in self.optimizers:
            for _ in range(UPDATES):
                prediction = model(inputs)
                self.update(product(prediction, targets), name)
        self.fixtures["prediction"] = prediction.detach()


class Events(Extension):
    """Does what the program says in each batch; saves the state after some of them, and loads one."""

    priority = 2000

    def __init__(self, events: Mapping[int, str], save_at: int, state: Any) -> None:
        self.given, self.events, self.save_at, self.state = 0, events, save_at, state
        self.saved: Any = None

    @modifies("checkpoint_loaded")
    def pre_load_checkpoint(self, train_manager: TrainManager, train_dir: Path) -> Path | bool:
        if self.state is None:
            return False
        state, self.state = self.state, None
        train_manager.load_state_dict(state)
        return train_dir  # where the manifest tells which run has saved the state

    def pre_train_step_batch(self) -> None:
        self.given += 1
        self.leave("")

    def post_train_backward(self, train_manager: TrainManager) -> None:
        if type(train_manager) is TrainManager:  # not of several updates
            self.leave(" late")

    def leave(self, when: str) -> None:
        if self.events.get(self.given) == f"skip{when}":
            raise SkipBatch
        if self.events.get(self.given) == f"fail{when}":
            raise FailError

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        event = self.events.get(self.given)
        if event == "stop":
            train_manager.stop("enough")
        if event == "end epoch":
            train_manager.end_epoch()
        if event == "evaluate" and "train" in train_manager.fixtures.path:
            train_manager.eval_soon()
        if self.given == self.save_at:
            train_manager.save_soon()

    def pre_save_checkpoint(self, train_manager: TrainManager) -> None:
        self.saved = round_trip(train_manager.state_dict())
        Path(str(train_manager.train_dir), MANIFEST).write_text(json.dumps({"run": train_manager.run_id}))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "given": self.given}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.given = state["given"]


class Notes(Extension):
    """Notes what hooks of each batch are given."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def post_train_step_batch(
        self, step_num: int, epoch_num: int, loss: Tensor, avg_loss: Any = None, avg_number: Any = None
    ) -> None:
        means = tuple(mean if mean is None else float(mean) for mean in (avg_loss, avg_number))
        self.batches.append({"step": step_num, "epoch": epoch_num, "loss": loss.item(), "means": means})

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "batches": list(self.batches)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.batches = list(state["batches"])


@provides("number")
def number(loss: Tensor) -> Tensor:
    return loss


def halved(optimizer: Optimizer) -> LRScheduler:
    return ExponentialLR(optimizer, 0.5)


def halved_by_metric(optimizer: Optimizer) -> Any:
    return ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0, threshold_mode="abs")


def tensors(data: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
    return [(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)) for x, y in data]


class Training:
    """A program that is run with all measuring extensions, and what they show."""

    def __init__(self, program: Program, folder: Path, save_at: int = 0, state: Any = None) -> None:
        self.program, self.folder, is_two = program, folder, program.kind == "two"
        self.notes, self.events = Notes(), Events(program.events, save_at, state)
        self.curves, self.stopping = LossCurves(), EarlyStopping(patience=3)
        self.metrics, self.store = Metrics(height=height, file=io.StringIO()), MetricStore()
        extensions: list[Extension] = [
            *(self.events, self.notes, self.metrics, self.curves, self.store, self.stopping),
            *(
                Avg("loss", weight="true_batch_size"),
                Avg("number", over="train"),
                Extension.of(post_train_step_batch=number),
            ),
            *(Log(file=io.StringIO()), ProgressBar(show=["loss"], force=True, file=io.StringIO())),
            *([EMA(0.5)] if program.averages else []),
            *([Accumulate(program.accumulates)] if program.accumulates > 1 else []),
            *([LRSchedule(halved, per="epoch", optimizer="b")] if is_two else []),
        ]
        if program.rates == "monitor":
            schedule = LRSchedule(halved_by_metric, monitor="valid/loss", optimizer="a" if is_two else None)
        else:
            schedule = LRSchedule(halved, per=program.rates)
        self.tm = (Updates if program.kind in ("several", "two") else TrainManager)(
            model=Sum(program.kind, 1.0),
            loss=product,
            optimizer=self.optimizer(0.0625),
            train_data=tensors(program.data),
            eval_data={name: tensors(data) for name, data in program.sets.items()},
            eval_at=program.eval_at,
            epochs=program.epochs,
            extensions=[*extensions, schedule],
            train_dir=folder,
        )

    def optimizer(self, rate: float) -> Any:
        def make(parameters: Iterable[Any]) -> Optimizer:
            return SGD(parameters, lr=rate)

        return {"a": make, "b": make} if self.program.kind == "two" else make

    def run(self, calls: Sequence[Call]) -> None:
        for name, argument, *rest in calls:
            with suppress(FailError):
                self.call(name, argument, *rest)

    def call(self, name: str, argument: Any, phase: str = "", changes: Mapping[str, Any] = {}) -> None:
        tm = self.tm
        made: dict[str, Callable[[Any], Any]] = {
            "epochs": lambda epochs: ("epochs", epochs),
            "train_data": lambda data: ("train_data", tensors(data)),
            "weight": lambda weight: ("model", Sum(self.program.kind, weight)),
            "rate": lambda rate: ("optimizer", self.optimizer(rate)),
        }
        if name == "run":
            with tm.run():
                self.run(argument)
        elif name == "phase":
            with tm.phase(phase, **dict(made[key](value) for key, value in changes.items())):
                self.run(argument)
        elif name == "own":
            for batch in tensors(self.program.data[:argument]):
                tm.train_on_batch(batch)
        elif name in ("train_epochs", "train_steps"):
            getattr(tm, name)(argument)
        else:
            getattr(tm, name)()

    def found(self) -> dict[str, Any]:
        """Return what is shown, in the form of the oracle."""
        tm, curves, stored = self.tm, self.curves, read_run(self.folder)
        points = {"training": curves.training, **curves.eval_sets, **curves.parts.curves}
        named = {f"{name} by {by}": curve for name, of in points.items() for by, curve in of.items()}
        named |= {f"{name} of {of}": curve for name, by in curves.metrics.items() for of, curve in by.items()}
        metrics = {
            (s.name, f"eval {s.datasource}" if s.stage == "eval" else s.stage, s.phase): [
                *zip(of[0], of[1], strict=True)
            ]
            for s, of in stored.metrics.scalars().items()
            if not s.name.startswith(("lr", "batch_size", "seconds"))
        }
        moving = {name: value for name, value in self.metrics.training.items() if not name.startswith("loss")}
        patience = self.stopping._found.of(tm).patience
        updates = [tm.optimizer_updates.get(name, 0) for name in tm.optimizers]
        return {
            "history": rows_of(tm.history),
            "stored rows": rows_of(stored.history),
            "stored metrics": metrics,
            "batches": self.notes.batches,
            "curves": {name: [*zip(curve.x, curve.y, strict=True)] for name, curve in named.items() if curve.x},
            "moving": {name: float(value) for name, value in moving.items()},
            "patience": (patience.best, patience.waited),
            "rates": [rate for rates in tm.learning_rates.values() for rate in rates],
            "counts": (tm.step_num, tm.epoch_num, updates, tm.samples_seen),
        }


def rows_of(history: Any) -> dict[str, list[dict[str, Any]]]:
    epochs = [{name: value for name, value in row.items() if name != "seconds"} for row in history.epochs]
    return {"epochs": epochs, "evaluations": history.evaluations}


def differences(expected: Any, got: Any, place: str = "") -> list[str]:
    """Return where two values differ, in dicts and lists by their places; numbers may do so by rounding."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        keys = [*expected, *(key for key in got if key not in expected)]
        return [found for key in keys for found in differences(expected.get(key), got.get(key), f"{place} {key}")]
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return [found for number, pair in pairs for found in differences(*pair, f"{place}[{number}]")]
    if isinstance(expected, float | int) and isinstance(got, float | int):
        is_same = math.isclose(expected, got, rel_tol=1e-6, abs_tol=1e-6)
    else:
        is_same = expected == got
    return [] if is_same else [f"{place}: expected {expected}, got {got}"]


def differences_of(program: Program, folder: Path, save_at: int = 0) -> list[str]:
    """Run a program, and from a state of its middle once more, and return what differs from the sums by hand."""
    oracle = Oracle(program)
    oracle.run(program.calls)
    expected = oracle.found()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of calls that have nothing to do, and of windows that are dropped
        training = Training(program, folder, save_at)
        training.run(program.calls)
        found = differences(expected, training.found())
        if training.events.saved is not None:
            again = Training(program, folder, state=training.events.saved)
            again.run(program.calls)
            found += [f"resumed from batch {save_at}:{line}" for line in differences(expected, again.found())]
    return found


@pytest.mark.parametrize("first", range(0, 10 * share_of(share_of(4)), 10))
def test_all_metrics_are_the_sums_by_hand(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        program = random_program(seed)
        assert differences_of(program, tmp_path / str(seed)) == [], f"program {seed}\n{program}"


@pytest.mark.parametrize("first", range(0, 6 * share_of(2), 6))
def test_all_metrics_are_the_sums_by_hand_in_a_program_that_is_resumed(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 6):
        program, save_at = random_program(seed, resumes=True), 2 + seed % 9
        if program.events.get(save_at, "stop") == "stop":  # a stop of the checkpoint's own step is over as it resumes
            program.events[save_at] = "evaluate"
        assert differences_of(program, tmp_path / str(seed), save_at) == [], f"program {seed}\n{program}"
