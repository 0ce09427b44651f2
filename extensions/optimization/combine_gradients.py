"""Gradient surgery: the gradients of several tasks are combined by a function, in place of their sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.declarations import modifies
from train_manager.core.extension import Extension
from train_manager.data.shares import ALONE
from train_manager.loop.windows import require_no_closure
from train_manager.model.optimizers import parameters_in
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

Combine = Callable[[Tensor], Tensor]
"""A function of the matrix (task, parameter) that returns the vector (parameter,)."""


def combine_parts(parts: Sequence[Tensor], parameters: Sequence[Tensor], combine: Combine, scale: Tensor) -> Tensor:
    """Return a term that is 0, and adds ``combine(matrix) - matrix.sum(0)``, times ``scale``, to the gradients.

    >>> weight = torch.tensor([1., 2.], requires_grad=True)
    >>> parts = [weight[0] + weight[1], 2 * weight[0]]              # their gradients are (1, 1) and (2, 0)
    >>> mean = lambda matrix: matrix.mean(0)
    >>> (sum(parts) + combine_parts(parts, [weight], mean, scale=torch.tensor(1.))).backward()
    >>> weight.grad
    tensor([1.5000, 0.5000])

    Args:
        parts: the terms of a loss, with their graphs, which stay usable.
        parameters: the columns of the matrix.
        combine: the function.
        scale: the factor of the parts in the loss whose backward pass runs next. The gradients of the parts are
            computed at this scale too, as they may be too small for float16 without it.
    """
    rows = [_gradient(part * scale, parameters) / scale for part in parts]
    matrix = torch.stack(rows)
    if not matrix.isfinite().all():  # too large for float16: the backward pass overflows too, and its step is skipped
        return torch.zeros_like(scale)
    combined = combine(matrix)
    if not isinstance(combined, Tensor) or combined.shape != matrix.shape[1:]:
        found = f"shape {tuple(combined.shape)}" if isinstance(combined, Tensor) else f"a {type(combined).__name__}"
        raise InputError(
            f"combine must return a vector of {matrix.shape[1]} numbers, one for each parameter, but returned {found}",
            name="combine",
            asked_by="CombineGradients",
            cure="reduce the tasks, the rows of the matrix: lambda matrix: matrix.sum(0)",
        )
    correction = ((combined - matrix.sum(0)) * scale).split([parameter.numel() for parameter in parameters])
    pairs = zip(parameters, correction, strict=True)
    term = torch.stack([(p * part.view_as(p).to(p.dtype)).sum() for p, part in pairs]).sum()
    return term - term.detach()  # 0, so that the value of the loss stays


def _gradient(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


@recorded
class CombineGradients(Extension):
    """Step with a combination of the gradients of several tasks, in place of their sum.

    >>> from torch import nn
    >>> from train_manager import TrainManager, WeightedLosses
    >>> class Heads(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.trunk, self.near, self.far = nn.Linear(2, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    ...     def forward(self, inputs):
    ...         hidden = self.trunk(inputs).relu()
    ...         return {"near": self.near(hidden), "far": self.far(hidden)}
    >>> loss = WeightedLosses({"near": nn.functional.mse_loss, "far": nn.functional.l1_loss})
    >>> def without_conflict(matrix):                           # (task, parameter) -> (parameter,)
    ...     agree = (matrix.sign() == matrix.sum(0).sign()).float()
    ...     return (matrix * agree).sum(0)
    >>> tm = TrainManager(
    ...     model=Heads(), loss=loss, optimizer=torch.optim.SGD, train_data=[(torch.ones(8, 2), torch.zeros(8, 1))],
    ...     extensions=[CombineGradients(without_conflict)])
    >>> tm.train().steps
    1

    ``combine`` is any such function: an aggregator of torchjd as ``PCGrad()`` (Yu et al. 2020, arXiv:2001.06782),
    ``MGDA()`` (Sener and Koltun 2018, arXiv:1810.04650) or ``IMTLG()`` (Liu et al. 2021), from
    ``pip install "train-manager[multitask]"``.

    The tasks are the parts of the loss: the heads of ``WeightedLosses``, times their weights, and what ``add_loss`` and
    ``report_loss`` name. What the loss has beside them, as a penalty that a hook adds, keeps its gradient. The
    parameters are all those of the optimizer; a head that a task does not use has zeros in the row of the task.

    With ``Accumulate`` the gradients of each batch are combined, with ``MixedPrecision(torch.float16)`` those at the
    scale of the loss. Each task costs a backward pass and the memory of a gradient. The matrix is checked for numbers
    that are not finite, which waits for the device in each batch.

    *Runs at:* the start of ``run`` and of ``train_backward``, after extensions that scale the loss (priority 20).

    *Asks for:* ``loss_parts``, ``backward_loss``, ``optimizer`` and ``optimizer_name``.

    *Leaves behind:* a modified ``backward_loss``, of the same value.

    Args:
        combine: takes the matrix (task, parameter) of gradients, and returns the vector (parameter,) to step with.

    Raises:
        InputError: ``combine`` is not a function, or keeps a state; in training, the loss has fewer than two parts, or
            is not that of ``forward()``, or has a part with another weight than was named; ``combine`` returns another
            shape; the optimizer requires a closure; several processes train together. ``SAM``, which computes the loss
            anew, refuses its gradients.
    """

    # After Accumulate (-20), MixedPrecision (-10) and hooks of users (0), whose factor of the loss it multiplies its
    # own term with: added before them, it would need no factor, but the gradients of the parts would be unscaled.
    priority = 20

    def __init__(self, combine: Combine) -> None:
        if not callable(combine) or isinstance(combine, type):
            what = f"combine must be a function of a matrix, but is {combine!r:.60}"
            cure = "give a function, or an aggregator of torchjd: CombineGradients(PCGrad())"
            raise InputError(what, name="combine", asked_by="CombineGradients", cure=cure)
        if callable(getattr(combine, "reset", None)):  # torchjd calls such classes Stateful
            kind = type(combine).__name__
            what = f"combine must have no state, but {kind} has one, which a checkpoint would not have"
            cure = "take another aggregator: PCGrad(), MGDA() or IMTLG()"
            raise InputError(what, name="combine", asked_by="CombineGradients", cure=cure)
        self.combine = combine

    def pre_run(self, train_manager: TrainManager) -> None:
        if train_manager.ranks.place is not ALONE:
            what = "CombineGradients would combine the gradients of the rows of each process, not of the batch"
            cure = "train in one process, without Distributed; or leave CombineGradients out"
            raise InputError(what, name="combine", asked_by="CombineGradients", cure=cure)

    @modifies("backward_loss")
    def pre_train_backward(
        self,
        train_manager: TrainManager,
        optimizer: Optimizer,
        optimizer_name: str,
        backward_loss: Tensor,
        loss_parts: Mapping[str, Tensor],
    ) -> Tensor:
        require_no_closure(optimizer, optimizer_name, "CombineGradients")
        if len(loss_parts) < 2:
            raise _too_few_error(loss_parts)
        scale = _scale_of(train_manager._progress.step.forward_loss, backward_loss, optimizer_name)
        _require_weights(loss_parts, backward_loss, scale)
        parameters = [parameter for parameter in parameters_in(optimizer) if parameter.requires_grad]
        return backward_loss + combine_parts([*loss_parts.values()], parameters, self.combine, scale)


def _scale_of(forward_loss: Tensor | None, backward_loss: Tensor, optimizer_name: str) -> Tensor:
    """Return the factor that hooks have multiplied the loss of ``forward()`` with, of which the parts are terms.

    It is the derivative of ``backward_loss`` by that loss: 1 if no hook has changed the loss, or has only added to it.
    """
    given = [] if forward_loss is None else [forward_loss]
    found = torch.autograd.grad(backward_loss, given, retain_graph=True, allow_unused=True) if given else (None,)
    if found[0] is None:
        raise InputError(
            f"CombineGradients needs the loss of forward(), but optimizer {optimizer_name!r} is given another loss",
            name="backward_loss",
            asked_by="CombineGradients",
            cure="train on it: self.update(self.forward())",
        )
    return found[0]


def _require_weights(parts: Mapping[str, Tensor], backward_loss: Tensor, scale: Tensor) -> None:
    """Refuse a part that the loss has with another weight, so that the sum of the parts would not be in the loss."""
    # None for a part that is not a term itself, but its product with a weight, the mean of a term or a sum of terms.
    found = torch.autograd.grad(backward_loss, [*parts.values()], retain_graph=True, allow_unused=True)
    for name, factor in zip(parts, found, strict=True):
        # A factor of 16 bits has three digits.
        if factor is not None and not torch.allclose(factor.double(), scale.double(), rtol=1e-2, equal_nan=True):
            raise InputError(
                f"the part {name!r} of the loss must have the weight 1 in it, but has {factor / scale:.3g}",
                name="loss_parts",
                asked_by="CombineGradients",
                cure="name its weight, report_loss(value, name, weight=0.5), and update with self.forward() as it is",
            )


def _too_few_error(parts: Mapping[str, Any]) -> InputError:
    found = f"only {next(iter(parts))!r}" if parts else "none"
    return InputError(
        f"CombineGradients needs a loss of at least two parts, but it has {found}",
        name="loss_parts",
        asked_by="CombineGradients",
        cure='give a function for each task: loss=WeightedLosses({"digit": F.cross_entropy, "slant": F.mse_loss})',
    )
