"""Leave a training as it was found, whatever is tried with it for a while."""

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

from train_manager.core.extension import Extension
from train_manager.core.schedule import SCHEDULES
from train_manager.data.iteration import is_read_once, parts_of_data
from train_manager.data.one_pass import left_as_found
from train_manager.data.randomness import preserved_random_state
from train_manager.loop.books import Lifetime
from train_manager.loop.epoch import OpenEpoch
from train_manager.loop.feed import Feed
from train_manager.loop.progress import Progress
from train_manager.loop.resume import Resume
from train_manager.loop.windows import Windows, preserved_gradients
from train_manager.manager import TrainManager
from train_manager.schedules.rules import preserved_call_numbers
from train_manager.telling.errors import InputError, StageError
from train_manager.tools.snapshot import GENERATORS, Snapshot, refill

OWN: Final = "train_manager."
"""What the modules of this library begin with."""


@contextmanager
def preserved_training(
    train_manager: TrainManager, keep: Iterable[str], asked_by: str, *, copied: Iterable[str] = ()
) -> Iterator[Mapping[str, str]]:
    """Put a training back as the ``with`` block ends, also after an error; its extensions pause in it.

    Weights, buffers, gradients, modes, attributes of modules, optimizers, schedules, random states, counters, the
    history and the position in the data are put back, to the bit. Nothing of what the training is in the middle of, an
    epoch or a call, is there in the block.

    Args:
        train_manager: what trains.
        keep: the names of extensions that do not pause; they are not put back.
        asked_by: what errors name.
        copied: the names of extensions that do not pause, but work on a copy of what they hold. One that cannot be
            copied pauses, and so does one that sends figures away.

    Yields:
        Why an extension pauses that was to work on a copy, by its name.

    Raises:
        StageError: a run is open.
        InputError: the model has lazy parameters.
        ExtensionNotFound: there is no extension of a name in ``keep`` or ``copied``.
    """
    if "run" in train_manager.fixtures.path:
        what = f"{asked_by} cannot be called while a run is open"
        raise StageError(what, stages=train_manager.fixtures.path, cure="call it before the run, or after it")
    refuse_lazy(train_manager)
    kept = {name for name in keep if train_manager[name] is not None}
    to_copy = {name: train_manager[name] for name in copied}
    sets = [train_manager.train_data, *train_manager.eval_data.values()]
    data = list({id(one): one for one in sets if one is not None}.values())
    parts = [part for one in data for part in parts_of_data(one) if hasattr(part, "__dict__")]
    registry = train_manager._registry
    with ExitStack() as stack:
        stack.enter_context(preserved_random_state())
        stack.enter_context(preserved_call_numbers())
        for one in (train_manager, *parts):
            stack.callback(refill, vars(one), dict(vars(one)))
        for one in data:
            stack.enter_context(left_as_found(one))
        before = Snapshot(
            _roots(train_manager, to_copy.values(), parts),
            left_out=[*_put_back_otherwise(train_manager), *registry.extensions.values(), *data, *parts],
        )
        parameters = (one for one in before.objects if isinstance(one, Tensor) and one.is_leaf)
        stack.enter_context(preserved_gradients(parameters))
        stack.callback(before.put_back)
        vars(train_manager).update(_state_of_its_own(train_manager))
        refused = stack.enter_context(_copied(to_copy, before.objects))
        works = kept | (to_copy.keys() - refused.keys())
        paused = [name for name in registry.extensions if name not in works and name not in registry.paused]
        stack.callback(registry.resume, paused)  # before the pause, which Ctrl-C may cut short
        registry.pause(paused)
        yield refused


def refuse_lazy(train_manager: TrainManager) -> None:
    """Refuse a model whose parameters have no values yet.

    Raises:
        InputError: a parameter is lazy.
    """
    if any(map(nn.parameter.is_lazy, train_manager._setup.parameters())):
        what = "the model has lazy parameters, which have no values yet that could be put back"
        raise InputError(what, name="model", cure="call the model once before: model(inputs)")


