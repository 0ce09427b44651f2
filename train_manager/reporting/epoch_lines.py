"""A line with the metrics of each epoch of a training, in a terminal, a file or a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TextIO, final

from train_manager.reporting.epoch_table import TRAINING, EpochTable, Row
from train_manager.reporting.lines import NotebookOutput, is_notebook, write_line


@final
class EpochLines:
    """The lines of the epochs: the metrics of the training wait for the evaluation after the epoch."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a table, as a training or a phase begins or ends: the next line has a header."""
        self._table, self._notebook = EpochTable(), NotebookOutput()
        self._waiting: Row | None = None  # the training of an epoch whose evaluation has not come yet

    def take_training(self, row: Row) -> None:
        """Keep the training of an epoch until its evaluation, or the next epoch."""
        self._waiting = row

    def print_evaluation(
        self, label: str, results: Mapping[str, Mapping[str, float]], file: TextIO | None, *, is_best: bool
    ) -> None:
        """Print a line with an evaluation, and with the training that waits for it.

        Args:
            label: the place of the evaluation.
            results: the metrics of each set.
            file: where to print; None is ``sys.stdout``.
            is_best: whether no evaluation before it was as good.
        """
        row = self._waiting or Row(label, {})
        self._print(replace(row, groups={**row.groups, **results}, is_best=is_best), file)

    def print_waiting(self, file: TextIO | None) -> None:
        """Print the training that waits for an evaluation, if there is one."""
        if self._waiting is not None:
            self._print(self._waiting, file)

    def _print(self, row: Row, file: TextIO | None) -> None:
        self._waiting = None
        if is_notebook(file):
            if not self._notebook.is_of_this_cell():
                # An output of an earlier cell stays as it is; this cell gets a table of its own.
                self._table = EpochTable()
            self._table.lines(row)
            self._notebook.show(self._table.text(), self._table.html())
            return
        # The line "start" has evaluations only. Columns for the training, which most likely has the same metrics, are
        # made at once: otherwise the next line would need another header.
        metrics = [] if self._table.has(TRAINING) or TRAINING in row.groups else next(iter(row.groups.values()))
        for line in self._table.lines(row, [(TRAINING, name) for name in metrics]):
            write_line(line, file)
