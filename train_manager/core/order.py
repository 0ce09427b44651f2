"""The order of the hooks at one point of one stage, derived from what they read and write.

Who provides x runs before who modifies x, and both before who reads x, whatever the order of registration. What
this leaves open is ordered by: the Extensible's own hooks first, then priority, then registration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NoReturn, final

from train_manager.core.errors import OrderError
from train_manager.core.hooks import Hook
from train_manager.core.providers import Provider


@final
@dataclass(frozen=True, slots=True)
class Reason:
    """Why one hook runs after another: ``after GradNorm.post_train_backward, which provides 'grad_norm'``."""

    before: Hook
    after: Hook
    name: str

    def __str__(self) -> str:
        does = "provides" if any(w.defines and w.name == self.name for w in self.before.writes) else "modifies"
        return f"after {self.before.label}, which {does} {self.name!r}"


def in_order(hooks: Sequence[Hook], providers: Mapping[str, Provider]) -> tuple[Hook, ...]:
    """The hooks as they will run.

    Args:
        hooks: those of one point, in the order of registration.
        providers: fixtures that are computed on demand; asking for one reads all that it asks for.

    Raises:
        OrderError: nothing orders two modifiers of one fixture, two hooks provide one, or they wait in a cycle.
    """
    reasons = reasons_for(hooks, providers)
    later: list[list[int]] = [[] for _ in hooks]
    waits_for = [0] * len(hooks)
    place = {id(hook): index for index, hook in enumerate(hooks)}
    for reason in reasons:
        later[place[id(reason.before)]].append(place[id(reason.after)])
        waits_for[place[id(reason.after)]] += 1
    ready = [_rank(hook, index) for index, hook in enumerate(hooks) if not waits_for[index]]
    ready.sort()
    ordered: list[Hook] = []
    while ready:
        index = heappop(ready)[-1]
        ordered.append(hooks[index])
        for follower in later[index]:
            waits_for[follower] -= 1
            if not waits_for[follower]:
                heappush(ready, _rank(hooks[follower], follower))
    if len(ordered) < len(hooks):
        waiting = [hook for hook in hooks if hook not in ordered]
        _refuse_cycle([reason for reason in reasons if reason.after in waiting and reason.before in waiting])
    _refuse_unordered_modifiers(ordered, reasons)
    return tuple(ordered)


def reasons_for(hooks: Sequence[Hook], providers: Mapping[str, Provider]) -> list[Reason]:
    """Every pair of hooks of which one must run before the other."""
    written = {name for hook in hooks for name in hook.written}
    reads = {id(hook): reads_of(hook, providers, written) for hook in hooks}
    reasons = []
    for before in hooks:
        for write in before.writes:
            for after in hooks:
                modifies_too = any(w.name == write.name and not w.defines for w in after.writes)
                follows = modifies_too if write.defines else False
                only_reads = write.name in reads[id(after)] and write.name not in after.written
                if after is not before and (follows or only_reads):
                    reasons.append(Reason(before, after, write.name))
    return reasons + _by_priority(hooks, reasons)


def _by_priority(hooks: Sequence[Hook], reasons: Sequence[Reason]) -> list[Reason]:
    """Two modifiers of one fixture that nothing else orders: the lower priority first."""
    return [
        Reason(first, second, name)
        for first in hooks
        for second in hooks
        if _place(first) < _place(second)
        for name in _both_modify(first, second)[:1]
        if not _leads(first, second, reasons) and not _leads(second, first, reasons)
    ]


def _both_modify(first: Hook, second: Hook) -> list[str]:
    return [w.name for w in first.writes if not w.defines and (w.name, False) in _kinds(second)]


def reads_of(hook: Hook, providers: Mapping[str, Provider], written: set[str]) -> set[str]:
    """The fixtures a hook reads, also through the provided ones it asks for; ``**kwargs`` reads all."""
    found: set[str] = set()
    ahead = [*hook.parameters, *(written if hook.call.takes_rest else ())]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            if name in providers:
                ahead += providers[name].call.parameters
    return found


def _place(hook: Hook) -> tuple[bool, int]:
    """The Extensible's own hooks first, then by priority."""
    return hook.owner != "", hook.priority


def _rank(hook: Hook, index: int) -> tuple[tuple[bool, int], int]:
    return _place(hook), index


def refuse_two_providers(hooks: Sequence[Hook], providers: Mapping[str, Mapping[str, Provider]]) -> None:
    """Refuse a fixture that two hooks, or a hook and a provider, define in one stage.

    Raises:
        OrderError: naming both.
    """
    first: dict[tuple[str, str], Hook | Provider] = {
        (stage, name): provider for stage, in_stage in providers.items() for name, provider in in_stage.items()
    }
    for hook in hooks:
        for write in hook.writes:
            owner = write.stage or hook.stage
            other = first.setdefault((owner, write.name), hook) if write.defines else hook
            if other is not hook:
                cure = "remove one of them, or let one modify the other's value: @modifies"
                _refuse_pair(other, hook, f"both provide {write.name!r} in stage {owner!r}", write.name, cure)


def _refuse_unordered_modifiers(ordered: Sequence[Hook], reasons: Sequence[Reason]) -> None:
    """Two modifiers of one fixture need a reason or a priority between them: the result depends on their order."""
    for index, second in enumerate(ordered):
        for first in ordered[:index]:
            shared = _both_modify(first, second)
            if shared and not _leads(first, second, reasons):
                cure = "say which is first: @priority(-1) on it, or `priority` on its extension"
                both = f"both modify {shared[0]!r} at {second.kind}_{second.stage}, and nothing says which is first"
                _refuse_pair(first, second, both, shared[0], cure)


def _kinds(hook: Hook) -> set[tuple[str, bool]]:
    return {(write.name, write.defines) for write in hook.writes}


def _leads(first: Hook, last: Hook, reasons: Sequence[Reason]) -> bool:
    """Whether a chain of reasons goes from one hook to another."""
    reached = {id(first)}
    grown = True
    while grown:
        more = {id(reason.after) for reason in reasons if id(reason.before) in reached} - reached
        reached |= more
        grown = bool(more)
    return id(last) in reached


def _refuse_pair(first: Hook | Provider, second: Hook, do: str, name: str, cure: str) -> NoReturn:
    raise OrderError(
        f"{first.label} ({first.whose}) and {second.label} ({second.whose}) {do}",
        name=name,
        asked_by=second.label,
        asked_at=second.call.defined_at,
        defined_at=first.call.defined_at,
        cure=cure,
    )


def _refuse_cycle(reasons: Sequence[Reason]) -> NoReturn:
    """Walk back along the reasons among the hooks that wait until one comes a second time."""
    walked = [reasons[0].after]
    links: list[Reason] = []
    while walked.count(walked[-1]) < 2:
        link = next(reason for reason in reasons if reason.after is walked[-1])
        links.append(link)
        walked.append(link.before)
    links = links[walked.index(walked[-1]) :]
    steps = "; ".join(f"{link.after.label} waits for {link.name!r} of {link.before.label}" for link in links)
    raise OrderError(
        f"hooks at {links[0].after.kind}_{links[0].after.stage} wait for each other: {steps}",
        name=links[0].name,
        asked_by=links[0].after.label,
        asked_at=links[0].after.call.defined_at,
        cure="let one of them run at another stage, or take the value from another fixture",
    )
