"""Attributes of extensions that a checkpoint holds: objects with a state, and tensors that have changed.

They are saved if the class keeps ``Extension.state_dict``. An object that is not there as its state is loaded gets the
state as the extension makes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.checkpoints.left_out import Mark, is_of_this_library
from train_manager.checkpoints.tensors import why_not
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.loop.saved_state import attribute_misfits, restore
from train_manager.model.modules import has_state
from train_manager.model.sharding import is_sharded

ATTRIBUTES: Final = "attributes"  # the entry in the state of an extension
# Those of its tensors that have taken the place of another object since the run began, and the kind of their device.
# All others have changed in place, and are loaded in place: an optimizer, or another object, may have this very tensor.
REPLACED: Final = "replaced"

RESUME: Final = "resume"
"""The check of findings about attributes that were not there as their states were loaded."""

MARKS: Final = "_tensors_before"
"""The attribute of an extension with the marks of its tensors, by name, as a run of it first began."""


@final
class Known:
    """The objects that a checkpoint holds in another place, with their submodules and tensors.

    >>> model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    >>> known = Known([model])
    >>> model[0] in known, nn.Sequential(model) in known, nn.Linear(1, 1) in known
    (True, True, False)
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self._objects = [*objects]  # kept alive, as an id is only of a live object
        modules = [one for one in self._objects if isinstance(one, nn.Module)]
        inner = (part for one in modules for part in chain(one.modules(), one.parameters(), one.buffers()))
        self._ids = {id(one) for one in chain(self._objects, inner)}

    def __contains__(self, value: object) -> bool:
        if id(value) in self._ids:
            return True
        if not isinstance(value, nn.Module):
            return False
        # A wrapper of the model is another object, whose tensors are those of the model.
        state = nn.Module.state_dict(value, keep_vars=True)
        return bool(state) and all(id(one) in self._ids for one in state.values())


def saves_attributes(extension: Extension) -> bool:
    """Return whether the attributes of an extension are saved: its class writes no state of its own."""
    return type(extension).state_dict is Extension.state_dict


def note_tensors(extension: Extension) -> dict[str, Mark]:
    """Note the tensors of an extension once, before a hook can change them, and return their marks."""
    if MARKS not in vars(extension):
        marks = {name: Mark(value) for name, value in vars(extension).items() if isinstance(value, Tensor)}
        object.__setattr__(extension, MARKS, marks)  # a frozen dataclass refuses a plain assignment
    found: dict[str, Mark] = vars(extension)[MARKS]
    return found


def attribute_states(extension: Extension, known: Known) -> dict[str, Any]:
    """Return the states of an extension's attributes, by name; of tensors those that have changed since it was noted.

    A tensor that has not changed is an argument, which the program may have edited as it resumes.
    """
    before = note_tensors(extension)
    found = {
        name: value.detach() if isinstance(value, Tensor) else value.state_dict()
        for name, value in _attributes_with_state(extension, known).items()
        if not (isinstance(value, Tensor) and name in before and before[name] == Mark(value))
    }
    # An attribute that is not there yet keeps the state that waits for it.
    return awaited_states(extension) | {name: state for name, state in found.items() if not _is_empty(state)}


def state_with_attributes(extension: Extension, known: Known) -> dict[str, Any]:
    """Return the state of an extension, with the states of its attributes unless its class writes its own state."""
    state, before = extension.state_dict(), note_tensors(extension)
    found = attribute_states(extension, known) if saves_attributes(extension) else {}
    # A name that waits is not there; `getattr` would look for it, as a hook does that is about to make it.
    here = {name: value for name, value in vars(extension).items() if name in found and isinstance(value, Tensor)}
    replaced = {
        name: value.device.type
        for name, value in here.items()
        if not value.requires_grad and not (name in before and before[name].is_of(value))
    }
    return {**state, **({ATTRIBUTES: found} if found else {}), **({REPLACED: replaced} if replaced else {})}


def has_only_tensors(state: Any) -> bool:
    """Return whether the saved state of an extension is nothing but tensors that its attributes had.

    An extension that only watches leaves them too, such as the last loss; a program that resumes may lack it.
    """
    found = state.get(ATTRIBUTES, {}) if isinstance(state, Mapping) else {}
    return (
        bool(found)
        and state.keys() <= {ATTRIBUTES, REPLACED}
        and all(isinstance(one, Tensor) for one in found.values())
    )


def misfits_of_attributes(label: str, extension: Extension, state: Any, known: Known) -> Iterator[str]:
    """Say which attributes of an extension cannot take their saved states."""
    here, replaced = _attributes_with_state(extension, known), _entry(extension, state, REPLACED)
    for name, saved in _entry(extension, state, ATTRIBUTES).items():
        if name in replaced and not _takes_tensor(extension, name):
            kind = type(getattr(extension, name)).__name__
            yield f"{name} of {label} is a {kind} here, but a tensor in the checkpoint"
        elif name not in replaced and name in here:
            yield from attribute_misfits(f"{name} of {label}", here[name], saved)


