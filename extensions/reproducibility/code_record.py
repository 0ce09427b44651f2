"""CodeRecord: the code that a run used, so that it can be run again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.files.background import Background
from train_manager.rebuilding.recorded import recorded
from train_manager.runs.code.facts import NO_REPOSITORY
from train_manager.runs.code.left_out import Limits, too_large_in_words
from train_manager.runs.code.modules import code_folder, loaded_files, source_folders
from train_manager.runs.code.notebook import cells_that_ran
from train_manager.runs.code.record import write_code_record
from train_manager.runs.code.take import in_words, take_code_record
from train_manager.runs.record.packages import packages
from train_manager.telling.source_locations import users_place
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

_warned: Final[set[str]] = set()  # the warnings that this process gave: a sweep would repeat them for each run
_NOT_IN_FULL: Final = "the code of this run is not recorded in full"
_CURE: Final = "name them in .gitignore, or raise the limits max_file_mb and max_total_mb of CodeRecord"


@recorded
class CodeRecord(Extension):
    """Record the code of a run as it opens: the commit, and all that differs from it.

    >>> import tempfile
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> tm = tiny_manager(CodeRecord(), train_dir=folder)
    >>> result = tm.train()
    >>> [path.name for path in Path(folder, "code").glob("*.json")] == [f"{tm.run_id}.json"]
    True

    The record has the commit, the branch, and remotes without passwords; changed files, new ones that nothing ignores,
    deletions, submodules. Together with the commit that is the code, byte for byte: ``train-manager reproduce`` runs it
    again elsewhere. Each content is stored once in the ``train_dir``, however often it runs. The repository is only
    read, and nothing that its settings name (filters, hooks, a file monitor) is run. A warning says as the run begins
    that no remote has the commit, without which nobody else can run it again.

    Left out, and named with the reason: secret files (``.env``, keys, files with what looks like a token), folders that
    trainings write, and what is larger than the limits, of which a warning names the largest files once. Without a
    repository, the script and the modules that it has imported from its folder are recorded. The cells of a notebook
    that ran are recorded in their order, again at the end of each run.

    The record is taken once for each TrainManager, because code that is imported later on comes from the same files. A
    thread takes it while the run continues; the end of the run waits for the thread. The record lists code that could
    not be recorded, and a warning says so, once per process for each reason: if the git program is missing, for
    example.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``train_dir``.

    *Leaves behind:* ``code/<run_id>.json`` in ``train_dir``, beside it the differences from the commit as text for
    people, ``code/<run_id>.diff``, and the contents of files that differ in a git folder, ``code/git``.

    Args:
        others: packages whose source lies in other repositories (installed as editable), by name, or folders.
        max_file_mb: a larger file is left out, with its size.
        max_total_mb: of all files that are copied.
        in_background: take it in a thread; False takes it before the training begins.
        folder: where the code lies; None takes the folder of the script, or without a script the working folder.
        seconds: a git that does not answer for so long is cut off, and the run continues.

    Raises:
        InputError: an argument is invalid, or ``others`` has a package or folder that is not there.
    """

    sole = True
    ranks = 0

    def __init__(
        self,
        others: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        *,
        max_file_mb: float = 5,
        max_total_mb: float = 50,
        in_background: bool = True,
        folder: str | os.PathLike[str] | None = None,
        seconds: float = 10.0,
    ) -> None:
        self.others = (others,) if isinstance(others, str | os.PathLike) else tuple(others)
        self.max_file_mb = require_number(max_file_mb, "max_file_mb", at_least=0)
        self.max_total_mb = require_number(max_total_mb, "max_total_mb", at_least=0)
        self.in_background = in_background
        self.folder = folder
        self.seconds = require_number(seconds, "seconds", above=0)
        self._run_id = ""  # of the TrainManager whose code was recorded, or is being recorded
        self._record: dict[str, Any] | None = None  # as it was written; None if it could not be
        self._background = Background(self._take)
        self._troubles: list[str] = []  # collected by the thread, warned of as the run ends

    def pre_run(self, train_manager: TrainManager, train_dir: Path) -> None:
        if self._run_id == train_manager.run_id:
            # A further run of the same TrainManager: the code in memory is
            # that of the first run, though files may have been edited since.
            return
        others = source_folders(self.others, packages()[1] if self.others else {}, asked_by="CodeRecord")
        self._run_id, self._record = train_manager.run_id, None
        folder = code_folder() if self.folder is None else Path(self.folder).expanduser().absolute()
        take = partial(
            take_code_record,
            folder,
            train_dir.absolute(),
            train_manager.run_id,
            limits=Limits(file=int(self.max_file_mb * 1e6), total=int(self.max_total_mb * 1e6), seconds=self.seconds),
            others=others,
            # Cells and the user's line are looked up here, since the thread has another stack.
            cells=cells_that_ran(),
            tell=partial(self._warn_now, asked_at=users_place()),
        )
        if self.in_background:
            self._background.submit(take, folder)
        else:
            self._take(take, folder)

    @always
    def post_run(self, train_dir: Path) -> None:
        self._background.join()
        cells = cells_that_ran()
        if cells and self._record is not None:  # further cells may have run since the record was taken
            try:
                write_code_record(self._record, train_dir, cells)
            except Exception as error:
                self._troubles.append(f"{_NOT_IN_FULL}: {in_words(error)}")
        troubles, self._troubles = self._troubles, []
        for trouble in troubles:
            _warn_once(trouble, users_place())

    def _take(self, take: Callable[..., dict[str, Any]], folder: Path) -> None:
        try:
            record = take(loaded=loaded_files(folder))
        except Exception as error:  # a failure of the record must not end the run
            self._troubles.append(f"{_NOT_IN_FULL}: {in_words(error)}")
            return
        self._record = record
        if record["reason"] is not None and not _is_whole(record):
            self._troubles.append(f"{_NOT_IN_FULL}: {record['reason']}")
        for one in record["repositories"]:
            if text := too_large_in_words(one["left_out"]):
                self._troubles.append(f"{_NOT_IN_FULL}: {text}; {_CURE}")

    def _warn_now(self, text: str, asked_at: tuple[str, int]) -> None:
        try:
            _warn_once(text, asked_at)
        except Warning:  # where warnings are errors, this one would end the thread without a record: post_run gives it
            _warned.remove(text)
            self._troubles.append(text)


def _is_whole(record: Mapping[str, Any]) -> bool:
    """Return whether a record without a repository has the script, its modules, or the cells of a notebook."""
    has_files = any(one["files"] for one in record["repositories"])
    return record["reason"] == NO_REPOSITORY and (has_files or record["notebook"] is not None)


def _warn_once(text: str, asked_at: tuple[str, int]) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn_explicit(text, UserWarning, *asked_at)
