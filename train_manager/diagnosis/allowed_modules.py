"""Modules that may mix examples, held so that the modules before and after them can still be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from train_manager.diagnosis.batch_leaves import put_together
from train_manager.diagnosis.differences import differ, tolerance_of
from train_manager.diagnosis.output_places import outputs_of


def norms_over_the_batch(model: nn.Module) -> dict[str, nn.Module]:
    """Return the norms that use the batch's own statistics in train mode, by name.

    >>> list(norms_over_the_batch(nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval(), nn.LayerNorm(2))))
    ['0']
    """
    return {name: one for name, one in model.named_modules() if isinstance(one, _BatchNorm) and one.training}


@final
class AllowedModules:
    """Holds the outputs of allowed modules: a row with the inputs of the first run gets the output of the first run.

    In the backward pass such a row passes its gradient to its own inputs alone, summed up where the shapes differ.

    Args:
        modules: the modules that may mix examples.
    """

    def __init__(self, modules: Collection[nn.Module]) -> None:
        self._modules = list(dict.fromkeys(modules))
        self._first: dict[tuple[int, int], list[Tensor]] = {}  # the inputs and outputs of each call in the first run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the modules for a run."""
        # A module may be called several times in a run, so each call is held apart.
        counts: Counter[int] = Counter()

        def hold(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            counts[id(module)] += 1
            return self._held((id(module), counts[id(module)]), (args, kwargs), output)

        handles = [module.register_forward_hook(hold, with_kwargs=True) for module in self._modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _held(self, call: tuple[int, int], given: Any, output: Any) -> Any:
        inputs, outputs = list(outputs_of(given).values()), outputs_of((output,))
        tensors = [*inputs, *outputs.values()]
        first = self._first.setdefault(call, [one.detach().clone() for one in tensors])
        if [one.shape for one in first] != [one.shape for one in tensors]:
            return output  # a batch of another size, from the search for the places of the examples
        pairs = list(zip(inputs, first, strict=False))
        befores = zip(outputs.items(), first[len(inputs) :], strict=True)
        return put_together((output,), {path: _row_by_row(one, before, pairs) for (path, one), before in befores})[0]


def _row_by_row(output: Tensor, before: Tensor, inputs: list[tuple[Tensor, Tensor]]) -> Tensor:
    pairs = [(one, other) for one, other in inputs if one.shape[:1] == output.shape[:1]]
    # Without rows of examples, or with outputs of integers, the output is held as a whole or not at all.
    if not output.dim() or not pairs or not output.is_floating_point():
        return before if all(torch.equal(*pair) for pair in inputs) else output
    changed = torch.stack([_any_of_rows(differ(one.detach(), other, tolerance_of(one.dtype))) for one, other in pairs])
    values = torch.where(_as_rows(changed.any(0), output), output.detach(), before)
    # The values have no graph. The sum adds zeros that carry the gradients of each row.
    return values + sum(_way_back(one, output) for one, _ in pairs if one.requires_grad)


def _any_of_rows(differs: Tensor) -> Tensor:
    return differs.unsqueeze(-1).flatten(1).any(1)


def _as_rows(of_rows: Tensor, output: Tensor) -> Tensor:
    return of_rows.view([-1] + [1] * (output.dim() - 1))


def _way_back(given: Tensor, output: Tensor) -> Tensor:
    """Return zeros that pass gradients back from each row of an output to the same row of an input."""
    rows = given.to(output.dtype)
    if given.shape != output.shape:
        rows = _as_rows(rows.unsqueeze(-1).flatten(1).sum(1), output).expand_as(output)
    return rows - rows.detach()
