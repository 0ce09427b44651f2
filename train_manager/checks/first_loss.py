"""Whether the first loss is the one of a model that knows nothing, and the loss function gets the inputs it takes.

The calls of torch's own losses in the first step are noted wherever they are made: in a loss, an objective, or the
forward of a model.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import mean
from typing import Any, Final, NamedTuple, Self, final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from train_manager.checks.loss_leak import stretched_shapes
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Coverage, Finding, Findings

CHECK: Final = "initial loss"
TOO_LARGE: Final = 2.0  # times the loss of a model that knows nothing, above which there is a finding

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


# ---- the check -------------------------------------------------------------------------------------------------------


def check_initial_loss(calls: Iterable[LossCall]) -> Findings:
    """Find out whether the first loss is far above that of a model that knows nothing.

    A softmax before ``cross_entropy`` is found too, and other outputs of a kind that the loss function does not take.

    >>> with LossCalls() as calls:
    ...     loss = F.cross_entropy(torch.rand(8, 3).softmax(1), torch.randint(3, (8,)))
    >>> check_initial_loss(calls.noted)[0].what
    'cross_entropy is given probabilities, but takes what comes before a softmax'

    Args:
        calls: the calls of torch's losses in the first step; the values of one function are compared by their mean.
    """
    calls = list(calls)
    if not calls:
        why = "the loss has no known first value, as cross_entropy, nll_loss, binary_cross_entropy and mse_loss have"
        return Findings(covered=[Coverage(CHECK, why, answer="nothing to compare")])
    # The same finding about several calls is listed once.
    found = list(dict.fromkeys(finding for call in calls for finding in _misgiven(call)))
    compared: list[str] = []
    for name in dict.fromkeys(call.name for call in calls):
        # Calls after a backward pass, as of a discriminator, no longer show the first weights.
        measured = [one for call in calls if call.is_first and call.name == name and (one := _measured(call))]
        if measured:
            loss, expected = mean(one[0] for one in measured), mean(one[1] for one in measured)
            text = measured[0][2].format(expected)
            compared.append(f"{name} {loss:.3g} against {text}")
            found += _too_large(name, loss, expected, text)
    if not compared and not found:
        return Findings.not_looked(CHECK, _why_not(calls[0]))
    return Findings(found, [Coverage(CHECK, ", ".join(compared) or "what the loss is given")])


def _why_not(call: LossCall) -> str:
    if call.output.shape != call.target.shape and call.target.is_floating_point():
        return f"not judged: shapes {tuple(call.output.shape)} and {tuple(call.target.shape)} differ"
    return f"not judged: what {call.name} begins with is not known for these targets"


def _too_large(name: str, loss: float, expected: float, text: str) -> list[Finding]:
    if loss <= TOO_LARGE * expected:
        return []
    what = f"the first loss, {name} {loss:.3g}, is {loss / expected:,.3g} times that of a model that knows nothing"
    cure = "begin with smaller weights in the last layer, and look at the scale of the inputs"
    if name == "mse_loss":
        cure = "scale the targets to mean 0 and variance 1, or let the last bias begin with their mean"
    numbers = {"loss": loss, "expected": expected}
    return [Finding(CHECK, "warning", what, "", f"that is {text}: {cure}", numbers, code="large-first-loss")]


def _measured(call: LossCall) -> tuple[float, float, str] | None:
    """Return a loss, the loss of a model that knows nothing, and its description; None if these are not known.

    Class weights are left out of both.
    """
    output, target, labels, function = call.output.double(), call.target, labels_in(call), getattr(F, call.name)
    if labels.numel():
        shares = torch.bincount(labels, minlength=classes_of(output)).double() / labels.numel()
        loss = function(output, target, ignore_index=call.options.get("ignore_index", -100)).item()
    elif output.shape != target.shape or not output.numel():
        return None
    else:
        target = target.double()
        loss = function(output, target).item()
        if call.name == "mse_loss":
            # The best constant for mse_loss is the mean, whose loss is the variance.
            variance = target.var(0, correction=0).mean().item() if target.dim() else 0.0
            return (loss, variance, "{:.3g} (the variance of the targets)") if variance > 0 else None
        if call.name == "cross_entropy":
            axis = 1 if output.dim() > 1 else 0
            # Targets are probabilities of the classes: their mean is the share of each class.
            shares = target.movedim(axis, -1).reshape(-1, classes_of(output)).mean(0)
        else:
            share = target.mean().clamp(0, 1)
            shares = torch.stack([share, 1 - share])
    if len(shares) < 2:
        return None
    # A model that knows nothing gives each class the same probability; one that knows the shares has their entropy.
    entropy = -torch.special.xlogy(shares, shares).sum().item()
    text = f"{{:.3g}} (ln {len(shares)}; {abs(entropy):.3g} by the shares of the classes)"
    return loss, math.log(len(shares)), text


def _misgiven(call: LossCall) -> Iterator[Finding]:
    """Yield findings about outputs of a kind that the loss function does not take."""
    if call.name == "mse_loss" and (shapes := stretched_shapes(call.output, call.target)):
        what = f"mse_loss compares each prediction with the targets of all examples: {shapes}"
        cure = "give both one shape: targets.view_as(prediction)"
        yield Finding(CHECK, "error", what, "the loss", cure, code="stretched-mse")
    layer = "sigmoid" if call.name == "binary_cross_entropy_with_logits" and call.made_by == "Sigmoid" else ""
    if call.name in ("cross_entropy", "nll_loss") and classes_of(call.output) > 1:
        rows = call.output.movedim(1 if call.output.dim() > 1 else 0, -1).double()
        # Logits are rarely all positive with a sum of 1: such rows come from a softmax.
        if call.name == "cross_entropy" and bool((rows >= 0).all()) and _are_one(rows.sum(-1)):
            layer = "softmax"
        if call.name == "nll_loss" and not _are_one(rows.exp().sum(-1)):
            what = "nll_loss is given numbers that are not logarithms of probabilities"
            cure = "put a log_softmax before it, or take cross_entropy"
            yield Finding(CHECK, "error", what, call.made_by.lower(), cure, code="nll-without-logarithms")
    if layer:
        what = f"{call.name} is given probabilities, but takes what comes before a {layer}"
        cure = f"leave the {layer} out of the model"
        yield Finding(CHECK, "error", what, call.made_by.lower(), cure, code="probabilities-as-logits")


def _are_one(sums: Tensor) -> bool:
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-2)
