"""Whether the outputs or the gradients of the kept examples have changed together with the changed examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.checks.batch_leaves import Path, name_of
from train_manager.checks.leak_batch import Change, ExampleAxis
from train_manager.checks.leak_runs import ModelRun, Outputs, Runner, differ, digest, tolerance_of

TRIES: Final = 8
"""The most smaller batches that are tried: some models take only certain sizes."""

FACTOR: Final = 8.0
"""Times the tolerance of outputs: rounding adds up in the backward pass."""

SHARE: Final = 1e-2
"""The share of the tolerance that a gradient may reach where it must be zero."""

FLOOR: Final = 1e-3
"""The share of the largest gradients below which a gradient may be rounding of numbers that cancel."""

PLACES: Final = 2048
"""Elements of the gradients that are kept of all parameters together, beside the sum of each gradient."""

LEAST: Final = 4
"""Elements of the gradient that are kept of each parameter, at least."""

PLACES_OF_AN_EXAMPLE: Final = 32
"""Elements of the gradient that are kept of each example of an input, beside their sum."""

SEED: Final = 20_029


# ---- where the examples lie in the outputs ---------------------------------------------------------------------------


class OutputAxes(NamedTuple):
    """Where the examples lie in each leaf of the outputs."""

    known: dict[Path, ExampleAxis]  # leaves in which the examples lie along an axis, or of which each is of an example
    unknown: list[Path]  # leaves that depend on the batch size in another way
    none: list[Path]  # leaves that belong to no example, such as a loss


def smaller_sizes(size: int) -> list[int]:
    """Return the sizes of smaller batches to try, the best first.

    >>> smaller_sizes(12), smaller_sizes(2)
    ([11, 10, 9, 6, 4, 3, 2], [1])
    """
    # Divisors of the size suit models that split a batch. One example alone broadcasts to any size, so it is tried
    # only in place of two.
    less = [size - fewer for fewer in (1, 2, 3)]
    divisors = [size // factor for factor in range(2, size + 1) if size % factor == 0]
    return [one for one in dict.fromkeys([*less, *divisors]) if one > 1 or size - one == 1][:TRIES]


def axes_in_outputs(runner: Runner, outputs: Outputs) -> OutputAxes:
    """Return where the examples lie in the outputs: along the axes that shrink in a run with fewer examples."""
    batch = runner.batch
    for count in smaller_sizes(batch.size):
        try:
            fewer = runner.run(batch.first(count)).outputs
        except Exception:  # the model takes no batch of this size
            continue
        axes = axes_of(outputs, fewer, batch.size, count, batch.batch_axis)
        if axes.known or axes.unknown:
            return axes
    return axes_of(outputs, None, batch.size, 0, batch.batch_axis)


def axes_of(base: Outputs, fewer: Outputs | None, size: int, count: int, batch_axis: int) -> OutputAxes:
    """Return where the examples lie, by a comparison with the outputs for the first ``count`` examples.

    Without such outputs, from a model that takes one size only, any axis as long as the batch counts as its axis.
    """
    axes = OutputAxes({}, [], [])
    lengths, shorter = _lengths_of_lists(base), _lengths_of_lists(fewer or {})
    shrunk = {path for path, length in lengths.items() if (length, shorter.get(path)) == (size, count)}
    for path, tensor in base.items():
        # A list that became shorter with the batch has an entry for each example.
        entry = next((key for end, key in enumerate(path) if path[:end] in shrunk), None)
        other = tensor if fewer is None else fewer.get(path)
        if entry is not None:
            axes.known[path] = ExampleAxis(None, torch.tensor([entry]))
        elif other is None or other.dim() != tensor.dim():
            axes.unknown.append(path)
        elif found := [axis for axis in range(tensor.dim()) if _is_of_examples(axis, tensor, other, size, count)]:
            axis = batch_axis if batch_axis in found else found[0]
            numbers = _numbers(tensor.movedim(axis, 0), other.movedim(axis, 0), size, count)
            axes.known[path] = ExampleAxis(axis, numbers)
        else:
            (axes.none if other.shape == tensor.shape else axes.unknown).append(path)
    return axes


def _is_of_examples(axis: int, tensor: Tensor, other: Tensor, size: int, count: int) -> bool:
    """Return whether an axis has shrunk like the batch; without a smaller batch, whether it has the batch's length."""
    # An axis may have several rows per example, as heads of attention: it shrinks by the same factor.
    more, less = tensor.shape[axis], other.shape[axis]
    return more == size if other is tensor else less < more and more % size == 0 and less * size == more * count


