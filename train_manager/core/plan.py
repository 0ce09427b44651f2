"""What runs at one stage, decided once: the extensions' hooks sorted into their places.

This is the place to make a stage cheap: a plan is compiled when a stage first opens and kept until an extension
comes or goes, so work done here is never done in a training step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from train_manager.core.errors import StageError
from train_manager.core.hook import EVERY_STAGE, Hook
from train_manager.core.order import in_order, refuse_two_providers
from train_manager.core.provider import Provider, chosen


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What runs at one stage.

    Attributes:
        around: around-hooks, in the order they enter.
        pre: pre hooks in their order.
        post: post hooks in theirs.
        providers: of this stage's own fixtures on demand, by name.
        on_demand: of those of all stages.
    """

    around: tuple[Hook, ...]
    pre: tuple[Hook, ...]
    post: tuple[Hook, ...]
    providers: Mapping[str, Provider]
    on_demand: Mapping[str, Provider]


def compile_plan(stage: str, hooks: Iterable[Hook], providers: Mapping[str, Mapping[str, Provider]]) -> Plan:
    """Sort out what belongs to this stage.

    Args:
        stage: the stage's name.
        hooks: all hooks, in the order of registration.
        providers: the provider of each fixture's name, by stage.

    Raises:
        OrderError: nothing orders two hooks that must be ordered.
    """
    here = [hook for hook in hooks if hook.stage in (stage, EVERY_STAGE)]
    on_demand = {name: provider for in_stage in providers.values() for name, provider in in_stage.items()}

    def of(side: str) -> tuple[Hook, ...]:
        return in_order([hook for hook in here if hook.side == side], on_demand)

    return Plan(of("around"), of("pre"), of("post"), providers.get(stage, {}), on_demand)


@final
class Plans(dict[str, Plan]):
    """The plan of every stage that has opened, by its name; compiled at the first look-up."""

    def __init__(self) -> None:
        self._hooks: tuple[Hook, ...] = ()
        self._providers: Mapping[str, Mapping[str, Provider]] = {}

    def use(self, hooks: Iterable[Hook], providers: Iterable[Provider]) -> None:
        """Take these from the next stage on; a stage that is open keeps its plan to its end.

        Raises:
            OrderError: they cannot be ordered, or provide a fixture twice; then nothing has changed.
        """
        hooks = tuple(hooks)
        chosen_providers = chosen(list(providers))
        refuse_two_providers(hooks, chosen_providers)
        for stage in {hook.stage for hook in hooks}:  # hooks of every stage meet each other too
            compile_plan(stage, hooks, chosen_providers)
        self._hooks, self._providers = hooks, chosen_providers
        self.clear()

    def __missing__(self, stage: str) -> Plan:
        _refuse_name(stage)
        plan = self[stage] = compile_plan(stage, self._hooks, self._providers)
        return plan


def _refuse_name(stage: str) -> None:
    if stage == EVERY_STAGE:
        what = "a stage cannot be called 'stage', the name of the hooks of every stage"
    elif not (isinstance(stage, str) and stage.isidentifier()):
        what = f"a stage cannot be called {stage!r}: hooks are named after it, so it must be an identifier"
    else:
        return
    raise StageError(what, name=str(stage), cure="take another name, like 'train_step_batch'")
