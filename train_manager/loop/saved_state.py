"""A saved state compared with the parts of a training, and restored to them as far as it fits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from train_manager.model.buffers import give_buffers_their_own_memory
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError, did_you_mean, near
from train_manager.telling.source_locations import users_level

SHOWN = 8  # of the names in an error


def attributes_with_state(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manager's further attributes that have a ``state_dict``: a second model, a replay buffer."""
    found = {name: value for name, value in attributes.items() if name != "history" and not name.startswith("_")}
    return {name: value for name, value in found.items() if not isinstance(value, type) and has_state(value)}


# ---- compared --------------------------------------------------------------------------------------------------------


def misfits(here: Mapping[tuple[str, str], Any], state: Mapping[str, Any]) -> Iterator[str]:
    """Say what of a saved state does not fit the parts, by kind and name: names on one side only, other shapes."""
    for (kind, name), part in here.items():
        label, saved = _shown(kind, name), saved_of(state, kind, name)
        if saved is None:
            yield f"the checkpoint has no {label}"
        elif isinstance(part, nn.Module):
            yield from module_misfits(label, part, saved)
        elif isinstance(part, Optimizer):
            yield from _optimizer_misfits(label, part, saved)
    for kind in ("loss", "optimizers", "lr_schedule"):
        for name in state.get(kind, {}):
            if (kind, name) not in here:
                yield f"the checkpoint has {_shown(kind, name)}, which the training lacks"


def module_misfits(label: str, module: nn.Module, state: Mapping[str, Any]) -> Iterator[str]:
    """Say which names of a module's state are missing or unexpected, and which shapes differ."""
    own = module.state_dict()
    missing, unexpected = [name for name in own if name not in state], [name for name in state if name not in own]
    if missing:
        yield f"{label}: the checkpoint lacks {_listed(missing)}"
    if unexpected:
        nearest = near(unexpected[0], missing)
        hint = f" ({did_you_mean(nearest)})" if nearest else ""
        yield f"{label}: the checkpoint has {_listed(unexpected)}, which the model lacks{hint}"
    for name in own:
        saved, here = state.get(name), own[name]
        if isinstance(saved, Tensor) and isinstance(here, Tensor) and not _fits(own, name, saved):
            yield f"{label}: {name} is {_shape(here)} here, but {_shape(saved)} in the checkpoint"


def _optimizer_misfits(label: str, optimizer: Optimizer, state: Mapping[str, Any]) -> Iterator[str]:
    here = [len(group["params"]) for group in optimizer.param_groups]
    saved = [len(group["params"]) for group in state["param_groups"]]
    if here != saved:
        yield f"{label} has groups of {here} parameters here, but of {saved} in the checkpoint"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"


def _shown(kind: str, name: str) -> str:
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


def restore_part(part: Any, state: Mapping[str, Any]) -> None:
    """Load a state into a module, an optimizer or a scheduler; of a module what has the same names and shapes."""
    if isinstance(part, nn.Module):
        give_buffers_their_own_memory(part)
        own = part.state_dict()
        part.load_state_dict({name: value for name, value in state.items() if _fits(own, name, value)}, strict=False)
    elif not isinstance(part, Optimizer) or not any(_optimizer_misfits("", part, state)):
        part.load_state_dict(state)


def _fits(own: Mapping[str, Any], name: str, value: Any) -> bool:
    if name in own and is_lazy(own[name]):
        return isinstance(value, Tensor)  # whose shape it takes over
    return name in own and getattr(value, "shape", None) == getattr(own[name], "shape", None)
