"""A saved state compared with the components of a training, and restored to them as far as it fits."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from train_manager.checkpoints.fit import Difference, Left, class_misfit, list_names, schedule_misfit, with_own_names
from train_manager.checkpoints.parameter_order import parameter_misfit, state_for
from train_manager.model.buffers import give_buffers_their_own_memory
from train_manager.model.modules import has_state
from train_manager.model.sharding import as_sharded, shard_moments
from train_manager.telling.errors import CheckpointError, did_you_mean, near
from train_manager.telling.source_locations import users_level

FORMAT: Final = 1
"""The form of a saved state; raised if a state of before could not be loaded as it is."""


def require_format(state: Mapping[str, Any]) -> None:
    """Refuse a state of another form.

    Raises:
        CheckpointError: the state was saved by another version of the library, or is none.
    """
    if state.get("format") != FORMAT:
        what = f"the checkpoint has a state of format {state.get('format')}; this train_manager reads format {FORMAT}"
        cure = "load it with the train_manager that wrote it, or take its weights alone: tm.load_weights(path)"
        raise CheckpointError(what, name="format", cure=cure)


def attributes_with_state(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manager's further attributes that have a ``state_dict``: a second model, a replay buffer."""
    found = {name: value for name, value in attributes.items() if name != "history" and not name.startswith("_")}
    return {name: value for name, value in found.items() if not isinstance(value, type) and has_state(value)}


def misfits(
    here: Mapping[tuple[str, str], Any],
    state: Mapping[str, Any],
    names: Mapping[int, str],
    left: Left,
    *,
    is_there: bool,
) -> Iterator[str]:
    """Say why a saved state does not fit the components: names that one of both lacks, and other shapes.

    Args:
        here: the components, by kind and name.
        state: the saved state.
        names: the names of all parameters, by their ids.
        left: how much is left to train, so that a schedule must have steps left too.
        is_there: the program has come to the place of the state; on its way it may have other optimizers.
    """
    for (kind, name), component in here.items():
        label, saved = label_of(kind, name), find_saved(state, kind, name)
        made = saved_config(state, kind, name) if is_there else None
        if saved is None:
            yield f"the checkpoint has no {label}"
        elif isinstance(component, nn.Module):
            yield from module_misfits(label, component, saved)
        elif isinstance(component, Optimizer):
            misfit = class_misfit(label, component, made) or parameter_misfit(label, component, saved, made, names)
            yield from filter(None, [misfit])
        elif kind == "optimizers":  # not a torch optimizer: its state has no known form, so only classes are compared
            yield from filter(None, [class_misfit(label, component, made)])
        elif kind == "lr_schedule":
            is_of_another = is_there and not takes_state(here, state, names, name)
            left_here = left if is_there else Left()
            misfit = schedule_misfit(label, component, saved, made, left_here, is_of_another=is_of_another)
            yield from filter(None, [misfit])
    for kind in ("loss", "optimizers", "lr_schedule"):
        for name in state.get(kind, {}):
            if (kind, name) not in here:
                yield f"the checkpoint has {label_of(kind, name)}, which the training lacks"


def attribute_misfits(label: str, component: Any, saved: Any) -> Iterator[str]:
    """Say why the saved state of an attribute does not fit the object that is there."""
    if isinstance(component, nn.Module):
        yield from module_misfits(label, component, saved)
    elif isinstance(component, Optimizer):
        yield from filter(None, [parameter_misfit(label, component, saved, None, {})])
    elif isinstance(component, Tensor) and _shape(component) != _shape(saved):
        yield f"{label} is {_shape(component)} here, but {_shape(saved)} in the checkpoint"


def takes_state(here: Mapping[tuple[str, str], Any], state: Mapping[str, Any], names: Any, name: str) -> bool:
    """Return whether the optimizer of a name can take its saved state, so that its schedule continues with it."""
    optimizer, saved = here.get(("optimizers", name)), find_saved(state, "optimizers", name)
    if not isinstance(optimizer, Optimizer) or saved is None:
        return True
    return state_for(optimizer, saved, saved_config(state, "optimizers", name), names) is not None


def module_misfits(label: str, module: nn.Module, state: Mapping[str, Any]) -> Iterator[str]:
    """Say which names of a module's state are missing or unexpected, and which shapes differ."""
    own = module.state_dict()
    state = with_own_names(state, own)
    missing, unexpected = [name for name in own if name not in state], [name for name in state if name not in own]
    if missing:
        yield f"{label}: the checkpoint lacks {list_names(missing)}"
    if unexpected:
        nearest = near(unexpected[0], missing)
        hint = f" ({did_you_mean(nearest)})" if nearest else ""
        yield f"{label}: the checkpoint has {list_names(unexpected)}, which the model lacks{hint}"
    for name in own:
        saved, here = state.get(name), own[name]
        if isinstance(saved, Tensor) and isinstance(here, Tensor) and not _fits(own, name, saved):
            yield f"{label}: {name} is {_shape(here)} here, but {_shape(saved)} in the checkpoint"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"


