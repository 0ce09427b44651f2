"""Which call of a module lets examples leak into each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.changes import Change, Changes
from train_manager.diagnosis.forward_judge import Leak
from train_manager.diagnosis.recorded_calls import Call, Key, RecordedCalls, TooMuchRecordedError, recorded_calls
from train_manager.diagnosis.runs import Runner
from train_manager.diagnosis.splits import Split

Sides = Sequence[Tensor]
"""For each side of a bit, which elements of a tensor it changes."""

Search = Callable[[Collection[str] | None], Call | None]

SEED: Final = 20_051


def culprit_of(model: nn.Module, search: Search) -> Call | None:
    """Return the call that a search has found; level by level, if all calls together take too much room."""
    try:
        return search(None)
    except TooMuchRecordedError:
        return _by_level(model, search)


def _by_level(model: nn.Module, search: Search) -> Call | None:
    """Look at a module and those right inside of it, then into the one that was found."""
    found, name = None, ""
    while True:
        call = search({name, *_inside(model.get_submodule(name), name)})
        if call is None or call.key[0] == name:
            return call or found
        found, name = call, call.key[0]


def _inside(module: nn.Module, name: str) -> Iterator[str]:
    """Yield the names of the modules right inside of one; lists of modules are never called themselves."""
    for key, inner in module.named_children():
        path = f"{name}.{key}" if name else key
        if isinstance(inner, nn.ModuleList | nn.ModuleDict):
            yield from _inside(inner, path)
        else:
            yield path


@final
class ForwardSearch:
    """Looks for the first call whose outputs no longer tell two sides apart.

    Args:
        runner: runs the model.
        sides: two changes, one of each side.
    """

    def __init__(self, runner: Runner, sides: Sequence[Change]) -> None:
        self._runner, self._sides = runner, sides

    def __call__(self, names: Collection[str] | None = None) -> Call | None:
        with recorded_calls(self._runner.model, names) as base:
            self._runner.base()
        found: dict[Key, list[tuple[list[Tensor | None], list[Tensor | None]]]] = {}
        for change in self._sides:
            with recorded_calls(self._runner.model, names, base=base) as calls:
                self._runner.changed(change.values)
            by_key = calls.by_key()
            for call in base.completed:
                found.setdefault(call.key, []).append(_changes_of(call, by_key.get(call.key)))
        # Single numbers come last: a loss beside the output mixes the examples too.
        return self._mixes(base, found, 1) or self._moves(base, found) or self._mixes(base, found, 0)

    def _mixes(self, base: RecordedCalls, found: Mapping[Key, Any], least: int) -> Call | None:
        for call in base.completed:
            inputs, outputs = _by_tensor(found[call.key])
            if _are_together_apart(inputs, call.arguments) and any(not are_apart(one, least) for one in outputs):
                return call
        return None

    def _moves(self, base: RecordedCalls, found: Mapping[Key, Any]) -> Call | None:
        for call in base.completed:
            inputs, outputs = ([_slots(one) for one in part] for part in _by_tensor(found[call.key]))
            if any(_are_moved(one, other) for one in inputs for other in outputs):
                return call
        return None


def sides_of_a_bit(changes: Changes, leak: Leak) -> list[Change]:
    """Return the change that showed a leak, and one of the other side, of the same kind if there is one."""
    other = of_any_kind(changes, leak.change.split.other(), leak.change.kind)
    return [leak.change] if other is None else [leak.change, other]


def sides_at_random(changes: Changes, change: Change, source: int, example: int) -> list[Change]:
    """Return changes of two sides that are in no order, as bits are; two examples are on different sides."""
    size = len(change.split.changed)
    changed = torch.rand(size, generator=torch.Generator().manual_seed(SEED)) < 0.5
    changed[source], changed[example] = True, False
    split = Split(-1, 0, changed)
    first = changes.of_others_too(change, split)
    return [one for one in (first, of_any_kind(changes, split.other(), change.kind)) if one is not None]


def of_any_kind(changes: Changes, split: Split, kind: str = "noise") -> Change | None:
    """Return a change of one kind, or of another one if that changes nothing."""
    made = (changes.make(one, split) for one in [kind, *changes.kinds])
    return next((change for change in made if change is not None), None)


def _changes_of(call: Call, other: Call | None) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return which elements of what went in and came out have changed; None where that is not known."""
    inputs, outputs = ([], []) if other is None else (other.seen_in, other.seen_out)
    unknown_in, unknown_out = [None] * len(call.seen_in), [None] * len(call.seen_out)
    return (
        inputs if len(inputs) == len(unknown_in) else [*unknown_in],
        outputs if len(outputs) == len(unknown_out) else [*unknown_out],
    )


def _by_tensor(sides: Sequence[tuple[list[Any], list[Any]]]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return list(zip(*(one[0] for one in sides), strict=True)), list(zip(*(one[1] for one in sides), strict=True))


def _are_together_apart(tensors: Sequence[Sequence[Tensor | None]], arguments: Sequence[Any]) -> bool:
    """Return whether each tensor is apart, and no two arguments have different sides at the same index."""
    if not all(map(are_apart, tensors)):
        return False
    sides = [_slots(one) for one in tensors]
    return not any(
        first != second and _contradict(sides[one], sides[other])
        for one, first in enumerate(arguments)
        for other, second in enumerate(arguments[:one])
    )


def _contradict(one: Mapping[int, Tensor], other: Mapping[int, Tensor]) -> bool:
    """Return whether two tensors have an axis in common, and different sides along it."""
    common = [axis for axis in one if axis in other and len(one[axis]) == len(other[axis])]
    return bool(common) and all(bool((one[axis] * other[axis] < 0).any()) for axis in common)


def are_apart(sides: Sequence[Tensor | None], least: int = 0) -> bool:
    """Return whether there is an axis of which no index is changed by both sides."""
    known = [side for side in sides if side is not None and side.dim() >= least]
    if len(known) < 2 or not bool(known[0].any() & known[1].any()):
        return True
    return bool(_slots(known))


def _slots(sides: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """Return, for each axis that tells the sides apart, which side changes each index: 1, -1, or 0 for none."""
    known = [side for side in sides if side is not None]
    if len(known) < 2:
        return {}
    pairs = {axis: [_along(side, axis) for side in known] for axis in range(known[0].dim())}
    return {axis: one.int() - other.int() for axis, (one, other) in pairs.items() if not bool((one & other).any())}


def _along(changed: Tensor, axis: int) -> Tensor:
    return changed.movedim(axis, 0).flatten(1).any(1) if changed.dim() > 1 else changed


def _are_moved(inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> bool:
    """Return whether rows come out in other slots than they went in: along no two axes are they where they were."""
    ins, outs = ([one for one in part.values() if _has_both(one)] for part in (inputs, outputs))
    same = [(one, other) for one in ins for other in outs if len(one) == len(other)]
    return bool(same) and all(bool((one * other < 0).any()) for one, other in same)


def _has_both(slots: Tensor) -> bool:
    return bool((slots > 0).any() & (slots < 0).any())
