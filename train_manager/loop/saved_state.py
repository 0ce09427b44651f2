"""A saved state compared with the parts of a training, and restored to them as far as it fits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from train_manager.checkpoints.fit import Difference, class_misfit, listed, schedule_misfit, with_own_names
from train_manager.checkpoints.parameter_order import parameter_misfit, state_for
from train_manager.model.buffers import give_buffers_their_own_memory
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError, did_you_mean, near
from train_manager.telling.source_locations import users_level


def attributes_with_state(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manager's further attributes that have a ``state_dict``: a second model, a replay buffer."""
    found = {name: value for name, value in attributes.items() if name != "history" and not name.startswith("_")}
    return {name: value for name, value in found.items() if not isinstance(value, type) and has_state(value)}


# ---- compared --------------------------------------------------------------------------------------------------------


def misfits(
    here: Mapping[tuple[str, str], Any],
    state: Mapping[str, Any],
    names: Mapping[int, str],
    *,
    is_there: bool,
    goes_on: bool,
) -> Iterator[str]:
    """Say what of a saved state does not fit the parts, by kind and name: names on one side only, other shapes.

    Args:
        here: the parts.
        state: the saved state.
        names: of all parameters, by their ids.
        is_there: the program has come to the place of the state; on its way it may have other optimizers.
        goes_on: epochs are left to train, for which a schedule must have steps.
    """
    for (kind, name), part in here.items():
        label, saved = shown(kind, name), saved_of(state, kind, name)
        made = made_as(state, kind, name) if is_there else None
        if saved is None:
            yield f"the checkpoint has no {label}"
        elif isinstance(part, nn.Module):
            yield from module_misfits(label, part, saved)
        elif isinstance(part, Optimizer):
            misfit = class_misfit(label, part, made) or parameter_misfit(label, part, saved, made, names)
            yield from filter(None, [misfit])
        elif kind == "optimizers":  # of another library, with a state of its own kind
            yield from filter(None, [class_misfit(label, part, made)])
        elif kind == "lr_schedule":
            if is_there and not takes_state(here, state, names, name):
                yield f"{label} is of another optimizer in the checkpoint"
            yield from filter(None, [schedule_misfit(label, part, saved, made, goes_on=goes_on and is_there)])
    for kind in ("loss", "optimizers", "lr_schedule"):
        for name in state.get(kind, {}):
            if (kind, name) not in here:
                yield f"the checkpoint has {shown(kind, name)}, which the training lacks"


def takes_state(here: Mapping[tuple[str, str], Any], state: Mapping[str, Any], names: Any, name: str) -> bool:
    """Return whether the optimizer of a name can take its saved state, so that its schedule goes on with it."""
    optimizer, saved = here.get(("optimizers", name)), saved_of(state, "optimizers", name)
    if not isinstance(optimizer, Optimizer) or saved is None:
        return True
    return state_for(optimizer, saved, made_as(state, "optimizers", name), names) is not None


def module_misfits(label: str, module: nn.Module, state: Mapping[str, Any]) -> Iterator[str]:
    """Say which names of a module's state are missing or unexpected, and which shapes differ."""
    own = module.state_dict()
    state = with_own_names(state, own)
    missing, unexpected = [name for name in own if name not in state], [name for name in state if name not in own]
    if missing:
        yield f"{label}: the checkpoint lacks {listed(missing)}"
    if unexpected:
        nearest = near(unexpected[0], missing)
        hint = f" ({did_you_mean(nearest)})" if nearest else ""
        yield f"{label}: the checkpoint has {listed(unexpected)}, which the model lacks{hint}"
    for name in own:
        saved, here = state.get(name), own[name]
        if isinstance(saved, Tensor) and isinstance(here, Tensor) and not _fits(own, name, saved):
            yield f"{label}: {name} is {_shape(here)} here, but {_shape(saved)} in the checkpoint"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"


def shown(kind: str, name: str) -> str:
    """Return what a part is called in errors and warnings."""
    return {"optimizers": f"optimizer {name!r}", "lr_schedule": f"lr_schedule of {name!r}"}.get(kind, kind)


