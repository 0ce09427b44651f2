"""Leave a training as it was found, whatever is tried with it for a while."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Final, final

from torch import nn

from train_manager.core.extension import Extension
from train_manager.data.iteration import parts_of_data
from train_manager.data.one_pass import left_as_found
from train_manager.data.randomness import preserved_random_state
from train_manager.loop.books import Lifetime
from train_manager.loop.epoch import OpenEpoch
from train_manager.loop.feed import Feed
from train_manager.loop.progress import Progress
from train_manager.loop.resume import Resume
from train_manager.loop.windows import Windows, preserved_gradients
from train_manager.manager import TrainManager
from train_manager.model.optimizers import parameters_in
from train_manager.schedules.rules import preserved_call_numbers
from train_manager.telling.errors import InputError, StageError
from train_manager.tools.copied_extensions import copied_extensions, schedules_in
from train_manager.tools.snapshot import preserved_objects, random_state_of

COUNTED: Final = ("_counts", "_checked", "_unopened", "_step_seconds")
"""The attributes in which a manager keeps how far it is, of which the ``with`` block has copies."""


@final
@dataclass
class Preserved:
    """What is so in the ``with`` block alone.

    Attributes:
        paused: why an extension pauses that was to work on a copy, by its name.
    """

    paused: dict[str, str] = field(default_factory=dict)


@contextmanager
def preserved_training(
    train_manager: TrainManager, keep: Iterable[str], asked_by: str, *, copied: Iterable[str] = ()
) -> Iterator[Preserved]:
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
    registry, preserved = train_manager._registry, Preserved()
    parameters = list(dict.fromkeys(_parameters(train_manager)))
    with ExitStack() as stack:
        stack.enter_context(preserved_random_state())
        stack.enter_context(preserved_call_numbers())
        for data in _data(train_manager):
            stack.enter_context(_data_as_found(data))
        stack.enter_context(preserved_gradients(parameters))
        stack.enter_context(preserved_objects(_roots(train_manager, to_copy.values()), _left_out(train_manager)))
        stack.enter_context(_own_state(train_manager))
        preserved.paused.update({name: "it sends figures away" for name, one in to_copy.items() if one.sends_away})
        to_copy = {name: one for name, one in to_copy.items() if not one.sends_away}
        preserved.paused.update(stack.enter_context(copied_extensions(to_copy, _shared(train_manager))))
        works = kept | (to_copy.keys() - preserved.paused.keys())
        paused = [name for name in registry.extensions if name not in works and name not in registry.paused]
        registry.pause(paused)
        stack.callback(registry.resume, paused)
        yield preserved


def refuse_lazy(train_manager: TrainManager) -> None:
    """Refuse a model whose parameters have no values yet.

    Raises:
        InputError: a parameter is lazy.
    """
    if any(map(nn.parameter.is_lazy, train_manager._setup.parameters())):
        what = "the model has lazy parameters, which have no values yet that could be put back"
        raise InputError(what, name="model", cure="call the model once before: model(inputs)")


# ---- the manager -----------------------------------------------------------------------------------------------------


@contextmanager
def _own_state(train_manager: TrainManager) -> Iterator[None]:
    """Give a manager copies of what it counts with, and take them away."""
    before = {**vars(train_manager), **{name: getattr(train_manager, name) for name in COUNTED}}
    new: dict[str, Any] = {name: copy.copy(getattr(train_manager, name)) for name in COUNTED}
    new["_counts"] = copy.deepcopy(train_manager._counts)
    new["history"] = copy.deepcopy(train_manager.history)
    new["_setup"] = replace(train_manager._setup)  # with a region of its own, for that has these counts
    new["_progress"] = _at_start_of_an_epoch(train_manager._progress)
    new |= {"_resume": Resume(), "_windows": Windows()}
    try:
        _set(train_manager, new)
        yield
    finally:
        for name in vars(train_manager).keys() - before.keys():
            object.__delattr__(train_manager, name)
        _set(train_manager, before)


def _set(train_manager: TrainManager, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        object.__setattr__(train_manager, name, value)


def _at_start_of_an_epoch(progress: Progress) -> Progress:
    """Return a progress that has come as far, but is in the middle of nothing."""
    new = copy.copy(progress)
    new.feed, new.epoch, new.own = Feed(), OpenEpoch(Lifetime(progress.lifetime.key)), None
    new.partial = new.interrupted = new.saved_at = None
    new.reopens = set()
    return new


# ---- objects ---------------------------------------------------------------------------------------------------------


def _parameters(train_manager: TrainManager) -> Iterator[Any]:
    yield from train_manager._setup.parameters()
    for optimizer in train_manager.optimizers.values():
        yield from parameters_in(optimizer)


def _data(train_manager: TrainManager) -> list[Any]:
    """Return the sets of data, each once."""
    sets = [train_manager.train_data, *train_manager.eval_data.values()]
    return list({id(data): data for data in sets if data is not None}.values())


@contextmanager
def _data_as_found(data: Any) -> Iterator[None]:
    """Put back where data are, and the attributes of a loader and its dataset; not what lies in these."""
    parts = [part for part in parts_of_data(data) if hasattr(part, "__dict__") and not isinstance(part, type)]
    attributes = [(part, dict(vars(part))) for part in parts]
    restores = [random_state_of(value) for _, values in attributes for value in values.values()]
    try:
        with left_as_found(data):
            yield
    finally:
        for restore in (one for one in restores if one is not None):
            restore()
        for part, before in attributes:
            vars(part).clear()
            vars(part).update(before)


def _roots(train_manager: TrainManager, copied: Iterable[Extension]) -> Iterator[object]:
    """Give what a training changes in place, and what the hooks of extensions enclose that are functions."""
    setup = train_manager._setup
    yield from setup.modules()
    yield from (setup.model, setup.loss, *train_manager.optimizers.values())
    yield from (setup.lr_schedule, setup.eval_data)
    yield from (value for name, value in vars(train_manager).items() if name != "_recorded_arguments")
    for extension in copied:
        yield from (one for one in vars(extension).values() if isinstance(one, FunctionType))
        yield from schedules_in(extension)
        of_class = list(vars(type(extension)).values())
        yield from (one for one in of_class if isinstance(one, (FunctionType, staticmethod)))
        if not type(extension).__module__.startswith("train_manager."):
            yield from (one for one in of_class if isinstance(one, (list, dict, set)))


def _left_out(train_manager: TrainManager) -> list[object]:
    """Return what is put back otherwise, or never changes."""
    return [train_manager, train_manager.history, *train_manager._registry.extensions.values(), *_data(train_manager)]


def _shared(train_manager: TrainManager) -> Iterator[tuple[object, object]]:
    """Give the objects that a copy of an extension refers to as the extension does, each with what stands for it."""
    setup, original = train_manager._setup, train_manager
    yield from ((one, one) for one in (original, original.fixtures, setup.model, setup.loss, setup.lr_schedule))
    modules = [inner for module in setup.modules() for inner in module.modules()]
    tensors = [one for module in setup.modules() for one in (*module.parameters(), *module.buffers())]
    optimizers = list(original.optimizers.values())
    parts = [part for data in _data(original) for part in parts_of_data(data)]
    yield from ((one, one) for one in (*modules, *tensors, *_parameters(original), *optimizers, *parts))
    levels = [level.progress for level in original._levels()]
    yield from ((level.lifetime, level.lifetime) for level in levels)
    extensions: Iterable[Extension] = original._registry.extensions.values()
    for extension in extensions:
        yield from ((one, one) for one in schedules_in(extension))
