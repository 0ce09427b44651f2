"""Whether the outputs or the gradients of the kept examples have changed together with the changed examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leaves import Path, name_of
from train_manager.diagnosis.changes import Change
from train_manager.diagnosis.differences import differ, digest, tolerance_of
from train_manager.diagnosis.output_places import Outputs, Places
from train_manager.diagnosis.runs import Run, Runner

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


class Leak(NamedTuple):
    """A number of the kept examples that depends on the changed ones."""

    rule: str  # the rule that did not hold, a key of RULES
    change: Change  # the change that showed the leak
    of: str  # the name of the output, parameter or input in which the leak was seen
    example: int | None  # the number of a kept example that was affected; None: not known
    size: float  # how far its number has changed

    @property
    def is_forward(self) -> bool:
        """Whether the leak was seen in the outputs."""
        return self.rule in ("value", "mixed")

    @property
    def compares_runs(self) -> bool:
        """Whether one run was compared with another."""
        return self.rule in ("value", "mixed", "depends")


class Part(NamedTuple):
    """A tensor whose rows belong to one example each."""

    rows: Tensor
    numbers: Tensor | None  # the example of each row; None: the rows are sums over all examples, as of parameters


Parts = Mapping[tuple[str, str], Part]
"""Outputs, or gradients at inputs and parameters, by their kind ("output", "input", "parameter") and name."""


def first_difference(
    new: Parts, base: Parts, tolerance: float, *, of: Tensor | None = None, floor: float | None = None
) -> tuple[str, int | None, float] | None:
    """Return the name of the first part in which examples differ, the number of one of them, and how far it differs.

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


def parts_of(outputs: Outputs, places: Places) -> Parts:
    """Return the outputs in which the places of the examples are known."""
    known = {path: place for path, place in places.known.items() if path in outputs}
    return {("output", name_of(at)): Part(one.rows(outputs[at].detach()), one.numbers) for at, one in known.items()}