def require_fit(found: list[str], *, strict: bool) -> None:
    """Refuse a state that does not fit, or with ``strict=False`` say what is left as it is.

    Raises:
        CheckpointError: with all misfits.
    """
    if not found:
        return
    listed = "".join(f"\n  - {one}" for one in found)
    if strict:
        cure = "give the training what the checkpoint was written with; strict=False loads the rest"
        raise CheckpointError(f"the checkpoint does not fit this training:{listed}", cure=cure)
    what = f"the checkpoint fits this training in part; this is left as it is:{listed}"
    warnings.warn(what, RuntimeWarning, stacklevel=users_level())


def other_dtypes(label: str, module: nn.Module, state: Mapping[str, Any]) -> Iterator[Difference]:
    """Say which tensors of a module have another precision than in its saved state; they keep their own."""
    own = module.state_dict()
    found: dict[tuple[Any, Any], list[str]] = {}
    for name, value in with_own_names(state, own).items():
        if _fits(own, name, value) and own[name].dtype != value.dtype:
            found.setdefault((own[name].dtype, value.dtype), []).append(name)
    for dtypes, names in found.items():
        program, checkpoint = (str(dtype).removeprefix("torch.") for dtype in dtypes)
        yield Difference(f"dtype of {label} {listed(names)}", program, checkpoint, program)


def tell_of_differences(found: list[Difference]) -> None:
    """Warn of what the program says otherwise than the checkpoint, with what counts."""
    if found:
        what = "this program is not the one that wrote the checkpoint; of what differs, one of both is used:"
        warnings.warn("".join([what, *(f"\n  - {one}" for one in found)]), RuntimeWarning, stacklevel=users_level())


def tell_of_earlier_version(told: set[str]) -> None:
    """Warn, once for each manager, of a state that does not tell how its parts were made."""
    what = "the checkpoint is of an earlier version, which does not tell how optimizers, schedules and extensions were "
    what += "made: they are loaded by position, and it is not checked that they are the same"
    if what not in told:
        told.add(what)
        warnings.warn(what, RuntimeWarning, stacklevel=users_level())


def not_a_state(error: Exception, part: str = "a part of the state") -> CheckpointError:
    """Return the error for a state that a part of the training cannot load."""
    what = f"{part} cannot be loaded ({type(error).__name__}: {error})"
    cure = "make the training anew before you load another one, for parts of this one may have been restored"
    return CheckpointError(what, cure=cure)


# ---- restored --------------------------------------------------------------------------------------------------------


def saved_of(state: Mapping[str, Any], kind: str, name: str) -> Any:
    """Return the saved state of a part; None if there is none."""
    found = state.get(kind)
    return found if found is None or kind == "model" else found.get(name)


def made_as(state: Mapping[str, Any], kind: str, name: str) -> Any:
    """Return what a saved state tells of how a part was made; None if it is of an earlier version."""
    return state.get("fit", {}).get(kind, {}).get(name)


def restore_part(part: Any, state: Mapping[str, Any], made: Any = None, names: Mapping[int, str] | None = None) -> bool:
    """Load a state into a module, an optimizer or a scheduler, as far as it fits; return whether anything does.

    Args:
        part: of a module what has the same names and shapes is loaded.
        state: what its ``state_dict`` has returned.
        made: how the saved one was made.
        names: of all parameters, by their ids.
    """
    if isinstance(part, nn.Module):
        give_buffers_their_own_memory(part)
        own = part.state_dict()
        state = with_own_names(state, own)
        part.load_state_dict({name: value for name, value in state.items() if _fits(own, name, value)}, strict=False)
    elif isinstance(part, Optimizer):
        ordered = state_for(part, state, made, names or {})
        if ordered is None:
            return False
        part.load_state_dict(ordered)
    else:
        part.load_state_dict(state)
    return True


def _fits(own: Mapping[str, Any], name: str, value: Any) -> bool:
    if name in own and is_lazy(own[name]):
        return isinstance(value, Tensor)  # whose shape it takes over
    return name in own and getattr(value, "shape", None) == getattr(own[name], "shape", None)
