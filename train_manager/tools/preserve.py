"""Leave a training as it was found, whatever is tried with it for a while."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.data.randomness import preserved_random_state
from train_manager.loop.windows import preserved_gradients
from train_manager.manager import TrainManager
from train_manager.model.buffers import preserved_buffers
from train_manager.model.optimizers import parameters_in, restore_settings, settings_of
from train_manager.telling.errors import StageError

COUNTED = ("_counts", "_has_run", "_checked", "_step_seconds")
"""The attributes in which a manager keeps how far it is, and that a run outside of epochs changes."""


@contextmanager
def preserved_training(train_manager: TrainManager, keep: Iterable[str], asked_by: str) -> Iterator[None]:
    """Put a training back as the ``with`` block ends, also after an error; its extensions pause in it.

    Weights, buffers, gradients, modes, optimizers, random states and counters are put back, to the bit.

    Args:
        train_manager: what trains.
        keep: the names of extensions that do not pause; they are not put back.
        asked_by: what errors name.

    Raises:
        StageError: a run is open.
        ExtensionNotFound: there is no extension of a name in ``keep``.
    """
    if "run" in train_manager.fixtures.path:
        what = f"{asked_by} cannot be called while a run is open"
        raise StageError(what, stages=train_manager.fixtures.path, cure="call it before the run, or after it")
    kept = {name for name in keep if train_manager[name] is not None}
    before = {name: copy.deepcopy(getattr(train_manager, name)) for name in COUNTED}
    before["_progress"] = train_manager._progress
    optimizers = list(train_manager.optimizers.values())
    parameters = list(
        dict.fromkeys([*train_manager._setup.parameters(), *(p for o in optimizers for p in parameters_in(o))])
    )
    registry = train_manager._registry
    paused = [name for name in registry.extensions if name not in kept and name not in registry.paused]
    with ExitStack() as stack:
        stack.callback(_restore_attributes, train_manager, before)
        train_manager._progress = copy.copy(train_manager._progress)
        train_manager._progress.own = None  # not the epoch of a loop around it, whose losses these are not
        stack.enter_context(preserved_random_state())
        stack.enter_context(preserved_buffers(*train_manager._setup.modules()))
        stack.enter_context(preserved_gradients(parameters))
        stack.callback(_restore_values, parameters, [one.detach().clone() for one in parameters])
        for optimizer in optimizers:
            stack.enter_context(_preserved_optimizer(optimizer))
        registry.pause(paused)
        stack.callback(registry.resume, paused)
        yield


def _restore_attributes(train_manager: TrainManager, before: dict[str, Any]) -> None:
    for name, value in before.items():
        setattr(train_manager, name, value)


def _restore_values(tensors: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


@contextmanager
def _preserved_optimizer(optimizer: Optimizer) -> Iterator[None]:
    """Put back the settings and the state of an optimizer; not by its ``load_state_dict``, which changes types."""
    settings = settings_of(optimizer)
    state: dict[Any, Any] = {key: copy.deepcopy(value) for key, value in optimizer.state.items()}
    try:
        yield
    finally:
        restore_settings(optimizer, settings)
        optimizer.state.clear()
        optimizer.state.update(state)
