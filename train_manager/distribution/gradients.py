"""Strategies by which the gradients of all processes are made one: after the backward pass, or by torch's wrapper."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from train_manager.loop.attributes import Attributes
from train_manager.model.optimizers import parameters_in
from train_manager.model.weighted_loss import WeightedLoss
from train_manager.telling.errors import InputError, RankError, StageError

# Buffers are made equal before an evaluation or a checkpoint uses them. torch 2.13 warns of the older argument.
_ARGUMENTS = inspect.signature(nn.parallel.DistributedDataParallel).parameters
_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _ARGUMENTS else "broadcast_buffers": False
}


class Strategy(WeightedLoss):
    """A way to make gradients one, by the name that ``Distributed`` is given; it may refuse a model, or wrap it."""

    def forget(self) -> None:
        """Forget what belongs to the parameters of the model, of which some were replaced."""

    @classmethod
    def require(cls, train_manager: Attributes[Any]) -> None:
        """Refuse a model whose gradients are out of reach.

        Raises:
            InputError: with the cure.
        """
        model = train_manager.model
        if not isinstance(model, nn.Module):
            what = f"{type(model).__name__} trains itself, so its gradients cannot be made one over all processes"
            cure = "give an nn.Module with a loss and an optimizer, or train in one process"
            raise InputError(what, name="model", asked_by="Distributed", cure=cure)

    def called_for(self, train_manager: Attributes[Any], update_ends: bool) -> Any:
        """Return what is called in place of the model in a batch; None if it is the model."""
        Strategy.require(train_manager)  # train_on_batch may be given batches before any training call


class AfterBackward(Strategy):
    """Strategy "after": one mean over all gradients of an optimizer, after the last backward pass of its window."""

    def __init__(self, number: int, group: Any = None) -> None:
        super().__init__(number, group)
        self._flags: dict[Any, Tensor] = {}  # by which parameters have a gradient: made once, and not in each step

    @torch.no_grad()
    def gather(self, optimizer: Optimizer) -> None:
        """Replace the gradients of an optimizer by their mean over all processes."""
        # A mean and not a sum: a window may have several backward passes in its last batch, and the mean of gradients
        # that are equal already is what they were.
        for parameters in _by_kind(parameters_in(optimizer)):
            flags = self._flags_of(parameters)
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in parameters]
            flat = torch.cat([flags, *(gradient.reshape(-1) for gradient in gradients)])
            dist.all_reduce(flat, group=self._group)
            flat /= self._number
            flags, *means = flat.split([len(parameters), *(gradient.numel() for gradient in gradients)])
            for index, (parameter, mean) in enumerate(zip(parameters, means, strict=True)):
                # A parameter that no process has used keeps no gradient: AdamW would decay it, had it one of zero. Only
                # a process that has not used it must look, which waits for a GPU.
                if parameter.grad is not None or flags[index]:
                    parameter.grad = mean.view_as(parameter)

    def _flags_of(self, parameters: list[Tensor]) -> Tensor:
        first, has_gradient = parameters[0], tuple(parameter.grad is not None for parameter in parameters)
        key = first.dtype, first.device, has_gradient
        if key not in self._flags:
            self._flags = {**self._flags, key: torch.tensor(has_gradient, dtype=first.dtype, device=first.device)}
        return self._flags[key]


class ByWrapper(Strategy):
    """Strategy "ddp": the mean is taken by torch's DistributedDataParallel, while the backward pass runs."""

    def __init__(self, number: int, group: Any = None) -> None:
        super().__init__(number, group)
        self._model: Any = None  # what the wrapper calls
        self._parameters: list[nn.Parameter] = []  # of the model
        self._trained: list[bool] = []  # which of them the wrapper makes one
        self._wrapper: nn.parallel.DistributedDataParallel | None = None
        self._forwards = 0  # of the wrapper, since the last backward pass

    @classmethod
    def require(cls, train_manager: Attributes[Any]) -> None:
        super().require(train_manager)
        model = train_manager.model
        if not any(parameter.requires_grad for parameter in model.parameters()):
            what = f"{type(model).__name__} has no parameter that is trained, so there are no gradients to make one"
            raise InputError(what, name="model", asked_by="Distributed", cure="train in one process")
        require_parameters_of(train_manager.optimizers.values(), model)

    def called_for(self, train_manager: Attributes[Any], update_ends: bool) -> Any:
        """Return the wrapper of the model, made anew if other parameters are trained than before."""
        called = train_manager.called_model
        is_wrapper = isinstance(called, nn.parallel.DistributedDataParallel)
        model = called.module if is_wrapper else called  # compiled perhaps
        trained = [parameter.requires_grad for parameter in self._parameters]
        if self._wrapper is None or model is not self._model or trained != self._trained:
            self.require(train_manager)
            self._model, self._parameters, self._wrapper = model, list(model.parameters()), self._wrap(model)
            self._trained = [parameter.requires_grad for parameter in self._parameters]
        self._wrapper.require_backward_grad_sync = update_ends  # before the forward pass, as torch asks for
        return self._wrapper

    def forget(self) -> None:
        """Wrap the model anew before the next batch, as it has other parameters."""
        self._wrapper = None

    def _wrap(self, model: nn.Module) -> nn.parallel.DistributedDataParallel:
        wrapper = nn.parallel.DistributedDataParallel(
            model,
            init_sync=False,  # the parameters are equal already
            process_group=self._group,
            **_BUFFERS,
        )
        wrapper.register_forward_hook(self._count_forward)
        return wrapper

    def gather(self, optimizer: Optimizer) -> None:
        """Refuse a backward pass that has left out parameters: torch makes no gradient one then."""
        left_out = [one for one, is_trained in zip(self._parameters, self._trained, strict=True) if is_trained]
        left_out = [parameter for parameter in left_out if parameter.grad is None]
        if left_out:
            shapes = ", ".join(str(tuple(parameter.shape)) for parameter in left_out[:3])
            what = f"{len(left_out)} trained parameters have no gradient ({shapes}), which strategy 'ddp' needs"
            cure = 'give Distributed(strategy="after"), or freeze them: parameter.requires_grad = False'
            raise StageError(what, name="model", asked_by="Distributed", cure=cure)

    def _count_forward(self, *_: Any) -> None:
        self._forwards += 1

    def weigh(self, loss: Tensor) -> Tensor:
        """Return the loss, weighted; refuse one that was computed without the wrapper."""
        if not self._forwards:
            what = "a backward pass began, but the loss was not computed with the model of the fixtures"
            cure = 'call the fixture `model`; for parts that are called by themselves: Distributed(strategy="after")'
            raise StageError(what, name="model", asked_by="Distributed", cure=cure)
        self._forwards = 0
        return super().weigh(loss)


