"""The order of the hooks at one point of one stage, derived from what they read and write; and which provider is used.

A hook that provides x runs before a hook that modifies x, and both run before a hook that only reads x, whatever the
order of registration. What this leaves open is ordered by: the Extensible's own hooks first, then priority, then
registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, final

from train_manager.core.hooks import Hook, Provider
from train_manager.core.scope import Caller
from train_manager.telling.errors import OrderError


@final
@dataclass(frozen=True, slots=True)
class Reason:
    """Why one hook runs after another: ``after GradNorm.post_train_backward, which provides 'grad_norm'``."""

    before: Hook
    after: Hook
    name: str  # the fixture that orders the two

    def __str__(self) -> str:
        does = "provides" if any(w.defines and w.name == self.name for w in self.before.writes) else "modifies"
        return f"after {self.before.label}, which {does} {self.name!r}"


def in_order(hooks: Sequence[Hook], providers: Mapping[str, Provider]) -> tuple[Hook, ...]:
    """Return the hooks of one point in the order in which they run.

    Args:
        hooks: in the order of registration.
        providers: of lazy fixtures. A hook that reads a lazy fixture reads all that its provider names.
    """
    reasons = reasons_for(hooks, providers)
    # By identity: hooks of two extensions of one class may be equal.
    waits_for: dict[int, set[int]] = {id(hook): set() for hook in hooks}
    for reason in reasons:
        waits_for[id(reason.after)].add(id(reason.before))
    # In the order of rank, the first hook that waits for no other is taken, again and again.
    waiting = sorted(hooks, key=_rank)  # stable: hooks of equal rank stay as registered
    ordered: list[Hook] = []
    ran: set[int] = set()
    while waiting:
        ready = 0
        while ready < len(waiting) and not waits_for[id(waiting[ready])] <= ran:
            ready += 1
        if ready == len(waiting):  # each waiting hook waits for another one
            _refuse_cycle([reason for reason in reasons if not {id(reason.before), id(reason.after)} & ran])
        ordered.append(waiting.pop(ready))  # one at a time: it may free a hook of lower rank than the next ready one
        ran.add(id(ordered[-1]))
    _refuse_unordered_modifiers(ordered, reasons)
    return tuple(ordered)


def reasons_for(hooks: Sequence[Hook], providers: Mapping[str, Provider]) -> list[Reason]:
    """Return why hooks run after others: one reason for each pair and fixture."""
    # What no hook of this point writes orders nothing here.
    written = {name for hook in hooks for name in hook.written}
    reads = {id(hook): _reads(hook, providers, written) for hook in hooks}
    reasons = []
    for before in hooks:
        for write in before.writes:
            for after in hooks:
                only_reads = write.name in reads[id(after)] and write.name not in after.written
                # A modifier needs a definition before it; two modifiers are ordered by priority, below.
                modifies_too = write.defines and write.name in _modified_names(after)
                if after is not before and (only_reads or modifies_too):
                    reasons.append(Reason(before, after, write.name))
    return reasons + _by_priority(hooks, reasons)


def _by_priority(hooks: Sequence[Hook], reasons: Sequence[Reason]) -> list[Reason]:
    """Return a reason for each two modifiers of one fixture that nothing else orders: the lower priority runs first."""
    modifiers = [hook for hook in hooks if _modified_names(hook)]
    return [
        Reason(first, second, name)
        for first in modifiers
        for second in modifiers
        if _rank(first) < _rank(second)
        for name in _both_modify(first, second)[:1]  # one fixture is reason enough
        if not _leads(first, second, reasons) and not _leads(second, first, reasons)
    ]


def _rank(hook: Hook) -> tuple[bool, int]:
    """Return a key that sorts the Extensible's own hooks before others, then by priority."""
    return hook.owner != "", hook.priority


def _modified_names(hook: Hook) -> list[str]:
    return [write.name for write in hook.writes if not write.defines]


def _both_modify(first: Hook, second: Hook) -> list[str]:
    return [name for name in _modified_names(first) if name in _modified_names(second)]


def _reads(hook: Hook, providers: Mapping[str, Provider], written: set[str]) -> set[str]:
    """Return the fixtures that a hook reads, also through providers; ``**kwargs`` reads all that is written."""
    found: set[str] = set()
    ahead = [*hook.parameters, *(written if hook.call.takes_rest else ())]  # a provider may name other lazy fixtures
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            if name in providers:
                ahead += providers[name].call.parameters
    return found


