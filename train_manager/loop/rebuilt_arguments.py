"""The arguments with which a TrainManager is rebuilt, and the overridden options that its state would undo."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any, Final

from torch.optim import Optimizer

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.checkpoint_names import folder_in, is_checkpoint
from train_manager.checkpoints.selection import SavedWeights
from train_manager.core.hooks import Hook
from train_manager.loop.groups import groups
from train_manager.loop.recorded_arguments import DATA
from train_manager.loop.saved_state import require_format
from train_manager.rebuilding.making import Rebuilding, refuse_missing
from train_manager.rebuilding.memory_limit import MemoryLimit
from train_manager.rebuilding.overrides import with_overrides
from train_manager.rebuilding.places import without_places
from train_manager.rebuilding.record_tree import Given, Tree, check, not_rebuildable, parts_of
from train_manager.rebuilding.registry import name_of
from train_manager.rebuilding.signatures import signature_of
from train_manager.telling.argument_names import refuse_unfitting
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level
from train_manager.words.arguments import ARGUMENTS

ROOM: Final = 256_000_000  # bytes that a model may take beyond its files: buffers that are not saved


def rebuilt_arguments(
    kind: type, parameters: Tree, overrides: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments with which a TrainManager is rebuilt.

    Args:
        kind: the class of the manager.
        parameters: the recorded arguments of the checkpoint.
        overrides: values by dotted paths.
        given: arguments in place of the recorded ones.

    Raises:
        CheckpointError: something is needed and cannot be rebuilt, or there is no such place to override.
        ArgumentError: the class has no argument of this name.
    """
    recorded = _without_places(_recorded_arguments(kind, parameters), overrides)
    # Overrides of whole arguments ({"epochs": 3}) are given like arguments; the others lead into the tree.
    whole = {name: value for name, value in overrides.items() if name in _names(kind) and name not in given}
    values = {**whole, **given}
    refuse_unfitting(kind.__name__, kind.__init__, (), {**recorded, **values}, ARGUMENTS)  # type: ignore[misc]
    arguments = {**recorded, **{name: Given(value) for name, value in values.items()}}
    nested = {path: value for path, value in overrides.items() if path not in whole}
    for path in nested:
        _refuse_inside_groups(arguments, path)
    tree = with_overrides(arguments, nested)
    # Data that are not recorded are None; for all else that cannot be rebuilt there is one error.
    tree = {name: None if _is_absent_data(name, part) else part for name, part in tree.items()}
    refuse_missing(not_rebuildable(tree), by_keyword=True)
    made: dict[str, Any] = Rebuilding(tree).made()
    return made


def memory_limit_of(path: Path) -> MemoryLimit:
    """Return how much memory the objects of a checkpoint may take as they are made."""
    # A file of a few bytes may say how to make a layer of any size, whose own state would be a large file. An honest
    # training may take more than its files, hence the factor and ROOM.
    return MemoryLimit(4 * sum(file.stat().st_size for file in path.iterdir()) + ROOM)


def apply_options(optimizers: Mapping[str, Optimizer], schedulers: Any, overrides: Mapping[str, Any]) -> None:
    """Give optimizers and schedulers the overridden options once more, as the loaded state has the old options.

    With a scheduler, an overridden rate is its initial rate: the present rate is scaled by the same factor.

    Args:
        optimizers: the optimizers by name.
        schedulers: the attribute ``lr_schedule``: a scheduler, a dict of them by optimizer, or None.
        overrides: of these ``optimizer.lr``, ``optimizer.<name>.lr``, ``lr_schedule.gamma`` and the like are used.
    """
    scheduler_of = schedulers if isinstance(schedulers, dict) else dict.fromkeys(optimizers, schedulers)
    for path, value in overrides.items():
        part, *name, option = path.split(".") if "." in path else ("", "")
        if part not in ("optimizer", "lr_schedule") or len(name) > 1:
            continue
        for called in name or list(optimizers):
            if part == "optimizer" and called in optimizers:
                _set_option(optimizers[called], scheduler_of.get(called), option, value)
            elif part == "lr_schedule" and option in vars(scheduler_of.get(called)):
                setattr(scheduler_of[called], option, value)


