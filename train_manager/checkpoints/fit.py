"""The saved components of a training compared with those of a program, when their states are loaded.

A state of torch has numbers in place of names, so that any optimizer with as many parameters takes it. A checkpoint
therefore holds how each optimizer and schedule was made. Nothing is loaded into another class; where options differ,
those of the checkpoint are used, and the user is warned. ``parameter_order`` compares the parameters of optimizers,
``frozen`` the flags ``requires_grad``, ``extension_fit`` the extensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

from train_manager.checkpoints.made import Made, class_of
from train_manager.model.modules import plain_name
from train_manager.telling.showing import cut

SHOWN: Final = 8  # names that a message lists, at most


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


def class_misfit(label: str, component: Any, made: Made | None) -> str | None:
    """Return the error text if the checkpoint has a component of another class, and otherwise None."""
    if made is None or made["class"] == class_of(component):
        return None
    return f"{label} is {class_of(component)} here, but {made['class']} in the checkpoint"


def schedule_misfit(
    label: str,
    schedule: Any,
    saved: Mapping[str, Any],
    made: Made | None,
    left: Left,
    per: str = "epoch",
    *,
    is_of_another: bool = False,
) -> str | None:
    """Return the error text if a saved state is of another optimizer or class, or has too few steps; else None.

    Args:
        label: the name of the schedule in the text.
        schedule: the schedule that is here.
        saved: the saved state.
        made: how the saved schedule was made.
        left: how much is left to train.
        per: whether the schedule steps per "epoch" or per "step".
        is_of_another: its optimizer cannot take the saved state of the optimizer.
    """
    if is_of_another:
        return f"{label} is of another optimizer in the checkpoint"
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


def options_that_differ(label: str, here: Made, there: Made, *, keeps_own: bool = False) -> Iterator[Difference]:
    """Yield the options that differ; the checkpoint's are used, as a part of the state, unless each keeps its own."""
    for name, own in here["options"].items():
        # An option that a newer version has added is absent in the checkpoint, and not a difference.
        saved = there["options"].get(name, own)
        if own != saved:
            used = own if keeps_own else saved
            yield Difference(f"{name} of {label}", *map(cut, (own, saved, used)))
