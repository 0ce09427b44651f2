"""A training that is tried on a few batches, and put back: the ``with`` block of ``lr_finder``, ``diagnose``,
``rehearse`` and ``tune``, and the questions that each of them asks before it begins.
"""

from __future__ import annotations

import copy
import gc
import io
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, Final, Self, final

from torch import Tensor, nn

from train_manager.checks.batch_leaves import copied as copy_of
from train_manager.checks.contents import GENERATORS, Contents, refill
from train_manager.core.extension import Extension
from train_manager.core.schedule import SCHEDULES
from train_manager.data.loader_position import left_as_found
from train_manager.data.random_state import preserve_random_state
from train_manager.data.readable import is_read_once, objects_in
from train_manager.extensions.evaluation.metrics import Metrics
from train_manager.extensions.logging.log import Log
from train_manager.extensions.logging.progress_bar import ProgressBar
from train_manager.extensions.reproducibility.checkpoints import Checkpoints
from train_manager.loop.epoch import Epoch
from train_manager.loop.eval_at import NEVER
from train_manager.loop.feed import Feed
from train_manager.loop.program import Program
from train_manager.loop.progress import Progress
from train_manager.loop.windows import Windows, preserve_gradients
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError, StageError, TrainManagerError
from train_manager.trials.few_batches import FewBatches
from train_manager.trials.first_batches import FirstBatches

TRAIN_DATA: Final = "train_data"
OWN: Final = "train_manager."
"""The prefix of the names of this library's modules."""
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


def working(train_manager: TrainManager) -> list[str]:
    """Return the names of the extensions that take part in a trial of the whole training."""
    # Distributed pauses: each process tries by itself, as none knows whether the others do.
    joins = {name for name, one in train_manager.extensions.items() if getattr(one, "joined", None) is not None}
    return [name for name in train_manager.extensions if name not in train_manager.paused_extensions | joins]


def in_a_line(error: Exception) -> str:
    """Return the type and the text of an error, without its cure."""
    what = error.what if isinstance(error, TrainManagerError) else str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {what}"


@final
class Trial:
    """A ``with`` block in which a training is tried; as it ends, also by an error, the training is as it was.

    Weights, buffers, gradients, modes, attributes of modules, optimizers, schedules, random states, counters, the
    history and the position in the data are put back, to the bit, and folders that a run has made are removed if they
    are empty. In the block the training is not in the middle of an epoch or a training call, even if it was before;
    nothing warns, and extensions pause.

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
        copied: the names of extensions that do not pause, but work on copies of their attributes, and print nothing. An
            extension that cannot be copied pauses, and so does one that sends metrics away.

    Attributes:
        left_out: the reasons why extensions in ``copied`` pause nevertheless, by their names.

    Raises:
        StageError: as the block begins, a run is open.
        InputError: the model has lazy parameters.
        ExtensionNotFound: there is no extension of a name in ``keep`` or ``copied``.
    """

    def __init__(
        self, train_manager: TrainManager, asked_by: str, *, keep: Iterable[str] = (), copied: Iterable[str] = ()
    ) -> None:
        self.left_out: Mapping[str, str] = {}
        self._tm, self._asked_by, self._keep, self._copied = train_manager, asked_by, tuple(keep), tuple(copied)
        self._rank = train_manager.ranks.place.rank  # while the extension that knows the ranks pauses, it is 0
        self._ends = ExitStack()  # what the end of the block undoes, from last to first

    def __enter__(self) -> Self:
        tm = self._tm
        _refuse(tm, self._asked_by)
        # The look-up raises ExtensionNotFound for an unknown name, before anything is changed.
        kept, copied = ({name: tm[name] for name in names} for names in (self._keep, self._copied))
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the training itself will give the same warnings
            # A run makes its train_dir, which must not stay: it is removed after everything else is put back.
            stack.callback(_remove_empty, _missing_folders(tm.train_dir))
            shared = _put_back(tm, copied.values(), stack)
            # From here on the manager has a progress of its own, which is dropped at the end of the block.
            vars(tm).update(_state_of_its_own(tm))
            self.left_out = stack.enter_context(_on_copies(copied, shared))
            working = [*kept, *(name for name in copied if name not in self.left_out)]
            _pause_others(tm, working, stack)
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

    def shorten(self, epochs: int, sets: Mapping[str, FewBatches | FirstBatches]) -> None:
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
        tm = self._tm
        if tm.train_dir is not None:
            folder = tm.train_dir / (f"{FOLDER}-{self._rank}" if self._rank else FOLDER)
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


# ---- what is put back ------------------------------------------------------------------------------------------------


def _refuse(train_manager: TrainManager, asked_by: str) -> None:
    """Refuse a training that cannot be put back now."""
    if "run" in train_manager.fixtures.path:
        what = f"{asked_by} cannot be called while a run is open"
        raise StageError(what, stages=train_manager.fixtures.path, cure="call it before the run, or after it")
    if any(map(nn.parameter.is_lazy, train_manager._setup.parameters())):
        what = "the model has lazy parameters, which have no values yet that could be put back"
        raise InputError(what, name="model", cure="call the model once before: model(inputs)")


