"""Checks of a batch, a prediction and a loss in each step, in the order in which a step makes them.

In training these checks run once per batch, so the usual case comes first and none of them reads from a GPU.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import torch
from torch import Tensor

from train_manager.core.hooks import Hook
from train_manager.data.batch import Unpacked, tensors_in, unpack
from train_manager.data.shares import (
    ALONE,
    CURE,
    Place,
    Share,
    count_of_rank,
    cut_rows,
    gives_own_batches,
    rows_of_rank,
    uncut,
)
from train_manager.loop.losses import sum_of_losses
from train_manager.metrics.history_rows import refuse_names_of_places
from train_manager.telling.errors import InputError

_UNPACKED = {"inputs", "targets"}

TRAINED_AT: Final[Mapping[str, str]] = {"loss": "train_loss_forward", "backward_loss": "train_backward"}
"""The stages whose hooks leave the loss that is trained on."""


def require_unpacked(value: tuple[Any, ...] | Mapping[str, Any]) -> Unpacked:
    """Return ``inputs`` and ``targets`` by name, from the pair or the dict that ``unpack_batch`` returned."""
    # The usual values first; `type(...) is` is several times as fast as isinstance with a Mapping.
    if type(value) is dict and value.keys() <= _UNPACKED:
        return cast(Unpacked, value)
    if isinstance(value, tuple) and len(value) == 2:
        return {"inputs": value[0], "targets": value[1]}
    if not isinstance(value, Mapping):
        found = f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
        what = f"unpack_batch must return a pair or a dict, but returned {found}"
        raise InputError(what, name="unpack_batch", cure='return (inputs, targets), or a dict: {"inputs": ...}')
    others = [name for name in value if name not in _UNPACKED]
    if others:
        what = f"unpack_batch must return inputs and targets only, but returned {others[0]!r} too"
        cure = f'write a fixture of its own: @fixture("train_step_batch") def {others[0]}(self, batch): ...'
        raise InputError(what, name="unpack_batch", cure=cure)
    return cast(Unpacked, value)


def count_rows(batch: Any, spreads: Callable[[Any], bool], unpacked: Unpacked) -> int:
    """Return how many examples a batch has: in lists of examples, else the rows of the first tensor that has rows.

    Args:
        batch: the batch.
        spreads: returns whether the model takes inputs as several arguments.
        unpacked: its inputs and targets.
    """
    first = batch[0] if type(batch) in (tuple, list) and batch else batch
    if type(first) is Tensor and first.dim():  # the usual batch, without the search below, which takes 1 us
        return first.shape[0]
    if listed := count_listed(unpacked, spreads):
        return listed
    for tensor in tensors_in(batch):
        if tensor.dim():
            return tensor.shape[0]
    entries = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else [batch]
    if any(type(one).__module__ == "numpy" for one in entries):
        what = f"a batch ({type(batch).__name__}) has arrays of numpy, but a model takes tensors"
        raise InputError(what, name="batch", cure="give tensors: torch.from_numpy(x), or InMemory(x, y, batch_size=64)")
    what = f"a batch ({type(batch).__name__}) has no tensor whose rows can be counted"
    cure = (
        "give tensors: Rows(data, batch_size=64) makes them of examples; or override get_true_batch_size(self, batch)"
    )
    raise InputError(what, name="true_batch_size", cure=cure)


def count_listed(unpacked: Unpacked, spreads: Callable[[Any], bool]) -> int | None:
    """Return how many examples a batch has whose inputs and targets are lists of examples; None if they are not.

    >>> small, large = torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)
    >>> count_listed({"inputs": [small, large], "targets": [{"boxes": torch.zeros(5, 4)}, {}]}, lambda inputs: False)
    2

    Two lists of one length may also be several inputs and several targets of one batch, whose tensors all have its
    rows: ``((x1, x2), (y1, y2))``. What is of one example has rows of its own, or none, as a dict or a number.
    """
    inputs, targets = unpacked["inputs"], unpacked.get("targets")
    # Not isinstance: a named tuple, such as a PackedSequence, is one thing.
    if targets is None or {type(inputs), type(targets)} - {list, tuple} or len(inputs) != len(targets):
        return None
    rows = {tensor.shape[:1] for tensor in tensors_in((inputs, targets))}
    is_of_one = any(not isinstance(target, (Tensor, list, tuple)) for target in targets)
    return len(inputs) if rows and (is_of_one or len(rows) > 1) and not spreads(inputs) else None


def require_batch_size(value: Any) -> Any:
    """Return a whole number of examples, perhaps in a tensor."""
    if type(value) is int and value > 0:
        return value
    # A tensor is not compared with 0: reading it would wait for the GPU.
    if isinstance(value, Tensor) and not value.dim() and not (value.is_floating_point() or value.dtype == torch.bool):
        return value
    if hasattr(value, "__index__") and not isinstance(value, Tensor | bool) and operator.index(value) > 0:
        return operator.index(value)
    raise InputError(
        f"get_true_batch_size must return a whole number of at least 1, but returned {value!r:.60}",
        name="true_batch_size",
        cure="return how many examples the batch has",
    )


def require_prediction(value: Any, model: object, manager: type | None = None, method: str = "model_forward") -> Any:
    """Return a prediction: anything but None or a container without a tensor; a distribution, for example.

    Args:
        value: the prediction.
        model: what has made it, for the error.
        manager: the class whose method has called the model; the error names the method, if it is an own one.
        method: the name of the method.
    """
    if isinstance(value, Tensor):
        return value
    if value is None or (isinstance(value, Mapping | list | tuple) and next(tensors_in(value), None) is None):
        own = _own_method(manager, method)
        who, returns = (f"{manager.__name__}.{own}", own) if manager and own else (type(model).__name__, "its forward")
        what = f"{who} must return a prediction with a tensor, but returned a {type(value).__name__}"
        raise InputError(what, name="prediction", cure=f"does {returns}() end with `return`?")
    return value


def _own_method(manager: type | None, method: str) -> str:
    """Return the method of the user that has returned the prediction; empty if it is the library's."""
    for name in (method, "model_forward"):
        found = getattr(manager, name, None)
        if found is not None and not str(getattr(found, "__module__", "")).startswith("train_manager."):
            return name
    return ""


