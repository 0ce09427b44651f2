"""Scores of how unlike the training data an example looks to a classifier, and how well they separate two sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor


def max_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return one minus the largest probability of each example (Hendrycks and Gimpel 2017, arXiv 1610.02136).

    >>> max_softmax(torch.tensor([[0., 0.], [9., 0.]]))
    tensor([5.0000e-01, 1.2338e-04])

    Args:
        logits: a row for each example, a column for each class.
        temperature: the number by which the logits are divided first.
    """
    return 1 - (logits / temperature).softmax(1).amax(1)


def energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return ``-T logsumexp(logits / T)`` of each example (Liu et al. 2020, arXiv 2010.03759, equation 4).

    >>> energy(torch.tensor([[0., 0.], [9., 0.]]))
    tensor([-0.6931, -9.0001])

    Args:
        logits: a row for each example, a column for each class.
        temperature: the T of the formula.
    """
    return -temperature * (logits / temperature).logsumexp(1)


SCORES: Final[Mapping[str, Callable[[Tensor, float], Tensor]]] = {"energy": energy, "max_softmax": max_softmax}


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return how often an example of the one set has a higher score than one of the other; ties count a half.

    It is the area under the ROC curve, by the statistic of Mann and Whitney: 1 if the scores separate the sets, 0.5 if
    they do not at all.

    >>> auroc(torch.tensor([1., 2., 3.]), torch.tensor([3., 4.]))
    0.9166666666666666

    Args:
        inside: scores that should be lower.
        outside: scores that should be higher.
    """
    ranked = inside.double().sort().values
    # For each outside score: the inside scores below it, and those below or equal. Their sum is twice the count in
    # which a tie is a half. By sorting it takes n log n comparisons and not n * n.
    below = torch.searchsorted(ranked, outside.double()) + torch.searchsorted(ranked, outside.double(), right=True)
    return below.double().mean().item() / (2 * len(ranked))
