"""What one training step costs above the same step in a bare loop, without extensions and with five that watch.

python -m benchmarks loop
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import peers
from benchmarks.measure import differences, interleaved, ratios, spread
from benchmarks.mlp import Batch, Clocked, new_batches, new_model, sgd
from benchmarks.section import Claim, Costs, Section, better, lines, table
from benchmarks.stages import OURS, Empty
from benchmarks.subscribers import require_calls, subscribers
from train_manager import Extension, TrainManager

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Train = Callable[[nn.Sequential, Clocked, int], list[Any]]
"""Trains a model on one pass over some batches, with so many subscribers, which it returns."""

RAW: Final = "bare loop"
FLOOR: Final = "five empty `with`"
COUNTS: Final = (0, 5)
LIMIT, GOAL = 1.25, 1.10  # times the bare loop; the goal is what a step of Ignite takes
LIMIT_INSIDE = 1.25  # with the stages inside the batch
INSIDE: Final = f"{OURS}, a hook inside"
WARMUP: Final = 10
NEAR: Final = 1e-4  # how far weights may differ for who does the same arithmetic in another order: Keras
QUICK: dict[str, Any] = {"rounds": 1, "steps": 20}

TEXT: Final = """\
A step of an MLP of 32, 64 and 10 units on a batch of 32 in memory, with SGD, above the same step in a bare loop, which
takes {raw} us. The set-up does not count. All end with the weights of the bare loop, bit for bit
(within {near:g}: {inexact}). In the picture, H subscribers read the loss after each step.

{table}

![Microseconds of a step above the bare loop](benchmarks/loop.png)

