"""The state of a training in plain dicts: gathered from its parts, compared with them, and restored to them.

    root          model, loss, optimizers, lr_schedule, data, epoch, run, epoch_num
    └─ phases     the same of each open phase, without what is the same object as around it

Parts are the attributes of a TrainManager, by name, as they are or as a phase will put them back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from train_manager.loop.arguments import modules_of_loss
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError, did_you_mean, near
from train_manager.telling.source_locations import users_level

Parts = Mapping[str, Any]
State = dict[str, Any]

SHOWN = 8  # of the names in an error


# ---- gathered --------------------------------------------------------------------------------------------------------


def state_of_parts(parts: Parts, around: Parts | None, open_stages: Iterable[str]) -> State:
    """Return the state of the root, or of a phase without what is the same object ``around`` it."""
    state: State = {
        "data": parts["_feed"].state_dict(parts["train_data"]),
        "epoch": parts["_epoch"].state_dict(parts["_run"].losses, is_open=parts["_feed"].is_unfinished),
        "run": parts["_run"].state_dict(open_stages),
    }
    for (kind, name), part in _own(parts, around).items():
        if kind == "model":
            state[kind] = part.state_dict()
        else:
            state.setdefault(kind, {})[name] = part.state_dict()
    return state


def _stateful(parts: Parts) -> dict[tuple[str, str], Any]:
    """Return the parts of a training that have a state, by their kinds and names in a checkpoint."""
    found: dict[tuple[str, str], Any] = {("model", ""): parts["model"]}
    found |= {("loss", str(number)): module for number, module in enumerate(modules_of_loss(parts["loss"]))}
    found |= {("optimizers", name): one for name, one in _by_name(parts["optimizer"]).items()}
    found |= {("lr_schedule", name): one for name, one in _by_name(parts["lr_schedule"]).items()}
    return {name: part for name, part in found.items() if has_state(part)}


def _own(parts: Parts, around: Parts | None) -> dict[tuple[str, str], Any]:
    """Return those that are not the same objects as around a phase."""
    outer = {} if around is None else _stateful(around)
    return {name: part for name, part in _stateful(parts).items() if part is not outer.get(name)}


def _by_name(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {} if value is None else {"optimizer": value}


def _saved(state: State, kind: str, name: str) -> Any:
    found = state.get(kind)
    return found if found is None or kind == "model" else found.get(name)


def attributes_with_state(attributes: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return a manager's further attributes that have a ``state_dict``: a second model, a replay buffer."""
    left = {name: value for name, value in attributes.items() if name not in known and not name.startswith("_")}
    return {name: value for name, value in left.items() if not isinstance(value, type) and has_state(value)}


# ---- compared --------------------------------------------------------------------------------------------------------


def misfits(parts: Parts, around: Parts | None, state: State) -> Iterator[str]:
    """Say what of a saved state does not fit the parts: names on one side only, other shapes."""
    here = _own(parts, around)
    for (kind, name), part in here.items():
        label, saved = _shown(kind, name), _saved(state, kind, name)
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


def restore_parts(parts: Parts, state: State) -> None:
    """Restore what ``state_of_parts`` returned, as far as it fits."""
    for (kind, name), part in _stateful(parts).items():
        saved = _saved(state, kind, name)
        if saved is not None:
            restore_part(part, saved)
    is_cut = parts["steps_per_epoch"] is not None
    goes_on = parts["_feed"].load_state_dict(state["data"], parts["train_data"], is_cut=is_cut)
    parts["_epoch"].load_state_dict(state["epoch"] if goes_on else {})
    parts["_run"].load_state_dict(state["run"], epoch_goes_on=goes_on)


def restore_part(part: Any, state: Mapping[str, Any]) -> None:
    """Load a state into a module, an optimizer or a scheduler; of a module what has the same names and shapes."""
    if isinstance(part, nn.Module):
        own = part.state_dict()
        part.load_state_dict({name: value for name, value in state.items() if _fits(own, name, value)}, strict=False)
    elif not isinstance(part, Optimizer) or not any(_optimizer_misfits("", part, state)):
        part.load_state_dict(state)


def _fits(own: Mapping[str, Any], name: str, value: Any) -> bool:
    if name in own and is_lazy(own[name]):
        return isinstance(value, Tensor)  # whose shape it takes over
    return name in own and getattr(value, "shape", None) == getattr(own[name], "shape", None)
