"""What a training must show, computed by hand in plain Python from the documentation, without the library.

A ``Program`` is a tree of calls on data whose losses are known numbers: the model adds a weight to its inputs, and the
loss is the mean of prediction times target, so the gradient is the mean of the targets. ``Oracle`` follows a program
call by call, and sums up what each epoch, evaluation, curve and table must have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Batch = tuple[list[float], list[float]]  # the inputs and the targets of the examples
Call = tuple[Any, ...]
PLACES = {"epoch", "step", "phase", "partial", "standalone", "set"}
UPDATES = 2  # of each optimizer in a batch, where there are several


@dataclass
class Program:
    """A random program.

    Attributes:
        kind: "plain"; "added" with a loss that the model adds; "several" updates of the optimizer in a batch; "two"
            optimizers, each with a loss of its own.
        events: what a hook does in which batch, counted over all, also those that are skipped.
        calls: ``(method, argument)``; of "run" and "phase" the argument is what is called inside.
    """

    kind: str
    data: list[Batch]
    sets: dict[str, list[Batch]]
    eval_at: tuple[str, ...]
    epochs: int
    rates: str  # when the learning rate is halved: per "epoch", per "step", or by the "monitor"
    averages: bool  # EMA
    accumulates: int
    events: dict[int, str]
    calls: list[Call] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in vars(self).items())


def random_program(seed: int, *, resumes: bool = False) -> Program:
    """Return the program of a seed; in a resumable one every call is counted and every error caught."""
    chance = random.Random(seed)
    kind = chance.choice(["plain", "added", "several", "two"])
    events = ["skip", "skip late", "stop", "end epoch", "evaluate", "fail", "fail late"]
    rates = chance.choice(["epoch", "step", "monitor"])
    made = Program(
        kind=kind,
        data=_batches(chance, 4),
        sets={name: _batches(chance, 2) for name in ["valid", "other"][: chance.randint(1, 2)]},
        eval_at=chance.choice([("start", "epoch"), ("epoch",), ("start", "epoch", "end"), ("end",)]),
        epochs=chance.randint(1, 4),
        rates="monitor" if kind == "two" else rates,
        averages=chance.random() < 0.5,
        accumulates=chance.choice([1, 2, 3]) if kind in ("plain", "added") else 1,
        events={number: chance.choice(events) for number in range(1, 41) if chance.random() < 0.1},
    )
    made.calls = _calls(chance, 5, 0, resumes)
    return made


def _batches(chance: random.Random, most: int) -> list[Batch]:
    sizes = [chance.choice([1, 2, 2, 4]) for _ in range(chance.randint(1, most))]
    inputs = [[chance.randrange(32) / 8 for _ in range(size)] for size in sizes]
    return [(values, [chance.choice([1.0, 1.0, -1.0]) for _ in values]) for values in inputs]


def _calls(chance: random.Random, most: int, depth: int, resumes: bool) -> list[Call]:
    found: list[Call] = []
    names = ["train", "train_epochs", "train_steps", "train_steps", "phase", "run"]
    names += [] if resumes else ["train_epoch", "eval"] + ["own", "own"] * (depth > 0)
    for _ in range(chance.randint(1, most)):
        name = chance.choice([name for name in names if depth < 3 or name != "phase"])
        if name == "phase":
            changes = {"epochs": chance.randint(1, 2), "train_data": _batches(chance, 3), "weight": 1.5, "rate": 0.125}
            changes = {key: value for key, value in changes.items() if chance.random() < 0.4}
            found.append((name, _calls(chance, 3, depth + 1, resumes), f"phase {chance.randint(1, 2)}", changes))
        elif name == "run":
            found.append((name, _calls(chance, 3, depth + 1, resumes)) if depth == 0 else ("train_steps", 2))
        else:
            found.append((name, chance.randint(1, 5 if name == "train_steps" else 2)))
        if name == "own" and chance.random() < 0.6:
            found.append(("end_epoch", 0))
    return found


class FailError(Exception):
    """What a hook raises, and the program catches."""


class Mean:
    """A weighted mean."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: float, weight: float) -> None:
        self.total, self.weight = self.total + value * weight, self.weight + weight

    def __call__(self) -> float:
        return self.total / self.weight if self.weight else math.nan


@dataclass
class Epoch:
    """An epoch: the batches that were given, and the means over the examples that were trained on."""

    given: int = 0
    trained: int = 0
    means: dict[str, Mean] = field(default_factory=dict)
    parts: dict[str, Mean] = field(default_factory=dict)


