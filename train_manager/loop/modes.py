"""Train and eval mode of a model, changed for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def preserved_modes(*models: nn.Module) -> Iterator[None]:
    """Restore on any exit what was: grad mode, and train or eval mode of each submodule."""
    before = [(module, module.training) for model in models for module in model.modules()]
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    finally:
        for module, was_training in before:
            module.training = was_training


@contextmanager
def mode(*models: nn.Module, training: bool) -> Iterator[None]:
    """Train mode with gradients or eval mode without, for a while.

    A submodule that is in eval mode on purpose, a frozen BatchNorm say, is so again afterwards.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    >>> with mode(net, training=False):
    ...     print(net.training, net[0].training, net[1].training)
    False False False
    >>> print(net.training, net[0].training, net[1].training)
    True True False
    """
    with preserved_modes(*models):
        for model in models:
            model.train(training)
        torch.set_grad_enabled(training)
        yield
