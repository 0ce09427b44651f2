"""Whether the first loss is that of a model that knows nothing, and the loss is given what it is made for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import mean
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from train_manager.diagnosis.loss_calls import LossCall, classes_of, labels_in
from train_manager.telling.findings import Coverage, Finding, Findings

CHECK: Final = "initial loss"

TOO_LARGE: Final = 2.0
"""So many times the loss of a model that knows nothing is told."""

MISGIVEN: Final = {
    "cross_entropy": (
        "cross_entropy is given probabilities, but takes what comes before a softmax",
        "leave the softmax out of the model",
    ),
    "nll_loss": (
        "nll_loss is given numbers that are not logarithms of probabilities",
        "put a log_softmax before it, or take cross_entropy",
    ),
    "binary_cross_entropy_with_logits": (
        "binary_cross_entropy_with_logits is given probabilities, but takes what comes before a sigmoid",
        "leave the sigmoid out of the model",
    ),
}


def check_initial_loss(calls: Iterable[LossCall]) -> Findings:
    """Find out whether the first loss is far above that of a model that knows nothing.

    A softmax before ``cross_entropy`` is found too, and what else is not made for the loss that it is given to.

    >>> from train_manager.diagnosis.loss_calls import LossCalls
    >>> with LossCalls() as calls:
    ...     loss = F.cross_entropy(torch.rand(8, 3).softmax(1), torch.randint(3, (8,)))
    >>> check_initial_loss(calls.noted)[0].what
    'cross_entropy is given probabilities, but takes what comes before a softmax'

    Args:
        calls: those of torch's losses in the first step; several of a function are told as their mean.
    """
    calls = list(calls)
    if not calls:
        why = "the loss has no known first value, as cross_entropy, nll_loss, binary_cross_entropy and mse_loss have"
        return Findings(covered=[Coverage(CHECK, why, answer="nothing to compare")])
    wrong = {call.name: call for call in calls if _is_misgiven(call)}
    found = [
        Finding(CHECK, "error", what, wrong[name].made_by.lower(), cure)
        for name, (what, cure) in MISGIVEN.items()
        if name in wrong
    ]
    compared: list[str] = []
    for name in dict.fromkeys(call.name for call in calls if call.is_first):
        measured = [one for call in calls if call.is_first and call.name == name and (one := _measured(call))]
        if measured:
            loss, expected = mean(one.loss for one in measured), mean(one.expected for one in measured)
            text = measured[0].text.format(expected)
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
    return [Finding(CHECK, "warning", what, "", f"that is {text}: {cure}", {"loss": loss, "expected": expected})]


class _Measured(NamedTuple):
    """A loss, that of a model that knows nothing, and what that is in words."""

    loss: float
    expected: float
    text: str


def _measured(call: LossCall) -> _Measured | None:
    """Measure a loss without the weights that it gives the classes; None if what it begins with is not known."""
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
            variance = target.var(0, correction=0).mean().item() if target.dim() else 0.0
            return _Measured(loss, variance, "{:.3g} (the variance of the targets)") if variance > 0 else None
        if call.name == "cross_entropy":
            axis = 1 if output.dim() > 1 else 0
            shares = target.movedim(axis, -1).reshape(-1, classes_of(output)).mean(0)
        else:
            share = target.mean().clamp(0, 1)
            shares = torch.stack([share, 1 - share])
    if len(shares) < 2:
        return None
    entropy = -torch.special.xlogy(shares, shares).sum().item()
    text = f"{{:.3g}} (ln {len(shares)}; {abs(entropy):.3g} by the shares of the classes)"
    return _Measured(loss, math.log(len(shares)), text)


def _is_misgiven(call: LossCall) -> bool:
    if call.name == "binary_cross_entropy_with_logits":
        return call.made_by == "Sigmoid"
    if call.name not in MISGIVEN or classes_of(call.output) < 2:
        return False
    rows = call.output.movedim(1 if call.output.dim() > 1 else 0, -1).double()
    if call.name == "nll_loss":
        return not _are_one(rows.exp().sum(-1))
    return bool((rows >= 0).all()) and _are_one(rows.sum(-1))


def _are_one(sums: Tensor) -> bool:
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-2)
