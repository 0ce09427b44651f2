"""What the models of these tests and the checks of others share: how a model is called, and its parts by example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.checks.cases import Case


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


def differ(one: Tensor, other: Tensor, within: float) -> bool:
    if one.shape != other.shape:
        return True
    scale = 1 + float(one.nan_to_num(0, 0, 0).abs().max()) if one.numel() else 1
    return not torch.allclose(one, other, rtol=0, atol=within * scale, equal_nan=True)
