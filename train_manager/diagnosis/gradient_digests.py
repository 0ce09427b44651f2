"""The gradients of a run, walked back from chosen examples and kept as a few numbers of each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.batch_leaves import Path
from train_manager.diagnosis.examples import Examples
from train_manager.diagnosis.output_places import Mixed, Place
from train_manager.diagnosis.runs import Run

PLACES: Final = 2048
"""So many fixed places of all parameters are kept, beside the sum of each."""

LEAST: Final = 4
"""So many places of each parameter at least."""

PLACES_OF_AN_EXAMPLE: Final = 32
"""So many places of each example of an input are kept, beside their sum."""

SEED: Final = 20_029


Numbers = tuple[Tensor, Tensor]
"""Rows of numbers, and how large the terms of each of them are."""


class Digest(NamedTuple):
    """A few numbers of the gradients, that sum up as the gradients do.

    Attributes:
        parameters: of the parameters, by name: numbers, and how large the terms of each are.
        inputs: of the float inputs, by leaf: a row of numbers for each example, and how large their terms are.
    """

    parameters: dict[str, Numbers]
    inputs: dict[Path, Numbers]


@final
class Gradients:
    """Walks back from what a model has returned for chosen examples.

    Their loss is the sum of their outputs with fixed random weights.

    Args:
        model: the model.
        examples: the batch.

    Attributes:
        failure: the kind of error with which a model refused to be walked back; then that is not tried again.
    """

    def __init__(self, model: nn.Module, examples: Examples) -> None:
        self.failure = ""
        self._parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self._examples = examples
        self._weights: dict[Path, Tensor] = {}
        self._is_reentrant = False

    def of(self, run: Run, places: Mapping[Path, Place], chosen: Tensor | None = None) -> Digest | None:
        """Return a digest of the gradients of some examples, or of all; None if no output has a gradient."""
        gradients = self.whole(run, places, chosen, [*self._parameters.values(), *run.roots.values()])
        if gradients is None:
            return None
        of_parameters = dict(zip(self._parameters, gradients, strict=False))
        of_roots = dict(zip(run.roots, gradients[len(self._parameters) :], strict=True))
        least = max(LEAST, PLACES // max(1, len(of_parameters)))
        numbers = {name: _numbers(one.flatten()[None], least) for name, one in of_parameters.items() if one is not None}
        return Digest(numbers, self._by_example(of_roots))

    def whole(
        self, run: Run, places: Mapping[Path, Place], chosen: Tensor | None, at: Sequence[Tensor]
    ) -> list[Tensor | None] | None:
        """Return the gradients themselves at some tensors."""
        outputs, weights = [], []
        for path, output in run.outputs.items():
            weight = self._weight_of(path, output, places.get(path), chosen) if output.requires_grad else None
            if weight is not None:
                outputs.append(output)
                weights.append(weight)
        if not outputs or not at or self.failure:
            return None
        try:
            found = self._walk_back(outputs, weights, at)
        except Exception as error:  # as of reversible layers in eval mode
            self.failure = type(error).__name__
            return None
        return [one.to_dense() if one is not None and one.is_sparse else one for one in found]

    def _weight_of(self, path: Path, output: Tensor, place: Place | None, chosen: Tensor | None) -> Tensor | None:
        """Return the weights of what is of the chosen examples; None if it is not known what is."""
        if chosen is None:
            return self._weight(path, output)
        if place is None or isinstance(place, Mixed):
            return None
        return self._weight(path, output) * place.mask(output, chosen)

    def _weight(self, path: Path, output: Tensor) -> Tensor:
        weight = self._weights.get(path)
        if weight is None or weight.shape != output.shape:
            generator = torch.Generator().manual_seed(SEED + len(self._weights))
            drawn = torch.randn(output.shape, generator=generator)
            weight = drawn.to(output.device, output.dtype)
            self._weights.setdefault(path, weight)
        return weight

    def _walk_back(self, outputs: list[Tensor], weights: list[Tensor], at: Sequence[Tensor]) -> list[Tensor | None]:
        if not self._is_reentrant:
            try:
                return [*torch.autograd.grad(outputs, at, weights, retain_graph=True, allow_unused=True)]
            except RuntimeError as error:
                if "heckpoint" not in str(error):
                    raise
                self._is_reentrant = True  # such checkpoints walk back with backward() only
        return _walk_back_whole(outputs, weights, at)

    def _by_example(self, gradients: Mapping[tuple[Path, int], Tensor | None]) -> dict[Path, Numbers]:
        found: dict[Path, Numbers] = {}
        for path, leaf in self._examples.leaves.items():
            own = {place: one for (of, place), one in gradients.items() if of == path and one is not None}
            if own and leaf.axis is None:
                found[path] = _of_entries(own, len(leaf.value))
            elif own and leaf.axis is not None:
                rows = own[0].movedim(leaf.axis, 0)
                found[path] = _numbers(rows.reshape(len(rows), -1), PLACES_OF_AN_EXAMPLE)
        return found


def _of_entries(gradients: Mapping[int, Tensor], count: int) -> Numbers:
    """Return the sum of each entry's gradient; entries without one have zeros."""
    found = [_numbers(gradients[at].reshape(1, -1), 1) if at in gradients else None for at in range(count)]
    zero = torch.zeros(1, 1, dtype=torch.float64)
    pairs = [(zero, zero) if one is None else (one[0][:, -1:], one[1][:, -1:]) for one in found]
    return torch.cat([sums for sums, _ in pairs]), torch.cat([sizes for _, sizes in pairs])


def _walk_back_whole(outputs: list[Tensor], weights: list[Tensor], at: Sequence[Tensor]) -> list[Tensor | None]:
    """Walk back with ``backward()``, on gradients of its own."""
    before = [one.grad for one in at]
    try:
        for one in at:
            one.grad = None
        torch.autograd.backward(outputs, weights, retain_graph=True)
        return [one.grad for one in at]
    finally:
        for one, gradient in zip(at, before, strict=True):
            one.grad = gradient


def _numbers(rows: Tensor, places: int) -> Numbers:
    """Return a few elements of each row and its sum; and how large the terms of these are."""
    if rows.is_complex():
        rows = torch.view_as_real(rows).flatten(1)
    rows = rows.detach()
    count = rows.shape[1]
    if not count:
        return rows.new_zeros(len(rows), 1), rows.new_zeros(len(rows), 1)
    if count <= places:
        return rows.double().cpu(), rows.abs().amax(1, keepdim=True).expand_as(rows).double().cpu()
    at = torch.linspace(0, count - 1, places).round().long().to(rows.device)
    rows = rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows
    some, sums = rows[:, at], rows.sum(1, keepdim=True)
    least, most = (
        rows.aminmax() if len(rows) == 1 else rows.aminmax(dim=1, keepdim=True)
    )  # the first is 50 times faster
    largest = torch.maximum(-least, most).view(len(rows), 1)
    terms = largest + some.abs().mean(1, keepdim=True) * count  # about; adding all of them up takes as long as a layer
    sizes = torch.cat([largest.expand(-1, places), terms], 1)
    return torch.cat([some, sums], 1).double().cpu(), sizes.double().cpu()
