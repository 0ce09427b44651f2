"""What an error of torch says too little about: the values that met, and the line of code that helps.

An error that comes out of the forward pass or the backward gets them as a note. Errors of hooks and of this library
have their own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

from torch import Tensor, nn

from train_manager.core.outcome import Skip
from train_manager.data.batch import tensors_in
from train_manager.telling.errors import CheckError, TrainManagerError
from train_manager.words.torch_errors import CURES

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
    for pattern, cure in CURES:
        match = re.search(pattern, text)
        if match is not None:
            return _MADE[cure](parts) if cure in _MADE else match.expand(cure)
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
    if len(keys) == 1:
        return f'this batch has inputs only: def unpack_batch(self, batch): return {{"inputs": batch[{keys[0]!r}]}}'
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


_MADE: Final[Mapping[str, Callable[[Parts], str]]] = {
    "{no_tensor}": _of_no_tensor,
    "{shapes}": _of_shapes,
    "{batch_sizes}": _of_batch_sizes,
    "{devices}": _of_devices,
    "{types}": _of_types,
}
"""The cures of the table that are made of the values."""


NO_PREDICTION: Final = (
    'the own train_batch defines none; let it: self.fixtures["prediction"] = prediction '
    "(of Metrics, or take eval={...})"
)


def say_that_train_batch_lacks_a_prediction(error: CheckError) -> None:
    """Change the cure where a prediction is alive in evaluations only: the default train_batch makes one in both.

    So an own train_batch lacks it, and the hook that asks is right.
    """
    for mistake in error.mistakes:
        in_eval_only = mistake.what.endswith("it lives in stage 'eval_step_batch'")
        if mistake.name == "prediction" and in_eval_only and "train_step" in mistake.what:
            mistake.cure = NO_PREDICTION
