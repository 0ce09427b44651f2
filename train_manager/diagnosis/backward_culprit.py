"""Which call of a module lets what the kept examples teach reach others, or depend on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leaves import Path
from train_manager.diagnosis.changes import Change, Changes
from train_manager.diagnosis.culprit import are_apart, of_any_kind
from train_manager.diagnosis.differences import differ, tolerance_of, usual_size
from train_manager.diagnosis.forward_judge import Leak
from train_manager.diagnosis.gradient_digests import Gradients
from train_manager.diagnosis.output_places import Place
from train_manager.diagnosis.recorded_calls import Call, Key, RecordedCalls, recorded_calls
from train_manager.diagnosis.runs import Run, Runner

SHARE: Final = 1e-4
"""A gradient below this share of the usual one is rounding."""

FACTOR: Final = 8.0
"""Rounding adds up on the way back: so many times what it may change in an output."""


Sides = tuple[Tensor, ...]
"""The gradients at a tensor: of the kept examples, and where they are asked for of the others, and of all."""


class _OfCall(NamedTuple):
    """The gradients at what went into a call, at what came out of it, and at the module's own parameters."""

    inputs: list[Sides]
    outputs: list[Sides]
    own: list[Sides]


class _Seen(NamedTuple):
    """One tensor of a call.

    Attributes:
        base: its gradients in the batch as it is.
        new: that of the kept examples in the changed batch.
        moved: where the change has changed the value.
    """

    base: Sides
    new: Tensor
    moved: Tensor


@final
class BackwardSearch:
    """Looks for the last call with clean gradients at its outputs and others at its inputs or parameters.

    Args:
        runner: runs the model.
        changes: makes a change, if the leak was seen in the batch as it is.
        leak: what was found.
        gradients: walks back.
        places: where the examples lie in the outputs.
        is_same: whether two runs of the same batch are equal.
    """

    def __init__(
        self,
        runner: Runner,
        changes: Changes,
        leak: Leak,
        gradients: Gradients,
        places: Mapping[Path, Place],
        *,
        is_same: bool,
    ) -> None:
        self._runner, self._gradients, self._places = runner, gradients, places
        self._kept = ~leak.change.split.changed
        made = leak.change if leak.change.values else of_any_kind(changes, leak.change.split)
        self._change = made if is_same and leak.rule != "sum" else None
        self._is_clean = _adds_up if leak.rule == "sum" else _is_apart if self._change is None else _is_as_before
        self._has_own = is_same  # else each parameter has gradients of both sides

    def __call__(self, names: Collection[str] | None = None) -> Call | None:
        with recorded_calls(self._runner.model, names, has_graph=True) as calls:
            run = self._runner.base()
        sides = [self._kept] if self._change is not None else [self._kept, ~self._kept, self._kept | True]
        base = self._of_calls(run, calls, sides, names)
        del run
        seen = self._alone(base) if self._change is None else self._both(base, calls, self._change, names)
        return next((call for call in reversed(calls.started) if self._is_culprit(call, seen.get(call.key))), None)

    def _is_culprit(self, call: Call, seen: tuple[list[_Seen], list[_Seen]] | None) -> bool:
        if seen is None:
            return False
        if not all(map(self._is_clean, seen[1])):
            return bool(call.module._backward_pre_hooks)  # such a hook lies outside of what a call has returned
        return not all(map(self._is_clean, seen[0]))

    def _alone(self, base: Mapping[Key, _OfCall]) -> dict[Key, tuple[list[_Seen], list[_Seen]]]:
        def seen(sides: Sides) -> _Seen:
            return _Seen(sides, sides[0], torch.zeros_like(sides[0], dtype=torch.bool))

        return {
            key: ([seen(one) for one in [*of.inputs, *(of.own if self._has_own else [])]], list(map(seen, of.outputs)))
            for key, of in base.items()
        }

    def _both(
        self, base: Mapping[Key, _OfCall], calls: RecordedCalls, change: Change, names: Collection[str] | None
    ) -> dict[Key, tuple[list[_Seen], list[_Seen]]]:
        with recorded_calls(self._runner.model, names, base=calls, has_graph=True) as changed:
            run = self._runner.changed(change.values)
        _forget_values(calls)
        new, by_key = self._of_calls(run, changed, [self._kept], names), changed.by_key()
        found = {}
        for key in base.keys() & new.keys():
            other = by_key[key]
            inputs = _together(base[key].inputs, new[key].inputs, other.seen_in)
            own = _together(base[key].own, new[key].own, [None] * len(new[key].own))
            found[key] = inputs + own, _together(base[key].outputs, new[key].outputs, other.seen_out)
        return found

    def _of_calls(
        self, run: Run, calls: RecordedCalls, sides: Sequence[Tensor], names: Collection[str] | None
    ) -> dict[Key, _OfCall]:
        """Walk back from each side, and let go of the graph."""
        own = {call.key: _own(call, names) for call in calls.completed}
        tensors = [one for call in calls.completed for one in [*call.inputs, *call.outputs, *own[call.key]]]
        at = list({id(one): one for one in tensors if one.requires_grad}.values())
        walked = [self._gradients.whole(run, self._places, chosen, at) or [None] * len(at) for chosen in sides]
        by_id = {id(one): gradients for one, *gradients in zip(at, *walked, strict=True)}

        def at_each(part: Sequence[Tensor]) -> list[Sides]:
            nothing = [None] * len(sides)
            return [
                tuple(torch.zeros_like(one) if gradient is None else gradient.detach() for gradient in found)
                for one in part
                for found in [by_id.get(id(one), nothing)]
            ]

        found = {one.key: _OfCall(*map(at_each, (one.inputs, one.outputs, own[one.key]))) for one in calls.completed}
        for call in calls.completed:
            call.inputs, call.outputs = [], []
        return found


def _forget_values(calls: RecordedCalls) -> None:
    for call in calls.completed:
        call.seen_in, call.seen_out = [], []


def _own(call: Call, names: Collection[str] | None) -> list[Tensor]:
    """Return the parameters of a module, with those of modules inside of it whose calls were not recorded."""
    start = f"{call.key[0]}." if call.key[0] else ""
    is_whole = names is not None and not any(one.startswith(start) and one != call.key[0] for one in names)
    return [one for one in call.module.parameters(recurse=is_whole) if one.requires_grad]


def _together(base: Sequence[Sides], new: Sequence[Sides], moved: Sequence[Tensor | None]) -> list[_Seen]:
    """Return what was seen of each tensor in both runs; one of another shape is left out."""
    return [
        _Seen(one, other[0], torch.zeros_like(other[0], dtype=torch.bool) if where is None else where)
        for one, other, where in zip(base, new, moved, strict=False)
        if one[0].shape == other[0].shape
    ]


def _is_as_before(seen: _Seen) -> bool:
    """Return whether a gradient is zero where the value has changed, and has not changed elsewhere."""
    kept, new = seen.base[0], seen.new
    size = max(usual_size(kept), usual_size(new))
    if bool(((kept.abs() + new.abs()) * seen.moved > SHARE * size).any()):
        return False
    return not bool((differ(new, kept, FACTOR * tolerance_of(kept.dtype)) & ~seen.moved).any())


def _adds_up(seen: _Seen) -> bool:
    """Return whether the gradients of both sides are together that of all."""
    kept, changed, everything = seen.base
    return not bool(differ(kept + changed, everything, FACTOR * tolerance_of(kept.dtype)).any())


def _is_apart(seen: _Seen) -> bool:
    """Return whether the gradients of both sides are along some axis in different places."""
    return are_apart([seen.base[0] != 0, seen.base[1] != 0])
