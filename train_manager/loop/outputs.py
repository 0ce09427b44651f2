"""What a TrainManager requires of a batch, a prediction and a loss, as they come in a run."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from train_manager.core.errors import InputError
from train_manager.data.batch import tensors_in


def rows_of(batch: Any) -> int:
    """Return the number of rows of the first tensor in a batch."""
    first = batch[0] if type(batch) in (tuple, list) and batch else batch
    if type(first) is Tensor and first.dim():  # nearly always, and a search costs 1 us
        return first.shape[0]
    for tensor in tensors_in(batch):
        if tensor.dim():
            return tensor.shape[0]
    raise InputError(
        f"a batch ({type(batch).__name__}) holds no tensor whose rows could be counted",
        name="true_batch_size",
        cure="override get_true_batch_size(self, batch)",
    )


def require_batch_size(value: Any) -> Any:
    """A whole number of examples. One in a tensor is not looked at: reading it would wait for the GPU."""
    if type(value) is int and value > 0:
        return value
    if isinstance(value, Tensor) and not value.dim() and not (value.is_floating_point() or value.dtype == torch.bool):
        return value
    if hasattr(value, "__index__") and not isinstance(value, Tensor | bool) and operator.index(value) > 0:
        return operator.index(value)
    raise InputError(
        f"get_true_batch_size must return a whole number of at least 1, but returned {value!r:.60}",
        name="true_batch_size",
        cure="return how many examples the batch has",
    )


def require_parts(value: tuple[Any, ...] | Mapping[str, Any]) -> Mapping[str, Any]:
    """What ``unpack_batch`` returns: a pair, or a dict of ``inputs`` and ``targets``."""
    if isinstance(value, tuple) and len(value) == 2:
        return {"inputs": value[0], "targets": value[1]}
    if type(value) is dict and value.keys() <= _PARTS:
        return value
    if not isinstance(value, Mapping):
        found = f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
        raise InputError(
            f"unpack_batch returned {found}",
            name="unpack_batch",
            cure='return (inputs, targets), or a dict: {"inputs": ...}',
        )
    others = [name for name in value if name not in _PARTS]
    if others:
        raise InputError(
            f"unpack_batch returned {others[0]!r} beside inputs and targets",
            name="unpack_batch",
            cure=f'write a fixture of its own: @fixture("train_step_batch") def {others[0]}(self, batch): ...',
        )
    return value


_PARTS = {"inputs", "targets"}


def require_prediction(value: Any, model: nn.Module) -> Any:
    """A prediction: not nothing. What is no container may be anything, a distribution say."""
    if isinstance(value, Tensor):
        return value
    if value is None or (isinstance(value, Mapping | list | tuple) and next(tensors_in(value), None) is None):
        raise InputError(
            f"{type(model).__name__} returned a {type(value).__name__} without a tensor in it",
            name="prediction",
            cure="does its forward() end with `return`?",
        )
    return value


def require_scalar_loss(value: Tensor) -> Tensor:
    """A tensor with one number."""
    if not isinstance(value, Tensor):
        raise InputError(
            f"the loss is a {type(value).__name__}, not a tensor",
            name="loss",
            cure="return the tensor itself",
        )
    if value.dim():
        raise InputError(
            f"the loss has the shape {tuple(value.shape)}, not that of one number",
            name="loss",
            cure="reduce it: loss.mean()",
        )
    return value


def require_training_loss(value: Tensor) -> Tensor:
    """A scalar that gradients can be computed of."""
    if type(value) is Tensor and value.requires_grad and not value.dim():  # as nearly always
        return value
    if not require_scalar_loss(value).requires_grad:
        raise InputError(
            "the loss does not require grad, so nothing can be learnt from it",
            name="loss",
            cure="is it computed under no_grad or from detached tensors, or are all parameters frozen?",
        )
    return value


def require_tensor(value: Any, name: str) -> Tensor:
    """Return a loss that a hook may have modified, if it is a tensor still."""
    if isinstance(value, Tensor):
        return value
    raise InputError(
        f"{name} is a {type(value).__name__}, not a tensor: the hook that modified it must return a tensor",
        name=name,
    )


def no_targets(batch: Any) -> InputError:
    """The error for a batch without targets, where the loss is called as PyTorch's are."""
    return InputError(
        f"the loss wants targets, and a batch ({type(batch).__name__}) has none: it is no pair",
        name="targets",
        cure="override unpack_batch(self, batch), or name fixtures in the loss: loss(prediction, inputs)",
    )
