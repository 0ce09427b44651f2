"""Whether anything of the kept examples has changed with the others: what comes out for them, and what they teach."""

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
"""Rounding adds up on the way back: so many times what it may change in an output."""

SHARE: Final = 1e-2
"""Where a gradient must be zero, so much of what rounding may change elsewhere is too much."""

FLOOR: Final = 1e-3
"""What is smaller than this share of the largest gradients is rounding in parts that cancel."""

PLACES: Final = 2048
"""So many fixed places of all parameters are kept, beside the sum of each."""

LEAST: Final = 4
"""So many places of each parameter at least."""

PLACES_OF_AN_EXAMPLE: Final = 32
"""So many places of each example of an input are kept, beside their sum."""

SEED: Final = 20_029


class Leak(NamedTuple):
    """Something of the kept examples that depends on the changed ones.

    Attributes:
        rule: what did not hold.
        change: the change that showed it.
        of: the output, parameter or input in which it was seen.
        example: the number of a kept example that was affected; None if that is not known.
        size: how far that has changed.
    """

    rule: str
    change: Change
    of: str
    example: int | None
    size: float

    @property
    def is_forward(self) -> bool:
        """Whether it was seen in the outputs."""
        return self.rule in ("value", "mixed")

    @property
    def compares_runs(self) -> bool:
        """Whether one run was compared with another."""
        return self.rule in ("value", "mixed", "depends")


class Part(NamedTuple):
    """A tensor of which each row is of one example; all are of all examples together if ``numbers`` is None."""

    rows: Tensor
    numbers: Tensor | None


Parts = Mapping[tuple[str, str], Part]
"""Outputs, or gradients at inputs and parameters, by what they are and their names."""


def first_difference(
    new: Parts, base: Parts, tolerance: float, *, of: Tensor | None = None, floor: float | None = None
) -> tuple[str, int | None, float] | None:
    """Return the name of the first part in which some examples differ, the number of one of these, and how far.

    Args:
        new: the parts; one of another number of rows is left out, and rows are compared as far as both go.
        base: what they are compared with.
        tolerance: what rounding may change.
        of: which examples; None for all.
        floor: so large are numbers that were added up, beside the largest of each part; None for its usual size.
    """
    for key, (before, numbers) in base.items():
        after = new[key].rows if key in new else before
        if after.dim() != before.dim() or len(after) != len(before) or torch.equal(after, before):
            continue
        both = tuple(slice(min(lengths)) for lengths in zip(after.shape, before.shape, strict=True))
        after, before = after[both], before[both]  # padding may be of another length
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
    """Return the outputs of which it is known where the examples lie in them."""
    known = {path: place for path, place in places.known.items() if path in outputs}
    return {("output", name_of(at)): Part(one.rows(outputs[at].detach()), one.numbers) for at, one in known.items()}


@final
class Gradients:
    """Walks back from what a model has returned for some examples: from its sum with fixed random weights.

    Args:
        runner: runs the model.
        places: where the examples lie in its outputs.

    Attributes:
        failure: the kind of error with which a model refused to be walked back; then that is not tried again.
    """

    def __init__(self, runner: Runner, places: Places) -> None:
        self.failure = ""
        self._examples, self._places = runner.examples, places
        self._parameters = {name: one for name, one in runner.model.named_parameters() if one.requires_grad}

    def parts(self, run: Run, of: Tensor) -> Parts:
        """Return a few numbers of the gradients of some examples; nothing if no output has a gradient."""
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
        """Return the gradients of some examples at the inputs and the parameters; nothing if no output has one."""
        tensors = [*run.roots.values(), *self._parameters.values()]
        outputs, weights = [], []
        for number, (path, place) in enumerate(self._places.known.items()):
            if path in run.outputs and run.outputs[path].requires_grad:
                rows = place.rows(run.outputs[path])
                drawn = torch.randn(rows.shape, generator=torch.Generator().manual_seed(SEED + number))
                outputs.append(rows)
                weights.append((drawn * of[place.numbers].view([-1] + [1] * (rows.dim() - 1))).to(rows))
        if not outputs or not tensors or self.failure:
            return []
        try:
            found = torch.autograd.grad(outputs, tensors, weights, retain_graph=True, allow_unused=True)
        except Exception as error:  # as of reversible layers in eval mode, and of reentrant checkpoints
            self.failure = type(error).__name__
            return []
        pairs = zip(tensors, found, strict=True)
        return [torch.zeros_like(at) if one is None else one.to_dense() if one.is_sparse else one for at, one in pairs]


