"""Notes on errors of torch: the values that met, and the line of code that helps.

An error that comes out of the forward pass or the backward pass gets such a note. Errors of hooks and of this library
get none: they say these things themselves.
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

LiveFixtures = Mapping[str, Any]
"""The fixtures of the batch that are alive."""


def add_cure(error: Exception, fixtures: LiveFixtures) -> None:
    """Add a note to an error: types and shapes of inputs, prediction and targets, and the cure if it is known.

    >>> import torch
    >>> error = IndexError("Target 7 is out of bounds.")
    >>> add_cure(error, {"prediction": torch.zeros(4, 2), "targets": torch.tensor([7, 0, 0, 0])})
    >>> print(error.__notes__[0])
    prediction  float32 of shape (4, 2) on cpu
    targets     int64 of shape (4,) on cpu
    labels must be from 0 to the number of outputs - 1, but one is 7: nn.Linear(..., number of classes)
    """
    notes = getattr(error, "__notes__", ())
    # An error that comes out of a hook has a note that names the hook.
    if isinstance(error, TrainManagerError | Skip) or any(map(_is_of_hook, notes)):
        return
    cure = cure_of(str(error), fixtures)
    shown = [name for name in ("inputs", "prediction", "targets") if name in fixtures]
    lines = [f"{name:<{len('prediction')}}  {describe(fixtures[name])}" for name in shown]
    if lines or cure:
        error.add_note("\n".join([*lines, *([cure] if cure else [])]))


def _is_of_hook(note: str) -> bool:
    return note.startswith(("in hook ", "in fixture "))


_SHOWN = 4  # so many entries of equal kind are shown one by one; more are counted


def describe(value: Any) -> str:
    """Describe a value by types, shapes and devices.

    >>> import torch
    >>> describe((torch.zeros(2), {"mask": torch.ones(1).bool()}))
    'a tuple of float32 of shape (2,) on cpu, a dict'
    """
    if isinstance(value, Mapping):
        inside = [f"{name}: {_describe_flat(one)}" for name, one in value.items()]
    elif isinstance(value, list | tuple):
        inside = [_describe_flat(one) for one in value]
        if len(inside) > _SHOWN and len(set(inside)) == 1:
            return f"a {type(value).__name__} of {len(inside)}, each {inside[0]}"
    else:
        return _describe_flat(value)
    return f"a {type(value).__name__} of {', '.join(inside):.300}"


def _describe_flat(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)} on {value.device}"
    return f"an array of {value.dtype} of shape {value.shape}" if _is_array(value) else f"a {type(value).__name__}"


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


# ---- the cures -----------------------------------------------------------------------------------------------------


def cure_of(text: str, fixtures: LiveFixtures) -> str:
    """Return the cure for an error of this text; an empty text if none is known."""
    for pattern, cure in CURES:
        match = re.search(pattern, text)
        if match is not None:
            return _MADE[cure](fixtures) if cure in _MADE else match.expand(cure)
    return ""


def _of_no_tensor(fixtures: LiveFixtures) -> str:
    """Return the cure for a function of torch that was given no tensor: the output, the targets, or a whole batch."""
    inputs, prediction, batch = (fixtures.get(name) for name in ("inputs", "prediction", "batch"))
    # In the order in which the values can be wrong: the loss comes after the model, so a prediction means that the
    # model has taken its inputs.
    if "prediction" in fixtures and not isinstance(prediction, Tensor):
        key = next(iter(prediction), "") if isinstance(prediction, Mapping) else 0
        return f"take a part of the output: loss=lambda prediction, targets: loss(prediction[{key!r}], targets)"
    if isinstance(fixtures.get("targets"), list):
        return "make a tensor of the targets: torch.tensor(targets), or train_data=InMemory(x, y, batch_size=64)"
    if "targets" in fixtures and fixtures["targets"] is None:
        return "each batch must be (inputs, targets), but these targets are None"
    if _is_array(inputs) or _is_array(fixtures.get("targets")):
        return "make tensors of arrays: torch.from_numpy(x).float(), or train_data=InMemory(x, y, batch_size=64)"
    if inputs is not batch or not isinstance(batch, Mapping | list | tuple):
        return ""
    keys = [*batch] if isinstance(batch, Mapping) else [*range(len(batch))]
    if len(keys) == 1:
        return f'this batch has inputs only: def unpack_batch(self, batch): return {{"inputs": batch[{keys[0]!r}]}}'
    first, second = (repr(keys[n]) if n < len(keys) else "..." for n in (0, 1))
    unpack = f"def unpack_batch(self, batch): return batch[{first}], batch[{second}]"
    return f"this batch is not a pair, so all of it is `inputs`: {unpack}"


def _of_shapes(fixtures: LiveFixtures) -> str:
    """Return the cure for a prediction and targets of other shapes."""
    prediction, targets = fixtures.get("prediction"), fixtures.get("targets")
    if isinstance(prediction, Tensor) and isinstance(targets, Tensor) and prediction.numel() == targets.numel():
        return "make them one shape: loss=lambda prediction, targets: loss(prediction, targets.view_as(prediction))"
    return "the model must have as many outputs as the targets have numbers"


def _of_batch_sizes(fixtures: LiveFixtures) -> str:
    rows = [
        one.shape[:1] for one in (fixtures.get(name) for name in ("inputs", "prediction", "targets")) if _has_rows(one)
    ]
    if len(rows) == 3 and rows[0] == rows[1]:
        return f"a batch has {rows[0][0]} inputs but {rows[2][0]} targets: they must be of the same examples"
    return "dimension 0 of the prediction must be the examples: prediction.flatten(1)"


def _has_rows(one: Any) -> TypeGuard[Tensor]:
    return isinstance(one, Tensor) and one.dim() > 0


def _of_devices(fixtures: LiveFixtures) -> str:
    """Return the cure for tensors on several devices; torch names the devices, but not which is the model's."""
    modules = [one for one in (fixtures.get("model"),) if isinstance(one, nn.Module)]
    tensors = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    of_model = list(dict.fromkeys(str(tensor.device) for tensor in tensors))
    values = [fixtures[name] for name in ("inputs", "targets") if name in fixtures]
    of_batch = list(dict.fromkeys(str(tensor.device) for tensor in tensors_in(values)))
    if not of_model or not of_batch or of_model == of_batch:
        return 'pass device="cuda": the TrainManager moves model and batches'
    wanted = next((name for name in (*of_model, *of_batch) if name not in ("cpu", "meta")), "cpu")
    whose = f"the model is on {' and '.join(of_model)}, the batch on {' and '.join(of_batch)}"
    return f'{whose}; pass device="{wanted}": the TrainManager moves both'


