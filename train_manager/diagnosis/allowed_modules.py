"""Modules that may mix examples, held so that what comes before and after them can still be judged."""

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
from train_manager.model.modules import Chosen, chosen


def norms_over_the_batch(model: nn.Module) -> dict[str, nn.Module]:
    """Return the norms that use the batch's own statistics in train mode, by name.

    >>> list(norms_over_the_batch(nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval(), nn.LayerNorm(2))))
    ['0']
    """
    return {name: one for name, one in model.named_modules() if isinstance(one, _BatchNorm) and one.training}


@contextmanager
def with_running_statistics(norms: Collection[nn.Module]) -> Iterator[None]:
    """Let norms use their running statistics, which mix nothing and leave the way back open."""
    held = [norm for norm in norms if getattr(norm, "running_mean", None) is not None]
    try:
        for norm in held:
            norm.training = False
        yield
    finally:
        for norm in held:
            norm.training = True


@final
class AllowedModules:
    """Holds the outputs of allowed modules: a row whose inputs are as in the first run has its output of that run.

    On the way back such a row has a gradient of its own: that of its inputs, added up where the shapes differ.

    Args:
        model: the model.
        allow: its modules that may mix examples, their names or patterns of names.
        norms: those without running statistics.
    """

    def __init__(self, model: nn.Module, allow: Collection[Chosen], norms: Collection[nn.Module]) -> None:
        found = chosen(model, allow, "check_batch_leak") if allow else {}
        without = [norm for norm in norms if getattr(norm, "running_mean", None) is None]
        self._modules = list(dict.fromkeys([*found.values(), *without]))
        self._first: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}
        self._counts: Counter[int] = Counter()

    def begin_run(self) -> None:
        """Number the calls of a run from the first on."""
        self._counts.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the modules for a ``with`` block."""
        handles = [module.register_forward_hook(self._hold, with_kwargs=True) for module in self._modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hold(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        key = id(module), self._counts[id(module)]
        self._counts[id(module)] += 1
        inputs, outputs = list(outputs_of((args, kwargs)).values()), outputs_of((output,))
        values = [one.detach().clone() for one in inputs], [one.detach().clone() for one in outputs.values()]
        first_in, first_out = self._first.setdefault(key, values)
        if list(map(_shape, first_in + first_out)) != list(map(_shape, [*inputs, *outputs.values()])):
            return output  # a batch of another size, as when the places are looked for
        new = {
            path: _held(one, before, inputs, first_in)
            for (path, one), before in zip(outputs.items(), first_out, strict=True)
        }
        return put_together((output,), new)[0]


def _shape(tensor: Tensor) -> torch.Size:
    return tensor.shape


def _held(output: Tensor, before: Tensor, inputs: list[Tensor], first: list[Tensor]) -> Tensor:
    pairs = [(one, other) for one, other in zip(inputs, first, strict=True) if one.shape[:1] == output.shape[:1]]
    if not output.dim() or not pairs or not output.is_floating_point():
        return before if all(map(torch.equal, inputs, first)) else output
    is_same = torch.stack([~_rows(differ(one.detach(), other, tolerance_of(one.dtype))) for one, other in pairs]).all(0)
    shape = [-1] + [1] * (output.dim() - 1)
    values = torch.where(is_same.view(shape), before, output.detach())
    return values + sum(_way_back(one, output) for one, _ in pairs if one.requires_grad)


def _rows(differs: Tensor) -> Tensor:
    return differs.flatten(1).any(1) if differs.dim() > 1 else differs


def _way_back(given: Tensor, output: Tensor) -> Tensor:
    """Return zeros that pass gradients back from each row of an output to the same row of an input."""
    rows = given.to(output.dtype)
    if given.shape != output.shape:
        sums = rows.flatten(1).sum(1) if rows.dim() > 1 else rows
        rows = sums.view([-1] + [1] * (output.dim() - 1)).expand_as(output)
    return rows - rows.detach()
