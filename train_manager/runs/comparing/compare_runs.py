"""Compare runs by what they left in their folders: parameters, code, environment, data and metrics. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, final

from train_manager.rebuilding.recorded_rows import Rows, value_rows
from train_manager.reporting.values import number_text, plural
from train_manager.runs.code.differences import CodeDifference, code_differences
from train_manager.runs.code.facts import NO_REPOSITORY
from train_manager.runs.code.record import changed_files, read_code_record
from train_manager.runs.comparing.compared import NO_GIT, PARTIAL, Cells, Compared, ComparedRun, Points, differing
from train_manager.runs.comparing.run_metrics import band_of, curve_of, is_setting, last_and_best, points_of
from train_manager.runs.record.environment import chosen_seed
from train_manager.runs.record.made_objects import parameter_rows_of
from train_manager.runs.record.metric_schema import BATCH_SIZE
from train_manager.runs.record.run_file import first_line, outcome_of
from train_manager.runs.record.run_paths import FoundRun, labels_of, named_run, short_id
from train_manager.runs.record.run_summary import MALFORMED
from train_manager.telling.errors import InputError, TrainManagerError
from train_manager.telling.findings import Finding, Findings

MOST_RUNS: Final = 10
T = TypeVar("T")
DIGITS: Final = 8  # digits of a hash that are shown
FILES: Final = "files"
INTERPRETER: Final = "command.interpreter"
COMMAND: Final = ("kind", "script", "module", "arguments", "interpreter", "folder")


@final
class Comparison(Compared):
    """What differs between runs, as plain data; ``text`` shows it, and ``write_report`` makes a page of the same runs.

    ``parameters``, ``code``, ``environment``, ``data`` and ``metrics`` have a row for each value, with a text for each
    run; ``files`` tells how the code of each run but the first differs from that of the first; ``curves`` has the
    points of each metric; ``findings`` has what checks have found in each run.
    """

    def text(self, width: int = 120, *, shows_all: bool = False) -> str:
        """Return the differences as text.

        Args:
            width: of a line; longer values are cut.
            shows_all: also what does not differ.
        """
        from train_manager.runs.comparing.comparison_lines import comparison_lines

        return "\n".join(line.text for line in comparison_lines(self, width, shows_all=shows_all))

    def differences(self) -> list[str]:
        """Return the differences between the first run and the others, a line for each, without metrics.

        >>> compared = Comparison((), {"epochs": ("3", "4")}, {}, {"threads.intraop": ("2", "1")}, {}, {})
        >>> compared.differences()
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
    if not 1 <= len(found) <= MOST_RUNS:
        cure = f"give up to {MOST_RUNS} runs"
        what = f"{plural(len(found), 'run')} cannot be compared"
        raise InputError(what, name="runs", asked_by="compare_runs", cure=cure)
    notes: list[str] = []
    labels = labels_of([(run.train_dir, short_id(run)) for run in found])

    def each(read: Callable[[FoundRun], T | None]) -> list[T | None]:
        return [_read(run, label, notes, read) for run, label in zip(found, labels, strict=True)]

    def rows(of: Callable[[FoundRun], Rows]) -> dict[str, Cells]:
        return _side_by_side([one or {} for one in each(of)])

    # A run with a damaged record stays in the comparison, without its facts: a note says why.
    described = [
        _read(run, label, notes, partial(_describe, label=label)) or ComparedRun(label, str(run.train_dir), run.id)
        for run, label in zip(found, labels, strict=True)
    ]
    records, measured = (
        each(lambda run: read_code_record(run.train_dir, run.id)),
        [points or {} for points in each(points_of)],
    )
    notes += _incomplete(labels, records)
    described = [_with_steps(one, run, points) for one, run, points in zip(described, found, measured, strict=True)]
    metrics = [
        _read(run, label, notes, partial(_metric_rows, measured=points)) or {}
        for run, label, points in zip(found, labels, measured, strict=True)
    ]

    files = tuple(_files([*zip(found, records, strict=True)]))
    return Comparison(
        runs=tuple(described),
        parameters=rows(lambda run: parameter_rows_of(run.entry)),
        code=_with_files(_side_by_side([_code_rows(record) for record in records]), files),
        environment=_with_one_interpreter(rows(_environment_rows)),
        data=rows(_data_rows),
        metrics=_side_by_side(metrics),
        files=files,
        curves=_of_each_metric(measured, curve_of),
        bands=_of_each_metric(measured, band_of),
        findings=tuple(
            found or Findings()
            for found in each(lambda run: Findings(map(Finding.from_dict, run.entry.get("findings") or ())))
        ),
        notes=tuple(notes),
    )


