"""The calls of torch's own losses in a step, wherever they are made: in a loss, an objective, or a model's forward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from train_manager.telling.errors import InputError

LOSSES: Final[Mapping[Callable[..., Any], str]] = {
    F.cross_entropy: "cross_entropy",
    F.nll_loss: "nll_loss",
    F.mse_loss: "mse_loss",
    F.binary_cross_entropy: "binary_cross_entropy",
    F.binary_cross_entropy_with_logits: "binary_cross_entropy_with_logits",
}

VIEWS: Final = ("View", "UnsafeView", "Squeeze", "Unsqueeze", "Transpose", "Permute", "TBackward", "Clone", "Alias")
"""Prefixes of autograd functions that only give a tensor another shape."""


class LabelsOutOfRange(InputError):
    """A label is not a class of the outputs; on a GPU the loss would end the process."""


class LossCall(NamedTuple):
    """One call of a loss function."""

    name: str  # of the function
    output: Tensor  # the first argument, without its graph
    target: Tensor  # the second argument
    made_by: str  # the autograd function that has made the output, as "Softmax", apart from views
    options: Mapping[str, Any]  # the other arguments by name
    is_first: bool = True  # no backward pass came before the call

    @classmethod
    def usual(cls, prediction: Any, targets: Any, loss: Any) -> LossCall | None:
        """Return the call of a torch function that gives the same loss; None if there is none."""
        # A loss may be written out, as (x - y).square().mean(): if mse_loss or cross_entropy gives the same number, it
        # is taken for that.
        tensors = [one for one in (prediction, targets, loss) if isinstance(one, Tensor)]
        if len(tensors) < 3 or not prediction.is_floating_point():
            return None
        function = F.mse_loss if targets.is_floating_point() else F.cross_entropy
        fits = prediction.shape == targets.shape if function is F.mse_loss else _has_classes(prediction, targets)
        if not fits or not torch.allclose(function(prediction.detach(), targets), loss.detach(), rtol=1e-4):
            return None
        return cls(LOSSES[function], prediction.detach(), targets, _made_by(prediction), {})


@final
class LossCalls(TorchFunctionMode):
    """A ``with`` block that notes the calls of losses; labels without a class are refused before the loss is computed.

    >>> with LossCalls() as calls:
    ...     loss = torch.nn.CrossEntropyLoss()(torch.zeros(2, 3), torch.tensor([0, 2]))
    >>> [(call.name, call.output.shape) for call in calls.noted]
    [('cross_entropy', torch.Size([2, 3]))]

    Attributes:
        noted: the calls, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[LossCall] = []
        self._has_walked_back = False  # whether a backward pass was run in the block

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._has_walked_back |= func is Tensor.backward
        name = LOSSES.get(func)
        if name is not None:
            # Modules such as nn.CrossEntropyLoss call the same functions, with keywords or without.
            given = inspect.signature(func).bind(*args, **kwargs).arguments
            output, target = given.pop("input"), given.pop("target")
            if isinstance(output, Tensor) and isinstance(target, Tensor):
                made_by, is_first = _made_by(output), not self._has_walked_back
                call = LossCall(name, output.detach(), target.detach(), made_by, given, is_first)
                _refuse_labels(call)
                self.noted.append(call)
        return func(*args, **kwargs)


def classes_of(output: Tensor) -> int:
    """Return how many classes an output of ``cross_entropy`` has."""
    return output.shape[1 if output.dim() > 1 else 0]


def labels_in(call: LossCall) -> Tensor:
    """Return the labels in one row, without ignored ones; empty if the targets are probabilities of the classes."""
    if call.target.is_floating_point() or call.name not in ("cross_entropy", "nll_loss"):
        return torch.empty(0, dtype=torch.long)
    return call.target[call.target != call.options.get("ignore_index", -100)].flatten()


def _refuse_labels(call: LossCall) -> None:
    labels = labels_in(call)
    if not labels.numel():
        return
    low, high, count = int(labels.min()), int(labels.max()), classes_of(call.output)
    if low < 0 or high >= count:
        what = f"the labels go from {low} to {high}, but the outputs have {count} classes: 0 to {count - 1}"
        raise LabelsOutOfRange(what, name="targets", cure="number the classes from 0, or give the model more outputs")


def _has_classes(prediction: Tensor, targets: Tensor) -> bool:
    shape = prediction.shape
    if prediction.dim() != targets.dim() + 1 or (shape[0], *shape[2:]) != (*targets.shape,):
        return False
    return targets.dtype == torch.long and bool(((targets >= 0) & (targets < shape[1])).all())


def _made_by(output: Tensor) -> str:
    node = output.grad_fn
    while node is not None and node.name().startswith(VIEWS):
        node = node.next_functions[0][0]
    return "" if node is None else node.name().partition("Backward")[0]