def with_given_weights(state: dict[str, Any], model: Any, extensions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with the weights that ``Checkpoints`` did not save, as a given model has them."""
    for saved in (vars(extension).get("saved_weights") for extension in extensions.values()):
        if isinstance(saved, SavedWeights) and isinstance(state.get("model"), dict):
            return {**state, "model": saved.put_back(state["model"], model)}
    return state


def writers_to_rest(hooks: Iterable[Hook], *, has_data: bool) -> list[str]:
    """Return the extensions that need a train_dir, where there is none; say so if there are data to train on."""
    names = list(dict.fromkeys(hook.owner for hook in hooks if hook.owner and "train_dir" in hook.call.required))
    if names and has_data:
        what = f"there is no train_dir, so these extensions rest: {', '.join(names)}"
        warnings.warn(f"{what} (pass train_dir=... to let them write)", stacklevel=users_level())
    return names


def _set_option(optimizer: Optimizer, scheduler: Any, option: str, value: Any) -> None:
    for number, group in enumerate(optimizer.param_groups):
        if option == "lr" and scheduler is not None and "initial_lr" in group:
            scale = value / group["initial_lr"] if group["initial_lr"] else 1.0
            group["lr"], group["initial_lr"] = group["lr"] * scale, value
            scheduler.base_lrs[number] = value  # LambdaLR and others compute the rate from it
        elif option in group:
            group[option] = value


def _recorded_arguments(kind: type, parameters: Tree) -> dict[str, Tree]:
    check(parameters)
    if not isinstance(parameters, dict) or "$object" not in parameters:
        raise CheckpointError("the checkpoint has no recorded parameters of a TrainManager", name="parameters")
    recorded = {name: tree for name, tree in parameters["arguments"].items() if name != "train_dir"}
    names = _names(kind)
    gone = next((name for name in recorded if name not in names), None)
    # A subclass with arguments of its own was recorded as its base class, or the checkpoint is of another class.
    if names and gone is not None and not _takes_any(kind):
        what = f"the training was made with the argument {gone!r}, which {kind.__name__} does not have"
        made_by = parameters["$object"].rpartition(":")[2].rpartition(".")[2]
        cure = (
            f"write @recorded above {kind.__name__}, so that its checkpoints have its own arguments"
            if made_by == kind.__name__
            else f"it was made as a {made_by}: {made_by}.from_checkpoint(...)"
        )
        raise CheckpointError(what, name=gone, asked_by=kind.__name__, cure=cure)
    return recorded


def _without_places(recorded: dict[str, Tree], overrides: Mapping[str, Any]) -> dict[str, Tree]:
    """Return recorded arguments without the paths and addresses of extensions; a warning says which."""
    left_out: list[str] = []
    kept: dict[str, Tree] = without_places(recorded, left_out)
    listed = [place for place in left_out if place not in overrides]
    if listed:
        cure = f'overrides={{"{listed[0]}": ...}} gives one'
        what = f"paths and addresses in a checkpoint are not used: {', '.join(listed)}"
        warnings.warn(f"{what} ({cure})", stacklevel=users_level())
    return kept


def _refuse_inside_groups(arguments: Mapping[str, Tree], path: str) -> None:
    """Refuse an override of an option of ``groups``, which the loaded state of the optimizer would undo."""
    tree: Tree = dict(arguments)
    for step in path.split("."):
        if isinstance(tree, dict) and tree.get("$object") == name_of(groups):
            what = f"{path!r} cannot be overridden: the state of the optimizer has the options of its groups"
            cure = 'set them afterwards: tm.optimizer.param_groups[0]["lr"] = ...'
            raise CheckpointError(what, name=path, asked_by="groups", cure=cure)
        tree = None if isinstance(tree, Given) else parts_of(tree).get(step)


def _names(kind: type) -> list[str]:
    signature = signature_of(kind)
    return [] if signature is None else list(signature.parameters)


def _takes_any(kind: type) -> bool:
    signature = signature_of(kind)
    return signature is None or any(p.kind is Parameter.VAR_KEYWORD for p in signature.parameters.values())


def _is_absent_data(name: str, tree: Tree) -> bool:
    return name in DATA and any(True for _ in not_rebuildable(tree))


def read_parameters(path: Path) -> tuple[Path, Tree, dict[str, Any]]:
    """Return a checkpoint, the parameters recorded in it, and the state of all else.

    Args:
        path: a checkpoint; or the folder of a training, whose newest sound checkpoint is taken.

    Raises:
        CheckpointError: there is none, it is damaged, or of another version of the library.
    """
    if not path.exists():
        raise CheckpointError(f"there is nothing at {path}", name=path.name, cure="give a checkpoint, or a train_dir")
    folder = CheckpointFolder(folder_in(path))
    path = path if is_checkpoint(path) else folder.find("last")
    state = folder.read(path)
    require_format(state)
    return path, state.pop("parameters", None), state
