"""The history of a training: a row of figures for each epoch and for each evaluation."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from train_manager.loop.results import EvalResult
from train_manager.metrics.deferred import FiniteLosses

Row = dict[str, Any]
"""One epoch, or one evaluation of one set: numbers by name."""


@final
@dataclass
class OpenEpoch:
    """What an epoch has come to so far; it goes on in the next training call if this one leaves it unfinished."""

    total: float = 0.0
    examples: float = 0.0
    seconds: float = 0.0

    def add(self, losses: FiniteLosses, seconds: float) -> None:
        """Add a part of the epoch, whose losses have been checked."""
        self.total += losses.total
        self.examples += losses.examples
        self.seconds += seconds

    def figures(self) -> dict[str, float]:
        """Return the mean loss over examples, if a batch had one."""
        return {"loss": self.total / self.examples} if self.examples else {}


@final
class History:
    """The figures of each epoch and of each evaluation, in the order in which they were measured.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(epochs=2)
    >>> result = tm.train()
    >>> [(row["epoch"], row["step"], round(row["loss"], 3)) for row in tm.history.epochs]
    [(1, 3, 0.695), (2, 6, 0.65)]
    >>> [(row["epoch"], row["set"], round(row["loss"], 3)) for row in tm.history.evaluations]
    [(0, 'valid', 0.684), (1, 'valid', 0.669), (2, 'valid', 0.654)]

    Attributes:
        epochs: a row for each epoch: "epoch" (its number, from 1), "step" (``step_num`` at its end), "seconds", and
            what the fixture ``train_result`` had: "loss" (the mean over its examples, if batches have a loss) and
            training metrics. "phase" is its name if the epoch is of a phase. "partial" is True if the epoch was left
            before its end; its row is replaced if it is trained further, or anew.
        evaluations: a row for each set of each evaluation: "epoch" (epochs completed), "step", "set", and its result,
            as ``{"loss": 0.31, "accuracy": 0.9}``; "phase" as above. "standalone" is True for ``tm.eval()`` outside
            of a run, which is of no training.
    """

    def __init__(self) -> None:
        self.epochs: list[Row] = []
        self.evaluations: list[Row] = []

    def add_epoch(self, row: Row) -> None:
        """Add an epoch; the row of its part is replaced."""
        last = self.epochs[-1] if self.epochs else {}
        if last.get("partial") and all(last.get(key) == row.get(key) for key in ("epoch", "phase")):
            self.epochs.pop()
        self.epochs.append(row)

    def add_evaluation(self, results: Mapping[str, EvalResult], place: Row) -> None:
        """Add an evaluation of one or several sets; ``place`` is what their rows begin with."""
        for name, result in results.items():
            self.evaluations.append({**place, "set": name, **result})

    def state_dict(self) -> dict[str, Any]:
        """Return all rows."""
        return {"epochs": copy.deepcopy(self.epochs), "evaluations": copy.deepcopy(self.evaluations)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.epochs = copy.deepcopy(list(state["epochs"]))
        self.evaluations = copy.deepcopy(list(state["evaluations"]))
