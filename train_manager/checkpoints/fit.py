"""How the parts of a training were made: saved beside their states, and compared as these are loaded.

A state of torch has numbers in place of names, so that whatever has as many parameters takes it. A checkpoint
therefore tells of each optimizer and schedule its class and the options that it was made with. Nothing is loaded into
another class; where options differ, those of the checkpoint are used, and the user is told. The same of parameters is
in ``parameter_order``, of what gets gradients in ``frozen``, and of extensions in ``extension_fit``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

from torch import Tensor
from torch.optim import Optimizer

from train_manager.telling.showing import short

COMPILED: Final = "_orig_mod."  # in the names of what torch.compile has wrapped
SHOWN: Final = 8  # names
NOT_OPTIONS: Final = ("params", "param_names", "initial_lr", "base_lrs", "last_epoch")
IN_GROUPS: Final = ("max_lr", "min_lr", "max_momentum", "base_momentum")  # where schedules keep options of theirs

Made = dict[str, Any]
"""The class of a part, and the options of each of its groups; as JSON can hold it."""


@final
class Difference(NamedTuple):
    """What the program and the checkpoint say of one thing, and which of them counts."""

    what: str
    program: str
    checkpoint: str
    used: str

    def __str__(self) -> str:
        return f"{self.what}: program {self.program}, checkpoint {self.checkpoint}, used {self.used}"


def plain_name(name: str) -> str:
    """Return the name of a parameter or module without what ``torch.compile`` adds to it.

    >>> plain_name("trunk._orig_mod.0.weight")
    'trunk.0.weight'
    """
    return name.replace(COMPILED, "")


def with_own_names(state: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    """Return the state of a module under the names that it has here: one of both may be compiled."""
    here = {plain_name(name): name for name in own}
    return {here.get(plain_name(name), name): value for name, value in state.items()}


def listed(names: list[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def made_of(part: Any) -> Made:
    """Return how an optimizer or a schedule was made, if it was not used yet.

    >>> import torch
    >>> made_of(torch.optim.SGD([torch.zeros(1)], lr=0.5))["options"][0]["lr"]
    0.5
    """
    if isinstance(part, Optimizer):
        options = [_options({**group, "lr": group.get("initial_lr", group.get("lr"))}) for group in part.param_groups]
        return {"class": _class_of(part), "options": options}
    groups = getattr(getattr(part, "optimizer", None), "param_groups", [])
    options = [_options(getattr(part, "__dict__", {})), *(_options(group, IN_GROUPS) for group in groups)]
    inside = [group for one in _inside(part) for group in made_of(one)["options"]]
    return {"class": _class_of(part), "options": [group for group in (*options, *inside) if group]}


def _class_of(part: Any) -> str:
    inside = ", ".join(map(_class_of, _inside(part)))
    return f"{type(part).__name__}({inside})" if inside else type(part).__name__


def _inside(schedule: Any) -> list[Any]:
    return list(getattr(schedule, "_schedulers", ()))  # as SequentialLR calls them


def _options(values: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, Any]:
    chosen = [name for name in values if name not in NOT_OPTIONS and not name.startswith("_")]
    named = {name: values[name] for name in chosen if names is None or name in names}
    return {name: plain for name, value in named.items() for plain in _plain(value)}


def _plain(value: Any) -> list[Any]:
    """Return a value that a checkpoint can hold and that can be compared, as the one item of a list; else none."""
    if isinstance(value, Tensor):
        return [value.item()] if value.numel() == 1 and not value.is_meta else []
    if isinstance(value, Counter):  # the milestones of MultiStepLR
        return [sorted(value.elements())]
    if isinstance(value, list | tuple):
        items = [plain for item in value for plain in _plain(item)]
        return [items] if len(items) == len(value) else []
    return [value] if value is None or type(value) in (bool, int, float, str) else []


def class_misfit(label: str, part: Any, made: Made | None) -> str | None:
    """Say that the checkpoint has a part of another class; None if it has not, or is of an earlier version."""
    if made is None or made["class"] == _class_of(part):
        return None
    return f"{label} is {_class_of(part)} here, but {made['class']} in the checkpoint"


def schedule_misfit(
    label: str, schedule: Any, saved: Mapping[str, Any], made: Made | None, *, goes_on: bool
) -> str | None:
    """Say that a saved state is of another class of schedule, or has no steps left; None if it can go on."""
    total, done = (saved.get(name) if isinstance(saved, Mapping) else None for name in ("total_steps", "last_epoch"))
    if goes_on and isinstance(total, int) and isinstance(done, int) and done >= total:
        return f"{label} has used up all of its {total} steps in the checkpoint, and there is more to train"
    return class_misfit(label, schedule, made)


def options_that_differ(label: str, here: Made, there: Made) -> Iterator[Difference]:
    """Say which options differ; those of the checkpoint are part of the state that was loaded."""
    groups = list(zip(here["options"], there["options"], strict=False))
    for number, (own, saved) in enumerate(groups):
        where = f"{label}, group {number}" if len(groups) > 1 else label
        for name in own:
            if name in saved and own[name] != saved[name]:
                yield Difference(f"{name} of {where}", short(own[name]), short(saved[name]), short(saved[name]))