@dataclass
class Level:
    """The training itself, or a phase in it. ``weights`` and ``rates`` may be those of the level around."""

    name: str
    data: list[Batch]
    epochs: int
    weights: dict[str, Any]
    rates: dict[str, float]
    first: int = 0
    epoch_num: int = 0
    open: Epoch | None = None
    own: Epoch | None = None
    partial: int | None = None  # where the row of an epoch that was left is
    evaluated_at: int | None = None  # by the loop, in the present run
    is_stopped: bool = False
    best: float = math.inf
    waited: int = 0
    plateau: float = math.inf


class Oracle:
    """Follows a program; ``found`` is what each extension must show at its end."""

    def __init__(self, program: Program) -> None:
        self.program, self.names = program, ["a", "b"] if program.kind == "two" else ["a"]
        self.levels = [Level("", program.data, program.epochs, self.new_weights(1.0), self.new_rates(0.0625))]
        self.step = self.examples = self.given = 0
        self.updates = dict.fromkeys(self.names, 0)
        self.window: tuple[int, float, int] | None = None  # its first step, the sum of gradients, and their weight
        self.moving: dict[str, tuple[float, int]] = {}
        self.call_mean, self.call_start = Mean(), 0
        self.is_in_epoch = self.wants_stop = self.is_in_run = self.run_is_stopped = False
        self.epochs: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.batches: list[dict[str, Any]] = []
        self.curves: dict[str, list[tuple[float, float]]] = {}
        self.stored: dict[tuple[str, str, str], list[tuple[int, float]]] = {}

    def new_weights(self, weight: float) -> dict[str, Any]:
        return {**dict.fromkeys(self.names, weight), "average": None}

    def new_rates(self, rate: float) -> dict[str, float]:
        return dict.fromkeys(self.names, rate)

    @property
    def level(self) -> Level:
        return self.levels[-1]

    def found(self) -> dict[str, Any]:
        """Return what must be shown, by the name of the extension."""
        for row in self.epochs + self.evaluations:
            place = "eval " + row["set"] if "set" in row else "train_step_epoch"
            for name in row.keys() - PLACES:
                self.stored.setdefault((name, place, row.get("phase", "")), []).append((row["step"], row[name]))
        return {
            "history": {"epochs": self.epochs, "evaluations": self.evaluations},
            "stored rows": {"epochs": self.epochs, "evaluations": self.evaluations},
            "stored metrics": self.stored,
            "batches": self.batches,
            "curves": self.curves,
            "moving": {name: value for name, (value, _) in self.moving.items()},
            "patience": (None if self.levels[0].best == math.inf else self.levels[0].best, self.levels[0].waited),
            "rates": list(self.level.rates.values()),
            "counts": (self.step, self.level.epoch_num, list(self.updates.values()), self.examples),
        }

    # ---- a batch -------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, weights: dict[str, Any]) -> tuple[list[float], float]:
        inputs, targets = batch
        prediction = [value + weights["a"] - weights.get("b", 0) for value in inputs]
        loss = sum(p * t for p, t in zip(prediction, targets, strict=True)) / len(inputs)
        return prediction, loss + (sum(inputs) / len(inputs) / 8 if self.program.kind == "added" else 0)

    def update(self, name: str, gradient: float) -> None:
        level, weights = self.level, self.level.weights
        weights[name] -= level.rates[name] * gradient
        self.updates[name] += 1
        if self.program.averages:
            now, average = {name: weights[name] for name in self.names}, weights["average"]
            weights["average"] = {k: (average[k] + now[k]) / 2 for k in now} if average else now
        if self.program.rates == "step":
            level.rates[name] /= 2

    def batch(self, batch: Batch, epoch: Epoch, *, is_own: bool = False, is_last: bool = False, end: int = -1) -> str:
        """Train on a batch, and return what a hook has asked for in it."""
        self.given += 1
        epoch.given += 1
        event, kind, (inputs, targets) = self.program.events.get(self.given, ""), self.program.kind, batch
        if event in ("skip", "fail"):
            return self.leave(event)
        size, gradient, parts = len(inputs), sum(targets) / len(inputs), {}
        if kind in ("several", "two"):
            for name, sign in [("a", 1), ("b", -1)][: len(self.names)]:
                losses = []
                for _ in range(UPDATES):
                    prediction, loss = self.forward(batch, self.level.weights)
                    losses.append(loss)
                    self.update(name, sign * gradient)
                parts[name if kind == "two" else "optimizer"] = sum(losses) / UPDATES
            loss = sum(parts.values())
        else:
            prediction, loss = self.forward(batch, self.level.weights)
            parts = {"extra": sum(inputs) / size / 8} if kind == "added" else {}
            first, total, weight = self.window or (self.step, 0.0, 0)
            self.window = (first, total + gradient * size, weight + size)
            if event in ("skip late", "fail late"):
                self.window = None
                return self.leave(event)
            if self.step + 1 - first >= self.program.accumulates or is_last or self.step + 1 == end:
                self.update("a", self.window[1] / self.window[2])
                self.window = None
        self.count(size, loss, parts, {"height": sum(prediction) / size}, epoch, is_own=is_own)
        return event

    def leave(self, event: str) -> str:
        if event.startswith("fail"):
            raise FailError
        return ""

    def count(
        self, size: int, loss: float, parts: dict[str, float], metrics: dict[str, float], epoch: Epoch, *, is_own: bool
    ) -> None:
        """Add up what is measured of a batch that was trained on."""
        self.step, self.examples, epoch.trained = self.step + 1, self.examples + size, epoch.trained + 1
        shown = {f"losses/{name}": value for name, value in parts.items()} if len(self.names) > 1 else {"loss": loss}
        for name, value in {**shown, **metrics, "of all": loss}.items():
            epoch.means.setdefault(name, Mean()).add(value, size)
        for name, value in parts.items():
            epoch.parts.setdefault(name, Mean()).add(value, size)
        for name, value in {**{f"moving_{name}": value for name, value in shown.items()}, **metrics}.items():
            before, number = self.moving.get(name, (0.0, 0))
            self.moving[name] = before + max(0.01, 1 / (number + 1)) * (value - before), number + 1
        if not is_own:
            self.call_mean.add(loss, 1)
        means = (None, None) if is_own else (epoch.means["of all"](), self.call_mean())
        self.batches.append({"step": self.step, "epoch": self.level.epoch_num, "loss": loss, "means": means})
        for name, value in [*([("training", loss)] if "loss" in shown else []), *parts.items()]:
            self.point(f"{name} by batch", self.step, value)
            self.point(f"{name} by example", self.examples, value)
            key = ("loss" if name == "training" else f"losses/{name}", "train_step_batch", self.level.name)
            self.stored.setdefault(key, []).append((self.step, value))

    def point(self, curve: str, x: float, y: float) -> None:
        self.curves.setdefault(curve, []).append((x, y))

    # ---- evaluations and epochs ----------------------------------------------------------------------------------

    def evaluate(self, *, is_alone: bool = False, by_hand: bool = False) -> None:
        level = self.level
        weights = level.weights["average"] or level.weights
        is_within = self.is_in_epoch or level.partial is not None or level.own is not None
        for name, data in self.program.sets.items():
            means = {"loss": Mean(), "height": Mean()}
            for batch in data:
                prediction, loss = self.forward(batch, weights)
                means["loss"].add(loss, len(prediction))
                means["height"].add(sum(prediction) / len(prediction), len(prediction))
            result = {key: mean() for key, mean in means.items()}
            place = {"epoch": level.epoch_num, "step": self.step, "set": name, **self.of_phase()}
            self.evaluations.append({**place, **({"standalone": True} if is_alone else {}), **result})
            if is_alone:
                continue
            self.point(f"{name} by batch", self.step, result["loss"])
            self.point(f"{name} by example", self.examples, result["loss"])
            if not is_within:
                self.point(f"{name} by epoch", level.epoch_num, result["loss"])
                self.point(f"height of {name}", level.epoch_num, result["height"])
            if name == "valid" and not (level.epoch_num == 0 and self.step == level.first):  # that at the start
                self.monitor(result["loss"])
        if not by_hand:
            level.evaluated_at = self.step

    def monitor(self, value: float) -> None:
        level = self.level
        if self.program.rates == "monitor":
            level.rates["a"] /= 1 if value < level.plateau else 2
            level.plateau = min(level.plateau, value)
        level.waited = 0 if value < level.best else level.waited + 1
        level.best = min(level.best, value)
        self.wants_stop = self.wants_stop or level.waited >= 3

    def of_phase(self) -> dict[str, str]:
        return {"phase": self.level.name} if self.level.name else {}

    def end_epoch(self, epoch: Epoch) -> None:
        level = self.level
        level.epoch_num += 1
        level.open = level.own = None
        if len(self.names) > 1 or self.program.rates == "epoch":
            level.rates[self.names[-1]] /= 2
        self.add_row(epoch, {})
        level.partial = None
        for name, mean in [("training", epoch.means.get("loss")), *epoch.parts.items()]:
            if mean is not None:
                self.point(f"{name} by epoch", level.epoch_num, mean())
        if "height" in epoch.means:
            self.point("height of training", level.epoch_num, epoch.means["height"]())

    def add_row(self, epoch: Epoch, partial: dict[str, bool]) -> None:
        level = self.level
        if level.partial is not None:
            del self.epochs[level.partial]
        level.partial = len(self.epochs)
        means = {name: mean() for name, mean in epoch.means.items() if name != "of all"}
        place = {"epoch": level.epoch_num + bool(partial), "step": self.step, **self.of_phase(), **partial}
        self.epochs.append({**place, **means})

    # ---- calls ---------------------------------------------------------------------------------------------------

    def run(self, calls: Sequence[Call]) -> None:
        """Make calls; an error ends the innermost one. Each is a run of its own, if none is held open."""
        for name, argument, *rest in calls:
            if not self.is_in_run:
                self.window, self.call_start, self.run_is_stopped = None, self.step, False
                self.level.evaluated_at, self.level.is_stopped = None, False
            before, self.is_in_run = self.is_in_run, True
            self.wants_stop = self.is_in_epoch = False
            with suppress(FailError):
                self.call(name, argument, *rest, is_alone=not before)
            self.level.is_stopped = self.level.is_stopped or self.wants_stop
            self.run_is_stopped = self.levels[0].is_stopped
            self.wants_stop, self.is_in_run = False, before

    def call(self, name: str, argument: Any, *rest: Any, is_alone: bool) -> None:
        if name == "run":
            self.run(argument)
        elif name == "phase":
            self.phase(argument, *rest)
        elif name == "eval":
            self.evaluate(is_alone=is_alone, by_hand=True)
        elif name == "own":
            for batch in self.program.data[:argument]:
                self.level.own = self.level.own or Epoch()
                event = self.batch(batch, self.level.own, is_own=True)
                self.wants_stop = self.wants_stop or event == "stop"
                if event == "end epoch" and self.level.open is None:
                    self.end_epoch(self.level.own)
        elif name == "end_epoch":
            if self.level.own is not None and self.level.open is None:
                self.end_epoch(self.level.own)
        else:
            self.train(name, argument)

    def phase(self, calls: Sequence[Call], name: str, changes: dict[str, Any]) -> None:
        around, start = self.level, self.call_start
        weights = self.new_weights(changes["weight"]) if "weight" in changes else around.weights
        is_new = "weight" in changes or "rate" in changes
        rates = self.new_rates(changes.get("rate", 0.0625)) if is_new else around.rates
        data, epochs = changes.get("train_data", around.data), changes.get("epochs", around.epochs)
        self.levels.append(Level(name, data, epochs, weights, rates, first=self.step))
        self.window, self.call_start = None, self.step
        self.run(calls)
        self.levels.pop()
        self.window, self.call_start, self.wants_stop = None, start, False

    def train(self, method: str, number: int) -> None:
        level, evaluates = self.level, self.program.eval_at if method != "train_epoch" else ()
        to_come = {"train": level.epochs, "train_epochs": level.epoch_num + number, "train_epoch": level.epoch_num + 1}
        last_epoch, end = to_come.get(method, math.inf), self.step + number if method == "train_steps" else -1
        self.call_mean, self.call_start = Mean(), self.step
        if "start" in evaluates and self.step == level.first and level.evaluated_at is None:
            self.evaluate()
        if not (self.run_is_stopped or level.is_stopped):
            while not self.wants_stop and level.epoch_num < last_epoch and self.step != end:
                has_ended, asked = self.train_epoch(end)
                if (asked or (has_ended and "epoch" in evaluates)) and level.evaluated_at != self.step:
                    self.evaluate()
        if "end" in evaluates and level.evaluated_at != self.step:
            self.evaluate()

    def train_epoch(self, end: int) -> tuple[bool, bool]:
        """Train the rest of an epoch; return whether it has ended, and whether its last batch asks to evaluate."""
        level, event = self.level, ""
        epoch = level.open = level.open or Epoch()
        level.own, self.is_in_epoch, trained = None, True, epoch.trained
        try:
            while epoch.given < len(level.data) and self.step != end and event not in ("stop", "end epoch"):
                if event == "evaluate":
                    self.evaluate()
                    if self.wants_stop:
                        break
                is_last = epoch.given + 1 == len(level.data)
                event = self.batch(level.data[epoch.given], epoch, is_last=is_last, end=end)
        except FailError:
            level.open = None
            raise
        has_ended = epoch.given == len(level.data) or event == "end epoch"
        self.is_in_epoch, self.wants_stop = False, self.wants_stop or event == "stop"
        if has_ended:
            self.end_epoch(epoch)
        elif epoch.trained > trained:
            self.add_row(epoch, {"partial": True})
        if not has_ended and self.wants_stop:
            level.open = None
        return has_ended, event == "evaluate"