"{floor}" is the bare loop with an empty `with self.staged(name)` for each stage. A hook inside opens the
stage of the forward pass. Logging, checkpoints and bars are off; Lightning has `barebones=True`, transformers neither
clips nor checks for nan, Keras has its own layers.{notes}
"""


def raw(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    """The loop that all others are compared with."""
    watching = subscribers(count, after="step(self, loss)")
    hooks = [one.step for one in watching]
    optimizer = sgd(model.parameters())
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for hook in hooks:
            hook(loss)
    return watching


class Floor:
    """The bare loop cut into methods, with an empty ``with`` where TrainManager has a stage."""

    def __init__(self, model: nn.Sequential, hooks: list[Any]) -> None:
        self.model, self.hooks, self.optimizer = model, hooks, sgd(model.parameters())

    def staged(self, name: str, fixtures: dict[str, Any] | None = None) -> Empty:
        return Empty()

    def step(self, batch: Batch) -> None:
        with self.staged("train_step_batch", {"batch": batch}):
            prediction = self.predict(batch[0])
            loss = self.score(prediction, batch[1])
            self.backward(loss)
            self.update()
        for hook in self.hooks:
            hook(loss)

    def predict(self, inputs: Tensor) -> Any:
        with self.staged("train_model_forward"):
            return self.model(inputs)

    def score(self, prediction: Tensor, targets: Tensor) -> Tensor:
        with self.staged("train_loss_forward"):
            return F.cross_entropy(prediction, targets)

    def backward(self, loss: Tensor) -> None:
        with self.staged("train_backward"):
            loss.backward()

    def update(self) -> None:
        with self.staged("train_optimizer_step"):
            self.optimizer.step()
            self.optimizer.zero_grad()


def floor(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    """What no loop of this form can do without."""
    watching = subscribers(count, after="step(self, loss)")
    loop = Floor(model, [one.step for one in watching])
    for batch in batches:
        loop.step(batch)
    return watching


def ours(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    """TrainManager as it comes."""
    watching = subscribers(count, after="post_train_step_batch(self, loss)", base=Extension)
    TrainManager(model=model, loss=F.cross_entropy, optimizer=sgd, train_data=batches, extensions=watching).train()
    return watching


class Inside(Extension):
    """Opens the stage of the forward pass."""

    def post_train_model_forward(self) -> None: ...


def inside(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    """TrainManager with one more hook, which opens a stage inside the batch."""
    watching = subscribers(count, after="post_train_step_batch(self, loss)", base=Extension)
    extensions = [*watching, Inside()]
    TrainManager(model=model, loss=F.cross_entropy, optimizer=sgd, train_data=batches, extensions=extensions).train()
    return watching


def section(rounds: int = 15, steps: int = 300, with_peers: bool = True) -> Section:
    """Measure.

    Args:
        rounds: how often all cases take their turn.
        steps: how many steps a turn has.
        with_peers: whether to compare with the toolkits that are installed.
    """
    torch.set_num_threads(1)
    batches = new_batches(steps + 2 * WARMUP)
    expected = trained(raw, Clocked(batches, WARMUP), 0)
    others, inexact, skipped = rivals(batches, expected) if with_peers else ({}, [], [])
    trains = {RAW: raw, FLOOR: floor, OURS: ours, INSIDE: inside, **others}
    cases = {(name, count): turn(train, batches, count, expected) for name, train in trains.items() for count in COUNTS}
    measured = interleaved(cases, rounds)
    base = measured[RAW, 0]
    above = {name: {count: differences(measured[name, count], base).times(1e6) for count in COUNTS} for name in trains}
    over = {name: {count: ratios(measured[name, count], base) for count in COUNTS} for name in trains}
    heads = ["", "us above", "ratio"]
    raw_us = spread(base).times(1e6)
    text = TEXT.format(
        raw=raw_us.shown(1),
        floor=FLOOR,
        near=NEAR,
        inexact=", ".join(inexact) or "none of these",
        table=table(heads, rows(above, over)),
        notes=lines([better(above, OURS, others), *skipped]),
    )
    claims = [
        *(
            Claim(f"one step over the bare loop, H = {count}", over[OURS][count].median, LIMIT, GOAL)
            for count in COUNTS
        ),
        Claim("one step with a hook inside over the bare loop", over[INSIDE][0].median, LIMIT_INSIDE, GOAL),
    ]
    return Section("One training step", text, claims, {"loop": picture(above)})


def rivals(batches: list[Batch], expected: Tensor) -> tuple[dict[str, Train], list[str], list[str]]:
    """The other toolkits that can do the training; who of them is not exact; and a line for each that is left out."""
    usable, skipped = peers.found()
    skipped = list(skipped)
    trains: dict[str, Train] = {}
    inexact = []
    for name, module in usable.items():
        if hasattr(module, "train"):
            try:
                if distance(trained(module.train, Clocked(batches, WARMUP), 0), expected):
                    inexact.append(name)
                trains[name] = module.train
            except Exception as error:
                skipped.append(peers.not_running(name, error))
    return trains, inexact, skipped


def turn(train: Train, batches: list[Batch], count: int, expected: Tensor) -> Callable[[], float]:
    """A case for ``interleaved``, which makes sure that the model has learnt what it does in the bare loop."""

    def measured() -> float:
        data = Clocked(batches, WARMUP)
        off = distance(trained(train, data, count), expected)
        if off > NEAR:
            raise AssertionError(f"the weights are {off:g} off those of the bare loop")
        return data.seconds_per_step()

    return measured


def trained(train: Train, batches: Clocked, count: int) -> Tensor:
    """All weights after a run, in one row; each subscriber was called once per step."""
    model = new_model()
    watching = train(model, batches, count)
    assert len(watching) == count
    require_calls(watching, before=0, after=len(batches))
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def distance(weights: Tensor, expected: Tensor) -> float:
    """How far the weight that is farthest off is off."""
    return float((weights - expected).abs().max())


def rows(above: Costs, over: Costs) -> list[list[str]]:
    """The table without subscribers, cheapest first."""
    none = COUNTS[0]
    names = cheapest_first(above, none)
    return [[name, f"{above[name][none].median:.1f}", over[name][none].shown(2)] for name in names]


def cheapest_first(above: Costs, count: int) -> list[str]:
    """The toolkits, by what they cost with so many subscribers."""
    return sorted(above, key=lambda name: above[name][count].median)


def picture(above: Costs) -> Figure:
    """Bars on a log scale, cheapest on top."""
    from benchmarks.pictures import bars_of, figure

    made, (axes,) = figure(1, height=4.2)
    names = [name for name in cheapest_first(above, COUNTS[-1]) if name not in (RAW, FLOOR)]
    bars_of(axes, {f"H = {count}": {name: above[name][count] for name in names} for count in COUNTS})
    axes.set_xlabel("us above the bare loop")
    return made
