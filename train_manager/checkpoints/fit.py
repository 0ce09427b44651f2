"""How the saved components of a training were made: saved beside their states, and compared when these are loaded.

A state of torch has numbers in place of names, so that any optimizer with as many parameters takes it. A checkpoint
therefore holds the class of each optimizer and schedule, and the options it was made with. Nothing is loaded into
another class; where options differ, those of the checkpoint are used, and the user is warned. ``parameter_order``
compares the parameters of optimizers, ``frozen`` the flags ``requires_grad``, ``extension_fit`` the extensions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

from torch import Tensor
from torch.optim import Optimizer

from train_manager.model.modules import plain_name
from train_manager.telling.showing import short

SHOWN: Final = 8  # names that a message lists, at most
# Entries of a group or a schedule that are parameters or progress, and not options of the user.
NOT_OPTIONS: Final = ("params", "param_names", "initial_lr", "base_lrs", "last_epoch")
# Options that torch's schedules (such as OneCycleLR) keep in the groups of the optimizer.
IN_GROUPS: Final = ("max_lr", "min_lr", "max_momentum", "base_momentum")

Made = dict[str, Any]
"""The class of a component, and the options of each of its groups, as values that JSON can hold."""


@final
class Difference(NamedTuple):
    """One value that differs between the program and the checkpoint."""

    what: str  # which value differs, such as "lr of optimizer, group 1"
    program: str
    checkpoint: str
    used: str  # the value that the training continues with: one of the two

    def is_of(self, names: Iterable[str]) -> bool:
        """Return whether this difference belongs to one of the given arguments, which may be dotted paths."""
        return any(name.partition(".")[0] in self.what for name in names)

    def __str__(self) -> str:
        return f"{self.what}: program {self.program}, checkpoint {self.checkpoint}, used {self.used}"


@final
class Left(NamedTuple):
    """How much a training has left after the place of a checkpoint."""

    epochs: int = 0
    updates: int | None = None  # steps of its optimizer; None if unknown
    is_raised: bool = False  # the program was edited to train more epochs than before

    def steps(self, per: str) -> int | None:
        """Return how often a schedule is still to step that steps per "epoch" or per "step"; None if unknown."""
        return self.updates if per == "step" and self.epochs else self.epochs


def with_own_names(state: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    """Return the state of a module under the names that it has here; here or there the module may be compiled."""
    here = {plain_name(name): name for name in own}
    return {here.get(plain_name(name), name): value for name, value in state.items()}


def list_names(names: list[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def config_of(component: Any) -> Made:
    """Return the class and the options of an optimizer or a schedule that has not made a step yet.

    >>> import torch
    >>> config_of(torch.optim.SGD([torch.zeros(1)], lr=0.5))["options"][0]["lr"]
    0.5
    """
    if isinstance(component, Optimizer):
        # A schedule changes lr as soon as it is made, and keeps the lr of the user as initial_lr.
        options = [
            _options({**group, "lr": group.get("initial_lr", group.get("lr"))}) for group in component.param_groups
        ]
        return {"class": _class_of(component), "options": options}
    # A schedule: options are its own attributes, those in the groups, and those of the schedules inside it.
    groups = getattr(getattr(component, "optimizer", None), "param_groups", [])
    options = [_options(getattr(component, "__dict__", {})), *(_options(group, IN_GROUPS) for group in groups)]
    inside = [group for one in _inside(component) for group in config_of(one)["options"]]
    return {"class": _class_of(component), "options": [group for group in (*options, *inside) if group]}


def _class_of(component: Any) -> str:
    inside = ", ".join(map(_class_of, _inside(component)))
    return f"{type(component).__name__}({inside})" if inside else type(component).__name__


def _inside(schedule: Any) -> list[Any]:
    return list(getattr(schedule, "_schedulers", ()))  # SequentialLR and ChainedScheduler hold schedules


def _options(values: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, Any]:
    # Names with an underscore are the bookkeeping of torch, which changes with its versions.
    chosen = [name for name in values if name not in NOT_OPTIONS and not name.startswith("_")]
    named = {name: values[name] for name in chosen if names is None or name in names}
    return {name: plain for name, value in named.items() for plain in _plain(value)}


def _plain(value: Any) -> list[Any]:
    """Return a value that a checkpoint can hold and that can be compared, as the one item of a list; else none."""
    if isinstance(value, Tensor):
        return [value.item()] if value.numel() == 1 and not value.is_meta else []
    if isinstance(value, Counter):  # MultiStepLR keeps its milestones so
        return [sorted(value.elements())]
    if isinstance(value, list | tuple):
        items = [plain for item in value for plain in _plain(item)]
        # A sequence with an item that cannot be compared (such as a function) is left out as a whole.
        return [items] if len(items) == len(value) else []
    return [value] if value is None or type(value) in (bool, int, float, str) else []


def class_misfit(label: str, component: Any, made: Made | None) -> str | None:
    """Return the error text if the checkpoint has a component of another class, and otherwise None."""
    if made is None or made["class"] == _class_of(component):
        return None
    return f"{label} is {_class_of(component)} here, but {made['class']} in the checkpoint"


def schedule_misfit(
    label: str, schedule: Any, saved: Mapping[str, Any], made: Made | None, left: Left, per: str = "epoch"
) -> str | None:
    """Return the error text if a saved state is of another class of schedule, or has too few steps; else None.

    Args:
        label: the name of the schedule in the text.
        schedule: the schedule that is here.
        saved: the saved state.
        made: how the saved schedule was made.
        left: how much is left to train.
        per: whether the schedule steps per "epoch" or per "step".
    """
    total, done = (saved.get(name) if isinstance(saved, Mapping) else None for name in ("total_steps", "last_epoch"))
    # OneCycleLR raises in the middle of a step beyond its total: that is said before the first step.
    if left.epochs and isinstance(total, int) and isinstance(done, int):
        if done >= total:
            return f"{label} has used up all of its {total} steps in the checkpoint, and there is more to train"
        # Only in an edited program: the program that wrote the checkpoint may end its training before its epochs do.
        steps, is_edited = left.steps(per) or 0, left.is_raised or getattr(schedule, "total_steps", total) != total
        if is_edited and steps > total - done:
            rest = f"{total - done} of its {total} steps left"
            return f"{label} has {rest} in the checkpoint, and {steps} are to be trained"
    return class_misfit(label, schedule, made)


def options_that_differ(label: str, here: Made, there: Made) -> Iterator[Difference]:
    """Yield the options that differ; the checkpoint's are used, because they are part of the state that was loaded."""
    # Groups without a partner are left out: `parameter_misfit` reports another number of groups.
    groups = list(zip(here["options"], there["options"], strict=False))
    for number, (own, saved) in enumerate(groups):
        where = f"{label}, group {number}" if len(groups) > 1 else label
        for name in own:
            if name in saved and own[name] != saved[name]:
                yield Difference(f"{name} of {where}", short(own[name]), short(saved[name]), short(saved[name]))
