"""The frozen parameters of a module (``requires_grad=False``), compared between the program and a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from torch import nn

from train_manager.checkpoints.fit import Difference, list_names
from train_manager.checkpoints.made import Made
from train_manager.model.modules import plain_name


def frozen_names(module: nn.Module, held: Collection[int], first: Made | None = None) -> dict[str, list[str]]:
    """Return the names of the parameters that the user has frozen, and of those that an extension keeps frozen.

    Args:
        module: the module.
        held: the ids of the parameters that extensions keep frozen.
        first: the result of this function before the first run, when no hook had changed a flag; None in that call.
    """
    # A tied parameter is listed under each of its names, because a checkpoint may know it by another one.
    named = [(plain_name(name), one) for name, one in module.named_parameters(remove_duplicate=False)]
    own = [name for name, one in named if not one.requires_grad and id(one) not in held]
    held_names = [name for name, one in named if id(one) in held]
    return {"frozen": own, "held": held_names, "first": own if first is None else first["first"]}


def freeze_as_saved(
    label: str, module: nn.Module, saved: Made, own: Made, known: Iterable[str], held: Collection[int]
) -> Iterator[Difference]:
    """Set ``requires_grad`` as in the checkpoint, except where a hook of this program has set it; yield differences.

    Args:
        label: the name of the module in messages.
        module: the module.
        saved: the result of ``frozen_names`` in the checkpoint.
        own: the result of ``frozen_names`` in this program, before its first run.
        known: the names in the saved state of the module.
        held: the ids of the parameters that extensions keep frozen.
    """
    # Parameters that the checkpoint does not know, or that an extension froze there, stay as they are here.
    left = set(map(plain_name, known)) - set(saved["held"])
    found: dict[tuple[bool, bool], list[str]] = {}  # names by (requires_grad here, requires_grad that is used)
    for name, one in ((plain_name(name), one) for name, one in module.named_parameters(remove_duplicate=False)):
        here, there = one.requires_grad, name not in saved["frozen"]
        if name not in left or id(one) in held or here == there:
            continue
        # The flag differs from the one before the first run: a hook of this program has set it, so it stays.
        if here == (name in own["first"]):
            found.setdefault((here, here), []).append(name)
            continue
        # The saved flag is the one before the first run there, so the programs differ. If a hook there had changed it
        # later (such as gradual unfreezing), the flag is part of the progress and is restored without a report.
        if here == (name in saved["first"]):
            found.setdefault((here, there), []).append(name)
        one.requires_grad_(there)
    for (here, used), names in found.items():
        yield Difference(f"requires_grad of {label} {list_names(names)}", str(here), str(not here), str(used))
