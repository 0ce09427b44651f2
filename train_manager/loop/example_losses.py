"""The loss of each example of a batch: by ``reduction="none"`` where the loss takes it, else row by row."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from train_manager.core.store import Store
from train_manager.data.batch import map_batch
from train_manager.data.random_state import preserve_random_state
from train_manager.loop.losses import Losses
from train_manager.loop.probe import beside_the_batch
from train_manager.model.buffers import preserve_buffers


@torch.no_grad()
def losses_of_examples(store: Store, count: int, *, is_own: bool) -> Tensor:
    """Return the loss of each example of the batch that is trained on; random states stay, and buffers of the loss.

    Args:
        store: the state of the manager that trains.
        count: how many examples the batch has: the first dimension of its tensors.
        is_own: the manager has a ``loss_forward`` of its own.
    """
    train_manager = store.value("train_manager")
    loss, call = train_manager._named_loss  # as loss_forward has found it in this step
    # With another loss since, or one that takes **fixtures, its arguments are not known here.
    is_own = is_own or loss is None or loss is not train_manager.loss or (call is not None and call.takes_rest)
    names = ("prediction", "targets") if call is None else call.parameters
    names = ("batch", "inputs", "targets", "prediction") if is_own else names
    values = {name: store.value(name) for name in names if store.has(name)}

    def invoke(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        return function(*given.values()) if call is None else function(**given)

    # A loss of torch draws no random numbers, so their states need not be kept (which takes long on a GPU).
    is_torchs = getattr(loss, "__module__", "").startswith("torch.nn.")
    buffers = [loss] if isinstance(loss, nn.Module) else []
    with nullcontext() if is_torchs and not is_own else preserve_random_state(), preserve_buffers(*buffers):
        each = None if is_own else without_reduction(loss)
        found = None if each is None else invoke(each, values)
        if isinstance(found, Tensor) and found.dim() and len(found) == count:
            return found.flatten(1).mean(1) if found.dim() > 1 else found
        # The loss takes no reduction, or does not follow it: call it with a batch of one for each example.
        rows = (row(values, number, count) for number in range(count))
        return torch.stack([(_own_loss(store, one) if is_own else invoke(loss, one)).mean() for one in rows])


def without_reduction(loss: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a loss without a mean or a sum over its examples; None if it does not say how."""
    if not isinstance(loss, nn.Module):
        return partial(loss, reduction="none") if _takes_reduction(loss) else None
    each = copy.copy(loss)
    each.reduction = "none"  # type: ignore[assignment]
    return each if isinstance(getattr(loss, "reduction", None), str) else None


@lru_cache(maxsize=64)
def _takes_reduction(function: Callable[..., Any]) -> bool:
    try:
        return "reduction" in inspect.signature(function).parameters
    except ValueError:  # a function in C without a signature
        return False


def row(value: Any, number: int, count: int) -> Any:
    """Return one row of an entry of a batch, as a batch of one; a value without rows stays as it is.

    >>> row({"x": torch.tensor([[1, 2], [3, 4]]), "names": ["a", "b"], "scale": 2.0}, 1, count=2)
    {'x': tensor([[3, 4]]), 'names': ['b'], 'scale': 2.0}
    """

    def is_of_examples(entries: Any) -> bool:
        # A list without tensors has an entry for each example; a list of tensors may be (inputs, targets).
        return len(entries) == count and not any(isinstance(inner, Tensor) for inner in entries)

    def cut(one: Any) -> Any:
        has_rows = one.dim() and len(one) == count if isinstance(one, Tensor) else isinstance(one, list | tuple)
        return one[number : number + 1] if has_rows else one

    return map_batch(value, cut, is_of_examples)


def _own_loss(store: Store, example: Mapping[str, Any]) -> Tensor:
    given = {**example, "true_batch_size": 1, "global_batch_size": 1}
    with beside_the_batch(store, "train_step_batch", given, ("loss", "loss_forward", "train_loss_forward")):
        with Losses() as losses:
            return losses.total(store.value("train_manager")._chosen.train_loss_forward())