def _of_types(fixtures: LiveFixtures) -> str:
    """Return the cure for a layer whose inputs have another type than its weights."""
    cure = _of_devices(fixtures)  # torch raises the same error for inputs on another device
    return cure if "the batch on" in cure else "make them numbers as the weights are: inputs.float()"


_MADE: Final[Mapping[str, Callable[[LiveFixtures], str]]] = {
    "{no_tensor}": _of_no_tensor,
    "{shapes}": _of_shapes,
    "{batch_sizes}": _of_batch_sizes,
    "{devices}": _of_devices,
    "{types}": _of_types,
}
"""The cures that depend on the live fixtures, by the placeholders that stand for them in ``CURES``."""


NO_PREDICTION: Final = (
    'the own train_batch defines none; let it: self.fixtures["prediction"] = prediction '
    "(of Metrics, or take eval={...})"
)


def say_that_train_batch_lacks_a_prediction(error: CheckError) -> None:
    """Change the cure of a hook that asks for a prediction, if only an own ``train_batch`` defines none."""
    # The default train_batch makes a prediction in training and evaluation. If it is alive in evaluations only, the
    # train_batch is an own one without a prediction, and the hook that asks is right.
    for mistake in error.mistakes:
        in_eval_only = mistake.what.endswith("it lives in stage 'eval_step_batch'")
        if mistake.name == "prediction" and in_eval_only and "train_step" in mistake.what:
            mistake.cure = NO_PREDICTION