def label_of(kind: str, name: str) -> str:
    """Return the name of a component in errors and warnings."""
    return {"optimizers": f"optimizer {name!r}", "lr_schedule": f"lr_schedule of {name!r}"}.get(kind, kind)


def require_fit(found: Iterable[str | Difference], *, strict: bool) -> list[Difference]:
    """Refuse a state that does not fit; with ``strict=False`` warn of the components that stay as they are.

    Args:
        found: the misfits, as texts, and differences, which are returned.
        strict: refuse the state.

    Raises:
        CheckpointError: with all misfits.
    """
    misfits, differences = list[str](), list[Difference]()
    for one in found:
        misfits.append(one) if isinstance(one, str) else differences.append(one)
    listed = "".join(f"\n  - {one}" for one in misfits)
    if misfits and strict:
        cure = "give the training what the checkpoint was written with; strict=False loads the rest"
        raise CheckpointError(f"the checkpoint does not fit this training:{listed}", cure=cure)
    if misfits:
        what = f"the checkpoint fits this training in part; this is left as it is:{listed}"
        warnings.warn(what, RuntimeWarning, stacklevel=users_level())
    return differences


def other_dtypes(label: str, module: nn.Module, state: Mapping[str, Any]) -> Iterator[Difference]:
    """Say which tensors of a module have another precision than in its saved state; they keep their own."""
    own = module.state_dict()
    found: dict[tuple[Any, Any], list[str]] = {}
    for name, value in with_own_names(state, own).items():
        if _fits(own, name, value) and own[name].dtype != value.dtype:
            found.setdefault((own[name].dtype, value.dtype), []).append(name)
    for dtypes, names in found.items():
        program, checkpoint = (str(dtype).removeprefix("torch.") for dtype in dtypes)
        yield Difference(f"dtype of {label} {list_names(names)}", program, checkpoint, program)


def tell_of_differences(found: list[Difference]) -> None:
    """Warn where the program differs from the checkpoint, with the value that is used."""
    if found:
        what = "this program is not the one that wrote the checkpoint; for each difference, one of the two is used:"
        warnings.warn("".join([what, *(f"\n  - {one}" for one in found)]), RuntimeWarning, stacklevel=users_level())


def not_a_state(error: Exception, component: str = "a part of the state") -> CheckpointError:
    """Return the error for a state that a component of the training cannot load."""
    what = f"{component} cannot be loaded ({type(error).__name__}: {error})"
    cure = "make the training anew before you load another one, for parts of this one may have been restored"
    return CheckpointError(what, cure=cure)


def find_saved(state: Mapping[str, Any], kind: str, name: str) -> Any:
    """Return the saved state of a component; None if there is none."""
    found = state.get(kind)
    return found if found is None or kind == "model" else found.get(name)


def saved_config(state: Mapping[str, Any], kind: str, name: str) -> Any:
    """Return how a component was made, as a saved state says it; None if it has no such component."""
    return state["fit"].get(kind, {}).get(name)


def restore(component: Any, state: Any, made: Any = None, names: Mapping[int, str] | None = None) -> bool:
    """Load a state into a module, an optimizer, a tensor or a scheduler, as far as it fits; return whether any does.

    Args:
        component: the component; of a module, the tensors that have the same names and shapes are loaded.
        state: the state that the saved component's ``state_dict`` has returned.
        made: how the saved component was made.
        names: the names of all parameters, by their ids.
    """
    if isinstance(component, nn.Module):
        # Nothing can be loaded into an expanded buffer, as its numbers share one place in memory.
        give_buffers_their_own_memory(component)
        own = component.state_dict()
        state = with_own_names(state, own)
        component.load_state_dict(
            {name: as_sharded(value, own[name]) for name, value in state.items() if _fits(own, name, value)},
            strict=False,
        )
    elif isinstance(component, Optimizer):
        ordered = state_for(component, state, made, names or {})
        if ordered is None:
            return False
        component.load_state_dict(ordered)
        shard_moments(component)
    elif isinstance(component, Tensor):
        if component.shape != state.shape:
            return False
        with torch.no_grad():
            component.copy_(as_sharded(state, component))
    else:
        component.load_state_dict(state)
    return True


def _fits(own: Mapping[str, Any], name: str, value: Any) -> bool:
    if name in own and is_lazy(own[name]):
        return isinstance(value, Tensor)  # a lazy parameter has no shape yet, and takes over the saved one
    return name in own and getattr(value, "shape", None) == getattr(own[name], "shape", None)
