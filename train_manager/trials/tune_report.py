"""What the trials of ``tune`` have shown, as a table, and the lines to paste for the fastest of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, final

from train_manager.reporting.values import align_columns, plural
from train_manager.trials.tricks import Trick

ROUNDS: Final = 5
"""The rounds of each trial."""
WARM_UP: Final = 5
"""The steps of each round that are not timed: they allocate, compile, and start workers."""
HELPS: Final = 0.97
"""The time of a step, in that of the training as it is, from which on a trick helps: less is within the noise."""

Tricks = tuple[Trick, ...]


@final
@dataclass(frozen=True)
class Tried:
    """A trial, and what it has shown.

    Attributes:
        tricks: the tricks that were in place together; empty for the training as it is.
        ratio: the time of a step, in that of the training as it is; nan if the trial failed.
        loss: the largest difference of a loss from the training as it is; nan if the trial failed.
        weights: the largest difference of a weight, after these steps.
        failed: the error that has ended it; empty if there was none.
    """

    tricks: Tricks
    ratio: float = math.nan
    loss: float = math.nan
    weights: float = math.nan
    failed: str = ""

    @property
    def name(self) -> str:
        """The names of the tricks."""
        return ", ".join(one.name for one in self.tricks) or "as it is"

    def cells(self, seconds: float) -> list[str]:
        """Return the row of the table, given the time of a step of the training as it is."""
        if self.failed:
            return [self.name, "failed", "", "", ""]
        differences = ("0" if one == 0 else f"{one:.1e}" for one in (self.loss, self.weights))
        return [self.name, f"{self.ratio:.2f}", f"{1000 * self.ratio * seconds:.3g} ms", *differences]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "tricks": [one.name for one in self.tricks]}


@final
@dataclass(frozen=True)
class TuneReport:
    """The trials of ``tune``; ``str()`` shows them as a table, with the lines for the fastest.

    Attributes:
        tried: the trials, the training as it is first.
        seconds: the time of a step of the training as it is.
        steps: the timed steps of each round.
        compared: the steps after which losses and weights were compared.
        notes: what the table does not show.
    """

    tried: list[Tried]
    seconds: float
    steps: int
    compared: int
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> Tried:
        """The fastest trial, or one of fewer tricks that is as fast within 3 %."""
        sound = [one for one in self.tried if not one.failed]
        limit = min(one.ratio for one in sound) / HELPS
        return min((one for one in sound if one.ratio <= limit), key=lambda one: (len(one.tricks), one.ratio))

    @property
    def lines(self) -> str:
        """The code that puts the tricks of ``best`` in place, below ``tm = TrainManager(...)``."""
        imports = sorted({line for one in self.best.tricks for line in one.imports})
        return "\n".join([*imports, *(line for one in self.best.tricks for line in one.lines)])

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, with the names of the tricks of ``best`` and its lines."""
        tried = [one.as_json() for one in self.tried]
        return {**vars(self), "tried": tried, "best": self.best.as_json()["tricks"], "lines": self.lines.splitlines()}

    def __str__(self) -> str:
        trials, steps = plural(len(self.tried), "trial"), plural(self.steps, "step")
        head = [
            f"{trials} in turn, each {ROUNDS} rounds of {steps} after {WARM_UP}; the median round counts",
            f"loss, weights: the largest difference after {self.compared} steps from the training as it is",
        ]
        rows = [["", "ratio", "a step", "loss", "weights"], *(one.cells(self.seconds) for one in self.tried)]
        failed = [f"{one.name} failed: {one.failed}" for one in self.tried if one.failed]
        return "\n".join([*head, "", align_columns(rows), *failed, *self.notes, "", self._advice()])

    def _advice(self) -> str:
        if not self.best.tricks:
            return "nothing that was tried is faster by 3 %: leave the training as it is"
        lines = "".join(f"\n    {line}" for line in self.lines.splitlines())
        return f"below tm = TrainManager(...), for {self.best.ratio:.2f} of the time:\n{lines}"
