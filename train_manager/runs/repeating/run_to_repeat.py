"""The run to run again: its entry, its metrics so far, its code record; chosen by ``train_dir#prefix``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from train_manager.runs.code.record import notebook_file, read_code_record
from train_manager.runs.record.run_file import outcome_of, run_file, runs_and_problems
from train_manager.runs.record.run_paths import chain_of, named_run
from train_manager.runs.repeating.comparing_metrics import MetricValues
from train_manager.runs.repeating.recorded_metrics import has_trained, metrics_of_runs
from train_manager.telling.errors import CheckpointError, InputError


@final
@dataclass(frozen=True)
class RunToRepeat:
    """The records of a run."""

    train_dir: Path
    entry: Mapping[str, Any]  # the content of its file
    chain: Sequence[Mapping[str, Any]]  # the entries of the runs that it resumed from, the oldest first, and its own
    code: Mapping[str, Any] | None  # its code record; None if there is none

    @property
    def repository(self) -> Path | None:
        """The folder of the repository that its code was in."""
        return Path(self._repository["path"]) if self._repository else None

    @property
    def commit(self) -> str | None:
        """The commit of its code."""
        return self._repository.get("commit")

    @property
    def notebook(self) -> Path | None:
        """The file with the cells of its notebook.

        Raises:
            CheckpointError: it is not there, or elsewhere.
        """
        recorded, found = (self.code or {}).get("notebook"), notebook_file(self.train_dir, self.code)
        if recorded and found is None:
            name = str(recorded.get("file"))
            what = f"the cells of run {self.entry['id']} are not in its record: there is no file {name!r} in its code/"
            raise CheckpointError(what, name=name)
        return found

    @property
    def outcome(self) -> str:
        """How it has ended, in words."""
        return outcome_of(self.entry)

    def metrics(self) -> MetricValues:
        """Return its metrics, after the metrics of the runs that it resumed from."""
        return metrics_of_runs(self.train_dir, self.chain)

    @property
    def _repository(self) -> Mapping[str, Any]:
        # The repository of the code is the one that is not inside of another.
        return next((one for one in (self.code or {}).get("repositories") or () if not one.get("inside")), {})


def run_to_repeat(run: str | Path) -> RunToRepeat:
    """Return the run of a folder that trained last; ``folder#prefix`` chooses by the beginning of its ``run_id``.

    Raises:
        InputError: there is no such run, or several, or it has not trained.
        CheckpointError: its file is damaged, or that of a run that it resumed from.
    """
    found = named_run(run)
    if not has_trained(found.entry, found.train_dir):
        cure = "there is nothing to compare; give a run that has trained"
        raise InputError(f"run {found.id} has not trained", name="run", cure=cure)
    chain = chain_of(found.entry, found.entries)
    # A run that cannot be read is not in the chain, whose metrics would lack its steps.
    before = run_file(found.train_dir, str((chain[0].get("goes_on_from") or {}).get("run")))
    if (problem := runs_and_problems(found.train_dir)[1].get(before)) is not None:
        raise problem
    return RunToRepeat(found.train_dir, found.entry, chain, read_code_record(found.train_dir, found.id))
