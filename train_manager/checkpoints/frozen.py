"""Which parameters of a module get no gradient, in the program and in a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from torch import nn

from train_manager.checkpoints.fit import Difference, Made, listed, plain_name


def frozen_in(module: nn.Module, held: Collection[int], first: Made | None = None) -> dict[str, list[str]]:
    """Return the names of the parameters that get no gradient, and of those that an extension holds so.

    Args:
        module: the module.
        held: the ids of the parameters that extensions hold.
        first: what this returned before the first run, when no hook had changed it; None if it is now.
    """
    named = [(plain_name(name), one) for name, one in module.named_parameters(remove_duplicate=False)]
    own = [name for name, one in named if not one.requires_grad and id(one) not in held]
    held_names = [name for name, one in named if id(one) in held]
    return {"frozen": own, "held": held_names, "first": own if first is None else first["first"]}


def freeze_as_saved(
    label: str, module: nn.Module, saved: Made, own: Made, known: Iterable[str], held: Collection[int]
) -> Iterator[Difference]:
    """Let the same parameters get gradients as in the checkpoint, but for those that this program sets in its hooks.

    What a hook of that program had set is set here without a word.

    Args:
        label: what the module is called.
        module: the module.
        saved: what ``frozen_in`` returned there.
        own: what it returned here, before the first run.
        known: the names in the state that was saved beside it.
        held: the ids of the parameters that extensions hold.
    """
    left = set(map(plain_name, known)) - set(saved["held"])
    found: dict[tuple[bool, bool], list[str]] = {}  # by what it is in the program, and what is used
    for name, one in ((plain_name(name), one) for name, one in module.named_parameters(remove_duplicate=False)):
        here, there = one.requires_grad, name not in saved["frozen"]
        if name not in left or id(one) in held or here == there:
            continue
        if here == (name in own["first"]):
            found.setdefault((here, here), []).append(name)
            continue
        if here == (name in saved["first"]):
            found.setdefault((here, there), []).append(name)
        one.requires_grad_(there)
    for (here, used), names in found.items():
        yield Difference(f"requires_grad of {label} {listed(names)}", str(here), str(not here), str(used))
