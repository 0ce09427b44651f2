"""A table with a line for each epoch: as text that grows line by line in a terminal or a file, and as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TextIO, final

from train_manager.metrics.history_rows import PART
from train_manager.reporting.lines import NotebookOutput, is_notebook, width_of_lines, write_line
from train_manager.reporting.terminal import UNLIMITED
from train_manager.reporting.values import number_text, short_name

Column = tuple[str, str]
"""The group that a column belongs to ("training", or an evaluation set), and its own name, such as "loss"."""

BETWEEN, BETWEEN_GROUPS = "  ", "   "
LABEL = 5  # letters of the first column, for labels such as 12/12
TRAINING = "training"  # the name of the first group
NARROWEST = 7  # letters of a column, for numbers such as 0.01234
LONGEST_NAME = 24
LINE_END = len("  seconds  best")
LEFT_OUT = "  +{} in tm.history"  # behind the names of the groups, if columns have no room


@final
@dataclass(frozen=True)
class Row:
    """One line of the table."""

    label: str  # the position of the training, such as "3/12"
    groups: Mapping[str, Mapping[str, float]]  # metrics by name, of the training and of each evaluation set
    seconds: float | None = None  # the duration, if it was measured
    is_best: bool = False  # whether the evaluation is the best so far

    @property
    def columns(self) -> list[Column]:
        """Return the columns that it has metrics for."""
        return [(group, name) for group, metrics in self.groups.items() for name in metrics]


@final
class EpochTable:
    """Lines that stand below each other as in a table; a header comes first, and again if there are other columns.

    >>> table = EpochTable()
    >>> groups = {"training": {"loss": 0.5}, "valid": {"loss": 0.25, "accuracy": 0.75}}
    >>> print(*table.lines(Row("1/2", groups, seconds=3, is_best=True)), sep="\\n")
            training         valid
    epoch       loss      loss  accuracy  seconds
    1/2       0.5000    0.2500    0.7500     3.00  best
    >>> print(*table.lines(Row("2/2", {"training": {"loss": 0.125}}, seconds=3)), sep="\\n")
    2/2       0.1250                         3.00

    Attributes:
        rows: all rows.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._columns: list[Column] = []  # of the header that was printed last
        self._shown: list[Column] = []  # those of them that have room in the line
        self._expected: list[Column] = []  # columns of that header that no row has had yet
        self._label_width = LABEL

    def has(self, group: str) -> bool:
        """Return whether there are columns of a group."""
        return any(of == group for of, _ in self._columns)

    def lines(
        self, row: Row, expected: Iterable[Column] = (), *, width: int = UNLIMITED, monitored: str | None = None
    ) -> list[str]:
        """Add a row, and return its line, below a header if need be.

        Args:
            row: the row.
            expected: columns that later rows are likely to have; one that the next row with its group lacks is dropped.
            width: of a line. Columns that have no room in a new header are left out of it and of the lines below it.
            monitored: group and name of the column that is left out last, as "valid/loss".
        """
        self.rows.append(row)
        found, expected = row.columns, list(expected)
        # Expected columns that the row lacks although it has others of their group.
        wrong = {column for column in self._expected if row.groups.get(column[0]) and column not in found}
        known = [column for column in self._columns if column not in wrong]
        before = self._columns, self._label_width
        self._columns, self._expected = in_groups([*expected, *known, *found]), expected
        self._label_width = max(self._label_width, len(row.label))
        if before == (self._columns, self._label_width):
            return [self._line(row)]
        self._fit(width, monitored)
        return [*self._header(), self._line(row)]

    def html(self) -> str:
        """Return the whole table, as a notebook shows it."""
        columns = in_groups([column for row in self.rows for column in row.columns])
        spans = [(group, sum(of == group for of, _ in columns)) for group in dict.fromkeys(of for of, _ in columns)]
        centred = "".join(f'<th colspan="{n}" style="text-align:center">{escape(name)}</th>' for name, n in spans)
        names = "".join(f"<th>{escape(header_name(column, columns))}</th>" for column in columns)
        rows = "".join(self._html_row(row, columns) for row in self.rows)
        head = f"<tr><th></th>{centred}<th></th><th></th></tr><tr><th>epoch</th>{names}<th>seconds</th><th></th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def text(self) -> str:
        """Return the whole table as text."""
        # All columns are known from the first line on, so there is one header.
        table, columns = EpochTable(), [column for row in self.rows for column in row.columns]
        return "\n".join(line for row in self.rows for line in table.lines(row, columns))

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _fit(self, width: int, monitored: str | None) -> None:
        """Show the columns that have room: the monitored one, then the first of each group, the second of each, ..."""
        self._shown = self._columns
        if self._width_of_groups() + LINE_END <= width:
            return
        room = width - max(LINE_END, len(LEFT_OUT.format(len(self._columns))))
        names = {group: [name for of, name in self._columns if of == group] for group, _ in self._columns}
        self._shown = []
        for column in sorted(self._columns, key=lambda one: ("/".join(one) != monitored, names[one[0]].index(one[1]))):
            shown, self._shown = self._shown, [one for one in self._columns if one in (*self._shown, column)]
            if shown and self._width_of_groups() > room:
                self._shown = shown

    def _width_of_groups(self) -> int:
        return self._label_width + sum(len(BETWEEN_GROUPS) + self._width(group) for group in self._groups())

    def _header(self) -> list[str]:
        groups = [BETWEEN_GROUPS + short_name(g, LONGEST_NAME).center(self._width(g)) for g in self._groups()]
        names = ""
        for group in self._groups():
            cells = (header_name((group, name), self._columns).rjust(width) for name, width in self._widths(group))
            names += BETWEEN_GROUPS + BETWEEN.join(cells)
        left_out = len(self._columns) - len(self._shown)
        return [
            f"{'':{self._label_width}}{''.join(groups)}{LEFT_OUT.format(left_out) if left_out else ''}".rstrip(),
            f"{'epoch':{self._label_width}}{names}{BETWEEN}seconds",
        ]

    def _line(self, row: Row) -> str:
        cells = ""
        for group in self._groups():
            found = row.groups.get(group, {})
            texts = (number_text(found[name]) if name in found else "" for name, _ in self._widths(group))
            widths = (width for _, width in self._widths(group))
            cells += BETWEEN_GROUPS + BETWEEN.join(map(str.rjust, texts, widths))
        seconds = seconds_cell(row.seconds)
        return f"{row.label:{self._label_width}}{cells}{BETWEEN}{seconds:>7}{'  best' if row.is_best else ''}".rstrip()

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(group for group, _ in self._shown))

    def _widths(self, group: str) -> list[tuple[str, int]]:
        names = [name for of, name in self._shown if of == group]
        widths = [max(NARROWEST, len(header_name((group, name), self._columns))) for name in names]
        # A name that is wider than its columns widens the first of them.
        short = len(short_name(group, LONGEST_NAME)) - sum(widths) - len(BETWEEN) * (len(widths) - 1)
        widths[0] += max(0, short)
        return list(zip(names, widths, strict=True))

    def _width(self, group: str) -> int:
        widths = [width for _, width in self._widths(group)]
        return sum(widths) + len(BETWEEN) * (len(widths) - 1)

    def _html_row(self, row: Row, columns: Iterable[Column]) -> str:
        metrics = (row.groups.get(group, {}).get(name) for group, name in columns)
        texts = ["" if metric is None else number_text(metric) for metric in metrics]
        cells = [escape(row.label), *texts, seconds_cell(row.seconds), "best" if row.is_best else ""]
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