def _by_kind(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    kinds: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return list(kinds.values())


def require_shapes(modules: Iterable[nn.Module]) -> None:
    """Refuse lazy modules, whose parameters have no shape before the first batch.

    Raises:
        InputError: with the module.
    """
    for module in modules:
        lazy = next((name for name, one in module.named_parameters() if is_lazy(one)), None)
        if lazy is not None:
            what = f"{lazy} of {type(module).__name__} is lazy, so it cannot be made equal in all processes"
            cure = "give the sizes: nn.Linear(64, 10), not nn.LazyLinear(10)"
            raise InputError(what, name="model", asked_by="Distributed", cure=cure)


@torch.no_grad()
def sum_of_weights(modules: Iterable[nn.Module]) -> float:
    """Return the sum of all parameters, in 64 bits; nan counts as 0."""
    parameters = (parameter for module in modules for parameter in module.parameters())
    return float(sum(parameter.detach().double().nan_to_num().sum().cpu() for parameter in parameters))


def require_equal(sums: Sequence[float | None]) -> None:
    """Refuse weights that differ between the processes.

    Raises:
        RankError: with the ranks.
    """
    known = {rank: one for rank, one in enumerate(sums) if one is not None}
    other = next((rank for rank, one in known.items() if one != next(iter(known.values()))), None)
    if other is not None:
        what = f"the weights of rank {other} are not those of rank {next(iter(known))} at the end of the epoch"
        cure = (
            "does a hook, or train_batch, change weights or skip a step by what one rank has? let all ranks do the same"
        )
        raise RankError(what, name=f"rank {other}", cure=cure)


@torch.no_grad()
def make_equal(tensors: Iterable[Tensor], group: Any = None) -> None:
    """Give all processes the tensors of rank 0."""
    for some in _by_kind(tensors):  # one message for all tensors of a kind
        flat = torch.cat([tensor.reshape(-1) for tensor in some])
        dist.broadcast(flat, 0, group=group)
        for tensor, value in zip(some, flat.split([tensor.numel() for tensor in some]), strict=True):
            tensor.copy_(value.view_as(tensor))


def require_parameters_of(optimizers: Iterable[Optimizer], model: nn.Module) -> None:
    """Refuse optimizers with parameters outside of the model, whose gradients a wrapper would not make one.

    Raises:
        InputError: with the strategy that does.
    """
    own = {id(parameter) for parameter in model.parameters()}
    others = [p for optimizer in optimizers for p in parameters_in(optimizer) if id(p) not in own]
    if others:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in others[:3])
        what = f"an optimizer has parameters outside of the model, as of a loss with weights ({shapes})"
        cure = 'give Distributed(strategy="after"), which gathers the gradients of every parameter'
        raise InputError(what, name="optimizer", asked_by="Distributed", cure=cure)
