"""Runs as lines of a table, a line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from train_manager.metrics.history_rows import is_loss
from train_manager.reporting.terminal import GAP, Line, cut, cut_middle, table_lines, width_of
from train_manager.reporting.values import number_text, seconds_text
from train_manager.runs.record.run_summary import RunSummary
from train_manager.telling.errors import InputError, did_you_mean, near

MOST_METRICS: Final = 2  # columns of last values
LONGEST_RUN: Final = 40  # cells of the name of a run; it gets fewer, but SHORTEST_RUN, if the table would be too wide
SHORTEST_RUN: Final = 18
LONGEST: Final = 20  # cells of an outcome, and of a parameter's value
WIDE: Final = 120  # cells; a narrower terminal shows fewer columns
WORDS: Final = ("run", "began", "outcome", "commit")  # columns that are set to the left
SHORT: Final = {
    "EarlyStopping": "early stop",
    "TimeLimit": "time limit",
    "KeyboardInterrupt": "Ctrl-C",
    "SIGINT": "Ctrl-C",
    "SIGTERM": "SIGTERM",
    "SIGUSR1": "SIGUSR1",
    "ended without a word": "killed",
    "running, or ended without a word": "running or killed",
}
"""The outcome of a run as a table shows it, by the recorded reason."""

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
    """Yield a table of runs; what has no room beside the others stands in a block below.

    Args:
        runs: a line for each.
        folder: where they were looked for; their names begin below it.
        width: of the terminal, in cells.
        by: what they are sorted by, which has a column.
        parameters: whether to show those that differ.
    """
    columns = _columns(runs, by, is_wide=width >= WIDE) | (_parameters(runs) if parameters else {})
    labels, rows = [_label(run, folder) for run in runs], list(zip(*columns.values(), strict=True))
    beside = sum(GAP + max(map(width_of, (name, *texts))) for name, texts in columns.items())
    room = min(LONGEST_RUN, max(SHORTEST_RUN, width - beside))
    named = [[cut_middle(label, room), *row] for label, row in zip(labels, rows, strict=True)]
    return table_lines(["run", *columns], named, width, left=WORDS)


def _columns(runs: Sequence[RunSummary], by: str, *, is_wide: bool) -> dict[str, list[str]]:
    """Return the columns beside the name: in a narrow terminal the best values, or a last one if there are none."""
    known = dict.fromkeys(name for run in runs for name in run.metrics)
    # Losses first; `sorted` keeps the order of the others.
    metrics = sorted(known, key=lambda name: not (is_loss(name) or name.endswith("/loss")))[:MOST_METRICS]
    best, commits = _best(runs), [run.commit for run in runs]
    found = {
        "began": [run.began_in_minutes for run in runs],
        "took": ["" if run.seconds is None else seconds_text(run.seconds) for run in runs],
        "outcome": [cut(outcome_in_short(run.outcome), LONGEST) for run in runs],
        "epochs": ["" if run.epochs is None else str(run.epochs) for run in runs],
        "steps": ["" if run.steps is None else str(run.steps) for run in runs],
        **{
            name: [number_text(run.metrics[name]) if name in run.metrics else "" for run in runs]
            for name in dict.fromkeys([*metrics, *([by] if by in known else [])])
        },
        **best,
        **({"commit": commits} if any(commits) else {}),
    }
    narrow = {"began", "outcome", by, *(best or metrics[:1])}
    return {name: texts for name, texts in found.items() if is_wide or name in narrow}


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


def outcome_in_short(text: str) -> str:
    """Return how a run ended without the message, for which a table has no room.

    >>> outcome_in_short("failed: ValueError: no room (at run > train)"), outcome_in_short("stopped: KeyboardInterrupt")
    ('error: ValueError', 'Ctrl-C')
    """
    word, _, rest = text.partition(" (")[0].partition(": ")
    first = rest.partition(": ")[0]
    # "failed: ValueError: message" becomes "error: ValueError".
    if word == "failed":
        return f"error: {first.rpartition('.')[2]}" if first else word
    return SHORT.get(first or word) or (f"{word}: {first}" if first else word)