@final
class Judge:
    """Compares changed batches with the batch as it is: what comes out for the kept examples, and what they teach.

    Their loss is walked back: (a) its gradient is zero at the inputs of the others; (b) those of both sides of a bit
    are together that of all; (c) it is the same before and after a change of the others.

    Args:
        runner: runs the model.
        first: a run of the batch as it is.
        places: where the examples lie in its outputs.
        splits: which examples are changed together.

    Attributes:
        gradients: walks back.
        tolerance: what rounding may change.
    """

    def __init__(self, runner: Runner, first: Run, places: Places, splits: list[Change]) -> None:
        self.places, self.gradients = places, Gradients(runner, places)
        self.tolerance = tolerance_of(*first.dtypes)
        self._first, self._outputs, self._splits = first, parts_of(first.outputs, places), splits
        # A hook on a parameter, as one that clips, is of the sum over all examples.
        self._hooked = {name for name, one in runner.model.named_parameters() if one._backward_hooks}
        run = runner.base()
        self._all = self.gradients.parts(run, torch.ones_like(splits[0].changed))
        self._kept = {split[:2]: self.gradients.parts(run, ~split.changed) for split in splits}

    @property
    def has_gradients(self) -> bool:
        """Whether what the model returns for the examples has gradients."""
        return bool(self._all)

    def gives_the_same(self, run: Run, split: Change) -> bool:
        """Return whether another run of the batch as it is has given the same."""
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
            found = self._first_gradient(both, own) if change.side else None
            leak = self._reaching(kept, change) or (None if found is None else Leak("sum", change, *found))
            if leak is not None:
                return leak
        return None

    def output_leak(self, run: Run, change: Change, base: Run | None = None) -> Leak | None:
        """Judge what has come out for a changed batch; against a run from the same seed if one is given."""
        before = self._outputs if base is None else parts_of(base.outputs, self.places)
        kept = ~change.changed
        found = first_difference(parts_of(run.outputs, self.places), before, self.tolerance, of=kept)
        return None if found is None else Leak("value", change, *found)

    def gradient_leak(self, run: Run, change: Change, *, compares: bool) -> Leak | None:
        """Walk back from a changed batch, and judge by (a); by (c) if asked, and if its outputs have their shapes."""
        new = self.gradients.parts(run, ~change.changed)
        leak = self._reaching(new, change)
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
    """Looks for what both sides of a bit change, in outputs of which it is not known what belongs to which example.

    Args:
        first: a run of the batch as it is.
        paths: the outputs.
        tolerance: what rounding may change.
    """

    def __init__(self, first: Run, paths: list[Path], tolerance: float) -> None:
        self._base = {path: first.outputs[path] for path in paths}
        self._tolerance = tolerance
        self._seen: dict[tuple[Path, int], list[tuple[Change, Tensor]]] = {}
        self._moved: set[Path] = set()

    @property
    def unjudged(self) -> set[Path]:
        """The outputs that no change has left in the shape that they have."""
        return (self._base.keys() - {path for path, _ in self._seen}) | self._moved

    def note(self, run: Run, change: Change) -> None:
        """Note what a change that keeps lengths and masks has changed."""
        for path, base in self._base.items():
            if path in run.outputs and run.outputs[path].shape == base.shape:
                differs = differ(run.outputs[path].detach(), base, self._tolerance)
                self._seen.setdefault((path, change.bit), []).append((change, differs))
            else:
                self._moved.add(path)

    def leak(self) -> Leak | None:
        """Return what both sides of a bit have changed."""
        for (path, _), sides in self._seen.items():
            both = torch.stack([differs for _, differs in sides]).all(0)
            if len(sides) == 2 and path not in self._moved and bool(both.any()):
                return Leak("mixed", sides[0][0], name_of(path), None, float(both.float().mean()))
        return None
