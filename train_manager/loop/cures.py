"""What an error of torch says too little about: the values that met, and the line of code that helps.

An error that comes out of the forward pass or the backward gets them as a note. Errors of hooks and of this library
have their own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from torch import Tensor, nn

from train_manager.core.outcome import Skip
from train_manager.data.batch import tensors_in
from train_manager.telling.errors import TrainManagerError

Parts = Mapping[str, Any]
"""The fixtures of the batch that are alive."""


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
    shown = [name for name in ("inputs", "prediction", "targets") if name in parts]
    lines = [f"{name:<{len('prediction')}}  {described(parts[name])}" for name in shown]
    if lines or cure:
        error.add_note("\n".join([*lines, *([cure] if cure else [])]))


def _is_of_hook(note: str) -> bool:
    return note.startswith(("in hook ", "in fixture "))


_SHOWN = 4  # entries of equal kind that a list shows one by one


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
        if len(inside) > _SHOWN and len(set(inside)) == 1:
            return f"a {type(value).__name__} of {len(inside)}, each {inside[0]}"
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
    if isinstance(parts.get("targets"), list):
        return "make a tensor of the targets: torch.tensor(targets), or train_data=InMemory(x, y, batch_size=64)"
    if "targets" in parts and parts["targets"] is None:
        return "each batch must be (inputs, targets), but these targets are None"
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


def _of_batch_sizes(parts: Parts) -> str:
    rows = [
        part.shape[:1] for part in (parts.get(name) for name in ("inputs", "prediction", "targets")) if _has_rows(part)
    ]
    if len(rows) == 3 and rows[0] == rows[1]:
        return f"a batch has {rows[0][0]} inputs but {rows[2][0]} targets: they must be of the same examples"
    return "dimension 0 of the prediction must be the examples: prediction.flatten(1)"


def _has_rows(part: Any) -> TypeGuard[Tensor]:
    return isinstance(part, Tensor) and part.dim() > 0


def _of_devices(parts: Parts) -> str:
    """Name the devices of the model and of the batch, and the one to pass; torch names a tensor's, not whose it is."""
    modules = [part for part in (parts.get("model"),) if isinstance(part, nn.Module)]
    tensors = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    of_model = list(dict.fromkeys(str(tensor.device) for tensor in tensors))
    values = [parts[name] for name in ("inputs", "targets") if name in parts]
    of_batch = list(dict.fromkeys(str(tensor.device) for tensor in tensors_in(values)))
    if not of_model or not of_batch or of_model == of_batch:
        return 'pass device="cuda": the TrainManager moves model and batches'
    wanted = next((name for name in (*of_model, *of_batch) if name not in ("cpu", "meta")), "cpu")
    whose = f"the model is on {' and '.join(of_model)}, the batch on {' and '.join(of_batch)}"
    return f'{whose}; pass device="{wanted}": the TrainManager moves both'


def _of_types(parts: Parts) -> str:
    """Of a layer that was given inputs of another type than its weights, which torch also says of another device."""
    cure = _of_devices(parts)
    return cure if "the batch on" in cure else "make them numbers as the weights are: inputs.float()"


_CURES: list[tuple[str, str | Callable[[Parts], str]]] = [
    # the batch, and what the model returns
    (r"must be Tensor, not|has no attribute '(?:size|shape|dim|dtype|device|to)'", _of_no_tensor),
    (r"on the same device|not on the expected device", _of_devices),
    (
        r"missing the required \"forward\" function",
        "it has parts only: override train_batch, eval_batch, or model_forward(self, model, inputs) for predictions",
    ),
    (r"out of memory", "train on smaller batches, and gather several: batch_size=..., Accumulate(4)"),
    # the inputs
    (r"cannot be multiplied \(\d+x(\d+) and (\d+)x", r"a layer for \2 features is given \1: nn.Linear(\1, ...)"),
    (r"mat1 and mat2 must have the same dtype|^Input type \(", _of_types),
    (r"'indices' to have one of the following scalar types", "indices must be whole numbers: inputs.long()"),
    (
        r"weight of size .* to have (\d+) channels, but got (\d+)",
        r"a convolution of \1 channels is given \2: nn.Conv2d(\2, ...), or inputs.unsqueeze(1) if they have none",
    ),
    (r"expected (?:2D or 3D|[45]D) input \(got", "the first dimension must be the batch; a single row is x[None]"),
    (r"Expected more than 1 value per channel when training", "BatchNorm needs two examples: drop_last=True"),
    # the targets
    (
        r"softmax.* not implemented for '(?:Long|Int)'",
        "the loss is called as loss(prediction, targets): take them in this order",
    ),
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
    (r"to match target batch_size", _of_batch_sizes),
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
