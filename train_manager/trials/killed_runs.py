"""The runs of a training: to its end, killed after a step, and resumed. Each run writes a log and notes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from train_manager.telling.errors import InputError
from train_manager.trials.driven import FACTS, LOADED, Plan
from train_manager.trials.processes import Run

LAST_LINES: Final = 12  # of the log, which the error about a failed run shows


class Runs:
    """The runs of one training.

        straight              to its end, nothing is killed
        killed-at-17          a checkpoint after step 17, kill -9
        resumed               from there to the end
        straight-again        only if the two ends differ: does the training itself differ from run to run?

    Args:
        run: does one run in a process of its own.
        name: the name of the training in messages.
        folder: for logs, folders of notes and the train_dirs of managers.
        say: gets a line as each run begins, and as it has ended; None if the folder is deleted afterwards.
    """

    def __init__(self, run: Run, name: str, folder: Path, say: Callable[[str], None] | None = None) -> None:
        self.run, self.name, self.folder = run, name, folder
        self.say = say or (lambda _: None)
        self.keeps_logs = say is not None

    def to_its_end(self, name: str, *, resume_at: int | None = None, look_at: Sequence[int] = ()) -> None:
        """Run to the end; with ``resume_at`` from the checkpoint of that step."""
        resumes = resume_at is not None
        seen = (*look_at, resume_at) if resume_at is not None else tuple(look_at)
        self.say(f"{name}: {self.name} {f'resumes after step {resume_at}' if resumes else 'runs'} to its end")
        # A run that resumes uses the train_dirs of the killed run, where the checkpoints are.
        code = self._run(name, "killed" if resumes else name, Plan(resume=resumes, look_at=seen))
        if code:
            raise self._failure(name, f"exit code {code}")
        if resume_at is not None:
            self._require_resumed(name, resume_at)
        self.say(f"  {plural(max(self.facts(name)['steps'], default=0), 'step')} in all")

    def and_kill(self, step: int, lose: int, resume_at: int | None) -> None:
        """Run until a checkpoint was written after a step and ``lose`` more steps were done, then kill the process."""
        name = f"killed-at-{step}"
        begins = "" if resume_at is None else f"resumes after step {resume_at}, and "
        later = f", {plural(lose, 'step')} later," if lose else ""
        self.say(f"{name}: {self.name} {begins}saves a checkpoint after step {step} and{later} is killed (kill -9)")
        # Attributes are written down right after the resume and right before the kill.
        look_at = (step,) if resume_at is None else (resume_at, step)
        plan = Plan(kill_at=step, lose=lose, resume=resume_at is not None, look_at=look_at)
        code = self._run(name, "killed", plan)
        # An exit by itself means that the training ended, or failed, before its kill.
        if code != -signal.SIGKILL:
            raise self._failure(name, f"exit code {code}, not killed after step {step}")
        if resume_at is not None:
            self._require_resumed(name, resume_at)

    def _run(self, name: str, train_dirs: str, plan: Plan) -> int:
        notes, log = self.folder / name, self.folder / f"{name}.log"
        notes.mkdir(parents=True)
        self.say(f"  output in {log}")
        folder = self.folder / f"{train_dirs}-train-dirs"
        return self.run(replace(plan, train_dirs=str(folder), notes=str(notes)), log)

    def _failure(self, name: str, how: str) -> InputError:
        log = self.folder / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        end = "".join(f"\n    {line}" for line in lines) or " (no output)"
        cure = f"all of it is in {log}" if self.keeps_logs else ""
        return InputError(f"{self.name} failed in the run {name!r} ({how}); its output ended with:{end}", cure=cure)

    def facts(self, name: str) -> dict[str, Any]:
        """Return the steps and the ends of the epochs of each manager of a run."""
        facts: dict[str, Any] = json.loads((self.folder / name / FACTS).read_text())
        return facts

    def _require_resumed(self, name: str, step: int) -> None:
        note = self.folder / name / LOADED
        loaded = json.loads(note.read_text()) if note.exists() else {}
        # Without this check, a run that silently began anew would only be reported as different.
        if not any(of_manager >= step for of_manager in loaded.values()):
            what = f"{self.name} did not resume after step {step}: no checkpoint of it was loaded"
            raise InputError(what, cure="a TrainManager must train in this process, with a stage load_checkpoint")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
