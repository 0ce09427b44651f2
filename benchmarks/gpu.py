"""What the tricks give on one GPU: fused, channels_last, 16 bits and ``Compile``, over the script by hand on it.

python -m benchmarks gpu

It writes ``benchmarks/gpu.md``. Without a GPU it is skipped; ``--device cpu --quick`` shows that it runs. As a GPU
computes while Python goes on, the clock on the wall is read, after the GPU has done all that it was asked for.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.measure import ROOT, interleaved, ratios
from benchmarks.programs.measured import distance, weights
from benchmarks.programs.problems import LR, Problem, problems
from benchmarks.section import Section, lines, table
from train_manager import Extension, InMemory, TrainManager
from train_manager.extensions import Compile, MixedPrecision

PAGE: Final = ROOT / "benchmarks" / "gpu.md"
QUICK: dict[str, Any] = {"rounds": 1, "scale": 0.25, "page": None}
WARM_UP: Final = 4
"""The epochs before the clock starts: by then all graphs are made."""

FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "as it is": (),
    "fused": ("fused",),
    "channels_last": ("channels_last",),
    "bf16": ("bf16",),
    "fused, channels_last, bf16": ("fused", "channels_last", "bf16"),
    "Compile": ("Compile",),
    "Compile, channels_last": ("Compile", "channels_last"),
}
"""The programs of Train Manager. There is none of bf16 with Compile, beside which batches run eagerly."""

EXTENSIONS: Final[Mapping[str, Callable[[], Extension]]] = {
    "bf16": MixedPrecision,
    "Compile": lambda: Compile(io.StringIO()),
}

TEXT: Final = """\
The problems of `end_to_end` on {device}, with all data on it; torch {torch}. Seconds on the clock over those of the
script by hand on the same device, with the quartiles in brackets.

A step, of an epoch that is not evaluated:

{steps}

An epoch with an evaluation:

{epochs}

How far the weights are from those of the script after {warm_up} epochs:

{off}{notes}
"""


def section(rounds: int = 9, scale: float = 4.0, device: str = "cuda", page: Path | None = PAGE) -> Section:
    """Measure.

    Args:
        rounds: how often the programs take their turn.
        scale: a share of the batches of ``end_to_end``.
        device: where.
        page: where to write what was measured on a device that is not a processor.
    """
    if device != "cpu" and not torch.accelerator.is_available():
        return Section("One GPU", f"Skipped: gpu, as torch finds no device {device!r} here.", on_page=False)
    found = {name: measure(problem, device, rounds) for name, problem in problems(scale).items()}
    text = TEXT.format(
        device=name_of(device),
        torch=torch.__version__,
        steps=table_of(found, lambda one, form: one.ratio(form, "steps")),
        epochs=table_of(found, lambda one, form: one.ratio(form, "epochs")),
        warm_up=WARM_UP,
        off=table_of(found, lambda one, form: f"{one.off[form]:.0e}"),
        notes=lines(
            f"{name}, {form}: failed ({error})." for name, one in found.items() for form, error in one.failed.items()
        ),
    )
    if page is not None and device != "cpu":
        page.write_text(f"# One GPU\n\n{text.strip()}\n", encoding="utf-8")
    return Section("One GPU", text, on_page=False)


def name_of(device: str) -> str:
    """What the maker calls a device."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


class Measured(NamedTuple):
    """What the programs have taken for a problem.

    Attributes:
        seconds: of each program, for "steps" and for "epochs".
        off: how far the weights of a program are from those of the script.
        failed: the errors of programs that do not run on the device.
    """

    seconds: Mapping[tuple[str, str], list[float]]
    off: dict[str, float]
    failed: dict[str, str]

    def ratio(self, form: str, which: str) -> str:
        """What a program takes over the script."""
        return ratios(self.seconds[form, which], self.seconds["by hand", which]).shown(2)


def table_of(found: Mapping[str, Measured], cell: Callable[[Measured, str], str]) -> str:
    """A row for each program, and a column for each problem."""
    rows = [[form, *("-" if form in one.failed else cell(one, form) for one in found.values())] for form in FORMS]
    return table(["", *found], rows)


def measure(problem: Problem, device: str, rounds: int) -> Measured:
    """Let the programs take turns."""
    by_hand = ByHand(problem, device)
    turns = {("by hand", which): partial(timed, device, function) for which, function in by_hand.turns.items()}
    off, failed = dict[str, float](), dict[str, str]()
    for form, tricks in FORMS.items():
        try:
            ours = Ours(problem, device, tricks)
        except Exception as error:  # a trick that a device does not have
            failed[form] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        off[form] = distance(ours.weights, by_hand.weights)
        turns |= {(form, which): partial(timed, device, function) for which, function in ours.turns.items()}
    return Measured(interleaved(turns, rounds), off, failed)


def timed(device: str, function: Callable[[], object]) -> float:
    """Seconds on the clock until the device has computed it."""
    synchronize(device)
    before = perf_counter()
    function()
    synchronize(device)
    return perf_counter() - before


def synchronize(device: str) -> None:
    """Wait for a device."""
    if device != "cpu":
        torch.accelerator.synchronize(device)


class ByHand:
    """The script, with all of its batches on the device."""

    def __init__(self, problem: Problem, device: str) -> None:
        self.model = problem.new_model().to(device)
        self.optimizer = AdamW(self.model.parameters(), LR)
        self.train, self.valid = (
            [*zip(*(one.to(device).split(problem.batch_size) for one in of), strict=True)]
            for of in (problem.train, problem.valid)
        )
        for _ in range(WARM_UP):
            self.epoch()
        self.weights = weights(self.model).cpu()
        self.turns = {"steps": self.steps, "epochs": self.epoch}

    def steps(self) -> None:
        """Train an epoch."""
        for inputs, targets in self.train:
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(inputs), targets).backward()
            self.optimizer.step()

    def epoch(self) -> float:
        """Train an epoch, and evaluate."""
        self.steps()
        self.model.eval()
        with torch.no_grad():
            losses = [F.cross_entropy(self.model(inputs), targets) * len(inputs) for inputs, targets in self.valid]
        self.model.train()
        return float(sum(losses, start=Tensor([0]).to(losses[0].device)))


class Ours:
    """Train Manager with some tricks."""

    def __init__(self, problem: Problem, device: str, tricks: tuple[str, ...]) -> None:
        parts = [problem.train, problem.valid]
        train, valid = (InMemory(*of, batch_size=problem.batch_size, device=device, copy=False) for of in parts)
        self.manager = TrainManager(
            model=laid_out(problem.new_model(), tricks),
            device=device,
            loss=F.cross_entropy,
            optimizer=partial(AdamW, lr=LR, fused=True if "fused" in tricks else None),
            train_data=train,
            eval_data={"valid": valid},
            extensions=[EXTENSIONS[name]() for name in tricks if name in EXTENSIONS],
        )
        self.epochs(WARM_UP)
        self.weights = weights(self.manager.model).cpu()
        self.turns = {"steps": self.steps, "epochs": self.epochs}

    def steps(self) -> None:
        """Train an epoch."""
        self.manager.eval_at = ()
        self.manager.train_epochs(1)

    def epochs(self, count: int = 1) -> None:
        """Train epochs, and evaluate after each."""
        self.manager.eval_at = ("epoch",)
        self.manager.train_epochs(count)


def laid_out(model: nn.Module, tricks: tuple[str, ...]) -> nn.Module:
    """A model in the layout for its convolutions."""
    if "channels_last" in tricks:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