def loss_in(prediction: Any) -> Tensor | None:
    """Return the loss that an output of a model has: its attribute or key ``loss``, or the sum of a dict of losses.

    >>> loss_in({"boxes": torch.tensor(1.0, requires_grad=True), "labels": torch.tensor(0.5)})
    tensor(1.5000, grad_fn=<AddBackward0>)

    Returns:
        None if it has none.
    """
    if isinstance(prediction, Tensor):
        return None
    is_named = isinstance(prediction, Mapping) and "loss" in prediction
    if not is_named and not hasattr(prediction, "loss"):
        return sum_of_losses(prediction) if _is_dict_of_losses(prediction) else None
    loss: Tensor | None = prediction["loss"] if is_named else prediction.loss
    if loss is None:
        raise InputError(
            f"there is no loss: the `loss` of the model's output ({type(prediction).__name__}) is None",
            name="loss",
            cure="does the batch have the targets under the name that the model takes, such as `labels`?",
        )
    return loss


def _is_dict_of_losses(prediction: Any) -> bool:
    """Return whether an output is a dict of scalars; with gradients, if a graph is recorded."""
    # An evaluation records no graph, so that a dict of scalars is one of losses there.
    return (
        isinstance(prediction, Mapping)
        and bool(prediction)
        and all(isinstance(one, Tensor) and not one.dim() and one.is_floating_point() for one in prediction.values())
        and (not torch.is_grad_enabled() or any(one.requires_grad for one in prediction.values()))
    )