@final
class EpochLines:
    """The lines of the epochs: the metrics of the training wait for the evaluation after the epoch.

    Attributes:
        monitored: set and metric of the column that a narrow terminal shows first.
    """

    def __init__(self) -> None:
        self.monitored: str | None = None
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
        expected = [(TRAINING, name) for name in metrics]
        for line in self._table.lines(row, expected, width=width_of_lines(file), monitored=self.monitored):
            write_line(line, file)


def seconds_cell(seconds: float | None) -> str:
    """Return a duration with three digits.

    >>> seconds_cell(0.0123), seconds_cell(83.21), seconds_cell(4321.5), seconds_cell(None)
    ('0.01', '83.2', '4322', '')
    """
    if seconds is None:
        return ""
    return f"{seconds:.{2 if seconds < 10 else 1 if seconds < 100 else 0}f}"


def epoch_label(epoch: Mapping[str, Any], total: int) -> str:
    """Return the place of a row of the history: its epoch, with the number of all unless ``train_epochs(n)`` goes on.

    >>> epoch_label({"epoch": 3, "step": 60}, 12), epoch_label({"epoch": 3, "step": 50, "partial": True}, 12)
    (' 3/12', 'step 50')
    """
    if epoch.get("partial"):
        return f"step {epoch['step']}"
    number = epoch["epoch"]
    return f"{number:>{len(str(total))}}/{total}" if number <= total > 1 else f"{number}"


def header_name(column: Column, columns: Collection[Column]) -> str:
    """Return the name of a column in the header: of the loss of one of several optimizers, that of the optimizer.

    >>> header_name(("training", "losses/critic"), [("training", "losses/critic"), ("training", "losses/generator")])
    'critic'
    """
    group, name = column
    short = name.removeprefix(PART)
    return name if (group, short) in columns else short


def in_groups(columns: Iterable[Column]) -> list[Column]:
    """Return each column once, with the columns of a group beside each other, and the training first.

    >>> in_groups([("valid", "loss"), ("training", "loss"), ("valid", "accuracy"), ("training", "loss")])
    [('training', 'loss'), ('valid', 'loss'), ('valid', 'accuracy')]
    """
    once = dict.fromkeys(columns)
    groups = sorted(dict.fromkeys(group for group, _ in once), key=TRAINING.__ne__)  # a stable sort
    return [column for group in groups for column in once if column[0] == group]
