"""Lines that tell what the epochs of a training have come to, one for each, in a terminal, a file or a notebook."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TextIO, final

from train_manager.metrics.monitor import Patience, metric_name, metric_value, mode_of
from train_manager.reporting.epoch_table import TRAINING, EpochTable, Row
from train_manager.reporting.lines import NotebookOutput, is_notebook, write_line


@final
class Printed:
    """Which lines were printed last: those below lines of another table need a header again."""

    def __init__(self) -> None:
        self.last: EpochLines | None = None


@final
class EpochLines:
    """The lines of the epochs: what the training of an epoch has come to waits for the evaluation after it.

    Args:
        monitor: the metric that says which evaluation is the best so far; None for the loss of the first set.
        mode: "min" or "max", the side on which it is better; None where its name says so.
        printed: shared by all lines that stand below each other.
    """

    def __init__(self, monitor: str | None, mode: str | None, printed: Printed) -> None:
        self._monitor = None if monitor is None else metric_name(monitor, "Log")
        self._mode = mode_of(monitor or "loss", mode, "Log")
        self._notebook = NotebookOutput()
        self._printed = printed
        self.begin()

    def begin(self, step: int = 0) -> None:
        """Begin a table of a new training, which begins at this step."""
        self._table = EpochTable()
        self._best = Patience(1, self._mode)
        self._pending: Row | None = None
        self._label, self._step = "start", step  # of the epoch that has ended last

    def has_training_at(self, step: int) -> bool:
        """Return whether the training of these lines has come to this step."""
        return self._step == step > 0

    def take_training(self, label: str, step: int, result: Mapping[str, float], seconds: float) -> None:
        """Keep the training of an epoch until its evaluation, or the next epoch."""
        self._label, self._step = label, step
        self._pending = Row(label, {TRAINING: result}, seconds)

    def print_evaluation(
        self,
        results: Mapping[str, Mapping[str, float]],
        step: int,
        file: TextIO | None,
        optimizers: Collection[str] = (),
    ) -> None:
        """Print a line with an evaluation, and with the training that waits for it; errors name ``optimizers``."""
        row = self._pending or Row(self._label if step == self._step else f"step {step}", {})
        groups = {**row.groups, **results}
        is_best = self._improves(results, optimizers) and row.label != "start"
        self._print(replace(row, groups=groups, is_best=is_best), file)

    def print_pending(self, file: TextIO | None) -> None:
        """Print the training that waits for an evaluation."""
        if self._pending is not None:
            self._print(self._pending, file)

    def state_dict(self) -> dict[str, Any]:
        """Return the best evaluation so far, where the training is, and what waits for an evaluation."""
        row = self._pending
        pending = None if row is None else {"figures": dict(row.groups[TRAINING]), "seconds": row.seconds}
        return {"best": self._best.best, "label": self._label, "step": self._step, "pending": pending}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, in a new table: the lines of before are in another output."""
        self.begin()
        self._best.best, self._label, self._step = state["best"], state["label"], state["step"]
        if state["pending"] is not None:
            self.take_training(self._label, self._step, state["pending"]["figures"], state["pending"]["seconds"])

    def _improves(self, results: Mapping[str, Mapping[str, float]], optimizers: Collection[str]) -> bool:
        name = self._monitor or f"{next(iter(results))}/loss"
        if self._monitor is None and "loss" not in next(iter(results.values())):
            return False
        value = metric_value(name, results, list(results), "Log", optimizers)
        return value is not None and not self._best.is_over(value)

    def _print(self, row: Row, file: TextIO | None) -> None:
        self._pending = None
        if is_notebook(file):
            if not self._notebook.is_of_this_cell():
                self._table.rows.clear()
            self._table.lines(row)
            self._notebook.show(self._table.text(), self._table.html())
        else:
            if self._printed.last is not self:
                self._table, self._printed.last = EpochTable(), self
            # Most metrics are of both, training and evaluations: so one header for the line "start" and the next.
            metrics = [] if self._table.has(TRAINING) or TRAINING in row.groups else next(iter(row.groups.values()))
            for line in self._table.lines(row, [(TRAINING, name) for name in metrics]):
                write_line(line, file)
