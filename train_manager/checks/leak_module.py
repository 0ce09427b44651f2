"""The module that lets examples leak into each other, in its forward or its backward."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from train_manager.checks.batch_leaves import Path
from train_manager.checks.leak_batch import Change, Values
from train_manager.checks.leak_judge import FACTOR, Judge, Leak
from train_manager.checks.leak_runs import Runner, differ, digest, outputs_of, tolerance_of, usual_size

SHARE: Final = 1e-4
"""A gradient below this share of the usual one is rounding."""

PLACES: Final = 256
"""Elements of a gradient that are compared, beside its sum."""

PLACES_OF_AN_INDEX: Final = 8
"""Elements that are compared at each index of each axis of a tensor, beside their sum."""

Key = tuple[str, int]
"""A call: the name of a module, and the number of the call among the calls of this module."""

Spot = tuple[Key, str, Path]
"""A tensor of a call: the call, "in" for an argument or "out" for an output, and the path to the tensor."""

Marks = list[Tensor]
"""For each axis of a tensor, whether there is a marked element at each of its indexes."""


# ---- the calls of a run ----------------------------------------------------------------------------------------------


@final
class CallRecorder:
    """Passes on the inputs and outputs of the calls of modules in one run.

    Args:
        model: the model.
        note: called with each tensor and its spot.
        inside: the module whose call, and whose own calls, are recorded; modules that are called from outside of the
            model count as called by it. None: all calls are.
        has_aliases: give each call an alias of its arguments, which no other call shares.
    """

    def __init__(
        self,
        model: nn.Module,
        note: Callable[[Spot, Tensor], None],
        inside: nn.Module | None = None,
        *,
        has_aliases: bool = False,
    ) -> None:
        self.modules: dict[Key, nn.Module] = {}  # the module of each call, in the order in which the calls began
        self.completed: list[Key] = []  # the calls in the order in which they ended
        self._model, self._note, self._inside, self._has_aliases = model, note, inside, has_aliases
        # The calls that have begun and not ended, from the outermost to the innermost.
        self._open: list[tuple[nn.Module, Key]] = [(model, ("", 0))]
        self._counts: Counter[str] = Counter()  # calls by the names of modules

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record calls in a ``with`` block."""
        handles = []
        for name, module in self._model.named_modules():
            if takes_hooks(module):
                # prepend: the hooks of the user run after this one, so their work counts as the module's.
                before = module.register_forward_pre_hook(partial(self._begin, name), prepend=True, with_kwargs=True)
                after = module.register_forward_hook(self._end)
                handles += [before, after]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._counts[name] += 1
        key = name, self._counts[name]
        is_inside = self._inside is None or module is self._inside or self._open[-1][0] is self._inside
        self._open.append((module, key))
        if not is_inside:
            return args, kwargs
        self.modules[key] = module
        if self._has_aliases:
            # An alias has a gradient of its own: that of a tensor given to two calls would be the sum of both.
            passed: dict[int, Tensor] = {}
            args = tuple(_passed_on(one, passed) for one in args)
            kwargs = {at: _passed_on(one, passed) for at, one in kwargs.items()}
        for path, tensor in _tensors_to_follow((args, kwargs)).items():
            self._note((key, "in", path), tensor)
        return args, kwargs

    def _end(self, module: nn.Module, _: Any, output: Any) -> None:
        while self._open[-1][0] is not module:
            self._open.pop()  # this call ended with an error, which the model has caught
        _, key = self._open.pop()
        if key in self.modules:
            self.completed.append(key)
            for path, tensor in _tensors_to_follow(output).items():
                self._note((key, "out", path), tensor)


def takes_hooks(module: nn.Module) -> bool:
    """Return whether hooks can be registered on a module; torch refuses it for scripted ones."""
    return not isinstance(module, torch.jit.ScriptModule)


def _tensors_to_follow(value: Any) -> dict[Path, Tensor]:
    """Return the tensors in a value, without tensors of ``vmap``, which cannot be used after it."""
    is_of_vmap = torch._C._functorch.is_functorch_wrapped_tensor
    return {path: one for path, one in outputs_of(value).items() if not one.is_nested and not is_of_vmap(one)}


