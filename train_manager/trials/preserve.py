"""A ``with`` block that puts a training back as it was before the block."""

from __future__ import annotations

import copy
import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any, Final

from torch import Tensor, nn

from train_manager.checks.contents import GENERATORS, Contents, refill
from train_manager.core.extension import Extension
from train_manager.core.schedule import SCHEDULES
from train_manager.data.loader_position import left_as_found
from train_manager.data.random_state import preserve_random_state
from train_manager.data.readable import objects_in
from train_manager.loop.epoch import Epoch
from train_manager.loop.feed import Feed
from train_manager.loop.program import Program
from train_manager.loop.progress import Progress
from train_manager.loop.windows import Windows, preserve_gradients
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError, StageError

OWN: Final = "train_manager."
"""The prefix of the names of this library's modules."""


@contextmanager
def preserve_training(
    train_manager: TrainManager, keep: Iterable[str], asked_by: str, *, copied: Iterable[str] = ()
) -> Iterator[Mapping[str, str]]:
    """Put a training back as the ``with`` block ends, also after an error; its extensions pause in it.

    Weights, buffers, gradients, modes, attributes of modules, optimizers, schedules, random states, counters, the
    history and the position in the data are put back, to the bit. In the block, the training is not in the middle of an
    epoch or a training call, even if it was before.

    Args:
        train_manager: the manager of the training.
        keep: the names of extensions that do not pause; they are not put back.
        asked_by: the name of the caller in errors.
        copied: the names of extensions that do not pause, but work on a copy of their attributes. An extension that
            cannot be copied pauses, and so does one that sends metrics away.

    Yields:
        The reason why an extension in ``copied`` pauses nevertheless, by its name.

    Raises:
        StageError: a run is open.
        InputError: the model has lazy parameters.
        ExtensionNotFound: there is no extension of a name in ``keep`` or ``copied``.
    """
    if "run" in train_manager.fixtures.path:
        what = f"{asked_by} cannot be called while a run is open"
        raise StageError(what, stages=train_manager.fixtures.path, cure="call it before the run, or after it")
    if any(map(nn.parameter.is_lazy, train_manager._setup.parameters())):
        what = "the model has lazy parameters, which have no values yet that could be put back"
        raise InputError(what, name="model", cure="call the model once before: model(inputs)")
    # The look-up raises ExtensionNotFound for an unknown name, before anything is changed.
    kept = {name for name in keep if train_manager[name] is not None}
    to_copy = {name: train_manager[name] for name in copied}
    sets = [train_manager.train_data, *train_manager.eval_data.values()]
    # The same data may be in several places; each object is put back once.
    data = list({id(one): one for one in sets if one is not None}.values())
    parts = [part for one in data for part in objects_in(one) if hasattr(part, "__dict__")]
    registry = train_manager._registry
    # The stack undoes its entries from last to first: extensions, contents and gradients, then the data and the
    # attributes of the manager, and the random states at the very end, because the steps before may draw.
    with ExitStack() as stack:
        stack.enter_context(preserve_random_state())
        for one in (train_manager, *parts):
            stack.callback(refill, vars(one), dict(vars(one)))
        for one in data:
            stack.enter_context(left_as_found(one))
        before = Contents(
            _roots(train_manager, to_copy.values(), parts),
            left_out=[*_put_back_otherwise(train_manager), *registry.extensions.values(), *data, *parts],
        )
        # The values of gradients are put back apart, because a step frees or replaces them.
        parameters = (one for one in before.objects if isinstance(one, Tensor) and one.is_leaf)
        stack.enter_context(preserve_gradients(parameters))
        stack.callback(before.put_back)
        # From here on the manager has a progress of its own, which is dropped at the end of the block.
        vars(train_manager).update(_state_of_its_own(train_manager))
        refused = stack.enter_context(_copied(to_copy, before.objects))
        works = kept | (to_copy.keys() - refused.keys())
        paused = [name for name in registry.extensions if name not in works and name not in registry.paused]
        stack.callback(registry.resume, paused)  # registered before the pause, in the middle of which Ctrl-C may come
        registry.pause(paused)
        yield refused


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
    for module in setup.modules():
        # A scripted module has its parameters in no attribute, where ``Contents`` would find them.
        yield from (module, *module.parameters(), *module.buffers())
    yield from (setup.model, setup.loss, *train_manager.optimizers.values())
    yield from (setup.lr_schedule, setup.eval_data, *vars(train_manager).values())
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
def _copied(extensions: Mapping[str, Extension], shared: Iterable[object]) -> Iterator[Mapping[str, str]]:
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