def load_attributes(
    extension: Extension,
    state: Any,
    known: Known,
    device: torch.device,
    *,
    place: Callable[[], Any],
    made: Callable[[str, Any, Any, Any], None],
) -> None:
    """Restore the attributes that ``state_with_attributes`` has saved.

    Args:
        extension: the extension.
        state: its saved state.
        known: what the checkpoint holds in another place.
        device: where tensors go that were not on the host.
        place: returns where the training is: its step and stages.
        made: called as the extension makes an attribute that was not there: with its name, the object, the state, and
            the place where the extension has looked for it last.
    """
    here, waiting = _attributes_with_state(extension, known), {}
    replaced = _entry(extension, state, REPLACED)
    for name, saved in _entry(extension, state, ATTRIBUTES).items():
        if name in here and name not in replaced:
            restore(here[name], saved)
        elif name not in replaced:
            waiting[name] = _Awaited(name, saved, place, made)
        elif _takes_tensor(extension, name):
            target = torch.device("cpu") if replaced[name] == "cpu" else device
            object.__setattr__(extension, name, saved.to(target, copy=True))
    _wait_for(extension, waiting)


def awaited_states(extension: Extension) -> dict[str, Any]:
    """Return the states that wait until the extension makes their attributes, by name."""
    return {name: one.state for name, one in _awaited(extension).items()}


# ---- which attributes ------------------------------------------------------------------------------------------------


def _attributes_with_state(extension: Extension, known: Known) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(extension).items()
        if not (name.startswith("_") and is_of_this_library(extension)) and _is_kept(value) and value not in known
    }


def _is_kept(value: Any) -> bool:
    if type(value) in weakref.ProxyTypes or isinstance(value, type | Extensible | Extension | Schedule):
        return False  # another object owns it, or saves it
    if isinstance(value, Tensor):
        return value.grad_fn is None and (is_sharded(value) or not why_not(value.detach()))
    return has_state(value)


def _is_empty(state: Any) -> bool:
    return isinstance(state, Mapping) and not state


def _entry(extension: Extension, state: Any, name: str) -> Mapping[str, Any]:
    found = state.get(name) if isinstance(state, Mapping) and saves_attributes(extension) else None
    return found if isinstance(found, Mapping) else {}


def _takes_tensor(extension: Extension, name: str) -> bool:
    # A file cannot replace a method or a module.
    value = getattr(extension, name, None)
    return value is None or isinstance(value, Tensor | int | float)


# ---- attributes that are not there yet -------------------------------------------------------------------------------


@final
class _Awaited:
    """Stands for an attribute that is not there yet, and has its state until the extension makes it.

    It is an attribute of a class that the extension has until then. So the state is there before the next line of the
    hook that makes the object, and extensions that wait for nothing pay nothing.
    """

    def __init__(
        self, name: str, state: Any, place: Callable[[], Any], made: Callable[[str, Any, Any, Any], None]
    ) -> None:
        self.name, self.state, self._place, self._made = name, state, place, made
        self.looked_for_at: Any = None

    def __get__(self, extension: Any, kind: type | None = None) -> Any:
        if extension is None:
            return self
        # As by `if self.average is None`, which may ask for all that the hook makes then.
        for one in _awaited(extension).values():
            one.looked_for_at = self._place()
        own = vars(extension)
        return own[self.name] if self.name in own else getattr(super(type(extension), extension), self.name)

    def __set__(self, extension: Any, value: Any) -> None:
        vars(extension)[self.name] = value
        if not _is_kept(value):
            return
        _wait_for(extension, {name: one for name, one in _awaited(extension).items() if name != self.name})
        self._made(self.name, value, self.state, self.looked_for_at)

    def __delete__(self, extension: Any) -> None:
        del vars(extension)[self.name]


def _awaited(extension: Extension) -> dict[str, _Awaited]:
    return {name: one for name, one in vars(type(extension)).items() if isinstance(one, _Awaited)}


def _wait_for(extension: Extension, awaited: Mapping[str, _Awaited]) -> None:
    """Let an extension wait for these attributes alone."""
    kind = type(extension).__base__ if _awaited(extension) else type(extension)
    assert kind is not None, "a class that waits has the class of the extension as its base"
    if awaited:
        looks = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        kind = type(kind)(kind.__name__, (kind,), {**looks, **awaited})
    object.__setattr__(extension, "__class__", kind)  # also of a frozen dataclass
