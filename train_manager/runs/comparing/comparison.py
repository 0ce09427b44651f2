"""What a comparison of runs has found, as plain data and as text. ``compare_runs.py`` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any, Final, final

from train_manager.reporting.terminal import Line, cut, cut_middle, printable, side_by_side_lines, table_lines
from train_manager.runs.code.differences import CodeDifference
from train_manager.runs.comparing.code_lines import code_lines
from train_manager.runs.comparing.run_list import outcome_in_short
from train_manager.runs.record.run_summary import RunSummary
from train_manager.runs.store.curves import Curve
from train_manager.telling.findings import Findings

PARTIAL: Final = "the code is not in full"
NO_GIT: Final = "no git repository"
"""The words of a note about a run whose code was not recorded in full."""

UNNAMED: Final = ", which is not recorded"
"""The words with which a record says that a class or function has no ``@recorded``."""

TITLES: Final = ("parameters", "code", "environment", "data", "metrics")
COLUMNS: Final = ("run", "began", "done", "outcome", "folder")
ABSENT: Final = "-"
LABEL: Final = 24  # cells of the name of a run
OUTCOME: Final = 40  # cells of an outcome
WIDE: Final = 120  # cells; a wider terminal shows outcomes with their messages

Cells = tuple[str | None, ...]
"""A value of each run, as text; None where a run has none."""


@final
@dataclass(frozen=True)
class ComparisonTable:
    """A section of a comparison.

    Attributes:
        title: "parameters", "code", "environment", "data" or "metrics".
        shown: the rows to show: all metrics, and of the others those that differ.
        same: the other rows, with the value that all runs have.
        unknown: a line that lists the values that no run has recorded; empty if there are none.
        is_partial: whether not all was recorded, so that equal rows do not prove equal runs.
    """

    title: str
    shown: Mapping[str, Cells]
    same: Mapping[str, str]
    unknown: str = ""
    is_partial: bool = False


@final
@dataclass(frozen=True)
class Comparison:
    """What differs between runs, as plain data; ``text`` shows it, and ``write_report`` makes a page of the same runs.

    Attributes:
        runs: the runs, in the order in which they were given; ``label`` tells each from the others.
        parameters: the recorded constructor parameters, by their dotted paths.
        code: commit, branch and changed files; and how many files are others than in the first run, if any are.
        environment: the command, Python, packages, devices, threads, flags and variables.
        data: the seed, and the fingerprints of the data.
        metrics: the last metrics, and the best ones.
        files: for each run but the first, how its code differs from that of the first.
        curves: for each metric the curve of each run, with mean, lowest and highest value over steps; None without one.
        notes: what could not be read or compared.
        findings: what checks have found in each run.
    """

    runs: tuple[RunSummary, ...]
    parameters: Mapping[str, Cells] = field(default_factory=dict)
    code: Mapping[str, Cells] = field(default_factory=dict)
    environment: Mapping[str, Cells] = field(default_factory=dict)
    data: Mapping[str, Cells] = field(default_factory=dict)
    metrics: Mapping[str, Cells] = field(default_factory=dict)
    files: tuple[CodeDifference | None, ...] = ()
    curves: Mapping[str, Sequence[Curve | None]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    findings: tuple[Findings, ...] = ()

    def differences(self) -> list[str]:
        """Return the differences between the first run and the others, a line for each, without metrics.

        >>> Comparison((), {"epochs": ("3", "4")}, environment={"threads.intraop": ("2", "1")}).differences()
        ['parameter epochs: 3, 4', 'environment threads.intraop: 2, 1']
        """
        code = [f"code: {file}" for found in self.files if found is not None for file in found.files]
        named = (("parameter", self.parameters), ("environment", self.environment), ("data", self.data))
        rows = [
            f"{word} {name}: {', '.join('none' if cell is None else cell for cell in cells)}"
            for word, values in named
            for name, cells in differing(values).items()
        ]
        return [*code, *rows]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "runs": [run.as_json() for run in self.runs],
            **{title: getattr(self, title) for title in TITLES},
            "files": [None if files is None else asdict(files) for files in self.files],
            "curves": {name: [*map(_curve_as_json, curves)] for name, curves in self.curves.items()},
            "notes": self.notes,
            "findings": [[one.to_dict() for one in found] for found in self.findings],
        }

    def text(self, width: int = 120, *, shows_all: bool = False) -> str:
        """Return the differences as text.

        Args:
            width: of a line; longer values are cut.
            shows_all: also what does not differ.
        """
        return "\n".join(line.text for line in self.lines(width, shows_all=shows_all))

    def lines(self, width: int, *, shows_all: bool = False) -> Iterator[Line]:
        """Yield the differences as lines; with ``shows_all``, or of a single run, all values."""
        shows_all = shows_all or len(self.runs) == 1
        yield Line("runs", "title")
        yield from _run_lines(self.runs, width)
        for title in ("parameters", "code"):
            yield from self._table_lines(title, width, shows_all)
        for run, files in zip(self.runs[1:], self.files, strict=False):
            if files is not None:
                yield from code_lines(files, f"{self.runs[0].label} -> {run.label}", width, shows_all=shows_all)
        for title in ("environment", "data", "metrics"):
            yield from self._table_lines(title, width, shows_all)
        yield from self._finding_lines(width)
        for note in self.notes:
            yield from (Line(text, "note") for text in wrap(f"note: {printable(note)}", width, subsequent_indent="  "))

    def table(self, title: str) -> ComparisonTable:
        """Return a section, with the rows that differ first."""
        rows: Mapping[str, Cells] = getattr(self, title)
        # Metrics are shown even if they are equal: a reader looks for their values, and not only for differences.
        shown = rows if title == "metrics" else differing(rows)
        unknown = self._unknown() if title == "parameters" else {}
        same = {name: cells[0] or "" for name, cells in rows.items() if name not in shown and name not in unknown}
        line = self._unknown_line(unknown)
        # The code is not in full if a note says so.
        no_code = title == "code" and any(PARTIAL in note or NO_GIT in note for note in self.notes)
        return ComparisonTable(title, shown, same, line, no_code or bool(line))

    def differing_files(self) -> list[tuple[RunSummary, CodeDifference]]:
        """Return the runs whose code differs from that of the first, and how."""
        found = zip(self.runs[1:], self.files, strict=False)
        return [(run, code) for run, code in found if code and (code.files or code.problems)]

    def _unknown(self) -> dict[str, str]:
        """Return each parameter that no run has recorded, with a description of its value."""
        return {
            name: cells[0][1:-1]
            for name, cells in self.parameters.items()
            if len(set(cells)) == 1 and cells[0] and cells[0][0] + cells[0][-1] == "<>"
        }

    def _unknown_line(self, unknown: Mapping[str, str]) -> str:
        # Data is compared by its fingerprints, whose rows begin with the name of the parameter.
        listed = {
            name: what for name, what in unknown.items() if not any(row.startswith(f"{name}.") for row in self.data)
        }
        if not listed:
            return ""
        names = ", ".join(f"{name} ({what.partition(UNNAMED)[0]})" for name, what in listed.items())
        is_unnamed = any(UNNAMED in what for what in listed.values())
        return f"not recorded: {names}{'; put @recorded above a class or function of yours' * is_unnamed}"

    def _table_lines(self, title: str, width: int, shows_all: bool) -> Iterator[Line]:
        table, rows = self.table(title), getattr(self, title)
        shown = rows if shows_all else table.shown
        count = 0 if shows_all else len(table.same)
        yield Line("")
        if shown:
            yield Line(f"{title} ({count:,} the same)" if count else title, "title")
            texts = [
                [name or "(the class)", *(ABSENT if cell is None else cell for cell in cells)]
                for name, cells in shown.items()
            ]
            yield from side_by_side_lines(["", *(run.label for run in self.runs)], texts, width)
        else:
            same = f"the same{' as far as recorded' if table.is_partial else ''}"
            yield Line(f"{title}: {same if rows else 'not recorded'}", "title")
        yield from (Line(text, "note") for text in wrap(printable(table.unknown), width, subsequent_indent="  "))

    def _finding_lines(self, width: int) -> Iterator[Line]:
        """Yield the findings of checks, by run."""
        if any(self.findings):
            yield Line("")
            yield Line("findings", "title")
        for run, found in zip(self.runs, self.findings, strict=False):
            if found:
                yield Line(cut(f"  {printable(run.label)}", width), "head")
                yield from (Line(cut(f"  {printable(text)}", width)) for text in str(found).splitlines())


def _curve_as_json(curve: Curve | None) -> dict[str, Any] | None:
    return None if curve is None else {part: column.tolist() for part, column in curve._asdict().items()}


def differing(rows: Mapping[str, Cells]) -> dict[str, Cells]:
    """Return the rows whose values are not all the same.

    >>> differing({"epochs": ("3", "3"), "lr": ("0.1", None)})
    {'lr': ('0.1', None)}
    """
    return {name: cells for name, cells in rows.items() if len(set(cells)) > 1}


def _run_lines(runs: Sequence[RunSummary], width: int) -> Iterator[Line]:
    rows = [
        (
            cut_middle(printable(run.label), LABEL),
            run.began_in_minutes,
            run.done or "no step recorded",
            cut(printable(run.outcome if width > WIDE else outcome_in_short(run.outcome)), OUTCOME),
            cut_middle(printable(f"{run.train_dir}#{run.id:.8}"), max(LABEL, width - LABEL - 4)),
        )
        for run in runs
    ]
    return table_lines(COLUMNS, rows, width, indent=2, left=COLUMNS, shows_head=False)