def no_targets(batch: Any) -> InputError:
    """Return the error for a batch without targets, if the loss takes ``(prediction, targets)``."""
    return InputError(
        f"the loss needs targets, but a batch ({type(batch).__name__}) has none: it is not a pair",
        name="targets",
        cure="give batches as (inputs, targets), or override unpack_batch(self, batch); or name fixtures in the loss: "
        "loss(prediction, inputs)",
    )


def require_loss_to_update(value: Any) -> Tensor:
    """Return the loss that ``update`` or ``backward`` was given, if it is a tensor."""
    if type(value) is Tensor or isinstance(value, Tensor):
        return value
    what = f"the loss given to update must be a tensor, but is a {type(value).__name__}"
    if isinstance(value, int | float):
        cure = "a number has no gradients: give what the loss function returns, without .item() or float(...)"
        raise InputError(what, name="loss", cure=cure)
    cure = "give the tensor itself, or a function that returns it: self.update(lambda: loss_of(model(inputs), targets))"
    raise InputError(what, name="loss", cure=cure)


def with_weight(loss: Any, weight: float | Tensor) -> Any:
    """Return a loss times its weight, a scalar; of a function a function.

    >>> with_weight(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]))
    tensor(2.5000)

    Raises:
        InputError: the weight is neither a number nor a tensor in the shape of the loss.
    """
    if callable(loss):
        return lambda: with_weight(loss(), weight)
    value = require_loss_to_update(loss)
    if isinstance(weight, Tensor) and weight.shape == value.shape:
        return (value * weight.detach()).sum()
    if (isinstance(weight, Tensor) and weight.numel() == 1) or isinstance(weight, int | float):
        return value * weight
    what = f"the weight of a loss of shape {tuple(value.shape)} must be a number or a tensor of this shape"
    found = f"is of shape {tuple(weight.shape)}" if isinstance(weight, Tensor) else f"is a {type(weight).__name__}"
    raise InputError(f"{what}, but {found}", name="weight")


def returned_value_error(returned: Any, method: str) -> InputError:
    """Return the error for a value that ``train_batch`` or ``eval_batch`` returned."""
    # Other tools (Lightning's training_step) train on a returned loss; here it would be lost without a word.
    cure = "call self.update(loss)" if method == "train_batch" else 'set it: self.fixtures["loss"] = loss'
    what = f"{method} must return nothing, but returned a {type(returned).__name__}"
    return InputError(what, name=method, cure=cure)


def join_predictions(predictions: list[Any]) -> Any:
    """Return one tensor of the predictions of several batches, or the list if they cannot be joined.

    >>> join_predictions([torch.zeros(2, 3), torch.zeros(1, 3)]).shape
    torch.Size([3, 3])
    >>> len(join_predictions([torch.zeros(2, 3), torch.zeros(1, 4)]))
    2
    """
    # None stands for a prediction without rows. All kinds must be equal: cat would change a dtype without a word.
    kinds = {(one.shape[1:], one.dtype) if isinstance(one, Tensor) and one.dim() else None for one in predictions}
    return torch.cat(predictions) if len(kinds) == 1 and None not in kinds else predictions


def require_scalar_loss(value: Tensor) -> Tensor:
    """Return a tensor that is one number."""
    if type(value) is Tensor and not value.dim():  # the usual case, in one line for speed
        return value
    if not isinstance(value, Tensor):
        what = f"the loss must be a tensor, but is a {type(value).__name__}"
        cure = "leave out .item(): return the tensor itself" if isinstance(value, float) else "return the tensor itself"
        raise InputError(what, name="loss", cure=cure)
    if value.dim():
        what = f"the loss must be a scalar, but has shape {tuple(value.shape)}"
        raise InputError(what, name="loss", cure="reduce it: loss.mean()")
    return value


def require_training_loss(value: Tensor) -> Tensor:
    """Return a scalar that has a gradient."""
    if type(value) is Tensor and value.requires_grad and not value.dim():  # the usual case, in one line for speed
        return value
    if not require_scalar_loss(value).requires_grad:
        raise InputError(
            "the loss does not require grad, so nothing would be trained",
            name="loss",
            cure="is it computed under no_grad, from detached tensors or from an argmax, or are all parameters frozen?",
        )
    return value