@final
class Gradients:
    """Runs backward passes from the outputs of some examples: from their sum with fixed random weights.

    Args:
        runner: runs the model.
        places: where the examples lie in its outputs.

    Attributes:
        failure: the type of the error in a backward pass; then no other one is tried. Empty if there was none.
    """

    def __init__(self, runner: Runner, places: Places) -> None:
        self.failure = ""
        self._examples, self._places = runner.examples, places
        self._parameters = {name: one for name, one in runner.model.named_parameters() if one.requires_grad}

    def parts(self, run: Run, of: Tensor) -> Parts:
        """Return digests of the gradients of some examples; empty if no output has a gradient."""
        inputs = {path: self._examples.place_in(path) for path in run.roots}
        found = self.walked_back(run, of)
        count = max(LEAST, PLACES // max(1, len(self._parameters)))
        parts: dict[tuple[str, str], Part] = {}
        for (path, place), gradient in zip(inputs.items(), found, strict=False):
            parts["input", name_of(path)] = Part(digest(place.rows(gradient), PLACES_OF_AN_EXAMPLE), place.numbers)
        for name, gradient in zip(self._parameters, found[len(inputs) :], strict=False):
            parts["parameter", name] = Part(digest(gradient[None], count), None)
        return parts

    def walked_back(self, run: Run, of: Tensor) -> list[Tensor]:
        """Return the gradients of some examples at the inputs and the parameters; empty if no output has a gradient."""
        tensors = [*run.roots.values(), *self._parameters.values()]
        outputs, weights = [], []
        for number, (path, place) in enumerate(self._places.known.items()):
            if path in run.outputs and run.outputs[path].requires_grad:
                rows = place.rows(run.outputs[path])
                # Random weights, because a plain sum hides leaks that cancel: the sum over a softmax is always 1.
                drawn = torch.randn(rows.shape, generator=torch.Generator().manual_seed(SEED + number))
                outputs.append(rows)
                weights.append((drawn * of[place.numbers].view([-1] + [1] * (rows.dim() - 1))).to(rows))
        if not outputs or not tensors or self.failure:
            return []
        try:
            found = torch.autograd.grad(outputs, tensors, weights, retain_graph=True, allow_unused=True)
        except Exception as error:  # such as reversible layers in eval mode, and reentrant checkpoints
            self.failure = type(error).__name__
            return []
        pairs = zip(tensors, found, strict=True)
        return [torch.zeros_like(at) if one is None else one.to_dense() if one.is_sparse else one for at, one in pairs]


@final
class Judge:
    """Compares changed batches with the unchanged one, by the outputs and the gradients of the kept examples.

    Without a leak, (a) the gradient of the kept examples is zero at the inputs of the others; (b) the gradients of both
    sides of a bit add up to the gradient of all examples; (c) a change of the others does not change the gradient.

    Args:
        runner: runs the model.
        first: a run of the unchanged batch.
        places: where the examples lie in its outputs.
        splits: the examples that are changed together.

    Attributes:
        gradients: runs backward passes.
        tolerance: the relative difference that rounding may make in the outputs.
    """

    def __init__(self, runner: Runner, first: Run, places: Places, splits: list[Change]) -> None:
        self.places, self.gradients = places, Gradients(runner, places)
        self.tolerance = tolerance_of(*first.dtypes)
        self._first, self._outputs, self._splits = first, parts_of(first.outputs, places), splits
        # A hook on a parameter, such as one that clips, sees the sum over all examples, so (b) need not hold for it.
        self._hooked = {name for name, one in runner.model.named_parameters() if one._backward_hooks}
        run = runner.base()
        self._all = self.gradients.parts(run, torch.ones_like(splits[0].changed))
        self._kept = {split[:2]: self.gradients.parts(run, ~split.changed) for split in splits}

    @property
    def has_gradients(self) -> bool:
        """Whether an output of the examples has gradients."""
        return bool(self._all)

    def gives_the_same(self, run: Run, split: Change) -> bool:
        """Return whether another run of the unchanged batch has given the same outputs and gradients."""
        if run.drawn != self._first.drawn or not self._has_same_shapes(run):
            return False
        pairs = ((run.outputs[path].detach(), one) for path, one in self._first.outputs.items())
        gradients = self.gradients.parts(run, ~split.changed)
        return not any(bool(differ(new, base, self.tolerance).any()) for new, base in pairs) and (
            self._first_gradient(gradients, self._kept[split[:2]]) is None
        )

    def base_leak(self) -> Leak | None:
        """Judge the batch as it is, by (a) and (b)."""
        own = {key: part for key, part in self._all.items() if key[1] not in self._hooked}
        for change in self._splits:
            kept, other = self._kept[change[:2]], self._kept[change.bit, 0]
            both = {key: Part(rows + other[key].rows, numbers) for key, (rows, numbers) in kept.items()}
            # Both sides of a bit give the same sum, so (b) is asked once per bit.
            found = self._first_gradient(both, own) if change.side else None
            leak = self._reaching(kept, change) or (None if found is None else Leak("sum", change, *found))
            if leak is not None:
                return leak
        return None

    def output_leak(self, run: Run, change: Change, base: Run | None = None) -> Leak | None:
        """Judge the outputs for a changed batch; against a run from the same seed if one is given."""
        before = self._outputs if base is None else parts_of(base.outputs, self.places)
        kept = ~change.changed
        found = first_difference(parts_of(run.outputs, self.places), before, self.tolerance, of=kept)
        return None if found is None else Leak("value", change, *found)

    def gradient_leak(self, run: Run, change: Change, *, compares: bool) -> Leak | None:
        """Judge the gradients of a changed batch by (a), and with ``compares`` by (c)."""
        new = self.gradients.parts(run, ~change.changed)
        leak = self._reaching(new, change)
        # Outputs of another shape get other random weights, so their gradients cannot be compared.
        if leak is not None or not compares or not self._has_same_shapes(run):
            return leak
        found = self._first_gradient(new, self._kept[change[:2]], of=~change.changed)
        return None if found is None else Leak("depends", change, *found)

    def _reaching(self, gradients: Parts, change: Change) -> Leak | None:
        inputs = {key: part for key, part in gradients.items() if part.numbers is not None}
        zeros = {key: Part(torch.zeros_like(rows), numbers) for key, (rows, numbers) in inputs.items()}
        found = first_difference(inputs, zeros, SHARE * FACTOR * self.tolerance, of=change.changed, floor=0.0)
        return None if found is None else Leak("reaches", change, *found)

    def _first_gradient(
        self, new: Parts, base: Parts, of: Tensor | None = None
    ) -> tuple[str, int | None, float] | None:
        floor = FLOOR * max((float(part.rows.abs().max()) for part in base.values()), default=0.0)
        return first_difference(new, base, FACTOR * self.tolerance, of=of, floor=floor)

    def _has_same_shapes(self, run: Run) -> bool:
        shapes, others = ({path: one.shape for path, one in of.outputs.items()} for of in (run, self._first))
        return shapes == others


@final
class MixedJudge:
    """Finds elements that both sides of a bit change, in outputs in which the places of the examples are not known.

    Args:
        first: a run of the unchanged batch.
        paths: the paths of these outputs.
        tolerance: the relative difference that rounding may make.
    """

    def __init__(self, first: Run, paths: list[Path], tolerance: float) -> None:
        self._base = {path: first.outputs[path] for path in paths}
        self._tolerance = tolerance
        # By output and bit: the changes, and the elements that each has changed.
        self._seen: dict[tuple[Path, int], list[tuple[Change, Tensor]]] = {}
        self._moved: set[Path] = set()  # outputs whose shape a change has changed, so that they cannot be compared

    @property
    def unjudged(self) -> set[Path]:
        """The outputs that could not be judged, because changes have changed their shape."""
        return (self._base.keys() - {path for path, _ in self._seen}) | self._moved

    def note(self, run: Run, change: Change) -> None:
        """Note the elements that a change has changed; the change must keep lengths and masks."""
        for path, base in self._base.items():
            if path in run.outputs and run.outputs[path].shape == base.shape:
                differs = differ(run.outputs[path].detach(), base, self._tolerance)
                self._seen.setdefault((path, change.bit), []).append((change, differs))
            else:
                self._moved.add(path)

    def leak(self) -> Leak | None:
        """Return a leak if both sides of a bit have changed the same element."""
        for (path, _), sides in self._seen.items():
            both = torch.stack([differs for _, differs in sides]).all(0)
            if len(sides) == 2 and path not in self._moved and bool(both.any()):
                return Leak("mixed", sides[0][0], name_of(path), None, float(both.float().mean()))
        return None
