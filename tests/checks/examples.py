"""Whether a model mixes examples, found by changing one after the other: slow, and with nothing of the checker."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tests.checks.cases import Case

BACKWARDS = 2  # examples of a clean model for which gradients are compared


class Run(NamedTuple):
    """What came out: a row of numbers for each example, and gradients at inputs, by example, and at parameters."""

    rows: list[Tensor]
    inputs: list[Tensor]
    parameters: Tensor


def seed(number: int) -> None:
    torch.default_generator.manual_seed(number)  # torch.manual_seed writes the stack down for each kind of device


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same structure with other tensors."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(item, change) for item in value)
    if is_dataclass(value) or isinstance(value, SimpleNamespace):
        made_of: Callable[..., Any] = value.__class__
        return made_of(**mapped(vars(value), change))
    return value


def tensors_in(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(value, lambda tensor: found.append(tensor))
    return found


def parts_of(value: Any, size: int, axis: int) -> Iterator[list[Tensor]]:
    """Each leaf that belongs to examples, as a list of one part for each."""
    if isinstance(value, list) and len(value) == size:
        leaves = [tensors_in(item) for item in value]
        yield from (list(parts) for parts in zip(*leaves, strict=True))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from parts_of(item, size, axis)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from parts_of(item, size, axis)
    elif is_dataclass(value) or isinstance(value, SimpleNamespace):
        yield from parts_of(vars(value), size, axis)
    elif isinstance(value, Tensor) and value.ndim:
        along = axis if value.ndim > axis and value.shape[axis] == size else 0
        if value.shape[along] % size == 0:
            yield list(value.chunk(size, along))


def without_shared(case: Case, batch: Any) -> Any:
    shared = case.options.get("shared", ())
    return {key: item for key, item in batch.items() if key not in shared} if shared else batch


def size_of(case: Case, batch: Any) -> int:
    if isinstance(batch, tuple) and isinstance(batch[0], list):
        return len(batch[0])
    axis: int = case.options.get("batch_axis", 0)
    return tensors_in(batch)[0].shape[axis]


def called(case: Case, model: nn.Module, batch: Any) -> Any:
    call = case.options.get("call")
    if call is not None:
        return call(model, batch)
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch) if isinstance(batch, Tensor) else model(*batch)


def change_example(case: Case, batch: Any, example: int, how: str) -> None:
    """Give one example other numbers, or all that another one has."""
    seed(example)
    size = size_of(case, batch)
    for parts in parts_of(without_shared(case, batch), size, case.options.get("batch_axis", 0)):
        mine = parts[example]
        if how == "copy":
            other = parts[(example + 3) % size]
            if other.shape == mine.shape:
                mine.copy_(other.clone())
        elif mine.is_floating_point() or mine.is_complex():
            mine.copy_(4 * torch.randn_like(mine))
        elif mine.dtype != torch.bool:
            values = torch.cat([part.flatten() for part in parts])
            values = values[values != 0]
            drawn = values[torch.randint(len(values), mine.shape)]
            mine.copy_(torch.where(mine == 0, mine, drawn))


def made(case: Case, mode: str) -> nn.Module:
    """The model as new; norms over the batch use running statistics, as the checker allows them."""
    seed(0)
    model = case.make().train(mode == "train")
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
    return model


def run(case: Case, mode: str, keep: set[int] | None = None, change: tuple[int, str] | None = None) -> Run:
    """Run a new model forward, and backward from the rows to keep; None keeps all, an empty set goes forward alone."""
    model = made(case, mode)
    seed(1)
    batch = case.batch()
    if change is not None:
        change_example(case, batch, *change)
    batch = mapped(batch, lambda leaf: leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf)
    seed(2)
    random.seed(2)
    np.random.seed(2)
    size = size_of(case, batch)
    axis = case.options.get("batch_axis", 0)
    given = mapped(batch, torch.clone)  # models may write into it
    leaves = list(parts_of(called(case, model, given), size, axis))
    rows = [torch.cat([as_numbers(parts[example]) for parts in leaves]) for example in range(size)]
    kept = range(size) if keep is None else keep
    weighed = [
        row @ torch.arange(len(row)).add(1 + index).cos().double() for index, row in enumerate(rows) if index in kept
    ]
    if not weighed:
        return Run([row.detach() for row in rows], [], torch.empty(0))
    loss = torch.stack(weighed).sum()
    if loss.requires_grad:
        loss.backward()
    gradients = mapped(without_shared(case, batch), gradient_of)
    at_inputs = list(parts_of(gradients, size, axis))
    return Run(
        [row.detach() for row in rows],
        [torch.cat([as_numbers(parts[example]) for parts in at_inputs]) for example in range(size)],
        torch.cat([torch.zeros(1, dtype=torch.double), *map(as_numbers, map(gradient_of, model.parameters()))]),
    )


def gradient_of(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def as_numbers(part: Tensor) -> Tensor:
    return (torch.view_as_real(part) if part.is_complex() else part).flatten().double()


def differ(one: Tensor, other: Tensor, within: float) -> bool:
    if one.shape != other.shape:
        return True
    scale = 1 + float(one.nan_to_num(0, 0, 0).abs().max()) if one.numel() else 1
    return not torch.allclose(one, other, rtol=0, atol=within * scale, equal_nan=True)


def leaks_forward(case: Case, mode: str, base: Run, example: int, how: str, within: float) -> bool:
    """Whether the rows of other examples change with one."""
    changed = run(case, mode, set(), (example, how))
    return any(differ(row, changed.rows[index], within) for index, row in enumerate(base.rows) if index != example)


def leaks_backward(case: Case, mode: str, base: Run, example: int, how: str, within: float) -> bool:
    """Whether gradients of the other examples' rows reach one, change with it, or do not add up."""
    others = set(range(len(base.rows))) - {example}
    without = run(case, mode, others)
    changed = run(case, mode, others, (example, how))
    alone = run(case, mode, {example})
    return (
        any(bool(run_.inputs[example].any()) for run_ in (without, changed))
        or differ(without.parameters, changed.parameters, within)
        or differ(base.parameters, without.parameters + alone.parameters, within)
        or any(
            differ(without.inputs[index], gradients.inputs[index], within)
            for gradients in (changed, base)
            for index in others
        )
    )


def way_of_leak(case: Case, mode: str, *, within: float = 1e-4) -> str:
    """Return ``"forward"``, ``"backward"`` or nothing, after each example was changed in both ways."""
    base = run(case, mode)
    changes = [(example, how) for how in ("noise", "copy") for example in range(len(base.rows))]
    if any(leaks_forward(case, mode, base, *change, within) for change in changes):
        return "forward"
    return "backward" if any(leaks_backward(case, mode, base, *change, within) for change in changes) else ""


def is_clean(case: Case, mode: str, *, within: float = 1e-4) -> bool:
    """Tell whether no example reaches another one: each is changed, half of them by noise."""
    base = run(case, mode)
    changes = [(example, ("noise", "copy")[example % 2]) for example in range(len(base.rows))]
    return not (
        any(leaks_forward(case, mode, base, *change, within) for change in changes)
        or any(leaks_backward(case, mode, base, *change, within) for change in changes[:BACKWARDS])
    )
