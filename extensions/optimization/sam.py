"""Sharpness-aware minimisation: steps with the gradient of a nearby point (Foret et al. 2020, arXiv:2010.01412)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.extension import Extension
from train_manager.loop.windows import require_no_closure
from train_manager.model.buffers import preserve_buffers
from train_manager.model.optimizers import optimizer_of, parameters_with_gradients
from train_manager.rebuilding.recorded import recorded
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@contextmanager
def climb(parameters: Iterable[Tensor], rho: float) -> Iterator[None]:
    """Move parameters by ``rho`` along their common gradient, to a larger loss, and restore them on any exit.

    >>> weight = nn.Parameter(torch.tensor([1., 1.]))
    >>> weight.grad = torch.tensor([3., 4.])
    >>> with climb([weight], rho=0.5):
    ...     print(weight.data)
    tensor([1.3000, 1.4000])
    >>> weight.data
    tensor([1., 1.])
    """
    moved = list(parameters)
    gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
    # A copy, because subtracting what was added would not give the same bits.
    before = [parameter.detach().clone() for parameter in moved]
    try:
        with torch.no_grad():
            scale = rho / (_norm(gradients) + 1e-12)  # a tensor: nothing waits for the device
            for parameter, gradient in zip(moved, gradients, strict=True):
                parameter.add_(gradient * scale.to(gradient.device))
        yield
    finally:
        try:
            _put_back(moved, before)
        except KeyboardInterrupt:  # Ctrl-C within the restoring: once more, or the step would begin at the other point
            _put_back(moved, before)
            raise


@recorded
class SAM(Extension):
    """Step with the gradient at the point within ``rho`` where the loss is largest, which leads to flat minima.

    Each step costs a second forward and backward pass on the same batch.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(SAM(rho=0.05), epochs=20)
    >>> result = tm.train()
    >>> tm.eval()["valid"]["loss"] < 0.4
    True

    The second pass calls ``train_model_forward`` and ``train_loss_forward`` without their stages. So hooks see each
    batch once; ``prediction``, ``loss`` and all buffers, such as the statistics of BatchNorm, keep the values of the
    first pass; and a hook that modifies ``loss`` or ``prediction`` does so in the first pass only. Modified ``inputs``
    and ``targets`` are used in both passes. Dropout draws another mask. A ``train_batch`` of your own that computes a
    loss itself gives it as a function: ``self.update(lambda: ...)``.

    ``MixedPrecision(torch.bfloat16)`` applies to both passes. Accumulation and scaled losses (float16) are refused,
    because their gradients are not those of the batch.

    *Runs at:* the start of ``run``; the start of ``train_optimizer_step``, before extensions that read or change the
    gradients (priority -5).

    *Asks for:* ``optimizer`` and ``optimizer_name``; the model and the loss.

    *Leaves behind:* the gradients of the second pass.

    Args:
        rho: the distance to move, as a norm over all weights of an optimizer together.
        optimizer: the name of one of several optimizers; None for each of them.

    Raises:
        InputError: ``rho`` is not a number above 0, or there is no such optimizer; in training, the loss cannot be
            computed anew, its gradients are not those of one batch, or the optimizer requires a closure.
    """

    computes_loss_anew = True  # so EWC and Distil, which change the loss in a hook, refuse to train beside it
    priority = -5  # after Accumulate (-20) and MixedPrecision (-10), before ClipGradients (10)

    def __init__(self, rho: float = 0.05, *, optimizer: str | None = None) -> None:
        self.rho: float = require_number(rho, "rho", above=0)
        self.optimizer = optimizer

    def pre_run(self, train_manager: TrainManager) -> None:
        if self.optimizer is not None:
            optimizer_of(train_manager, self.optimizer, "SAM")  # a wrong name is an error

    def pre_train_optimizer_step(self, train_manager: TrainManager, optimizer: Optimizer, optimizer_name: str) -> None:
        if self.optimizer not in (None, optimizer_name):
            return
        require_no_closure(optimizer, optimizer_name, "SAM")
        # A function that computes the loss of the present batch
        # anew, and its gradients in place of those that are there.
        loss_again = train_manager.closure(optimizer_name)
        parts = (train_manager.model, train_manager.called_model, train_manager.loss)
        # called_model is what a train_batch calls in place of the model, such as a compiled one.
        modules = [part for part in parts if isinstance(part, nn.Module)]
        # Buffers are kept, because BatchNorm would count the batch twice.
        with climb(parameters_with_gradients(optimizer), self.rho), preserve_buffers(*modules):
            loss_again()


@torch.no_grad()
def _put_back(moved: list[Tensor], before: list[Tensor]) -> None:
    for parameter, value in zip(moved, before, strict=True):
        parameter.copy_(value)


def _norm(gradients: list[Tensor]) -> Tensor:
    """Return the length of all gradients as one vector, computed on the device of the first gradient."""
    lengths = [torch.linalg.vector_norm(gradient).to(gradients[0].device) for gradient in gradients]
    return torch.linalg.vector_norm(torch.stack(lengths)) if lengths else torch.zeros(())