# ---- one run -------------------------------------------------------------------------------------------------------


def _describe(run: FoundRun, label: str) -> ComparedRun:
    # "3 epochs, 120 steps", as far as the entry has these numbers.
    progress = run.entry.get("progress") or {}
    done = [plural(progress[name], name.removesuffix("s")) for name in ("epochs", "steps") if name in progress]
    began = datetime.fromisoformat(run.entry["began"]).astimezone().strftime("%Y-%m-%d %H:%M")
    words = ", ".join(done) or "no step recorded"
    return ComparedRun(label, str(run.train_dir), run.id, began, outcome_of(run.entry), words)


def _code_rows(record: Mapping[str, Any] | None) -> Rows:
    rows: Rows = {}
    for item in (record or {}).get("repositories") or ():
        # The rows of a submodule or a package begin with its name.
        before = f"{item['inside']} " if item.get("inside") else ""
        rows[f"{before}commit"] = f"{item['commit']:.10}" if item.get("commit") else "none"
        rows[f"{before}branch"] = item.get("branch") or "none (detached)"
        rows[f"{before}changed files"] = str(len([*changed_files(item)]))
        if item.get("state"):
            rows[f"{before}state"] = " ".join(map(str, item["state"]))
    if notebook := (record or {}).get("notebook"):
        rows["cells that ran"] = str(notebook.get("cells"))
    return rows


def _incomplete(labels: Sequence[str], records: Sequence[Mapping[str, Any] | None]) -> Iterator[str]:
    """Yield each reason why code was not recorded in full, with the runs that it applies to if there are several."""
    reasons = [_why_incomplete(record or {}) for record in records]
    for reason in dict.fromkeys(filter(None, reasons)):
        of = [label for label, of_run in zip(labels, reasons, strict=True) if of_run == reason]
        yield reason if len(labels) == 1 else f"{'all runs' if of == [*labels] else ', '.join(of)}: {reason}"


def _why_incomplete(record: Mapping[str, Any]) -> str | None:
    reason = record.get("reason")
    if reason == NO_REPOSITORY:
        files = [file for item in record.get("repositories") or () for file in item.get("files") or ()]
        kept = "only the files that ran were recorded" if files else "the code was not recorded"
        return f"{NO_GIT}: {kept}"
    return reason and f"{PARTIAL}: {reason}"


def _with_steps(described: ComparedRun, run: FoundRun, measured: Mapping[str, Points]) -> ComparedRun:
    """Return the description of a run, with the last step in its metrics if the run was killed."""
    # The file of a killed run is as old as its last renewal; metrics.sqlite is seconds old.
    last = max((points[-1][0] for points in measured.values() if points), default=0)
    progress = run.entry.get("progress")
    recorded = progress.get("steps") if isinstance(progress, dict) else None
    if run.entry.get("ended") or last <= (recorded or 0):
        return described
    return replace(described, progress=f"{plural(int(last), 'step')} in its metrics")


def _environment_rows(run: FoundRun) -> Rows:
    command = run.entry.get("command") or {}
    if command.get("kind") == "notebook":  # its arguments name a connection file, which is another for each kernel
        command = {name: value for name, value in command.items() if name not in ("module", "arguments")}
    rows = value_rows({name: command[name] for name in COMMAND if command.get(name)}, "command") if command else {}
    environment = dict(run.entry.get("environment") or {})
    if seeds := environment.pop("seeds", None):
        rows["seed of torch"] = str(chosen_seed(seeds)).lower()
    return {**rows, **value_rows(environment)}


def _with_one_interpreter(rows: dict[str, Cells]) -> dict[str, Cells]:
    """Return rows in which ``python`` and ``python3`` of a folder are the same."""
    cells = rows.get(INTERPRETER) or ()
    paths = [os.path.normpath(cell) for cell in cells if cell]
    is_one = len(paths) == len(cells) and len(set(map(os.path.dirname, paths))) == 1
    return {**rows, INTERPRETER: tuple(paths[:1] * len(cells))} if is_one else rows


