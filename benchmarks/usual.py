"""What the steps and evaluations of usual trainings cost above the same by hand: watched, clipped, hooked inside.

python -m benchmarks usual
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measure import interleaved, ratios, seconds_each, spread
from benchmarks.mlp import Batch, Clocked, new_model
from benchmarks.section import Claim, Section, table
from train_manager import Extension, TrainManager
from train_manager.extensions import ClipGradients

BATCH: Final = 64
WARMUP: Final = 10
WATCHING: Final = 5
EVALUATED: Final = 120
MAX_NORM: Final = 1.0
QUICK: dict[str, Any] = {"rounds": 1, "steps": 40}

TEXT: Final = """\
The same MLP with AdamW and batches of {batch}, over the same by hand: a loop that reads no loss, and an evaluation that
adds up losses on the device. The set-up counts in the last line only.

{table}
"""


class Watcher(Extension):
    """Reads the loss of each step."""

    def __init__(self) -> None:
        self.seen = 0

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.seen += 1


class Inside(Extension):
    """Looks into each stage inside a batch."""

    def post_train_model_forward(self) -> None: ...
    def post_train_loss_forward(self) -> None: ...
    def post_train_backward(self) -> None: ...
    def post_train_optimizer_step(self) -> None: ...


@dataclass(frozen=True)
class Case:
    """A training or an evaluation, here and by hand.

    Args:
        what: in the table.
        ours: CPU seconds with TrainManager.
        by_hand: CPU seconds of the same loop by hand.
        limit: how many times the loop by hand it may take.
    """

    what: str
    ours: Callable[[], float]
    by_hand: Callable[[], float]
    limit: float


def section(rounds: int = 15, steps: int = 300) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    cases = cases_of(steps)
    turns = {(case.what, kind): getattr(case, kind) for case in cases for kind in ("ours", "by_hand")}
    measured = interleaved(turns, rounds)
    over = {case.what: ratios(measured[case.what, "ours"], measured[case.what, "by_hand"]) for case in cases}
    by_hand = {case.what: spread(measured[case.what, "by_hand"]).times(1e6).median for case in cases}
    rows = [[case.what, f"{by_hand[case.what]:.0f}", over[case.what].shown(2)] for case in cases]
    text = TEXT.format(batch=BATCH, table=table(["", "us by hand", "ratio"], rows))
    claims = [Claim(f"{case.what}, over by hand", over[case.what].median, case.limit, case.limit) for case in cases]
    return Section("Usual trainings", text, claims)


def cases_of(steps: int) -> list[Case]:
    """The cases, with so many steps in a turn."""
    batches = new_batches(steps + 2 * WARMUP)
    train = partial(trained, batches)
    by_hand = partial(trained_by_hand, batches)
    watching = [Watcher for _ in range(WATCHING)]
    return [
        Case("a step", partial(train, []), by_hand, 1.20),
        Case("a step that five extensions watch", partial(train, watching), by_hand, 1.20),
        Case("a step with clipped gradients", partial(train, [clip]), partial(by_hand, max_norm=MAX_NORM), 1.18),
        Case("a step with a hook in each stage inside", partial(train, [Inside]), by_hand, 1.23),
        Case(f"an evaluation of {EVALUATED} batches", *evaluations(new_batches(EVALUATED)), limit=1.30),
        Case("an evaluation of one batch", *evaluations(new_batches(1), calls=100), limit=5),
        Case("an epoch with an evaluation, of DataLoaders", *epochs(steps), limit=1.12),
    ]


def clip() -> ClipGradients:
    """The extension that clips as the loop by hand does."""
    return ClipGradients(MAX_NORM)


def adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimizer."""
    return AdamW(parameters, lr=1e-3)


def new_batches(count: int) -> list[Batch]:
    """So many batches, the same each time."""
    inputs, targets = new_examples(count)
    return list(zip(inputs.split(BATCH), targets.split(BATCH), strict=True))


def new_examples(count: int) -> tuple[Tensor, Tensor]:
    """The examples of so many batches, the same each time."""
    generator = torch.Generator().manual_seed(count)
    inputs = torch.randn(count * BATCH, 32, generator=generator)
    return inputs, torch.randint(10, (count * BATCH,), generator=generator)


def trained(batches: list[Batch], extensions: Iterable[Callable[[], Extension]]) -> float:
    """CPU seconds of a step with TrainManager."""
    data, made = Clocked(batches, WARMUP), [make() for make in extensions]
    TrainManager(
        model=new_model(), loss=F.cross_entropy, optimizer=adamw, train_data=data, extensions=made, eval_at=()
    ).train()
    assert all(one.seen == len(batches) for one in made if isinstance(one, Watcher)), "each hook runs once a step"
    return data.seconds_per_step()


def trained_by_hand(batches: list[Batch], max_norm: float | None = None) -> float:
    """CPU seconds of a step of the loop by hand."""
    data, model = Clocked(batches, WARMUP), new_model()
    train_by_hand(model, adamw(model.parameters()), data, max_norm)
    return data.seconds_per_step()


def train_by_hand(model: nn.Module, optimizer: Optimizer, data: Iterable[Batch], max_norm: float | None = None) -> None:
    """One epoch."""
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()


def evaluate_by_hand(model: nn.Module, data: Iterable[Batch]) -> float:
    """Return the mean loss by examples."""
    model.eval()
    total, count = torch.tensor(0.0), 0
    with torch.no_grad():
        for inputs, targets in data:
            total += F.cross_entropy(model(inputs), targets) * len(inputs)
            count += len(inputs)
    model.train()
    return total.item() / count


def evaluations(batches: list[Batch], calls: int = 3) -> tuple[Callable[[], float], Callable[[], float]]:
    """An evaluation with TrainManager, and by hand; both give the same loss."""
    model = new_model()
    tm = TrainManager(model=model, loss=F.cross_entropy, eval_data={"valid": batches})
    ours, by_hand = tm.eval()["valid"]["loss"], evaluate_by_hand(model, batches)
    assert abs(ours - by_hand) < 1e-6, f"the losses are {ours} and {by_hand}"

    def by_hand_again(times: int) -> None:
        for _ in range(times):
            evaluate_by_hand(model, batches)

    def ours_again(times: int) -> None:
        for _ in range(times):
            tm.eval()

    return partial(seconds_each, ours_again, calls), partial(seconds_each, by_hand_again, calls)


def epochs(steps: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """An epoch and an evaluation on a quarter as many batches, of DataLoaders, with TrainManager and by hand."""
    train, valid = TensorDataset(*new_examples(steps)), TensorDataset(*new_examples(max(steps // 4, 1)))
    loaders: Mapping[str, Any] = {"train": DataLoader(train, BATCH), "valid": DataLoader(valid, BATCH)}

    def ours(times: int) -> None:
        TrainManager(
            model=new_model(),
            loss=F.cross_entropy,
            optimizer=adamw,
            train_data=loaders["train"],
            eval_data={"valid": loaders["valid"]},
            eval_at="epoch",
            epochs=times,
        ).train()

    def by_hand(times: int) -> None:
        model = new_model()
        optimizer = adamw(model.parameters())
        for _ in range(times):
            train_by_hand(model, optimizer, loaders["train"])
            evaluate_by_hand(model, loaders["valid"])

    return partial(seconds_each, ours, 2), partial(seconds_each, by_hand, 2)
