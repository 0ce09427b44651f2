"""The run to run again: its entry, its code record, whether it is the user's own; chosen by ``train_dir#prefix``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from train_manager.runs.code.record import notebook_file, read_code_record
from train_manager.runs.record.processes import is_of_this_machine
from train_manager.runs.record.run_file import run_file
from train_manager.runs.record.run_paths import has_trained, named_run
from train_manager.telling.errors import CheckpointError, InputError


@final
@dataclass(frozen=True)
class RunToRepeat:
    """The records of a run."""

    train_dir: Path
    entry: Mapping[str, Any]  # the content of its file
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
    def reason_to_ask(self) -> str | None:
        """Why its record may be somebody else's; None if it is of this user, made on this machine.

        That guards against mistakes and is not a sandbox: a record can be forged.
        """
        process, path = self.entry["process"], run_file(self.train_dir, self.entry["id"])
        if not is_of_this_machine(process):
            return f"it was recorded on another machine, {process.get('host')!r}"
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return f"{path} belongs to another user"
        return None

    @property
    def _repository(self) -> Mapping[str, Any]:
        # The repository of the code is the one that is not inside of another.
        return next((one for one in (self.code or {}).get("repositories") or () if not one.get("inside")), {})


def run_to_repeat(run: str | Path) -> RunToRepeat:
    """Return the run of a folder that trained last; ``folder#prefix`` chooses by the beginning of its ``run_id``.

    Raises:
        InputError: there is no such run, or several, or it has not trained.
        CheckpointError: its file is damaged.
    """
    found = named_run(run)
    if not has_trained(found.entry):
        cure = "there is nothing to compare; give a run that has trained"
        raise InputError(f"run {found.id} has not trained", name="run", cure=cure)
    return RunToRepeat(found.train_dir, found.entry, read_code_record(found.train_dir, found.id))