def _passed_on(value: Any, passed: dict[int, Tensor]) -> Any:
    """Return an alias of a tensor with gradients; any other value as it is."""
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter) or not value.requires_grad or value.is_nested:
        return value
    # One alias per tensor: attention asks whether query and key are the same object.
    if id(value) not in passed:
        passed[id(value)] = value.view_as(value)
    return passed[id(value)]


# ---- marks of the places that a change has reached -------------------------------------------------------------------


def marks_of(chosen: Tensor) -> Marks:
    """Return along each axis which indexes have a chosen element.

    >>> marks_of(torch.tensor([[True, True], [False, False]]))
    [tensor([ True, False]), tensor([True, True])]
    """
    chosen = chosen.reshape(*(chosen.shape or (1,)), 1)
    return [chosen.movedim(axis, 0).flatten(1).any(1) for axis in range(chosen.dim() - 1)]


Sides = list[Marks]
"""The marks of the places where each of the two sides has changed a tensor; fewer than two if not both are known."""


def _are_apart(sides: Sides) -> bool:
    """Return whether the sides are separate: there is an axis of which no index is changed by both."""
    # One axis is enough: along it each index belongs to one side.
    return len(sides) < 2 or any(not bool((one & other).any()) for one, other in zip(*sides, strict=True))


def _mixes(inputs: Mapping[Path, Sides], outputs: Mapping[Path, Sides], *, with_numbers: bool = False) -> bool:
    """Return whether the sides are separate in all inputs, but not in an output."""
    judged = (one for one in outputs.values() if with_numbers or not _is_of_one_number(one))
    return all(map(_are_apart, inputs.values())) and not all(map(_are_apart, judged))


def _is_of_one_number(sides: Sides) -> bool:
    return all(len(along) == 1 for marks in sides for along in marks)


def _moves(inputs: Mapping[Path, Sides], outputs: Mapping[Path, Sides]) -> bool:
    """Return whether rows leave at other indexes than those at which they went in."""
    return any(_are_moved(_slots(one), _slots(other)) for one in inputs.values() for other in outputs.values())


def _slots(sides: Sides) -> list[Tensor]:
    """Return, for each axis that separates the sides, the side that changes each index: 1, -1, or 0 for none."""
    axes = zip(*sides, strict=True) if len(sides) == 2 else ()
    separate = [(one, other) for one, other in axes if not bool((one & other).any())]
    return [one.int() - other.int() for one, other in separate if bool(one.any()) and bool(other.any())]


