"""Train and eval mode of a model, set for a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def preserve_modes(*models: nn.Module) -> Iterator[None]:
    """Restore grad mode, and train or eval mode of each submodule, however the block ends."""
    before = [(module, module.training) for model in models for module in model.modules()]
    records_graphs = torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(records_graphs)
        for module, was_training in before:
            # Most are as they were, and setting an attribute of a module takes 1 us.
            if module.training is not was_training:
                module.training = was_training  # not module.train(), which would set its submodules too


@contextmanager
def mode(*models: nn.Module, training: bool) -> Iterator[None]:
    """Set train mode with gradients, or eval mode without, for a ``with`` block.

    A submodule that was in eval mode before, such as a frozen BatchNorm, is in eval mode again afterwards.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    >>> with mode(net, training=False):
    ...     print(net.training, net[0].training, net[1].training)
    False False False
    >>> print(net.training, net[0].training, net[1].training)
    True True False
    """
    with preserve_modes(*models):
        for model in models:
            model.train(training)
        torch.set_grad_enabled(training)
        yield
