"""A line with the metrics of each epoch of a training, in a terminal, a file or a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TextIO, final

from train_manager.metrics.monitor import Patience
from train_manager.reporting.epoch_table import TRAINING, EpochTable, Row
from train_manager.reporting.lines import NotebookOutput, is_notebook, write_line


@final
class Printed:
    """The table that printed last: a line of another table below it needs a header again."""

    def __init__(self) -> None:
        self.last: EpochLines | None = None


@final
class EpochLines:
    """The lines of the epochs: the metrics of the training wait for the evaluation after the epoch.

    Args:
        printed: shared by all lines that stand below each other.
    """

    def __init__(self, printed: Printed) -> None:
        self._notebook = NotebookOutput()
        self._printed = printed
        self.begin()

    def begin(self, step: int = 0) -> None:
        """Begin a table of a new training, which begins at this step."""
        self._table = EpochTable()
        self._best: tuple[str, float] | None = None  # the monitored metric, and its best value so far
        self._pending: Row | None = None  # the training of an epoch whose evaluation has not come yet
        self._is_loaded = False  # whether the program that wrote the checkpoint has printed the row that waits
        self._label, self._step = "start", step  # label and last step of the epoch that has ended last

    def has_training_at(self, step: int) -> bool:
        """Return whether the training of these lines has come to this step."""
        return self._step == step > 0

    def take_training(self, label: str, step: int, result: Mapping[str, float], seconds: float) -> None:
        """Keep the training of an epoch until its evaluation, or the next epoch."""
        self._label, self._step, self._is_loaded = label, step, False
        self._pending = Row(label, {TRAINING: result}, seconds)

    def print_evaluation(
        self,
        results: Mapping[str, Mapping[str, float]],
        step: int,
        file: TextIO | None,
        monitored: tuple[str, str, float | None],
    ) -> None:
        """Print a line with an evaluation, and with the training that waits for it.

        Args:
            results: the metrics of each set.
            step: the step of the evaluation.
            file: where to print; None is ``sys.stdout``.
            monitored: the metric that decides which evaluation is the best, its mode and its value, if it has one.
        """
        # An evaluation in the middle of an epoch has a line of its own, named by its step.
        row = self._pending or Row(self._label if step == self._step else f"step {step}", {})
        groups = {**row.groups, **results}
        is_best = self._improves(*monitored) and row.label != "start"
        self._print(replace(row, groups=groups, is_best=is_best), file)

    def print_pending(self, file: TextIO | None) -> None:
        """Print the training that waits for an evaluation, unless an earlier program has done so as its run closed."""
        row, self._pending = self._pending, None
        if row is not None and not self._is_loaded:
            self._print(row, file)

    def state_dict(self) -> dict[str, Any]:
        """Return the best evaluation so far, the position of the training, and the row that waits."""
        row = self._pending
        pending = None if row is None else {"figures": dict(row.groups[TRAINING]), "seconds": row.seconds}
        metric, best = self._best or ("", None)
        return {"best": best, "monitor": metric, "label": self._label, "step": self._step, "pending": pending}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state in a new table: the earlier lines are in another output."""
        self.begin()
        self._label, self._step = state["label"], state["step"]
        # A checkpoint of an earlier version does not name the metric, and its best value may be of another one.
        if state.get("monitor"):
            self._best = state["monitor"], state["best"]
        if state["pending"] is not None:
            self.take_training(self._label, self._step, state["pending"]["figures"], state["pending"]["seconds"])
            self._is_loaded = True

    def _improves(self, metric: str, mode: str, value: float | None) -> bool:
        patience = Patience(1, mode)
        if self._best is not None and self._best[0] == metric:
            patience.best = self._best[1]
        if value is None or patience.is_over(value):
            return False
        self._best = metric, value
        return True

    def _print(self, row: Row, file: TextIO | None) -> None:
        self._pending = None
        if is_notebook(file):
            if not self._notebook.is_of_this_cell():
                # An output of an earlier cell stays as it is; this cell gets a table of its own.
                self._table.rows.clear()
            self._table.lines(row)
            self._notebook.show(self._table.text(), self._table.html())
        else:
            if self._printed.last is not self:
                self._table, self._printed.last = EpochTable(), self
            # The line "start" has evaluations only. Columns for the training, which most likely has the same metrics,
            # are made at once: otherwise the next line would need another header.
            metrics = [] if self._table.has(TRAINING) or TRAINING in row.groups else next(iter(row.groups.values()))
            for line in self._table.lines(row, [(TRAINING, name) for name in metrics]):
                write_line(line, file)