def _are_moved(inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    """Return whether the rows of both sides are at other indexes along every pair of axes of the same length."""
    same = [(one, other) for one in inputs for other in outputs if len(one) == len(other)]
    return bool(same) and all(bool((one * other < 0).any()) for one, other in same)


# ---- the search forward ----------------------------------------------------------------------------------------------


@final
class ForwardSearch:
    """Finds the first call that mixes two sides, which change separate places of its inputs, but not of its outputs.

    Args:
        runner: runs the model.
        sides: two changes, one of each half of the examples.
    """

    def __init__(self, runner: Runner, sides: tuple[Change, Change]) -> None:
        self._runner, self._sides = runner, sides

    def name(self) -> str | None:
        """Return the name of the innermost module that mixes the sides; None if none does."""
        # Level by level, because the values of all calls of a large model would take too much memory.
        modules, searched = dict(self._runner.model.named_modules()), set()
        found, name = None, ""
        while name not in searched and next(modules[name].children(), None) is not None:
            searched.add(name)
            inner = self._first_that_mixes(modules[name])
            if inner is None:
                break
            found = name = inner
        return found

    def _first_that_mixes(self, inside: nn.Module) -> str | None:
        """Return the name of a module, or of one that it calls."""
        values = _Values()
        calls = self._record(self._runner.batch.values, values.keep, inside)
        sides: dict[Key, dict[str, dict[Path, Sides]]] = {key: {"in": {}, "out": {}} for key in calls.completed}
        for change in self._sides:
            marks: dict[Spot, Marks] = {}
            self._record(change.values, partial(values.mark_changed, marks), inside)
            for (key, part, path), one in marks.items():
                if key in sides:
                    sides[key][part].setdefault(path, []).append(one)
        # Single numbers come last: a loss beside the output mixes the examples too.
        for is_culprit in (_mixes, _moves, partial(_mixes, with_numbers=True)):
            for key, parts in sides.items():
                if is_culprit(parts["in"], parts["out"]):
                    return key[0]
        return None

    def _record(self, values: Values, note: Callable[[Spot, Tensor], None], inside: nn.Module) -> CallRecorder:
        recorder = CallRecorder(self._runner.model, note, inside)
        self._runner.run(values, recorder.recording())
        return recorder


@final
class _Values:
    """Copies of the inputs and outputs of calls."""

    def __init__(self) -> None:
        self._by_spot: dict[Spot, Tensor] = {}
        # By the id of a tensor: the tensor, its version at the copy, and the copy.
        self._copies: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def keep(self, spot: Spot, tensor: Tensor) -> None:
        """Copy a tensor; the output of one call that is the input of the next is copied once."""
        version = 0 if tensor.is_inference() else tensor._version
        known = self._copies.get(id(tensor))
        # A new tensor may have the id of a freed one, and an in-place operation raises the version.
        if known is None or known[0]() is not tensor or known[1] != version:
            known = self._copies[id(tensor)] = weakref.ref(tensor), version, tensor.detach().clone()
        self._by_spot[spot] = known[2]

    def mark_changed(self, marks: dict[Spot, Marks], spot: Spot, tensor: Tensor) -> None:
        """Mark the places where a tensor of another run differs."""
        before = self._by_spot.get(spot)
        if before is not None and before.shape == tensor.shape:
            # A leak may be small before it reaches the output: in 16 bits a tolerance would hide it.
            tolerance = 0.0 if tensor.dtype in (torch.bfloat16, torch.float16) else tolerance_of(tensor.dtype)
            marks[spot] = marks_of(differ(tensor.detach(), before, tolerance))


# ---- the search backward ---------------------------------------------------------------------------------------------


class Trace(NamedTuple):
    """A digest of a gradient, which takes little memory."""

    numbers: Tensor  # a few of its numbers, and their sum
    marks: Marks  # the indexes at which it is not zero

    @classmethod
    def of(cls, gradient: Tensor) -> Trace:
        """Return the trace of a gradient."""
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        return cls(digest(gradient[None], PLACES), marks_of(gradient.abs() > SHARE * usual_size(gradient)))

    def has_shape_of(self, other: Trace) -> bool:
        """Return whether the gradients of both have one shape."""
        return [len(along) for along in self.marks] == [len(along) for along in other.marks]


Traces = Mapping[Spot, Trace]


@final
class _TracedRun:
    """A run with hooks on the parameters, and on the inputs and outputs of all calls, that trace their gradients."""

    def __init__(self, runner: Runner, judge: Judge, values: Values) -> None:
        # Digests of the inputs and outputs, at each index of each axis.
        self.values: dict[Spot, list[Tensor]] = {}
        self._judge, self._traces = judge, dict[Spot, Trace]()  # the traces of the backward pass that runs
        self._shapes: dict[Spot, torch.Size] = {}
        self._handles: list[RemovableHandle] = []
        recorder = CallRecorder(runner.model, self._watch, has_aliases=True)
        self._run = runner.run(values, recorder.recording())
        self.modules = recorder.modules
        for name, one in runner.model.named_parameters():
            self._watch(_spot_of_parameter(name), one)

    def _watch(self, spot: Spot, tensor: Tensor) -> None:
        if tensor.requires_grad:
            axes = range(0 if spot[1] == "own" else tensor.dim())
            self.values[spot] = [digest(tensor.movedim(axis, 0), PLACES_OF_AN_INDEX) for axis in axes]
            self._shapes[spot] = tensor.shape
            self._handles.append(tensor.register_hook(partial(self._trace, spot)))

    def _trace(self, spot: Spot, gradient: Tensor) -> None:
        self._traces[spot] = Trace.of(gradient)  # a digest only: all gradients would take much memory

    def traces(self, of: Tensor) -> dict[Spot, Trace]:
        """Return the traces of the gradients that the outputs of some examples give."""
        self._traces = {}
        self._judge.gradients.walked_back(self._run, of, keep_graph=True)
        missing = {spot: shape for spot, shape in self._shapes.items() if spot not in self._traces}
        return self._traces | {spot: Trace.of(torch.zeros(shape)) for spot, shape in missing.items()}

    def end(self) -> None:
        """Free the graph, and remove the hooks."""
        del self._run
        for handle in self._handles:
            handle.remove()


def _spot_of_parameter(name: str) -> Spot:
    return ("", 0), "own", (name,)


@final
class BackwardSearch:
    """Finds the last call with clean gradients at its outputs, but not at its inputs or parameters.

    Args:
        runner: runs the model.
        judge: the judge that has found the leak.
        leak: the leak whose module is searched.
        kept: the examples that were kept, as a mask.
        change: a change of the others, if two runs can be compared.
    """

    def __init__(self, runner: Runner, judge: Judge, leak: Leak, kept: Tensor, change: Change | None) -> None:
        self._runner, self._judge, self._is_sum = runner, judge, leak.rule == "sum"
        self._tolerance = FACTOR * judge.tolerance
        self._kept, self._change = kept, change

    def name(self) -> str | None:
        """Return the name of the innermost module with the fault; None if there is none."""
        modules, dirty = self._modules_and_dirty_spots()
        sides = {spot[:2] for spot in dirty}
        names = {id(one): name for name, one in self._runner.model.named_parameters()}
        # From the last call to the first: a gradient flows through the later calls first. An inner call began after
        # the one that has called it.
        for key, called in reversed(list(modules.items())):
            own = (_spot_of_parameter(names[id(one)]) for one in called.parameters() if id(one) in names)
            if (key, "out") in sides:
                # The gradients at the outputs are not clean: usually a later call is at fault, but a backward pre-hook
                # of this module changes them too.
                if called._backward_pre_hooks:
                    return key[0]
            elif (key, "in") in sides or not dirty.isdisjoint(own):
                return key[0]
        return None

    def _modules_and_dirty_spots(self) -> tuple[Mapping[Key, nn.Module], set[Spot]]:
        """Return the modules of all calls, and the spots whose gradients are not clean."""
        run = _TracedRun(self._runner, self._judge, self._runner.batch.values)
        kept = run.traces(self._kept)
        if self._change is None:
            dirty = self._not_clean_alone(run, kept)
            run.end()
        else:
            run.end()  # frees the graph before a second run
            dirty = self._changed(run.values, kept, self._change)
        return run.modules, dirty

    def _not_clean_alone(self, run: _TracedRun, kept: Traces) -> set[Spot]:
        """Return the spots where the gradients of both sides do not add up, or, for another rule, overlap."""
        others = run.traces(~self._kept)
        if self._is_sum:
            everything = run.traces(torch.ones_like(self._kept))
            sums = {spot: one.numbers + others[spot].numbers for spot, one in kept.items()}
            return {spot for spot, both in sums.items() if self._differ(both, everything[spot].numbers)}
        # Gradients of parameters are sums over both sides, so they can only be compared between two runs.
        tensors = (spot for spot in kept if spot[1] != "own")
        return {spot for spot in tensors if not _are_apart([kept[spot].marks, others[spot].marks])}

    def _changed(self, values: Mapping[Spot, list[Tensor]], kept: Traces, change: Change) -> set[Spot]:
        """Return the spots whose gradient a change of the others changes, or reaches places that it has changed."""
        run = _TracedRun(self._runner, self._judge, change.values)
        new = run.traces(self._kept)
        run.end()
        dirty = set()
        for spot in kept.keys() & new.keys():
            if kept[spot].has_shape_of(new[spot]):
                pairs = zip(run.values[spot], values[spot], strict=True)
                changed = [differ(after, before, self._tolerance).any(1) for after, before in pairs]
                is_apart = not changed or all(_are_apart([changed, one[spot].marks]) for one in (kept, new))
                if not is_apart or self._differ(new[spot].numbers, kept[spot].numbers):
                    dirty.add(spot)
        return dirty

    def _differ(self, new: Tensor, base: Tensor) -> bool:
        return bool(differ(new, base, self._tolerance).any())
