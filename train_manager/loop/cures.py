"""What an error of torch says too little about: the values that met, and the line of code that helps.

An error that comes out of the forward pass or the backward gets them as a note. Errors of hooks and of this library
have their own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from train_manager.core.errors import TrainManagerError
from train_manager.core.outcome import Skip

Parts = Mapping[str, Any]
"""The fixtures of the batch that are alive."""


_OF_TORCH = (RuntimeError, TypeError, IndexError)
"""What most functions of torch raise; errors of other types are a model's own if nothing is known about them."""


def add_cure(error: Exception, parts: Parts) -> None:
    """Add a note to an error: what the inputs, the prediction and the targets are, and the cure if it is known.

    >>> import torch
    >>> error = IndexError("Target 7 is out of bounds.")
    >>> add_cure(error, {"prediction": torch.zeros(4, 2), "targets": torch.tensor([7, 0, 0, 0])})
    >>> print(error.__notes__[0])
    prediction  float32 of shape (4, 2) on cpu
    targets     int64 of shape (4,) on cpu
    labels must be from 0 to the number of outputs - 1, but one is 7: nn.Linear(..., number of classes)
    """
    notes = getattr(error, "__notes__", ())
    if isinstance(error, TrainManagerError | Skip) or any(map(_is_of_hook, notes)):
        return
    cure = cure_of(str(error), parts)
    if not cure and not isinstance(error, _OF_TORCH):
        return
    shown = [name for name in ("inputs", "prediction", "targets") if name in parts]
    lines = [f"{name:<{len('prediction')}}  {described(parts[name])}" for name in shown]
    error.add_note("\n".join([*lines, *([cure] if cure else [])]))


def _is_of_hook(note: str) -> bool:
    return note.startswith(("in hook ", "in fixture "))


def described(value: Any) -> str:
    """Describe a value by types, shapes and devices.

    >>> import torch
    >>> described((torch.zeros(2), {"mask": torch.ones(1).bool()}))
    'a tuple of float32 of shape (2,) on cpu, a dict'
    """
    if isinstance(value, Mapping):
        inside = [f"{name}: {_described_flat(part)}" for name, part in value.items()]
    elif isinstance(value, list | tuple):
        inside = [_described_flat(part) for part in value]
    else:
        return _described_flat(value)
    return f"a {type(value).__name__} of {', '.join(inside):.300}"


def _described_flat(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)} on {value.device}"
    return f"an array of {value.dtype} of shape {value.shape}" if _is_array(value) else f"a {type(value).__name__}"


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


# ---- the cures -----------------------------------------------------------------------------------------------------


def cure_of(text: str, parts: Parts) -> str:
    """Return what helps against an error of this text, or nothing."""
    for pattern, cure in _CURES:
        match = re.search(pattern, text)
        if match is not None:
            return match.expand(cure) if isinstance(cure, str) else cure(parts)
    return ""


def _of_no_tensor(parts: Parts) -> str:
    """Of a function of torch that was given something else: the model's whole output, an array, or a whole batch."""
    inputs, prediction, batch = (parts.get(name) for name in ("inputs", "prediction", "batch"))
    if "prediction" in parts and not isinstance(prediction, Tensor):
        key = next(iter(prediction), "") if isinstance(prediction, Mapping) else 0
        return f"take a part of the output: loss=lambda prediction, targets: loss(prediction[{key!r}], targets)"
    if _is_array(inputs) or _is_array(parts.get("targets")):
        return "make tensors of arrays: torch.from_numpy(x).float(), or train_data=InMemory(x, y, batch_size=64)"
    if inputs is not batch or not isinstance(batch, Mapping | list | tuple):
        return ""
    keys = [*batch] if isinstance(batch, Mapping) else [*range(len(batch))]
    first, second = (repr(keys[n]) if n < len(keys) else "..." for n in (0, 1))
    unpack = f"def unpack_batch(self, batch): return batch[{first}], batch[{second}]"
    return f"this batch is not a pair, so all of it is `inputs`: {unpack}"


def _of_shapes(parts: Parts) -> str:
    prediction, targets = parts.get("prediction"), parts.get("targets")
    if isinstance(prediction, Tensor) and isinstance(targets, Tensor) and prediction.numel() == targets.numel():
        return "make them one shape: loss=lambda prediction, targets: loss(prediction, targets.view_as(prediction))"
    return "the model must have as many outputs as the targets have numbers"


_CURES: list[tuple[str, str | Callable[[Parts], str]]] = [
    # the batch, and what the model returns
    (r"must be Tensor, not|has no attribute '(?:size|shape|dim|dtype|device|to)'", _of_no_tensor),
    (r"on the same device|not on the expected device", 'pass device="cuda": the TrainManager moves model and batches'),
    (
        r"missing the required \"forward\" function",
        "it has parts only: override train_batch, eval_batch, or model_forward(self, model, inputs) for predictions",
    ),
    (r"out of memory", "train on smaller batches, and gather several: batch_size=..., Accumulate(4)"),
    # the inputs
    (r"cannot be multiplied \(\d+x(\d+) and (\d+)x", r"a layer for \2 features is given \1: nn.Linear(\1, ...)"),
    (r"mat1 and mat2 must have the same dtype|^Input type \(", "make them numbers as the weights are: inputs.float()"),
    (r"'indices' to have one of the following scalar types", "indices must be whole numbers: inputs.long()"),
    (
        r"weight of size .* to have (\d+) channels, but got (\d+)",
        r"a convolution of \1 channels is given \2: nn.Conv2d(\2, ...), or inputs.unsqueeze(1) if they have none",
    ),
    (r"Expected more than 1 value per channel when training", "BatchNorm needs two examples: drop_last=True"),
    # the targets
    (r"target dtype to be Long|scalar type Long", "labels must be whole numbers: targets.long()"),
    (r"multi-target not supported", "labels must be of shape (batch,): targets.squeeze(1)"),
    (r"target with class probabilities", "one-hot targets must be probabilities: targets.float()"),
    (
        r"cast to the desired output type Long|Found dtype Long",
        "these targets must not be whole numbers: targets.float()",
    ),
    (
        r"Target (-?\d+) is out of bounds",
        r"labels must be from 0 to the number of outputs - 1, but one is \1: nn.Linear(..., number of classes)",
    ),
    (r"to match target batch_size", "dimension 0 of the prediction must be the examples: prediction.flatten(1)"),
    (r"arget size .* input size|size of tensor a .* must match", _of_shapes),
    # the backward
    (
        r"backward through the graph a second time",
        "several updates of one graph: self.update(loss, ..., retain_graph=True) for all but the last",
    ),
    (
        r"modified by an inplace operation",
        "weights were stepped before a later backward: call self.backward(...) for all losses, then self.step(...)",
    ),
]
"""Patterns in the text of errors, and what helps; the first that is found counts."""