def require_modified_loss(value: Any, asked: Mapping[str, Any]) -> None:
    """Refuse a loss that a hook has modified to something else than a scalar tensor, or has cut off from the model.

    Args:
        value: the new value.
        asked: the fixture, the hook with its line, and the open stages, as errors have them.
    """
    name, who = asked["name"], asked["asked_by"]
    if isinstance(value, Tensor) and not value.dim():
        # Else torch raises in the backward pass, which knows nothing of the hook. A hook that comes after this pass
        # may detach the loss.
        if not value.requires_grad and asked["stages"][-1] == TRAINED_AT.get(name):
            what = f"{who} made {name} a tensor that does not require grad, so nothing would be trained"
            cure = f"leave out .detach() and torch.no_grad() where {name} is computed"
            raise InputError(what, name=name, asked_by=who, asked_at=asked["asked_at"], cure=cure)
        return
    if isinstance(value, Tensor):
        found, cure = f"a tensor of shape {tuple(value.shape)}", "reduce it: loss.mean()"
    else:
        found, cure = f"a {type(value).__name__}", "give a tensor, such as loss / 2, without .item() or float(...)"
    raise InputError(f"{who} made {name} {found}, but it must be a scalar", name=name, asked_by=who, cure=cure)


def share_of_batch(
    batch: Any, place: Place, train_data: object, spreads: Callable[[Any], bool]
) -> tuple[Any, int | None]:
    """Return what this process trains on of a batch, and how many examples it is; None if the process trains alone.

    A ``Share`` is taken as it is. Any other batch was given to each process as a whole, and is cut by rows:

    >>> import torch
    >>> share_of_batch((torch.arange(5), ["a", "b", "c", "d", "e"]), Place(1, 2), None, lambda inputs: False)
    ((tensor([1, 3]), ['b', 'd']), 2)

    Args:
        batch: the batch.
        place: the place of the process.
        train_data: the training data, which the batch may come from.
        spreads: returns whether the model takes inputs as several arguments.

    Raises:
        InputError: the entries of the batch do not have equally many rows, or are lists of examples; or the training
            data give each process batches of its own.
    """
    if isinstance(batch, Share):
        return batch.batch, batch.examples
    if place is ALONE:
        return batch, None
    if gives_own_batches(train_data):
        name = type(train_data).__name__
        what = f"train_on_batch was given a batch, but train_data ({name}) gives each process batches of its own"
        raise InputError(what, name="batch", asked_by="Distributed", cure=CURE)
    unpacked = unpack(batch)
    if listed := count_listed(unpacked, spreads):
        raise uncut(f"its inputs and targets are lists of {listed} examples")
    size = count_rows(batch, spreads, unpacked)
    whole = slice(0, size)
    return cut_rows(batch, rows_of_rank(whole, place), size), count_of_rank(whole, place)


def refuse_metrics_of_places(fixture: str, names: Iterable[str], hooks: Iterable[Hook]) -> None:
    """Refuse metrics that hooks have put into a result under the name of a place.

    Args:
        fixture: the result: "train_result" or "eval_result".
        names: the names of its metrics.
        hooks: all hooks; the error names the hooks that modify the result, or else the hooks that read it.

    Raises:
        InputError: a metric is called "epoch", "step", or as another place.
    """

    def describe(name: str) -> str:
        results, known = {fixture, f"{fixture}s"}, list(hooks)
        whose = [hook for hook in known if results.intersection(hook.written)]
        # No hook modifies the fixture, so a hook that reads it has changed the dict in place.
        whose = whose or [hook for hook in known if results.intersection(hook.parameters)]
        labels = " or ".join(dict.fromkeys(hook.label for hook in whose))
        return f"{fixture} has a metric called {name!r}{f' (of {labels})' if labels else ''}"

    refuse_names_of_places(names, describe, lambda name: f"call the metric otherwise, such as {'my_' + name!r}")