def fingerprint_rows(data: Mapping[str, Any]) -> Rows:
    """Return the fingerprints of data, with the beginnings of their hashes."""
    rows = value_rows(dict(data)) if data else {}
    return {name: text[:DIGITS] if name.endswith("sha256") else text for name, text in rows.items()}


def _data_rows(run: FoundRun) -> Rows:
    entry = run.entry
    rows = fingerprint_rows(entry.get("data") or {})
    # A seed that was given is shown among the parameters.
    if "seed" not in ((entry.get("parameters") or {}).get("arguments") or {}):
        rows["seed"] = str(entry.get("seed")).lower()
    if before := entry.get("goes_on_from"):
        rows["resumes from"] = f"{before.get('run')!s:.8} at {before.get('step')}"
    return rows


def _metric_rows(run: FoundRun, measured: Mapping[str, Points]) -> Rows:
    recorded = (run.entry.get("metrics") or {}).items()
    last = {name: float(value) for name, value in recorded if isinstance(value, int | float)}
    best: dict[str, tuple[float, float] | None] = {}
    for name, points in measured.items():
        last[name], best[name] = last_and_best(name, points)
    rows: Rows = {}
    for name, value in last.items():
        if is_setting(name, BATCH_SIZE):  # the largest one: the last batch of an epoch may be smaller
            value = max([value, *(size for _, size in measured.get(name, []))])
        if is_setting(name):
            rows[name] = f"{value:g}"
            continue
        rows[name] = number_text(value)
        if found := best.get(name):
            rows[f"{name}, best"] = f"{number_text(found[1])} at {found[0]:g}"
    return rows


# ---- side by side --------------------------------------------------------------------------------------------------


def _side_by_side(rows: Sequence[Rows]) -> dict[str, Cells]:
    names: list[str] = []
    # Order of the rows: of the first run, with each row of later runs where these have it.
    for of_run in rows:
        place = 0
        for name in of_run:  # a name that only later runs have is inserted behind the same neighbour as there
            if name in names:
                place = names.index(name) + 1
            else:
                names.insert(place, name)
                place += 1
    return {name: tuple(of_run.get(name) for of_run in rows) for name in names}


def _files(runs: Sequence[tuple[FoundRun, Mapping[str, Any] | None]]) -> Iterator[CodeDifference | None]:
    """Yield how the code of each run but the first differs from the first one's; None if one was not recorded."""
    (first, record), *others = runs
    for run, of_run in others:
        known = record is not None and of_run is not None
        yield code_differences((first.train_dir, record or {}), (run.train_dir, of_run or {})) if known else None


def _with_files(rows: dict[str, Cells], files: Sequence[CodeDifference | None]) -> dict[str, Cells]:
    """Return the rows of code, with one that counts the files in which each run differs from the first."""
    cells = [", ".join(_words_of(found)) if found is not None else None for found in files]
    return {**rows, FILES: (None, *(words or None for words in cells))} if any(cells) else rows


def _words_of(found: CodeDifference) -> Iterator[str]:
    if found.files:
        yield f"{len(found.files):,} differ{'s' if len(found.files) == 1 else ''}"
    if found.problems:
        yield "not all compared"


def _of_each_metric(
    measured: Sequence[Mapping[str, Points]], made: Callable[[str, Mapping[str, Points]], T]
) -> dict[str, list[T]]:
    names = dict.fromkeys(name for of_run in measured for name in of_run if not is_setting(name, BATCH_SIZE))
    return {name: [made(name, of_run) for of_run in measured] for name in names}


def _read(run: FoundRun, label: str, notes: list[str], read: Callable[[FoundRun], T]) -> T | None:
    """Return the result of reading a run; None, with a note, if its record is damaged."""
    try:
        return read(run)
    except (TrainManagerError, OSError) as error:
        notes.append(f"{label}: {first_line(error)}")
    except MALFORMED as error:
        # Several reads of one run may fail at the same fault: it is noted once.
        note = f"{label}: a record in {run.train_dir} is damaged: {type(error).__name__}: {error}"
        notes += [note] if note not in notes else []
    return None
