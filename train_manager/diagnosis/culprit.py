"""The search for the module that lets examples leak into each other, in its forward or its backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Final, NamedTuple, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.batch_leaves import Path
from train_manager.diagnosis.changes import Change, Changes
from train_manager.diagnosis.differences import differ, digest, usual_size
from train_manager.diagnosis.judge import FACTOR, Judge, Leak
from train_manager.diagnosis.recorded_calls import Key, Marks, RecordedCalls, Spot, marks_of
from train_manager.diagnosis.runs import Run, Runner

SEED: Final = 20_051

SHARE: Final = 1e-4
"""A gradient below this share of the usual one is rounding."""

PLACES: Final = 256
"""Elements of a gradient that are compared, beside its sum."""


Search = Callable[[nn.Module], str | None]


def innermost(model: nn.Module, search: Search) -> str | None:
    """Return the name of the innermost module that a search finds; None if it finds none.

    Args:
        model: the model.
        search: returns the name of the module with the fault: a module itself, or one that it calls.
    """
    # Level by level, because the values of all calls of a large model would take too much memory.
    modules, searched = dict(model.named_modules()), set()
    found, name = None, ""
    while name not in searched and next(modules[name].children(), None) is not None:
        searched.add(name)
        inner = search(modules[name])
        if inner is None:
            break
        found = name = inner
    return found


@final
class ForwardSearch:
    """Finds the first call that mixes two sides, which change separate places of its inputs, but not of its outputs.

    Args:
        runner: runs the model.
        sides: two changes, one of each half of the examples; None is left out.
    """

    def __init__(self, runner: Runner, sides: Sequence[Change | None]) -> None:
        self._runner, self._sides = runner, [change for change in sides if change is not None]

    def __call__(self, module: nn.Module) -> str | None:
        """Return the name of the module that was called."""
        # The values of the unchanged batch, then the marks of the places that each of the two changes has changed.
        base = RecordedCalls(module)
        self._runner.base(base.recording(self._runner.model))
        sides: dict[Key, dict[str, dict[Path, Sides]]] = {key: {"in": {}, "out": {}} for key in base.completed}
        for change in self._sides:
            calls = RecordedCalls(module, base)
            self._runner.run(change.values, calls.recording(self._runner.model))
            for (key, part, path), marks in calls.seen.items():
                if key in sides:
                    sides[key][part].setdefault(path, []).append(marks)
        # Single numbers come last: a loss beside the output mixes the examples too.
        for is_culprit in (_mixes, _moves, partial(_mixes, with_numbers=True)):
            for key, parts in sides.items():
                if is_culprit(parts["in"], parts["out"]):
                    return key[0]
        return None


def sides_of(changes: Changes, leak: Leak, source: int | None) -> Iterator[Sequence[Change | None]]:
    """Yield pairs of changes of both halves that show a leak; first a random split, if a pair of examples is known."""
    change = leak.change
    if source is not None and leak.example is not None:
        # Halves by a bit lie in regular patterns, which a reshape may keep separate by chance; random halves do not.
        changed = torch.rand(len(change.changed), generator=torch.Generator().manual_seed(SEED)) < 0.5
        changed[source], changed[leak.example] = True, False
        split = Change(-1, 0, changed)
        yield changes.of_others_too(change, split), changes.make_any(split.other(), change.kind)
    yield change, changes.make_any(change.other(), change.kind)


Sides = list[Marks]
"""The marks of the places where each of the two sides has changed a tensor; fewer than two if not both are known."""


def _mixes(inputs: Mapping[Path, Sides], outputs: Mapping[Path, Sides], *, with_numbers: bool = False) -> bool:
    """Return whether the sides are separate in all inputs, but not in an output.

    Inputs whose sides are exchanged between two arguments count as mixed already: then an earlier module is at fault.
    """
    slots = [(path[:2], _slots(one)) for path, one in inputs.items()]
    return (
        all(map(_are_apart, inputs.values()))
        and not any(one != other and _contradict(its, others) for (one, its), (other, others) in combinations(slots, 2))
        and any(not _are_apart(one) for one in outputs.values() if with_numbers or not _is_number(one))
    )


def _moves(inputs: Mapping[Path, Sides], outputs: Mapping[Path, Sides]) -> bool:
    """Return whether rows leave at other indexes than those at which they went in."""
    return any(_are_moved(_slots(one), _slots(other)) for one in inputs.values() for other in outputs.values())


def _is_number(sides: Sides) -> bool:
    return all(len(along) == 1 for marks in sides for along in marks)


def _are_apart(sides: Sides) -> bool:
    """Return whether the sides are separate: there is an axis of which no index is changed by both."""
    # One axis is enough: along it each index belongs to one side.
    return len(sides) < 2 or any(not bool((one & other).any()) for one, other in zip(*sides, strict=True))


def _slots(sides: Sides) -> dict[int, Tensor]:
    """Return, for each axis that separates the sides, the side that changes each index: 1, -1, or 0 for none."""
    axes = enumerate(zip(*sides, strict=True)) if len(sides) == 2 else ()
    return {axis: one.int() - other.int() for axis, (one, other) in axes if not bool((one & other).any())}


def _contradict(one: Mapping[int, Tensor], other: Mapping[int, Tensor]) -> bool:
    """Return whether two tensors have an axis in common, and different sides along it."""
    common = [(one[axis], other[axis]) for axis in one if axis in other and len(one[axis]) == len(other[axis])]
    return bool(common) and all(map(_have_different_sides, common))


def _are_moved(inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> bool:
    """Return whether the rows of both sides are at other indexes along every pair of axes of the same length."""
    ins, outs = ([one for one in part.values() if (one > 0).any() and (one < 0).any()] for part in (inputs, outputs))
    same = [(one, other) for one in ins for other in outs if len(one) == len(other)]
    return bool(same) and all(map(_have_different_sides, same))


def _have_different_sides(pair: tuple[Tensor, Tensor]) -> bool:
    return bool((pair[0] * pair[1] < 0).any())


class Trace(NamedTuple):
    """A digest of a gradient, which takes little memory."""

    numbers: Tensor  # a few of its numbers, and their sum
    marks: Marks  # the indexes at which it is not zero

    @classmethod
    def of(cls, gradient: Tensor) -> Trace:
        """Return the trace of a gradient."""
        return cls(digest(gradient[None], PLACES), marks_of(gradient.abs() > SHARE * usual_size(gradient)))


Traces = dict[Spot, Trace]


@final
class BackwardSearch:
    """Finds the last call with clean gradients at its outputs, but not at its inputs or parameters.

    Args:
        runner: runs the model.
        changes: makes a change, if the leak was seen in the batch as it is.
        leak: the leak whose module is searched.
        judge: the judge that has found the leak.
        is_steady: whether two runs of the same batch are equal.
    """

    def __init__(self, runner: Runner, changes: Changes, leak: Leak, judge: Judge, *, is_steady: bool) -> None:
        self._runner, self._gradients, self._rule = runner, judge.gradients, leak.rule
        self._tolerance = FACTOR * judge.tolerance
        self._kept = ~leak.change.changed
        made = leak.change if leak.change.values else changes.make_any(leak.change)
        self._change = made if is_steady and leak.rule != "sum" else None
        self._is_steady = is_steady

    def __call__(self, module: nn.Module) -> str | None:
        """Return the name of the module that was called."""
        calls = RecordedCalls(module, has_graph=True)
        run = self._runner.base(calls.recording(self._runner.model))
        # Without a change, the gradients of the two halves of one run are compared; with one, those of two runs.
        if self._change is None:
            sides = self._kept, ~self._kept, torch.ones_like(self._kept)
            dirty = self._not_clean_alone(*(self._traces(run, calls, of) for of in sides))
        else:
            base = self._traces(run, calls, self._kept)
            calls.forget()
            del run  # frees the graph before the values of a second run are kept
            values = RecordedCalls(module)
            self._runner.base(values.recording(self._runner.model))
            changed = RecordedCalls(module, values, has_graph=True)
            run = self._runner.run(self._change.values, changed.recording(self._runner.model))
            values.forget()
            dirty = self._not_as_before(base, self._traces(run, changed, self._kept), changed.seen)
        # From the last call to the first: a gradient flows through the later calls first.
        for key, called in reversed(calls.modules.items()):
            if (key, "out") in dirty:
                # The gradients at the outputs are not clean: usually a later call is at fault, but a backward pre-hook
                # of this module changes them too.
                if called._backward_pre_hooks:
                    return key[0]
            elif (key, "in") in dirty or (key, "own") in dirty:
                return key[0]
        return None

    def _traces(self, run: Run, calls: RecordedCalls, of: Tensor) -> Traces:
        """Run a backward pass from the outputs of some examples, and return the traces of all gradients."""
        spots = {spot: one for spot, one in calls.tensors.items() if one.requires_grad}
        # Gradients of parameters are sums over both sides, so they can only be compared between two runs.
        for key in calls.completed if self._is_steady else ():
            own = enumerate(calls.modules[key].parameters())
            spots |= {(key, "own", (place,)): one for place, one in own if one.requires_grad}
        traces: dict[int, Trace] = {}

        def look(at: int, gradient: Tensor) -> None:  # keeps a trace only: all gradients would take much memory
            traces[at] = Trace.of(gradient)

        handles = [one.register_hook(partial(look, at)) for at, one in {id(one): one for one in spots.values()}.items()]
        self._gradients.walked_back(run, of)
        for handle in handles:
            handle.remove()
        return {spot: traces.get(id(one)) or Trace.of(torch.zeros_like(one)) for spot, one in spots.items()}

    def _not_as_before(self, base: Traces, new: Traces, moved: Mapping[Spot, Marks]) -> set[tuple[Key, str]]:
        """Return the spots whose gradient has changed, or is not zero where the change has changed the value."""
        return {
            spot[:2]
            for spot in base.keys() & new.keys()
            if [len(along) for along in base[spot].marks] == [len(along) for along in new[spot].marks]
            and (
                self._differ(base[spot].numbers, new[spot].numbers)
                or not all(_are_apart([moved[spot], one.marks]) for one in (base[spot], new[spot]) if spot in moved)
            )
        }

    def _not_clean_alone(self, kept: Traces, others: Traces, everything: Traces) -> set[tuple[Key, str]]:
        """Return the spots where the gradients of both sides do not add up, or, for another rule, overlap."""
        if self._rule == "sum":
            sums = {spot: one.numbers + others[spot].numbers for spot, one in kept.items()}
            return {spot[:2] for spot, both in sums.items() if self._differ(both, everything[spot].numbers)}
        return {spot[:2] for spot, one in kept.items() if not _are_apart([one.marks, others[spot].marks])}

    def _differ(self, new: Tensor, base: Tensor) -> bool:
        return bool(differ(new, base, self._tolerance).any())
