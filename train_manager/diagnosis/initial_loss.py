"""Whether the first loss is that of a model that knows nothing, and the loss is given what it is made for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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


def check_initial_loss(calls: Iterable[LossCall]) -> Findings:
    """Find out whether the first loss is far above that of a model that knows nothing.

    A softmax before ``cross_entropy`` is found too, and what else is not made for the loss that it is given to.

    >>> from train_manager.diagnosis.loss_calls import LossCalls
    >>> with LossCalls() as calls:
    ...     loss = F.cross_entropy(torch.rand(8, 3).softmax(1), torch.randint(3, (8,)))
    >>> check_initial_loss(calls.noted)[0].what
    'cross_entropy is given probabilities, but takes what comes before a softmax'

    Args:
        calls: those of torch's losses in the first step.
    """
    calls = list(calls)
    found = list(dict.fromkeys(finding for call in calls for finding in _misgiven(call)))
    compared: list[str] = []
    for name, measured in _measured(calls).items():
        loss, expected = (mean(values) for values in zip(*((one.loss, one.expected) for one in measured), strict=True))
        text = measured[0].text.format(expected)
        compared.append(f"{name} {loss:.3g} against {text}")
        found += _too_large(name, loss, expected, text)
    if not calls:
        why = "the loss has no known first value, as cross_entropy, nll_loss, binary_cross_entropy and mse_loss have"
        return Findings(covered=[Coverage(CHECK, why, answer="nothing to compare")])
    if not compared and not found:
        return Findings(covered=[Coverage(CHECK, _why_not(calls[0]), could_look=False)])
    return Findings(found, [Coverage(CHECK, ", ".join(compared) or "what the loss is given")])


def _why_not(call: LossCall) -> str:
    if call.output.shape != call.target.shape and call.target.is_floating_point():
        return f"not judged: shapes {tuple(call.output.shape)} and {tuple(call.target.shape)} differ"
    return f"not judged: what {call.name} begins with is not known for these targets"


def share_of_nothing(calls: Iterable[LossCall]) -> float:
    """Return the loss of a model that knows nothing as a part of the first loss, at most 1; 1 if it is not known."""
    measured = list(_measured(calls).values())
    loss = sum(one.loss for one in measured[0]) if len(measured) == 1 else 0.0
    return min(1.0, sum(one.expected for one in measured[0]) / loss) if loss > 0 else 1.0


class _Measured(NamedTuple):
    """A loss, that of a model that knows nothing, and what that is in words."""

    loss: float
    expected: float
    text: str


def _measured(calls: Iterable[LossCall]) -> dict[str, list[_Measured]]:
    """Return the first losses, by the function; several of a step are told as their mean."""
    found: dict[str, list[_Measured]] = {}
    for call in calls:
        measured = _squared(call) if call.name == "mse_loss" else _entropy(call)
        if call.is_first and measured is not None:
            found.setdefault(call.name, []).append(measured)
    return found


def _too_large(name: str, loss: float, expected: float, text: str) -> Iterator[Finding]:
    if loss <= TOO_LARGE * expected:
        return
    what = f"the first loss, {name} {loss:.3g}, is {loss / expected:,.3g} times that of a model that knows nothing"
    if name == "mse_loss":
        cure = f"that is {text}: scale the targets to mean 0 and variance 1, or let the last bias begin with their mean"
    else:
        cure = f"that is {text}: begin with smaller weights in the last layer, and look at the scale of the inputs"
    yield Finding(CHECK, "warning", what, "", cure, {"loss": loss, "expected": expected})


def _entropy(call: LossCall) -> _Measured | None:
    """Measure the plain cross entropy, whatever weights the loss gives the classes."""
    output, target = call.output.double(), call.target
    if call.name.startswith("binary"):
        if output.shape != target.shape or not output.numel():
            return None
        has_logits = call.name.endswith("with_logits")
        of_one = F.binary_cross_entropy_with_logits if has_logits else F.binary_cross_entropy
        share = target.double().mean().clamp(0, 1)
        shares, count = torch.stack([share, 1 - share]), 2
        loss = of_one(output, target.double()).item()
    elif target.is_floating_point():
        if output.shape != target.shape:
            return None
        count, axis = classes_of(output), 1 if output.dim() > 1 else 0
        shares = target.double().movedim(axis, -1).reshape(-1, count).mean(0)
        loss = F.cross_entropy(output, target.double()).item()
    else:
        labels = labels_in(call)
        if not labels.numel():
            return None
        count = classes_of(output)
        shares = torch.bincount(labels, minlength=count).double() / labels.numel()
        function = F.nll_loss if call.name == "nll_loss" else F.cross_entropy
        loss = function(output, target, ignore_index=call.options.get("ignore_index", -100)).item()
    if count < 2:
        return None
    of_shares = abs((shares * shares.clamp_min(1e-12).log()).sum().item())
    return _Measured(loss, math.log(count), f"{{:.3g}} (ln {count}; {of_shares:.3g} by the shares of the classes)")


def _squared(call: LossCall) -> _Measured | None:
    """Measure the mean squared error."""
    output, target = call.output.double(), call.target.double()
    if output.shape != target.shape or not target.dim() or len(target) < 2:
        return None
    variance = target.var(0, correction=0).mean().item()
    if not variance > 0:
        return None
    return _Measured(F.mse_loss(output, target).item(), variance, "{:.3g} (the variance of the targets)")


def _misgiven(call: LossCall) -> Iterator[Finding]:
    takes = {
        "cross_entropy": "cross_entropy is given probabilities, but takes what comes before a softmax",
        "nll_loss": "nll_loss is given numbers that are not logarithms of probabilities",
        "binary_cross_entropy_with_logits": (
            "binary_cross_entropy_with_logits is given probabilities, but takes what comes before a sigmoid"
        ),
    }
    cures = {
        "cross_entropy": "leave the softmax out of the model",
        "nll_loss": "put a log_softmax before it, or take cross_entropy",
        "binary_cross_entropy_with_logits": "leave the sigmoid out of the model",
    }
    if _is_misgiven(call):
        yield Finding(CHECK, "error", takes[call.name], call.made_by.lower(), cures[call.name])


def _is_misgiven(call: LossCall) -> bool:
    if call.name == "binary_cross_entropy_with_logits":
        return call.made_by == "Sigmoid"
    if call.name not in ("cross_entropy", "nll_loss") or classes_of(call.output) < 2:
        return False
    rows = call.output.movedim(1 if call.output.dim() > 1 else 0, -1).double()
    if call.name == "nll_loss":
        return not _are_one(rows.exp().sum(-1))
    return bool((rows >= 0).all()) and _are_one(rows.sum(-1))


def _are_one(sums: Tensor) -> bool:
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-2)