def _put_back(train_manager: TrainManager, copied: Iterable[Extension], stack: ExitStack) -> list[object]:
    """Put everything back as a stack is undone, and return the objects whose contents are put back in place."""
    sets = [train_manager.train_data, *train_manager.eval_data.values()]
    # The same data may be in several places; each object is put back once.
    data = list({id(one): one for one in sets if one is not None}.values())
    parts = [part for one in data for part in objects_in(one) if hasattr(part, "__dict__")]
    # Undone from last to first: contents and gradients, then the data and the attributes of the manager, and the random
    # states at the very end, because the steps before may draw.
    stack.enter_context(preserve_random_state())
    for one in (train_manager, *parts):
        stack.callback(refill, vars(one), dict(vars(one)))
    for one in data:
        stack.enter_context(left_as_found(one))
    apart = [*_put_back_otherwise(train_manager), *train_manager._registry.extensions.values(), *data, *parts]
    before = Contents(_roots(train_manager, copied, parts), left_out=apart)
    # The values of gradients are put back apart, because a step frees or replaces them.
    stack.enter_context(preserve_gradients(one for one in before.objects if isinstance(one, Tensor) and one.is_leaf))
    stack.callback(before.put_back)
    return before.objects


def _pause_others(train_manager: TrainManager, working: Sequence[str], stack: ExitStack) -> None:
    """Pause the extensions that do not work; they resume as a stack is undone."""
    registry = train_manager._registry
    paused = [name for name in registry.extensions if name not in working and name not in registry.paused]
    stack.callback(registry.resume, paused)  # registered before the pause, in the middle of which Ctrl-C may come
    registry.pause(paused)


def _missing_folders(folder: Path | None) -> list[Path]:
    """Return a folder and those around it that are not there, the innermost first."""
    folders = [] if folder is None else [folder, *folder.parents]
    return [one for one in folders if not one.exists()]


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # the folder was not made, or an extension or another program has written into it
            folder.rmdir()


def _state_of_its_own(train_manager: TrainManager) -> dict[str, Any]:
    """Return attributes for a manager that has come as far, but is not in the middle of an epoch or training call."""
    progress: Progress = copy.copy(train_manager._progress)
    progress.feed, progress.epoch, progress.own = Feed(), Epoch(progress.epoch_num + 1, progress.lifetime.key), None
    progress.partial = progress.interrupted = progress.saved_at = None
    progress.reopens = set()
    new: dict[str, Any] = {"_progress": progress, "_program": Program(), "_windows": Windows()}
    new["_setup"] = replace(train_manager._setup)  # a copy, because it notes which parameters were looked at
    return new | {name: copy.deepcopy(getattr(train_manager, name)) for name in ("_counts", "history")}


def _put_back_otherwise(train_manager: TrainManager) -> list[object]:
    """Return the objects that are put back in another way: the manager, and objects that belong to it alone."""
    own = [train_manager.fixtures, train_manager.history, train_manager._recorded_arguments]
    return [train_manager, *own, *(level.progress.lifetime for level in train_manager._levels())]


def _roots(train_manager: TrainManager, copied: Iterable[Extension], parts: Iterable[object]) -> Iterator[object]:
    """Yield the objects that a training changes in place."""
    setup = train_manager._setup
    yield from setup.changed_in_place()
    yield from (setup.eval_data, *vars(train_manager).values())
    yield from (one for part in parts for one in vars(part).values() if isinstance(one, GENERATORS))
    yield from _around(setup.loss)
    for extension in copied:
        yield from getattr(extension, SCHEDULES, {}).values()  # the hooks hold these schedules as well
        of_class = vars(type(extension)).values()
        yield from () if type(extension).__module__.startswith(OWN) else filter(_is_container, of_class)
        for one in (*vars(extension).values(), *of_class):
            yield from _around(getattr(one, "__func__", one))  # __func__: the function inside a static method


def _around(function: object) -> Iterator[object]:
    """Yield the lists, dicts and sets that a user's function encloses, or that are globals of its file."""
    if isinstance(function, FunctionType) and not str(function.__module__).startswith(OWN):
        yield from filter(_is_container, gc.get_referents(*(function.__closure__ or ())))
        yield from filter(_is_container, map(function.__globals__.get, function.__code__.co_names))


def _is_container(one: object) -> bool:
    return isinstance(one, (list, dict, set, deque))


@contextmanager
def _on_copies(extensions: Mapping[str, Extension], shared: Iterable[object]) -> Iterator[Mapping[str, str]]:
    """Let extensions work on a deep copy of their attributes; as the ``with`` block ends, they have the originals.

    The extensions stay the same objects, so that their hooks need not be read anew. Yields the reason why an extension
    works on its originals, by its name.
    """
    # deepcopy takes an object in the memo for one that was copied already, so shared objects stay shared.
    memo = {id(one): one for one in shared}
    refused = {name: why for name, one in extensions.items() if (why := _why_not_copied(one, memo))}
    originals = {name: one for name, one in extensions.items() if name not in refused}
    for one in originals.values():
        del memo[id(one)]
    with ExitStack() as stack:
        for one, made in zip(originals.values(), copy.deepcopy([*originals.values()], memo), strict=True):
            # object.__setattr__ also works on a frozen dataclass. `one` and its copy share one __dict__, so another
            # copied extension that refers to the copy sees the changes of `one`.
            stack.callback(object.__setattr__, one, "__dict__", vars(one))
            object.__setattr__(one, "__dict__", vars(made))
            if isinstance(one, (Log, Metrics, ProgressBar)):
                one.file = io.StringIO()  # a user would take their lines for those of the training
            elif isinstance(one, Checkpoints):
                one.mirror = None  # else a trial would write among the copies of the training
        yield refused


def _why_not_copied(extension: Extension, memo: Mapping[int, object]) -> str:
    """Return why an extension is not copied; empty if it can be."""
    if extension.sends_away:
        return "it sends metrics away"
    try:
        copy.deepcopy(extension, {key: one for key, one in memo.items() if one is not extension})
    except Exception as error:  # a user's object may raise anything while it is copied
        return f"it cannot be copied ({type(error).__name__}: {error})"
    return ""
