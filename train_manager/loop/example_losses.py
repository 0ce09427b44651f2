"""The loss of each example of a batch: by ``reduction="none"`` where the loss takes it, else row by row."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from train_manager.data.randomness import preserved_random_state
from train_manager.loop.losses import WeightedLosses
from train_manager.model.buffers import preserved_buffers


@torch.no_grad()
def losses_of_examples(
    loss: Callable[..., Any], prediction: Any, targets: Any, count: int, names: Sequence[str] = ()
) -> Tensor:
    """Return the loss of each example; random states, and buffers of the loss, stay as they are.

    >>> losses_of_examples(nn.functional.mse_loss, torch.tensor([[1.], [3.]]), torch.zeros(2, 1), 2)
    tensor([1., 9.])
    >>> losses_of_examples(lambda prediction, targets: prediction.abs().sum(), torch.tensor([[1.], [3.]]), None, 2)
    tensor([1., 3.])

    Args:
        loss: returns the mean or the sum over examples.
        prediction: of all examples.
        targets: of all examples.
        count: how many examples there are, the first dimension of all tensors.
        names: which of ``prediction`` and ``targets`` it is called with by name; none: ``loss(prediction, targets)``.
    """
    with unchanged(loss):
        return _losses(loss, prediction, targets, count, names)


@torch.no_grad()
def losses_by_rows(call: Callable[[dict[str, Any]], Any], parts: Mapping[str, Any], count: int) -> Tensor:
    """Return the loss of each example, from calls with one row of all parts of the batch."""
    rows = ({name: row(part, at, count) for name, part in parts.items()} for at in range(count))
    return torch.stack([_scalar(call(one)) for one in rows])


def row(value: Any, at: int, count: int) -> Any:
    """Return one row of a part of a batch, as a batch of one; what has no such rows stays as it is.

    >>> row({"x": torch.tensor([[1, 2], [3, 4]]), "names": ["a", "b"], "scale": 2.0}, 1, count=2)
    {'x': tensor([[3, 4]]), 'names': ['b'], 'scale': 2.0}
    """
    if isinstance(value, Tensor):
        return value[at : at + 1] if value.dim() and len(value) == count else value
    if isinstance(value, Mapping):
        return {key: row(inner, at, count) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        if len(value) == count and not any(isinstance(inner, Tensor) for inner in value):
            return value[at : at + 1]
        rows = [row(inner, at, count) for inner in value]
        return type(value)(*rows) if hasattr(value, "_fields") else type(value)(rows)
    return value


def _losses(loss: Callable[..., Any], prediction: Any, targets: Any, count: int, names: Sequence[str] = ()) -> Tensor:
    if isinstance(loss, WeightedLosses):
        return _weighted(loss, prediction, targets, count)
    parts = {"prediction": prediction, "targets": targets}
    each = _without_reduction(loss)
    found = None if each is None else _called(each, parts, names)
    if isinstance(found, Tensor) and found.dim() and len(found) == count:
        return found.flatten(1).mean(1) if found.dim() > 1 else found
    return losses_by_rows(lambda rows: _called(loss, rows, names), parts, count)


def _called(loss: Callable[..., Any], parts: Mapping[str, Any], names: Sequence[str]) -> Any:
    return loss(**{name: parts[name] for name in names}) if names else loss(parts["prediction"], parts["targets"])


def _weighted(loss: WeightedLosses, prediction: Mapping[str, Any], targets: Any, count: int) -> Tensor:
    total: Tensor | None = None
    for name, function in loss.functions.items():
        if isinstance(targets, Mapping) and name not in targets:  # a penalty on a hidden layer
            rows = {"prediction": prediction[name]}
            found = losses_by_rows(lambda one, function=function: function(one["prediction"]), rows, count)  # type: ignore[misc]
        else:
            of_head = targets[name] if isinstance(targets, Mapping) else targets
            found = _losses(function, prediction[name], of_head, count)
        weighted = loss.weights[name] * found
        total = weighted if total is None else total + weighted
    assert total is not None, "it has a head"
    return total


def _without_reduction(loss: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the loss without a mean or a sum over its examples; None if it does not say how."""
    if isinstance(loss, nn.Module):
        if not isinstance(getattr(loss, "reduction", None), str):
            return None
        each = copy.copy(loss)
        each.reduction = "none"  # type: ignore[assignment]
        return each
    return partial(loss, reduction="none") if _takes_reduction(loss) else None


@lru_cache(maxsize=64)
def _takes_reduction(loss: Callable[..., Any]) -> bool:
    try:
        return "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return False


@contextmanager
def unchanged(loss: Callable[..., Any]) -> Iterator[None]:
    """Leave random states and buffers of a loss as they are."""
    with ExitStack() as stack:
        if isinstance(loss, nn.Module):
            stack.enter_context(preserved_buffers(loss))
        if getattr(loss, "__module__", "") != nn.functional.__name__:  # whose functions draw nothing
            stack.enter_context(preserved_random_state())
        yield


def _scalar(value: Any) -> Tensor:
    return value.mean() if value.dim() else value  # type: ignore[no-any-return]
