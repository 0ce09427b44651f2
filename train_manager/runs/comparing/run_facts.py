"""What the records of a run tell of it, in sections of rows that are compared with those of other runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, TypeVar, final

from train_manager.rebuilding.recorded_rows import ArgumentRows, value_rows
from train_manager.reporting.values import number_text
from train_manager.runs.code.facts import NO_REPOSITORY
from train_manager.runs.code.record import changed_files, read_code_record
from train_manager.runs.comparing.comparison import NO_GIT, PARTIAL
from train_manager.runs.comparing.measured import Measured, best_of, is_setting
from train_manager.runs.record.environment import chosen_seed
from train_manager.runs.record.made_objects import parameter_rows_of
from train_manager.runs.record.run_file import first_line
from train_manager.runs.record.run_paths import FoundRun
from train_manager.runs.record.run_summary import MALFORMED, RunSummary, summary_of
from train_manager.runs.store.curves import Curve
from train_manager.runs.store.schema import BATCH_SIZE
from train_manager.telling.errors import TrainManagerError
from train_manager.telling.findings import Finding, Findings

T = TypeVar("T")
Entry = Mapping[str, Any]
DIGITS: Final = 8  # digits of a hash that are shown
PYTHON: Final = re.compile(r"python[\d.]*$")
COMMAND: Final = ("kind", "script", "module", "arguments", "interpreter", "folder")


@final
class RunFacts:
    """A run, each of whose files is read once. What cannot be read is a note, and the rest is compared.

    Args:
        run: the run.
        label: what tells it from the others.
        measured: its metrics; by default they are read from its folder.

    Attributes:
        notes: what could not be read.
    """

    def __init__(self, run: FoundRun, label: str, measured: Measured | None = None) -> None:
        self.run, self.label = run, label
        self.entry: Entry = run.entry
        self.measured = measured or Measured(run.train_dir, run.id)
        self.notes: list[str] = []

    @cached_property
    def code(self) -> Entry | None:
        """The code record; None if the code was not recorded, or if the record is damaged."""
        return self.read(lambda: read_code_record(self.run.train_dir, self.run.id), None)

    @cached_property
    def metrics(self) -> dict[str, Curve]:
        """The metrics by their names; none if the store cannot be read."""
        none: dict[str, Curve] = {}
        return self.read(lambda: self.measured.metrics, none)

    def rows(self, section: str) -> ArgumentRows:
        """Return the rows of a section; none if its record is damaged."""
        return self.read(lambda: SECTIONS[section](self), {})

    def read(self, what: Callable[[], T], otherwise: T) -> T:
        """Return what was read; ``otherwise``, with a note, if it is damaged."""
        try:
            return what()
        except (TrainManagerError, OSError) as error:
            cure = error.cure if isinstance(error, TrainManagerError) else ""
            note = f"{self.label}: {first_line(error)}{f' ({cure})' if cure else ''}"
        except MALFORMED as error:
            note = f"{self.label}: a record in {self.run.train_dir} is damaged: {type(error).__name__}: {error}"
        # Several reads of one run may fail at the same fault, which is noted once.
        if note not in self.notes:
            self.notes.append(note)
        return otherwise

    @cached_property
    def summary(self) -> RunSummary:
        """The run in a line."""
        return replace(summary_of(self.run), label=self.label)

    def findings(self) -> Findings:
        """Return what checks have found."""
        return self.read(lambda: Findings(map(Finding.from_dict, self.entry.get("findings") or ())), Findings())

    def why_code_is_partial(self) -> str | None:
        """Return why the code was not recorded in full; None if it was."""
        record = self.code or {}
        reason = record.get("reason")
        if reason == NO_REPOSITORY:
            files = [file for item in record.get("repositories") or () for file in item.get("files") or ()]
            kept = "only the files that ran were recorded" if files else "the code was not recorded"
            return f"{NO_GIT}: {kept}"
        return reason and f"{PARTIAL}: {reason}"


# ---- the sections ----------------------------------------------------------------------------------------------------


def code_rows(facts: RunFacts) -> ArgumentRows:
    """Return commit, branch and the number of changed files."""
    rows: ArgumentRows = {}
    record = facts.code or {}
    for item in record.get("repositories") or ():
        # The rows of a submodule or a package begin with its name.
        before = f"{item['inside']} " if item.get("inside") else ""
        rows[f"{before}commit"] = f"{item['commit']:.10}" if item.get("commit") else "none"
        rows[f"{before}branch"] = item.get("branch") or "none (detached)"
        rows[f"{before}changed files"] = str(len([*changed_files(item)]))
        if item.get("state"):
            rows[f"{before}state"] = " ".join(map(str, item["state"]))
    if notebook := record.get("notebook"):
        rows["cells that ran"] = str(notebook.get("cells"))
    return rows


def environment_rows(facts: RunFacts) -> ArgumentRows:
    """Return the command, Python, packages, devices, threads, flags and variables."""
    command = facts.entry.get("command") or {}
    if command.get("kind") == "notebook":  # its arguments name a connection file, which is another for each kernel
        command = {name: value for name, value in command.items() if name not in ("module", "arguments")}
    if command.get("interpreter"):  # `python` and `python3.11` of a folder are one
        path = os.path.normpath(command["interpreter"])
        command = {**command, "interpreter": PYTHON.sub("python", path)}
    rows = value_rows({name: command[name] for name in COMMAND if command.get(name)}, "command") if command else {}
    environment = dict(facts.entry.get("environment") or {})
    if seeds := environment.pop("seeds", None):
        rows["seed of torch"] = str(chosen_seed(seeds)).lower()
    return {**rows, **value_rows(environment)}


def data_rows(facts: RunFacts) -> ArgumentRows:
    """Return the fingerprints of the data, the seed, and the run that the run resumes from."""
    entry, rows = facts.entry, fingerprint_rows(facts.entry.get("data") or {})
    # A seed that was given is shown among the parameters.
    if "seed" not in ((entry.get("parameters") or {}).get("arguments") or {}):
        rows["seed"] = str(entry.get("seed")).lower()
    if before := entry.get("goes_on_from"):
        rows["resumes from"] = f"{before.get('run')!s:.8} at {before.get('step')}"
    return rows


def fingerprint_rows(data: Mapping[str, Any]) -> ArgumentRows:
    """Return the fingerprints of data, with the beginnings of their hashes."""
    rows = value_rows(dict(data)) if data else {}
    return {name: text[:DIGITS] if name.endswith("sha256") else text for name, text in rows.items()}


def metric_rows(facts: RunFacts) -> ArgumentRows:
    """Return the last metrics, and the best ones."""
    recorded = (facts.entry.get("metrics") or {}).items()
    last = {name: float(value) for name, value in recorded if isinstance(value, int | float)}
    last |= {name: float(curve.mean[-1]) for name, curve in facts.metrics.items()}
    rows: ArgumentRows = {}
    for name, value in last.items():
        if is_setting(name):
            # The largest batch size: the last batch of an epoch may be smaller.
            whole = is_setting(name, BATCH_SIZE) and name in facts.metrics
            rows[name] = f"{facts.metrics[name].mean.max() if whole else value:g}"
            continue
        rows[name] = number_text(value)
        if name in facts.metrics and (best := best_of(name, facts.metrics[name])):
            rows[f"{name}, best"] = f"{number_text(best[1])} at {best[0]:g}"
    return rows


SECTIONS: Final[Mapping[str, Callable[[RunFacts], ArgumentRows]]] = {
    "parameters": lambda facts: parameter_rows_of(facts.entry),
    "code": code_rows,
    "environment": environment_rows,
    "data": data_rows,
    "metrics": metric_rows,
}
"""What is compared, and what reads it of a run."""