def _leads(first: Hook, last: Hook, reasons: Sequence[Reason]) -> bool:
    """Return whether a chain of reasons goes from one hook to another."""
    reached: set[int] = set()
    ahead = {id(first)}
    while ahead:
        reached |= ahead
        ahead = {id(reason.after) for reason in reasons if id(reason.before) in ahead} - reached
    return id(last) in reached


def choose_providers(providers: Iterable[Provider]) -> dict[str, dict[str, Provider]]:
    """Return the provider of each name, by stage; of several, the one that overrides the others."""
    found: dict[str, dict[str, Provider]] = {}
    # Sorted, so that an overriding provider finds the other one there, whatever the order of registration.
    for provider in sorted(providers, key=lambda provider: provider.overrides):
        in_stage = found.setdefault(provider.stage, {})
        other = in_stage.get(provider.name)
        if other is not None and (other.overrides or not provider.overrides):
            _refuse_both(other, provider, provider.name, provider.stage, _cure_of_two(other, provider))
        in_stage[provider.name] = provider
    return found


def _cure_of_two(first: Provider, second: Provider) -> str:
    if first.label == second.label:  # two extensions of one class
        return f"let one {first.label.partition('.')[0]} do what both do"
    return f'remove one, or let one replace the other: @fixture("{second.stage}", override=True)'


def refuse_two_providers(hooks: Sequence[Hook], providers: Mapping[str, Mapping[str, Provider]]) -> None:
    """Refuse a fixture that two hooks define in one stage, unless one extension renews it, or a hook and a provider."""
    # The first definer of each fixture, by its stage and name; then each hook is compared with it.
    first: dict[tuple[str, str], Hook | Provider] = {
        (stage, name): provider for stage, in_stage in providers.items() for name, provider in in_stage.items()
    }
    for hook in hooks:
        for write in hook.writes:
            owner = write.stage or hook.stage
            other = first.setdefault((owner, write.name), hook) if write.defines else hook
            if other is not hook and not _renews(hook, other):
                cure = "remove one of them, or let one modify the other's value: @modifies"
                _refuse_both(other, hook, write.name, owner, cure)


def _renews(hook: Hook, other: Hook | Provider) -> bool:
    """Return whether a fixture of an extension is defined anew by a hook of the same extension at another point."""
    is_own = isinstance(other, Hook) and bool(hook.owner) and hook.owner == other.owner
    return is_own and isinstance(other, Hook) and (hook.kind, hook.stage) != (other.kind, other.stage)


def _refuse_unordered_modifiers(ordered: Sequence[Hook], reasons: Sequence[Reason]) -> None:
    """Refuse two modifiers of one fixture that nothing orders: the result would depend on their order."""
    modifiers = [hook for hook in ordered if _modified_names(hook)]
    for index, second in enumerate(modifiers):
        for first in modifiers[:index]:
            shared = _both_modify(first, second)
            if shared and not _leads(first, second, reasons):
                cure = _cure_of_modifiers(first, second)
                both = f"both modify {shared[0]!r} at {second.kind}_{second.stage}, and nothing says which is first"
                _refuse_pair(first, second, both, shared[0], cure)


def _cure_of_modifiers(first: Hook, second: Hook) -> str:
    if first.label == second.label:  # two extensions of one class
        kind = first.label.partition(".")[0]
        return f'leave one out; in a dict, one replaces the other by its name: {{..., "{first.owner}": {kind}(...)}}'
    return "say which is first: @priority(-1) on it, or `priority` on its extension"


def _refuse_both(first: Caller, second: Caller, name: str, stage: str, cure: str) -> NoReturn:
    _refuse_pair(first, second, f"both provide {name!r} in stage {stage!r}", name, cure)


def _refuse_pair(first: Caller, second: Caller, do: str, name: str, cure: str) -> NoReturn:
    raise OrderError(
        f"{first.label} ({first.whose}) and {second.label} ({second.whose}) {do}",
        name=name,
        asked_by=second.label,
        asked_at=second.defined_at,
        defined_at=first.defined_at,
        cure=cure,
    )


def _refuse_cycle(reasons: Sequence[Reason]) -> NoReturn:
    """Raise the error about a cycle among the reasons between waiting hooks."""
    # Walk back from hook to hook, until one comes a second time; the links before its first visit lead to the cycle
    # only, and are dropped.
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
