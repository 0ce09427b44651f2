"""A comparison of runs as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Final

from train_manager.reporting.terminal_text import cut, cut_around, cut_middle, pad, printable, width_of
from train_manager.reporting.values import plural
from train_manager.runs.code.differences import Change, CodeDifference, FileDifference
from train_manager.runs.comparing.columns import WIDE, Line, outcome_in_short, run_columns
from train_manager.runs.comparing.compared import Cells, Compared, differing, is_partial, unknown_in, unknown_line

ABSENT: Final = "-"
LABEL: Final = 24  # cells of the name of a run
OUTCOME: Final = 40  # cells of an outcome
MOST_FILES: Final = 10  # files of each run whose differences are shown
MOST_PLACES: Final = 3  # changes of a file that are shown
MOST_LINES: Final = 4  # lines that are shown of each side of a change
INDENT: Final = " " * 6


def comparison_lines(compared: Compared, width: int, *, shows_all: bool = False) -> Iterator[Line]:
    """Yield the differences between runs as lines; with ``shows_all``, or for a single run, all values."""
    shows_all = shows_all or len(compared.runs) == 1
    yield from _runs(compared, width)
    for title, rows in (("parameters", compared.parameters), ("code", compared.code)):
        yield from _section(title, rows, compared, width, shows_all)
        if title == "parameters":
            unknown = wrap(printable(unknown_line(compared)), width, subsequent_indent="  ")
            yield from (Line(text, "note") for text in unknown)
    for run, files in zip(compared.runs[1:], compared.files, strict=False):
        if files is not None:
            yield from _code(files, f"{compared.runs[0].label} -> {run.label}", width, shows_all)
    for title, rows in (("environment", compared.environment), ("data", compared.data)):
        yield from _section(title, rows, compared, width, shows_all)
    # Metrics are shown even if they are equal: a reader looks for their values, and not only for differences.
    yield from _section("metrics", compared.metrics, compared, width, True)
    yield from _findings(compared, width)
    yield from (Line(cut(f"note: {printable(note)}", width), "note") for note in compared.notes)


def _runs(compared: Compared, width: int) -> Iterator[Line]:
    yield Line("runs", "title")
    rows = [
        (
            run.label,
            run.began,
            run.progress,
            run.outcome if width > WIDE else outcome_in_short(run.outcome),
            f"{run.train_dir}#{run.id:.8}",
        )
        for run in compared.runs
    ]
    texts = [[cut_middle(printable(row[0]), LABEL), *map(printable, row[1:])] for row in rows]
    widths = [max(width_of(row[column]) for row in texts) for column in range(len(texts[0]) - 1)]
    # The fourth column is the outcome.
    widths[3] = min(widths[3], OUTCOME)
    # The folders are shown in all lines or in none, so that the columns stay below each other.
    has_room = sum(widths) + 2 * len(widths) + max(width_of(row[-1]) for row in texts) + 2 <= width
    for *row, folder in texts:
        cells = [pad(cut(text, most), most) for text, most in zip(row, widths, strict=True)]
        yield Line(cut("  ".join(["", *cells, folder] if has_room else ["", *cells]).rstrip(), width))


def _section(title: str, rows: Mapping[str, Cells], compared: Compared, width: int, shows_all: bool) -> Iterator[Line]:
    shown = rows if shows_all else differing(rows)
    yield Line("")
    if not shown:
        same = f"the same{' as far as recorded' if is_partial(compared, title) else ''}"
        yield Line(f"{title}: {same if rows else 'not recorded'}", "title")
        return
    # Rows that are equal in all runs are only counted; a value that is not recorded may differ.
    unknown = unknown_in(compared) if title == "parameters" else {}
    count = len(rows.keys() - shown.keys() - unknown.keys())
    yield Line(f"{title} ({count:,} the same)" if count else title, "title")
    head = ["", *(run.label for run in compared.runs)]
    texts = [
        [name or "(the class)", *(ABSENT if cell is None else cell for cell in cells)] for name, cells in shown.items()
    ]
    yield from run_columns(head, texts, width)


def _findings(compared: Compared, width: int) -> Iterator[Line]:
    """Yield the findings of checks, by run."""
    if any(compared.findings):
        yield Line("")
        yield Line("findings", "title")
    for run, found in zip(compared.runs, compared.findings, strict=False):
        if found:
            yield Line(cut(f"  {printable(run.label)}", width), "head")
            yield from (Line(cut(f"  {printable(text)}", width)) for text in str(found).splitlines())


def _code(code: CodeDifference, title: str, width: int, shows_all: bool) -> Iterator[Line]:
    if code.files:
        verb = "differs" if len(code.files) == 1 else "differ"
        yield Line("")
        yield Line(cut(f"{printable(title)}: {plural(len(code.files), 'file')} {verb}", width), "title")
    shown = code.files if shows_all else code.files[:MOST_FILES]
    for file in shown:
        for line in _file(file, width, shows_all):
            yield Line(cut(line.text, width), line.kind)
    if len(shown) < len(code.files):
        yield Line(f"  and {plural(len(code.files) - len(shown), 'more file')} (--all shows them)", "note")
    yield from (Line(cut(f"  note: {printable(problem)}", width), "note") for problem in code.problems)


def _file(file: FileDifference, width: int, shows_all: bool) -> Iterator[Line]:
    if not file.changes:
        yield Line(f"  {printable(file.path)}: {printable(file.what)}")
        return
    yield Line(f"  {printable(file.path)}")
    shown = file.changes if shows_all else file.changes[:MOST_PLACES]
    for change in shown:
        yield Line(f"    line {change.line}", "note")
        yield from _change(change, width)
    if len(shown) < len(file.changes):
        yield Line(f"    and {plural(len(file.changes) - len(shown), 'more place')} (--all shows them)", "note")


def _change(change: Change, width: int) -> Iterator[Line]:
    """Yield the lines of a place; long ones that differ are cut to the part around the difference."""
    room = width - len(INDENT) - 2
    texts = [[*map(printable, lines[:MOST_LINES])] for lines in (change.removed, change.added)]
    for number, pair in enumerate(zip(*texts, strict=False)):
        # Lines of both sides are cut as pairs, by their order: the n-th removed line with the n-th added one.
        texts[0][number], texts[1][number] = cut_around(pair, room)
    for mark, kind, shown, lines in zip("-+", ("removed", "added"), texts, (change.removed, change.added), strict=True):
        yield from (Line(f"{INDENT}{mark} {text}", kind) for text in shown)
        if len(lines) > MOST_LINES:
            yield Line(f"{INDENT}{mark} and {plural(len(lines) - MOST_LINES, 'more line')}", "note")
