"""Compare runs by what they left in their folders: parameters, code, environment, data and metrics. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from train_manager.rebuilding.recorded_rows import ArgumentRows
from train_manager.reporting.values import plural
from train_manager.runs.code.differences import CodeDifference, code_differences
from train_manager.runs.comparing.comparison import Cells, Comparison
from train_manager.runs.comparing.measured import is_setting
from train_manager.runs.comparing.run_facts import SECTIONS, RunFacts
from train_manager.runs.record.run_paths import labels_of, named_run, short_id
from train_manager.runs.store.schema import BATCH_SIZE
from train_manager.telling.errors import InputError

MOST_RUNS: Final = 10
FILES: Final = "files"


def compare_runs(runs: Iterable[str | os.PathLike[str]]) -> Comparison:
    """Compare up to ten runs, by what they have recorded; of a single run, the record is shown.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from train_manager.extensions.reproducibility.run_record import RunRecord
    >>> from train_manager.testing import tiny_manager
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, epochs in ("short", 1), ("long", 2):
    ...     result = tiny_manager(RunRecord(), epochs=epochs, train_dir=folder / name).train()
    >>> compare_runs([folder / "short", folder / "long"]).differences()
    ['parameter epochs: 1, 2']

    Args:
        runs: each a ``train_dir``, of which the last run that trained is taken, or ``train_dir#3f2a`` with the
            beginning of a run_id.

    Raises:
        InputError: there is no such run, or they are too few or too many.
        CheckpointError: the file of a run is damaged.
    """
    found = [named_run(run) for run in runs]
    labels = labels_of([(run.train_dir, short_id(run)) for run in found])
    return compare([RunFacts(run, label) for run, label in zip(found, labels, strict=True)])


def compare(runs: Sequence[RunFacts]) -> Comparison:
    """Compare runs that were found."""
    if not 1 <= len(runs) <= MOST_RUNS:
        what, cure = f"{plural(len(runs), 'run')} cannot be compared", f"give up to {MOST_RUNS} runs"
        raise InputError(what, name="runs", asked_by="compare_runs", cure=cure)
    sections = {title: side_by_side([run.rows(title) for run in runs]) for title in SECTIONS}
    files = tuple(_code_difference(runs[0], run) for run in runs[1:])
    cells = [None if found is None else _words_of(found) for found in files]
    if any(cells):
        sections["code"][FILES] = (None, *(words or None for words in cells))
    findings = tuple(run.findings() for run in runs)
    names = dict.fromkeys(name for run in runs for name in run.metrics if not is_setting(name, BATCH_SIZE))
    return Comparison(
        runs=tuple(run.summary for run in runs),
        **sections,
        files=files,
        curves={name: [run.metrics.get(name) for run in runs] for name in names},
        notes=(*(note for run in runs for note in run.notes), *_partial_code(runs)),
        findings=findings,
    )


def side_by_side(rows: Sequence[ArgumentRows]) -> dict[str, Cells]:
    """Return rows with a value of each run; those that only later runs have come last.

    >>> side_by_side([{"lr": "0.1", "epochs": "3"}, {"lr": "0.1", "seed": "0", "epochs": "4"}])
    {'lr': ('0.1', '0.1'), 'epochs': ('3', '4'), 'seed': (None, '0')}
    """
    names = dict.fromkeys(name for of_run in rows for name in of_run)
    return {name: tuple(of_run.get(name) for of_run in rows) for name in names}


def _code_difference(first: RunFacts, other: RunFacts) -> CodeDifference | None:
    """Return how the code of a run differs from that of the first one; None if one was not recorded."""
    if first.code is None or other.code is None:
        return None
    return code_differences((first.run.train_dir, first.code), (other.run.train_dir, other.code))


def _words_of(code: CodeDifference) -> str:
    differ = f"{len(code.files):,} differ{'s' if len(code.files) == 1 else ''}" if code.files else ""
    return ", ".join(filter(None, [differ, "not all compared" if code.problems else ""]))


def _partial_code(runs: Sequence[RunFacts]) -> Iterator[str]:
    """Yield each reason why code was not recorded in full, with the runs that it applies to if there are several."""
    reasons = [(run.label, run.why_code_is_partial()) for run in runs]
    for reason in dict.fromkeys(reason for _, reason in reasons if reason):
        of = [label for label, of_run in reasons if of_run == reason]
        yield reason if len(runs) == 1 else f"{'all runs' if len(of) == len(runs) else ', '.join(of)}: {reason}"
