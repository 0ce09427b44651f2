"""Run a recorded run again, from its record and a clone of its repository, and compare its metrics bit for bit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from train_manager.reporting.terminal import printable
from train_manager.runs.record.command import folder_of
from train_manager.runs.record.run_file import outcome_of
from train_manager.runs.repeating.metrics import compare_metrics, metrics_of_run
from train_manager.runs.repeating.paths import Moved
from train_manager.runs.repeating.program import Ended, Show, run_program
from train_manager.runs.repeating.repeated_command import Repeated, repeated_command
from train_manager.runs.repeating.repeated_run import RepeatedRun, repeated_run
from train_manager.runs.repeating.reproduction import Reproduction
from train_manager.runs.repeating.restored_code import link_into, place_of_copy, restored_code
from train_manager.runs.repeating.run_to_repeat import RunToRepeat, run_to_repeat
from train_manager.runs.repeating.surroundings import causes_of, differences_around
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

CODE, TRAIN_DIR, LOG = "code", "train_dir", "output.log"  # folders and a file in the folder of a reproduction
# The message of Python, and of programs in C, for a file that does not exist.
MISSING: Final = re.compile(r"No such file or directory:? ?'?([^']*)")


def reproduce(
    run: str | Path,
    *,
    repository: Path | None = None,
    here: bool = False,
    steps: int | None = None,
    folder: Path | None = None,
    links: Sequence[Path] = (),
    yes: bool = False,
    ask: Callable[[str], bool] | None = None,
    say: Callable[[str], None] = print,
    show: Show | None = None,
) -> Reproduction:
    """Run a recorded run again and compare its losses and other metrics with the record, bit for bit.

    The program that is in the record is run, with your permissions: its command and folder are shown first. A question
    is asked about a record that may not be yours: a record of another user or another machine. That is a guard against
    mistakes, not a sandbox. The code is restored in a temporary folder, from the record and a clone of the repository,
    which stays as it is.

    Args:
        run: a ``train_dir``, of which the run that trained last is taken; ``train_dir#prefix`` is another one.
        repository: a clone of the repository, if it is not where it was.
        here: run the program as it is now in the working folder, not as it was recorded.
        steps: stop this training after so many steps, and compare up to there. The program goes on as after
            ``tm.stop``: with what follows its training, and with other trainings, before it or after it, to their ends.
            A training whose folder has a new name each time is not stopped.
        folder: for the code and the metrics, kept in any case; by default a temporary one, kept if they differ.
        links: files or folders of the repository that the program reads and the record lacks, as data that git
            ignores; they are linked into the copy.
        yes: run the program also if the record may not be yours.
        ask: gets the question about such a record, and returns whether the answer is yes; without it, the record is
            refused.
        say: gets lines that report the progress.
        show: gets the output of the program, piece by piece.

    Returns:
        The result; ``str`` of it is a report for people.

    Raises:
        InputError: the run cannot be run again, or the program has failed.
    """
    if steps is not None:
        require_count(steps, "steps", at_least=1)
    recorded = run_to_repeat(run)
    with _folder_of_its_own(folder) as where:
        attempt = _Attempt(recorded, where.path, steps, lambda text: say(printable(text)))
        attempt.announce(repository, here=here)
        attempt.require_consent(yes, ask)
        command = attempt.prepare(repository, links, here=here)
        report = attempt.compare(attempt.run(command, show, where), here=here)
        where.is_kept = where.is_kept or not report.identical
        # The folder is about to be removed, so the report must not name it.
        return report if where.is_kept else Reproduction(**{**vars(report), "folder": None})


@final
@dataclass
class _Folder:
    path: Path
    is_kept: bool


@contextmanager
def _folder_of_its_own(given: Path | None) -> Iterator[_Folder]:
    """Yield a new folder, which is removed in the end unless it is kept."""
    if given is not None and given.exists() and any(given.iterdir()):
        raise InputError(f"{given} is not empty", name="folder", cure="give a folder that is empty or not there")
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    found = _Folder((given or Path(tempfile.mkdtemp(prefix="reproduce-"))).resolve(), given is not None)
    try:
        yield found
    finally:
        if not found.is_kept:
            shutil.rmtree(found.path, ignore_errors=True)


@final
class _Attempt:
    """One reproduction, with a method for each step, in their order."""

    def __init__(self, recorded: RunToRepeat, folder: Path, steps: int | None, say: Callable[[str], None]) -> None:
        self.recorded, self.folder, self.steps, self.say = recorded, folder, steps, say
        # Read before the program runs: it raises if there is nothing to compare.
        self.expected = metrics_of_run(recorded.train_dir, recorded.entry["id"])
        self.train_dir = folder / TRAIN_DIR

    def announce(self, repository: Path | None, *, here: bool) -> None:
        """Say which command will run, and where, before anything is done."""
        moved = self._moved_here(repository) if here else place_of_copy(self.recorded, self.folder / CODE)
        command = self._command(moved, here=here)
        self.say(f"runs: {command}")
        self.say(f"in {command.folder}; its output goes to {self.folder / LOG}")
        guard = "The question before a foreign record guards against mistakes; it is not a sandbox."
        self.say(f"The program runs with your permissions. {guard}")

    def require_consent(self, yes: bool, ask: Callable[[str], bool] | None) -> None:
        """Ask about a record that may not be the user's own.

        Raises:
            InputError: nobody can be asked, or the answer is "no".
        """
        reason = None if yes else self.recorded.reason_to_ask
        if reason is None:
            return
        what = f"the record may not be yours: {reason}"
        if ask is None:
            cure = "look at the command and at the code of the record, and give --yes if you trust them"
            raise InputError(what, name="run", asked_by="reproduce", cure=cure)
        if not ask(printable(f"{what}. Run its program?")):
            raise InputError("the program was not run, as the answer was no", name="run", asked_by="reproduce")

    def prepare(self, repository: Path | None, links: Sequence[Path], *, here: bool) -> Repeated:
        """Restore the code, and return the command that runs it.

        Raises:
            InputError: the code or its folder is not there.
        """
        moved = self._moved_here(repository) if here else self._restore(repository, links)
        repeated = self._command(moved, here=here)
        if not here and Path(os.path.realpath(repeated.folder)).is_relative_to(self.folder):
            repeated.folder.mkdir(parents=True, exist_ok=True)  # a record has no empty folders
        elif not repeated.folder.is_dir():
            outside = "make it, if the program that is named above should run there"
            cure = "give the folder of the repository: --repository DIR" if here else outside
            raise InputError(f"the working folder {repeated.folder} is not there", name="repository", cure=cure)
        return repeated

    def _command(self, moved: Moved | None, *, here: bool) -> Repeated:
        notebook = None if here else self.recorded.notebook
        return repeated_command(self.recorded.entry, self.train_dir, moved, notebook, self.steps)

    def _moved_here(self, repository: Path | None) -> Moved | None:
        old = self.recorded.repository
        return None if repository is None or old is None else Moved(old, repository.resolve())

    def _restore(self, repository: Path | None, links: Sequence[Path]) -> Moved:
        moved, problems = restored_code(self.recorded, self.folder / CODE, repository)
        for problem in problems:
            self.say(f"not restored: {problem}")
        link_into(moved, links, repository)
        return moved

    def run(self, command: Repeated, show: Show | None, where: _Folder) -> RepeatedRun:
        """Run the program, and return its run that is the recorded one; the folder is kept if it fails.

        Raises:
            InputError: it has failed, and the recorded run had not; or it has left no metrics.
        """
        for note in command.notes:
            self.say(f"variables: {note}")
        log = self.folder / LOG
        ended = run_program(command.arguments, folder=command.folder, variables=command.variables, log=log, show=show)
        number = self.recorded.entry.get("manager")
        found = repeated_run(
            self.train_dir, number, lambda metrics: compare_metrics(self.expected, metrics, self.steps)
        )
        reason = self._comparable(found) if ended.code else ""
        if reason is None:
            where.is_kept = True
            raise self._failure(ended, command.folder, is_shown=show is not None)
        if found is None:
            cure = "give its TrainManager a train_dir and extensions=default_extensions(), at the record's code too"
            raise InputError("the program has left no metrics: no TrainManager has trained", name="run", cure=cure)
        if reason:
            self.say(f"ended: {_exit(ended.code)}; {reason}")
        return found

    def _comparable(self, found: RepeatedRun | None) -> str | None:
        """Return why a program with an exit code is compared; None if it failed, and the recorded one had not."""
        if found is None:
            return None
        # The program may end with an error after its training, such as in a plot.
        if self.steps is not None and found.metrics.ends[1] >= self.steps:
            return "its training has done the steps that were asked for"
        if self.recorded.entry["outcome"] != "completed":
            return "the recorded run did not reach its end either"
        return "its training was completed, as the recorded one" if found.entry["outcome"] == "completed" else None

    def _failure(self, ended: Ended, folder: Path, *, is_shown: bool) -> InputError:
        """Return the error of a program that failed; it repeats only the last line of an output that was shown."""
        lines = ended.last_lines[-1:] if is_shown else ended.last_lines
        end = "".join(f"\n    {line}" for line in lines) or " (no output)"
        cures = [f"all of it is in {self.folder / LOG}"]
        # Only for a copy: in its own folder the program has all of its files.
        missing = [found[1] for line in ended.last_lines if (found := MISSING.search(line))]
        if missing and self.folder in folder.parents:  # the copy ran
            cures.append(f"files that git ignores are not in the record: {self._link(missing[-1])}")
        what = f"the program failed ({_exit(ended.code)}); its output ended with:{end}"
        return InputError(what, name="run", cure="\n  ".join(cures))

    def _link(self, missing: str) -> str:
        """Return how a file is linked into the copy; with its path, if it is in the repository."""
        root, there = self.recorded.repository, Path(os.path.normpath(folder_of(self.recorded.entry) / missing))
        if root is not None and there.exists() and there.is_relative_to(root):
            return f"link this one into the copy with --link {shlex.quote(str(there.relative_to(root)))}"
        return "link them into the copy with --link PATH"

    def compare(self, found: RepeatedRun, *, here: bool) -> Reproduction:
        """Return the comparison of the metrics, with what differs around them, and causes if they differ."""
        recorded, metrics = self.recorded.entry, found.metrics
        runs = (self.recorded.train_dir, recorded["id"]), (found.train_dir, found.entry["id"])
        around = differences_around(*runs, code=here)  # a copy has the code of the record
        causes = () if metrics.identical else tuple(causes_of(recorded, around))
        return Reproduction(metrics, self._cut_short(metrics.ends), tuple(around), causes, self.folder)

    def _cut_short(self, ends: tuple[int, int]) -> str:
        if self.steps is not None and max(ends) > self.steps:
            return "as asked"
        if self.recorded.entry["outcome"] != "completed" and ends[0] != ends[1]:
            return f"as the recorded run did not come to its end ({outcome_of(self.recorded.entry)})"
        return ""


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
