"""Runs as lines of a table, a line for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from train_manager.metrics.history_rows import is_loss
from train_manager.reporting.terminal_text import cut, cut_middle, padded, printable, width_of
from train_manager.reporting.values import figure_text, seconds_text
from train_manager.runs.comparing.columns import GAP, WIDE, Line, outcome_in_short
from train_manager.runs.record.run_summary import RunSummary
from train_manager.telling.errors import InputError, did_you_mean, near

MOST_METRICS: Final = 4
SHORTEST: Final = {"run": 18, "outcome": 20}  # these are cut to so many cells before a column goes
HINT: Final = " (--json has all)"
KEPT: Final = 2  # metrics that are shown in a narrow terminal too
SORTS: Final[Mapping[str, Callable[[RunSummary], object]]] = {
    "began": lambda run: run.began.timestamp(),
    "run": lambda run: run.label,
    "took": lambda run: run.seconds,
    "outcome": lambda run: run.outcome,
    "epochs": lambda run: run.epochs,
    "steps": lambda run: run.steps,
}


def sorted_runs(runs: Sequence[RunSummary], by: str) -> list[RunSummary]:
    """Return runs in order: the newest first by "began", else ascending; runs without such a value come last.

    Args:
        by: a column, or the name of a metric.

    Raises:
        InputError: it is neither.
    """
    metrics = {name for run in runs for name in run.metrics}
    if by not in SORTS and by not in metrics and runs:
        nearest = near(by, [*SORTS, *metrics])
        known = f"runs are sorted by {', '.join([*SORTS, *sorted(metrics)])}"
        raise InputError(f"no run has a metric {by!r}", name=by, nearest=nearest, cure=did_you_mean(nearest) or known)
    key = SORTS.get(by) or (lambda run: run.metrics.get(by))
    having: list[RunSummary] = []
    rest: list[RunSummary] = []
    for run in runs:
        value = key(run)
        (rest if value is None or value != value else having).append(run)
    having.sort(key=key, reverse=by == "began")  # type: ignore[arg-type]
    return having + rest


def run_lines(runs: Sequence[RunSummary], folder: Path, width: int, by: str = "began") -> Iterator[Line]:
    """Yield a table of runs, as wide as a terminal; the last line names the columns that have no room.

    Args:
        folder: where they were looked for; their names begin below it.
        width: in cells.
        by: the column that they are sorted by, which always has room.
    """
    columns = {name: [printable(text) for text in texts] for name, texts in _columns(runs, folder, by, width).items()}
    left = ("run", "began", "outcome", "commit")
    shown, gone = _fitted(columns, width, by)
    widths = {name: max(map(width_of, (name, *texts))) for name, texts in shown.items()}
    for texts, kind in [([*shown], "head"), *((row, "row") for row in zip(*shown.values(), strict=True))]:
        cells = [padded(text, widths[name], left=name in left) for name, text in zip(shown, texts, strict=True)]
        yield Line((" " * GAP).join(cells).rstrip(), kind)
    if gone:
        yield Line(cut(f"not shown: {', '.join(map(printable, gone))}", width - len(HINT)) + HINT, "note")


def _columns(runs: Sequence[RunSummary], folder: Path, by: str, width: int) -> dict[str, list[str]]:
    known = dict.fromkeys(name for run in runs for name in run.metrics)
    names = sorted(known, key=lambda name: not (is_loss(name) or name.endswith("/loss")))[:MOST_METRICS]
    names += [by] if by not in (*SORTS, *names) else []
    columns = {
        "run": [_label(run, folder) for run in runs],
        "began": [run.began.astimezone().strftime("%Y-%m-%d %H:%M") for run in runs],
        "took": ["" if run.seconds is None else seconds_text(run.seconds) for run in runs],
        "outcome": [run.outcome if width > WIDE else outcome_in_short(run.outcome) for run in runs],
        "epochs": ["" if run.epochs is None else str(run.epochs) for run in runs],
        "steps": ["" if run.steps is None else str(run.steps) for run in runs],
    }
    for name in names:
        columns[name] = [figure_text(run.metrics[name]) if name in run.metrics else "" for run in runs]
    return columns | {"commit": [run.commit for run in runs]}


def _label(run: RunSummary, folder: Path) -> str:
    inside = run.label.removeprefix(str(folder)).lstrip("/")
    return f".{inside}" if inside.startswith("#") or not inside else inside


def _fitted(columns: dict[str, list[str]], width: int, by: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns that have room, with long texts cut, and the names of the others."""
    shown, gone = dict(columns), []
    metrics = [name for name in columns if name not in (*SORTS, "commit")]
    order = (*reversed(metrics[KEPT:]), "epochs", "took", "steps", *reversed(metrics[1:KEPT]), "began", *metrics[:1])
    for name in order:
        if name != by and _width(shown, SHORTEST) > width:
            gone.append(name)
            del shown[name]
    for name, cutter in (("outcome", cut), ("run", cut_middle)):
        longest = max(map(width_of, (name, *shown[name])))
        room = width - _width(shown, {}) + longest
        shown[name] = [cutter(text, max(SHORTEST[name], room)) for text in shown[name]]
    return shown, [name for name in columns if name in gone]


def _width(columns: Mapping[str, Collection[str]], shortest: Mapping[str, int]) -> int:
    """Return the width of a table whose long columns are cut as far as they may be."""
    widths = {name: max(map(width_of, (name, *texts))) for name, texts in columns.items()}
    return sum(min(width, shortest.get(name, width)) + GAP for name, width in widths.items()) - GAP
