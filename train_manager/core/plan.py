"""What runs at one stage, decided once: the extensions' hooks sorted into their places.

This is the place to make a stage cheap: a plan is compiled when a stage first opens and kept until an extension
comes or goes, so work done here is never done in a training step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from train_manager.core.errors import StageError
from train_manager.core.hook import EVERY_STAGE, Hook


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The hooks of one stage, each side in the order it runs."""

    around: tuple[Hook, ...]
    pre: tuple[Hook, ...]
    post: tuple[Hook, ...]


def compile_plan(stage: str, hooks: Iterable[Hook]) -> Plan:
    """Sort out the hooks that belong to this stage.

    Args:
        stage: the stage's name.
        hooks: all hooks, in the order of registration, the Extensible's own first.

    Raises:
        StageError: a stage cannot have this name.
    """
    _refuse_name(stage)
    own_first = sorted(
        (hook for hook in hooks if hook.stage in (stage, EVERY_STAGE)),
        key=lambda hook: (hook.owner != "", hook.priority),
    )

    def of(side: str) -> tuple[Hook, ...]:
        return tuple(hook for hook in own_first if hook.side == side)

    return Plan(around=of("around"), pre=of("pre"), post=of("post"))


@final
class Plans(dict[str, Plan]):
    """The plan of every stage that has opened, by its name; compiled at the first look-up."""

    def __init__(self) -> None:
        self._hooks: tuple[Hook, ...] = ()

    def use(self, hooks: Iterable[Hook]) -> None:
        """Take these hooks from the next stage on; a stage that is open keeps its plan to its end."""
        self._hooks = tuple(hooks)
        self.clear()

    def __missing__(self, stage: str) -> Plan:
        plan = self[stage] = compile_plan(stage, self._hooks)
        return plan


def _refuse_name(stage: str) -> None:
    if stage == EVERY_STAGE:
        what = "a stage cannot be called 'stage', the name of the hooks of every stage"
    elif not stage.isidentifier():
        what = f"a stage cannot be called {stage!r}: hooks are named after it, so it must be an identifier"
    else:
        return
    raise StageError(what, name=stage, cure="take another name, like 'train_step_batch'")
