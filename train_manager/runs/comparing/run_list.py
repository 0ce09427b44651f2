"""Runs as lines of a table, a line for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from train_manager.metrics.history_rows import is_loss
from train_manager.reporting.terminal_text import cut, cut_middle, pad, printable, width_of
from train_manager.reporting.values import number_text, seconds_text
from train_manager.runs.comparing.columns import GAP, Line, outcome_in_short
from train_manager.runs.record.run_summary import RunSummary
from train_manager.telling.errors import InputError, did_you_mean, near

MOST_METRICS: Final = 4
WIDEST: Final = 100  # cells of a table, also in a wider terminal, a file or a pipe
SHORTEST: Final = {"run": 18, "outcome": 22}  # cells to which these columns are cut before another one is left out
HINT: Final = " (--json has all)"
LONGEST: Final = 20  # characters of a parameter's value
KEPT: Final = 2  # columns of metrics that a narrow terminal keeps longest; the column of best values is one of them
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
        # nan differs from itself: a run whose metric is nan has no place in the order.
        (rest if value is None or value != value else having).append(run)
    having.sort(key=key, reverse=by == "began")  # type: ignore[arg-type]
    return having + rest


def run_lines(
    runs: Sequence[RunSummary], folder: Path, width: int, by: str = "began", *, parameters: bool = False
) -> Iterator[Line]:
    """Yield a table of runs, at most as wide as a terminal; the last line names the columns that have no room.

    Args:
        folder: where they were looked for; their names begin below it.
        width: in cells.
        by: the column that they are sorted by, which always has room.
        parameters: whether to show those that differ, in place of other columns if there is no room for all.
    """
    width = min(width, WIDEST)
    found = {**_columns(runs, folder, by), **(differing := _parameters(runs) if parameters else {})}
    columns = {name: [printable(text) for text in texts] for name, texts in found.items()}
    left = ("run", "began", "outcome", "commit")
    shown, gone = _fit(columns, width, by, [*differing])
    widths = {name: max(map(width_of, (name, *texts))) for name, texts in shown.items()}
    for texts, kind in [([*shown], "head"), *((row, "row") for row in zip(*shown.values(), strict=True))]:
        cells = [pad(text, widths[name], left=name in left) for name, text in zip(shown, texts, strict=True)]
        yield Line((" " * GAP).join(cells).rstrip(), kind)
    if gone:
        yield Line(cut(f"not shown: {', '.join(map(printable, gone))}", width - len(HINT)) + HINT, "note")


def _columns(runs: Sequence[RunSummary], folder: Path, by: str) -> dict[str, list[str]]:
    known = dict.fromkeys(name for run in runs for name in run.metrics)
    # Losses first; `sorted` keeps the order of the others.
    names = sorted(known, key=lambda name: not (is_loss(name) or name.endswith("/loss")))[:MOST_METRICS]
    names += [by] if by not in (*SORTS, *names) else []
    columns = {
        "run": [_label(run, folder) for run in runs],
        "began": [run.began.astimezone().strftime("%Y-%m-%d %H:%M") for run in runs],
        "took": ["" if run.seconds is None else seconds_text(run.seconds) for run in runs],
        "outcome": [outcome_in_short(run.outcome) for run in runs],
        "epochs": ["" if run.epochs is None else str(run.epochs) for run in runs],
        "steps": ["" if run.steps is None else str(run.steps) for run in runs],
    }
    for name in names:
        columns[name] = [number_text(run.metrics[name]) if name in run.metrics else "" for run in runs]
    commits = [run.commit for run in runs]
    return columns | _best(runs) | ({"commit": commits} if any(commits) else {})


def _best(runs: Sequence[RunSummary]) -> dict[str, list[str]]:
    """Return a column with the best values; each has the name of its metric if the runs have different ones."""
    best = [run.best for run in runs]
    metrics = {one.metric for one in best if one}
    names = {metric: f"{metric} " if len(metrics) > 1 else "" for metric in metrics}
    cells = [f"{names[one.metric]}{number_text(one.value)} (epoch {one.epoch})" if one else "" for one in best]
    return {f"best {metrics.pop()}" if len(metrics) == 1 else "best": cells} if metrics else {}


def _parameters(runs: Sequence[RunSummary]) -> dict[str, list[str]]:
    """Return a column for each parameter that differs, as ``lr=``; the folders are in the first column already."""
    names = dict.fromkeys(name for run in runs for name in run.parameters if name != "train_dir")
    cells = {f"{name}=": [run.parameters.get(name, "") for run in runs] for name in names}
    return {name: [cut(text, LONGEST) for text in texts] for name, texts in cells.items() if len({*texts}) > 1}


def _label(run: RunSummary, folder: Path) -> str:
    # A run in the folder itself has only "#" and its id left, or nothing: the name of the folder is put before it.
    inside = run.label.removeprefix(str(folder)).lstrip("/")
    return f"{folder.resolve().name}{inside}" if inside.startswith("#") or not inside else inside


def _fit(
    columns: dict[str, list[str]], width: int, by: str, parameters: Sequence[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns that have room, with long texts cut, and the names of the others."""
    shown, gone = dict(columns), []
    # All columns that are neither facts of the run nor its best values are metrics.
    best = [name for name in columns if name.split(" ")[0] == "best"]
    metrics = [name for name in columns if name not in (*SORTS, *best, *parameters, "commit")]
    # The columns that are left out if the table is too wide, the first to go first.
    kept = KEPT - len(best)
    order = (*reversed(metrics[kept:]), "epochs", "took", "steps", *reversed(metrics[1:kept]), "began")
    order += ("commit",) if parameters else ()
    order += (*reversed(parameters), *metrics[:1], "commit", *best, "outcome")
    for name in order:
        if name != by and name in shown and _width(shown, SHORTEST) > width:
            gone.append(name)
            del shown[name]
    # If leaving columns out was not enough, the outcome is cut, and then the name of the run.
    for name, cutter in (("outcome", cut), ("run", cut_middle)):
        if name not in shown:
            continue
        longest = max(map(width_of, (name, *shown[name])))
        room = width - _width(shown, {}) + longest
        shown[name] = [cutter(text, max(SHORTEST[name], room)) for text in shown[name]]
    return shown, [name for name in columns if name in gone]


def _width(columns: Mapping[str, Collection[str]], shortest: Mapping[str, int]) -> int:
    """Return the width of a table whose long columns are cut as far as they may be."""
    widths = {name: max(map(width_of, (name, *texts))) for name, texts in columns.items()}
    return sum(min(width, shortest.get(name, width)) + GAP for name, width in widths.items()) - GAP
