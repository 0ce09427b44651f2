"""A training that is tried on a few batches, and put back: the ``with`` block of ``lr_finder``, ``diagnose`` and
``rehearse``, and the questions that each of them asks before it begins.
"""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from train_manager.checks.batch_leaves import copied as copy_of
from train_manager.checks.contents import Contents
from train_manager.data.readable import is_read_once
from train_manager.extensions.evaluation.metrics import Metrics
from train_manager.extensions.logging.log import Log
from train_manager.extensions.logging.progress_bar import ProgressBar
from train_manager.loop.eval_at import NEVER
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError, TrainManagerError
from train_manager.trials.few_batches import FewBatches
from train_manager.trials.preserve import preserve_training

TRAIN_DATA: Final = "train_data"
FOLDER: Final = ".rehearsal"
"""The name in ``train_dir`` of the folder for the files of a trial: always the same, so that the next trial removes the
files of one that was killed."""


def require_manager(given: TrainManager, asked_by: str, otherwise: str = "") -> TrainManager:
    """Return the argument if it is a TrainManager.

    Args:
        given: the argument.
        asked_by: the name of the function that was called with it.
        otherwise: the end of the cure: what takes other arguments.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(given, TrainManager):
        what = f"{asked_by} takes a TrainManager, but was given a {type(given).__name__}"
        cure = f"tm = TrainManager(model=model, ...), then {asked_by}(tm){otherwise}"
        raise InputError(what, name="train_manager", cure=cure)
    return given


def data_of(train_manager: TrainManager, purpose: str, *, of_evaluations: bool = False) -> dict[str, Iterable[Any]]:
    """Return the training data, and the evaluation sets if asked for, by their names in messages.

    Args:
        train_manager: the manager.
        purpose: what they are read for, as a verb.
        of_evaluations: whether the evaluation sets are read too.

    Raises:
        InputError: there are no training data; or a set can be read only once, so that it would be gone after a trial.
    """
    data = {TRAIN_DATA: train_manager.train_data}
    data |= {name_of_set(name): one for name, one in train_manager.eval_data.items() if of_evaluations}
    for name, one in data.items():
        if one is None:
            raise InputError(f"there is no {name} to {purpose}", name=name, cure=f"pass {name}=batches")
        if is_read_once(one):
            what = f"{name} is a {type(one).__name__}, which can be read once, so its batches cannot be put back"
            raise InputError(what, name=name, cure="give a list, a DataLoader, or an object with __iter__")
    return {name: one for name, one in data.items() if one is not None}


def name_of_set(name: str) -> str:
    """Return the name of an evaluation set in messages."""
    return f"eval_data[{name!r}]"


def in_a_line(error: Exception) -> str:
    """Return the type and the text of an error, without its cure."""
    what = error.what if isinstance(error, TrainManagerError) else str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {what}"


@final
class Trial:
    """A ``with`` block in which a training is tried; as it ends, the training is as it was, to the bit.

    In the block nothing warns, and extensions pause. The folders that a run makes are removed if they are empty.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager()
    >>> with Trial(tm, "the example") as trial, trial.run() as step:
    ...     losses = [step(batch) for batch in tm.train_data]
    >>> len(losses), tm.step_num
    (3, 0)

    Args:
        train_manager: the manager of the training.
        asked_by: the name of the caller in errors.
        keep: the names of extensions that do not pause, and are not put back.
        copied: the names of extensions that do not pause, but work on copies of their attributes, and print nothing.

    Attributes:
        left_out: the reasons why extensions in ``copied`` pause nevertheless, by their names.

    Raises:
        StageError: as the block begins, a run is open.
        InputError: the model has lazy parameters.
        ExtensionNotFound: there is no extension of a name.
    """

    def __init__(
        self, train_manager: TrainManager, asked_by: str, *, keep: Iterable[str] = (), copied: Iterable[str] = ()
    ) -> None:
        self.left_out: Mapping[str, str] = {}
        self._tm, self._asked_by, self._keep, self._copied = train_manager, asked_by, tuple(keep), tuple(copied)
        self._ends = ExitStack()  # what the end of the block undoes, from last to first

    def __enter__(self) -> Self:
        tm = self._tm
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the training itself will give the same warnings
            # A run makes its train_dir, which must not stay: it is removed after everything else is put back.
            stack.callback(_remove_empty, _missing_folders(tm.train_dir))
            preserved = preserve_training(tm, self._keep, self._asked_by, copied=self._copied)
            self.left_out = stack.enter_context(preserved)
            for one in (tm[name] for name in self._copied if name not in self.left_out):
                if isinstance(one, (Log, Metrics, ProgressBar)):
                    one.file = io.StringIO()  # a user would take their lines for those of the training
            self._ends = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.__exit__(kind, error, traceback)

    @contextmanager
    def run(self) -> Iterator[Callable[[Any], float]]:
        """Open a run, and give the function that trains on a copy of a batch and returns its loss."""
        with self._tm.run(), self._tm.mode(training=True):  # train_on_batch() sets no mode: train() does
            yield self._step

    def shorten(self, epochs: int, sets: Mapping[str, FewBatches]) -> None:
        """Let a training call be of a few epochs of a few batches.

        Args:
            epochs: the number of the epochs.
            sets: the batches of the sets by the names of ``data_of``. If all evaluation sets are among them, the call
                evaluates at its end; else it does not.
        """
        tm, setup = self._tm, self._tm._setup
        # Hooks may change the batches in place, which are the user's own where the data are a list.
        self._ends.callback(Contents([one.batches for one in sets.values()]).put_back)
        evaluates = all(name_of_set(name) in sets for name in tm.eval_data)
        tm._eval_at = tm.eval_at._replace(end=True) if evaluates else NEVER
        setup.epochs, setup.steps_per_epoch = tm.epoch_num + epochs, None
        setup.train_data = sets.get(TRAIN_DATA)
        setup.eval_data = {name: sets.get(name_of_set(name), one) for name, one in tm.eval_data.items()}

    def move_files(self) -> None:
        """Let a run write into an empty folder in ``train_dir``, on its disk, which is removed as the block ends.

        Raises:
            OSError: the folder cannot be made.
        """
        tm, rank = self._tm, self._tm.ranks.place.rank
        if tm.train_dir is not None:
            folder = tm.train_dir / (f"{FOLDER}-{rank}" if rank else FOLDER)
            if folder.exists():
                shutil.rmtree(folder)
            self._ends.callback(shutil.rmtree, folder, ignore_errors=True)
            run = folder / "run"  # one level deeper, so that files written beside the train_dir are removed too
            run.mkdir(parents=True)
            tm.train_dir = run

    def _step(self, batch: Any) -> float:
        # A copy, because train_batch may change a batch in place.
        loss = self._tm.train_on_batch(copy_of(batch))
        # The loss is forgotten here: one that is not finite is judged by the caller, and must not raise in the run.
        self._tm._progress.own = None
        if loss is None:
            cure = "set fixtures['loss'] in train_batch, or call self.update(loss) there"
            what = f"{self._asked_by} needs the loss of each batch, but there is none"
            raise InputError(what, name="loss", cure=cure)
        return loss.item()


def _missing_folders(folder: Path | None) -> list[Path]:
    """Return a folder and those around it that are not there, the innermost first."""
    folders = [] if folder is None else [folder, *folder.parents]
    return [one for one in folders if not one.exists()]


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # the folder was not made, or an extension or another program has written into it
            folder.rmdir()