def _lengths_of_lists(outputs: Outputs) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for path in outputs:
        for end, key in enumerate(path):
            if isinstance(key, int):
                found[path[:end]] = max(found.get(path[:end], 0), key + 1)
    return found


def _numbers(rows: Tensor, fewer: Tensor, size: int, count: int) -> Tensor:
    """Return the number of the example of each row: 0 0 1 1 or 0 1 0 1, whichever agrees better with fewer examples."""
    times = len(rows) // size
    side_by_side, in_turn = torch.arange(size).repeat_interleave(times), torch.arange(size).repeat(times)
    if times == 1 or rows.shape[1:] != fewer.shape[1:]:
        return side_by_side
    equal = [int((rows[numbers < count] == fewer).sum()) for numbers in (side_by_side, in_turn)]
    return in_turn if equal[1] > equal[0] else side_by_side


# ---- gradients of some examples --------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A tensor whose rows belong to one example each."""

    rows: Tensor
    numbers: Tensor | None  # the example of each row; None: the rows are sums over all examples, as of parameters


Parts = Mapping[tuple[str, str], Part]
"""Outputs, or gradients at inputs and parameters, by their kind ("output", "input", "parameter") and name."""


@final
class Gradients:
    """Runs backward passes from the outputs of some examples: from their sum with fixed random weights.

    Args:
        runner: runs the model.
        axes: where the examples lie in its outputs.

    Attributes:
        failure: the type of the error in a backward pass; then no other one is tried. Empty if there was none.
    """

    def __init__(self, runner: Runner, axes: OutputAxes) -> None:
        self.failure = ""
        self._batch, self._axes = runner.batch, axes
        self._parameters = {name: one for name, one in runner.model.named_parameters() if one.requires_grad}

    def parts(self, run: ModelRun, of: Tensor, *, keep_graph: bool = False) -> Parts:
        """Return digests of the gradients of some examples; empty if no output has a gradient."""
        inputs = {path: self._batch.axis_in(path) for path in run.roots}
        found = self.walked_back(run, of, keep_graph=keep_graph)
        count = max(LEAST, PLACES // max(1, len(self._parameters)))
        parts: dict[tuple[str, str], Part] = {}
        for (path, axis), gradient in zip(inputs.items(), found, strict=False):
            parts["input", name_of(path)] = Part(digest(axis.rows(gradient), PLACES_OF_AN_EXAMPLE), axis.numbers)
        for name, gradient in zip(self._parameters, found[len(inputs) :], strict=False):
            parts["parameter", name] = Part(digest(gradient[None], count), None)
        return parts

    def walked_back(self, run: ModelRun, of: Tensor, *, keep_graph: bool = False) -> list[Tensor]:
        """Return the gradients of some examples at the inputs and the parameters; empty if no output has a gradient."""
        tensors = [*run.roots.values(), *self._parameters.values()]
        outputs, weights = [], []
        for number, (path, axis) in enumerate(self._axes.known.items()):
            if path in run.outputs and run.outputs[path].requires_grad:
                rows = axis.rows(run.outputs[path])
                # Random weights, because a plain sum hides leaks that cancel: the sum over a softmax is always 1.
                drawn = torch.randn(rows.shape, generator=torch.Generator().manual_seed(SEED + number))
                outputs.append(rows)
                weights.append((drawn * of[axis.numbers].view([-1] + [1] * (rows.dim() - 1))).to(rows))
        if not outputs or not tensors or self.failure:
            return []
        try:
            found = torch.autograd.grad(outputs, tensors, weights, retain_graph=keep_graph, allow_unused=True)
        except Exception as error:  # such as reversible layers in eval mode, and reentrant checkpoints
            self.failure = type(error).__name__
            return []
        pairs = zip(tensors, found, strict=True)
        return [torch.zeros_like(at) if one is None else one.to_dense() if one.is_sparse else one for at, one in pairs]


# ---- the judge -------------------------------------------------------------------------------------------------------


class Leak(NamedTuple):
    """A number of the kept examples that depends on the changed ones."""

    rule: str  # the rule that did not hold: "value", "reaches", "depends" or "sum"
    half: int  # the position of the changed examples in the halves
    change: Change | None  # the change that showed the leak; None: the batch as it is
    of: str  # the name of the output, parameter or input in which the leak was seen
    example: int | None  # the number of a kept example that was affected; None: not known
    size: float  # how far its number has changed

    @property
    def is_forward(self) -> bool:
        """Whether the leak was seen in the outputs."""
        return self.rule == "value"

    @property
    def compares_runs(self) -> bool:
        """Whether one run was compared with another."""
        return self.rule in ("value", "depends")


Difference = tuple[str, int | None, float]
"""The name of a part in which examples differ, the number of one of them, and how far it differs."""


@final
class Judge:
    """Compares changed batches with the unchanged one, by the outputs and the gradients of the kept examples.

    Without a leak, (a) the gradient of the kept examples is zero at the inputs of the others; (b) the gradients of both
    sides of a bit add up to the gradient of all examples; (c) a change of the others does not change the gradient.

    Args:
        runner: runs the model.
        first: a run of the unchanged batch.
        axes: where the examples lie in its outputs.
        halves: the examples that are changed together.

    Attributes:
        gradients: runs backward passes.
        tolerance: the relative difference that rounding may make in the outputs.
    """

    def __init__(self, runner: Runner, first: ModelRun, axes: OutputAxes, halves: list[Tensor]) -> None:
        self.axes, self.gradients = axes, Gradients(runner, axes)
        self.tolerance = tolerance_of(*first.dtypes)
        self._first, self._outputs, self._halves = first, self._parts(first), halves
        # A hook on a parameter, such as one that clips, sees the sum over all examples, so (b) need not hold for it.
        self._hooked = {name for name, one in runner.model.named_parameters() if one._backward_hooks}
        run = runner.base()
        self._kept = [self.gradients.parts(run, ~changed, keep_graph=True) for changed in halves]
        self._all = self.gradients.parts(run, torch.ones_like(halves[0]))

    @property
    def has_gradients(self) -> bool:
        """Whether an output of the examples has gradients."""
        return bool(self._all)

    def gives_the_same(self, run: ModelRun, half: int) -> bool:
        """Return whether another run of the unchanged batch has given the same outputs and gradients."""
        if self.has_drawn_others(run) or not self._has_same_shapes(run):
            return False
        gradients = self.gradients.parts(run, ~self._halves[half])
        differences = (
            first_difference(self._parts(run), self._outputs, self.tolerance),
            self._first_gradient(gradients, self._kept[half]),
        )
        return differences == (None, None)

    def has_drawn_others(self, run: ModelRun) -> bool:
        """Return whether a run has drawn other random numbers, which change outputs without a leak."""
        return run.drawn != self._first.drawn

    def base_leak(self) -> Leak | None:
        """Judge the batch as it is, by (a) and (b)."""
        own = {key: part for key, part in self._all.items() if key[1] not in self._hooked}
        for half, kept in enumerate(self._kept):
            leak = self._reaching(kept, half, None)
            # Both halves of a bit give the same sum, so (b) is asked once per bit.
            if leak is None and half % 2:
                other = self._kept[half - 1]
                both = {key: Part(rows + other[key].rows, numbers) for key, (rows, numbers) in kept.items()}
                found = self._first_gradient(both, own)
                leak = None if found is None else Leak("sum", half, None, *found)
            if leak is not None:
                return leak
        return None

    def output_leak(self, run: ModelRun, change: Change) -> Leak | None:
        """Judge the outputs for a changed batch."""
        found = first_difference(self._parts(run), self._outputs, self.tolerance, of=~change.changed)
        return None if found is None else Leak("value", change.half, change, *found)

    def gradient_leak(self, run: ModelRun, change: Change, *, compares: bool) -> Leak | None:
        """Judge the gradients of a changed batch by (a), and with ``compares`` by (c)."""
        new = self.gradients.parts(run, ~change.changed)
        leak = self._reaching(new, change.half, change)
        # Outputs of another shape get other random weights, so their gradients cannot be compared.
        if leak is not None or not compares or not self._has_same_shapes(run):
            return leak
        found = self._first_gradient(new, self._kept[change.half], of=~change.changed)
        return None if found is None else Leak("depends", change.half, change, *found)

    def _parts(self, run: ModelRun) -> Parts:
        """Return the outputs in which the axes of the examples are known."""
        known = {path: axis for path, axis in self.axes.known.items() if path in run.outputs}
        rows = {path: axis.rows(run.outputs[path].detach()) for path, axis in known.items()}
        return {("output", name_of(path)): Part(rows[path], axis.numbers) for path, axis in known.items()}

    def _reaching(self, gradients: Parts, half: int, change: Change | None) -> Leak | None:
        inputs = {key: part for key, part in gradients.items() if part.numbers is not None}
        zeros = {key: Part(torch.zeros_like(rows), numbers) for key, (rows, numbers) in inputs.items()}
        tolerance = SHARE * FACTOR * self.tolerance
        found = first_difference(inputs, zeros, tolerance, of=self._halves[half], floor=0.0)
        return None if found is None else Leak("reaches", half, change, *found)

    def _first_gradient(self, new: Parts, base: Parts, of: Tensor | None = None) -> Difference | None:
        floor = FLOOR * max((float(part.rows.abs().max()) for part in base.values()), default=0.0)
        return first_difference(new, base, FACTOR * self.tolerance, of=of, floor=floor)

    def _has_same_shapes(self, run: ModelRun) -> bool:
        shapes, others = ({path: one.shape for path, one in of.outputs.items()} for of in (run, self._first))
        return shapes == others


def first_difference(
    new: Parts, base: Parts, tolerance: float, *, of: Tensor | None = None, floor: float | None = None
) -> Difference | None:
    """Return the first part in which examples differ.

    Args:
        new: the parts. Rows of different lengths are compared as far as both go; other shapes are left out.
        base: the parts to compare with.
        tolerance: the relative difference that rounding may make.
        of: the examples to compare, as a mask; None for all.
        floor: the size of the numbers whose sums these are, beside the largest of each part; None for its usual size.
    """
    for key, (before, numbers) in base.items():
        after = new[key].rows if key in new else before
        if after.dim() != before.dim() or len(after) != len(before) or torch.equal(after, before):
            continue
        both = tuple(slice(min(lengths)) for lengths in zip(after.shape, before.shape, strict=True))
        after, before = after[both], before[both]  # another longest example changes the length of the padding
        size = None if floor is None else max((float(one.abs().max()) for one in (after, before)), default=0.0) + floor
        differs = differ(after, before, tolerance, size).flatten(1).cpu()
        rows = differs.any(1) if numbers is None or of is None else differs.any(1) & of[numbers]
        if bool(rows.any()):
            at = int(rows.int().argmax())
            one, other = (tensor[at].cpu().to(torch.complex128).flatten() for tensor in (after, before))
            far = (one - other).abs()[differs[at]].max()
            return key[1], None if numbers is None else int(numbers[at]), float(far)
    return None