def require_manager(given: TrainManager, asked_by: str) -> TrainManager:
    """Return what was given, if it is a TrainManager.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(given, TrainManager):
        what = f"{asked_by} takes a TrainManager, but was given a {type(given).__name__}"
        raise InputError(what, name="train_manager", cure=f"tm = TrainManager(model=model, ...), then {asked_by}(tm)")
    return given


def require_data(data: Iterable[Any] | None, name: str, purpose: str) -> Iterable[Any]:
    """Return data that can be read again; refuse others before any are read.

    Raises:
        InputError: there are none, or they would be gone after it.
    """
    if data is None:
        raise InputError(f"there is no {name} to {purpose}", name=name, cure=f"pass {name}=batches")
    if is_read_once(data):
        what = f"{name} is a {type(data).__name__}, which can be read once, so its batches cannot be put back"
        raise InputError(what, name=name, cure="give a list, a DataLoader, or an object with __iter__")
    return data


# ---- the manager -----------------------------------------------------------------------------------------------------


def _state_of_its_own(train_manager: TrainManager) -> dict[str, Any]:
    """Return what a manager counts with meanwhile: it has come as far, but is in the middle of nothing."""
    progress: Progress = copy.copy(train_manager._progress)
    progress.feed, progress.epoch, progress.own = Feed(), OpenEpoch(Lifetime(progress.lifetime.key)), None
    progress.partial = progress.interrupted = progress.saved_at = None
    progress.reopens = set()
    new: dict[str, Any] = {"_progress": progress, "_resume": Resume(), "_windows": Windows()}
    new["_setup"] = replace(train_manager._setup)  # with a region of its own, for that has the counts
    return new | {name: copy.deepcopy(getattr(train_manager, name)) for name in ("_counts", "history")}


def _put_back_otherwise(train_manager: TrainManager) -> list[object]:
    """Return a manager and what it has for itself alone, with what the values of books belong to."""
    own = [train_manager.fixtures, train_manager.history, train_manager._recorded_arguments]
    return [train_manager, *own, *(level.progress.lifetime for level in train_manager._levels())]


# ---- objects ---------------------------------------------------------------------------------------------------------


def _roots(train_manager: TrainManager, copied: Iterable[Extension], parts: Iterable[object]) -> Iterator[object]:
    """Give what a training changes in place."""
    setup = train_manager._setup
    for module in setup.modules():
        yield from (module, *module.parameters(), *module.buffers())  # a scripted one has them in no attribute
    yield from (setup.model, setup.loss, *train_manager.optimizers.values())
    yield from (setup.lr_schedule, setup.eval_data, *vars(train_manager).values())
    yield from (one for part in parts for one in vars(part).values() if isinstance(one, GENERATORS))
    yield from _around(setup.loss)
    for extension in copied:
        yield from getattr(extension, SCHEDULES, {}).values()  # which its hooks hold as well
        of_class = vars(type(extension)).values()
        yield from () if type(extension).__module__.startswith(OWN) else filter(_is_container, of_class)
        for one in (*vars(extension).values(), *of_class):
            yield from _around(getattr(one, "__func__", one))  # of a static method


def _around(function: object) -> Iterator[object]:
    """Give the lists, dicts and sets that a user's function encloses, or names of its file."""
    if isinstance(function, FunctionType) and not str(function.__module__).startswith(OWN):
        yield from filter(_is_container, gc.get_referents(*(function.__closure__ or ())))
        yield from filter(_is_container, map(function.__globals__.get, function.__code__.co_names))


def _is_container(one: object) -> bool:
    return isinstance(one, (list, dict, set, deque))


# ---- extensions ------------------------------------------------------------------------------------------------------


@contextmanager
def _copied(extensions: Mapping[str, Extension], shared: Iterable[object]) -> Iterator[Mapping[str, str]]:
    """Let extensions work on a deep copy of their attributes; as the ``with`` block ends, they have the originals.

    They stay the same objects, so that their hooks need not be read anew. What is ``shared`` is not copied. Yields why
    an extension has its originals, by its name.
    """
    memo = {id(one): one for one in shared}
    refused = {name: why for name, one in extensions.items() if (why := _why_not_copied(one, memo))}
    originals = {name: one for name, one in extensions.items() if name not in refused}
    for one in originals.values():
        del memo[id(one)]
    with ExitStack() as stack:
        for one, made in zip(originals.values(), copy.deepcopy([*originals.values()], memo), strict=True):
            stack.callback(object.__setattr__, one, "__dict__", vars(one))  # also of a frozen dataclass
            object.__setattr__(one, "__dict__", vars(made))  # the copy has the same, so one may refer to the other
        yield refused


def _why_not_copied(extension: Extension, memo: Mapping[int, object]) -> str:
    """Return why an extension is not copied; empty if it can be."""
    if extension.sends_away:
        return "it sends figures away"
    try:
        copy.deepcopy(extension, {key: one for key, one in memo.items() if one is not extension})
    except Exception as error:  # whatever an object of the user's raises in its own copying
        return f"it cannot be copied ({type(error).__name__}: {error})"
    return ""
