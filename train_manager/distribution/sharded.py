"""Strategy "fsdp": each process keeps a shard of each parameter, and of its moments (torch's FSDP2).

A submodule that is sharded by itself has its parameters whole only while it runs. torch's files for it are imported as
a model is sharded: they take time, and other strategies do not need them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.distribution.gradients import Strategy
from train_manager.files.json_values import MAPPINGS
from train_manager.loop.arguments import modules_in_loss
from train_manager.loop.attributes import Attributes
from train_manager.loop.ranks import require_whole_model
from train_manager.model.optimizers import parameters_in
from train_manager.model.sharding import as_sharded, as_whole, is_sharded
from train_manager.telling.errors import InputError, did_you_mean, near


def require_shardable(train_manager: Attributes[Any], names: Iterable[str] | None) -> None:
    """Refuse names that no submodule of the model has, and extensions that need a whole model.

    Raises:
        InputError: with the nearest names, or the extension; or the model is not a module.
    """
    model = train_manager.model
    if not isinstance(model, nn.Module):
        what = f'strategy "fsdp" shards an nn.Module, but the model is a {type(model).__name__}'
        raise InputError(what, name="strategy", asked_by="Distributed", cure='give Distributed(strategy="after")')
    known = [name for name, _ in model.named_modules() if name]
    for name in names or ():
        if name not in known:
            nearest = near(name, known, cutoff=0.5)
            cure = did_you_mean(nearest) or f"its submodules are {', '.join(map(repr, known[:8]))}"
            what = f"the model has no submodule {name!r} to shard"
            raise InputError(what, name="shard", asked_by="Distributed", nearest=nearest, cure=cure)
    for extension in train_manager.extensions.values():
        if getattr(extension, "needs_whole_model", False):
            require_whole_model(train_manager.ranks, type(extension).__name__)


def shard(train_manager: Attributes[Any], modules: Iterable[nn.Module], names: Collection[str] | None) -> None:
    """Shard modules in place, and replace their parameters in optimizers and extensions.

    Args:
        train_manager: the manager that trains them.
        modules: modules that are called by themselves: the model, and modules of a loss.
        names: the submodules that are sharded by themselves; None for direct children. A module without any of these
            names is sharded by its children.

    Raises:
        InputError: a parameter is in several of the modules, or only some of the parameters are sharded already.
    """
    from torch.distributed.fsdp import fully_shard

    roots = [root for module in modules for root in _with_forward(module)]
    # A phase may bring a submodule of a model that is sharded already.
    roots = [root for root in roots if not all(map(is_sharded, root.parameters()))]
    before = [parameter for root in roots for parameter in root.parameters()]
    gradients = [parameter.grad for parameter in before]  # of a window that a checkpoint has opened
    if any(map(is_sharded, before)) or len({id(one) for one in before}) < len(before):
        what = 'strategy "fsdp" cannot shard a parameter for two modules that are called by themselves'
        cure = 'give Distributed(strategy="after"), or let one of the modules call the other'
        raise InputError(what, name="strategy", asked_by="Distributed", cure=cure)
    for root in roots:
        for module in (*_parts(root, names), root):  # from the inside out, as torch asks for
            # True, also for the root: else its own parameters would be whole after an evaluation, and not be those of
            # the optimizer.
            fully_shard(module, mesh=_mesh(before[0].device.type), reshard_after_forward=True)
        # Now, and not in the first call: that may be one of a submodule, which torch would then take for the root.
        root._get_fsdp_state()._lazy_init()  # type: ignore[operator]
    after = [parameter for root in roots for parameter in root.parameters()]
    trained = {id(one) for optimizer in train_manager.optimizers.values() for one in parameters_in(optimizer)}
    train_manager.replace_parameters({old: new for old, new in zip(before, after, strict=True) if id(old) in trained})
    for parameter, gradient in zip(after, gradients, strict=True):
        parameter.grad = as_sharded(gradient, parameter)


def _with_forward(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module; or, if it only holds others, these: torch makes parameters whole around a forward pass."""
    holds = type(module).forward is nn.Module.forward and not module._parameters
    for one in module.children() if holds else ():
        yield from _with_forward(one)
    if not holds:
        yield module


def _parts(root: nn.Module, names: Collection[str] | None) -> list[nn.Module]:
    """Return the submodules of a root that are sharded by themselves, inner ones first."""
    modules = dict(root.named_modules())
    chosen = [modules[name] for name in names or () if modules.get(name, root) is not root] or [*root.children()]
    parts = {one for module in chosen for one in _with_forward(module) if [*one.parameters()]}
    users: dict[int, list[str]] = {}
    for name, parameter in root.named_parameters(remove_duplicate=False):
        users.setdefault(id(parameter), []).append(name)
    # A parameter that is tied to one outside of a part would become two: it is left to the root.
    kept = [
        module
        for name, module in modules.items()
        if module in parts and all(len({user.startswith(f"{name}.") for user in tied}) == 1 for tied in users.values())
    ]
    return kept[::-1]


@cache
def _mesh(device_type: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device_type, (dist.get_world_size(),))


class Sharded(Strategy):
    """The gradients under "fsdp": their mean is taken by torch, while the backward pass runs.

    Args:
        number: of processes.
    """

    def __init__(self, number: int, group: Any = None) -> None:
        super().__init__(number, group)
        self._roots: list[Any] = []  # of the last batch
        self._syncs: bool | None = None  # whether its backward pass made the gradients one; None before the first one

    @classmethod
    def require(cls, train_manager: Attributes[Any]) -> None:
        super().require(train_manager)
        if len({is_sharded(parameter) for parameter in train_manager.model.parameters()}) > 1:
            what = "a part of the model was added after it had been sharded"
            cure = 'add it before the first run, or give Distributed(strategy="after")'
            raise InputError(what, name="model", asked_by="Distributed", cure=cure)

    def called_for(self, train_manager: Attributes[Any], update_ends: bool) -> Any:
        """Say before the forward pass whether the backward pass makes the gradients one; the model is called itself."""
        modules = (train_manager.model, *modules_in_loss(train_manager.loss))
        roots = [root for module in modules for root in _roots_in(module)]
        # Several optimizers have windows of their own, which torch does not keep apart.
        syncs = update_ends or len(train_manager.optimizers) > 1
        if not self._syncs and not train_manager.open_windows:
            for parameter in _sharded_in(roots):
                _take_gathered(parameter)  # those of a window that was dropped must not enter this one
        if syncs is not self._syncs or roots != self._roots:
            for root in roots:
                root.set_requires_gradient_sync(syncs)
        self._roots, self._syncs = roots, syncs

    @torch.no_grad()
    def mean_gradients(self, optimizer: Optimizer) -> list[Tensor | None]:
        """Make the gradients of an open window one now, so that a checkpoint has them."""
        for parameter in _sharded_in([] if self._syncs else self._roots):
            gradient, owner = _take_gathered(parameter), parameter.sharded_param
            if gradient is not None:
                dist.all_reduce(gradient, group=self._group)
                mean = as_sharded(gradient / self._number, owner)
                owner.grad = mean if owner.grad is None else owner.grad + mean
        return [parameter.grad for parameter in parameters_in(optimizer)]


def _is_sharded_by_itself(module: nn.Module) -> bool:
    return hasattr(module, "set_requires_gradient_sync")  # a method that torch gives such a module


def _roots_in(module: nn.Module) -> list[Any]:
    if _is_sharded_by_itself(module):
        return [module]
    return [root for child in module.children() for root in _roots_in(child)]


def _sharded_in(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield what torch keeps for each sharded parameter."""
    for state in (one._get_fsdp_state() for root in roots for one in root.modules() if _is_sharded_by_itself(one)):
        for group in getattr(state, "_fsdp_param_groups", None) or filter(None, [state._fsdp_param_group]):
            yield from group.fsdp_params


def _take_gathered(parameter: Any) -> Any:
    """Take the gradient that torch has gathered in this process alone; None if there is none."""
    gradient, parameter.unsharded_accumulated_grad = parameter.unsharded_accumulated_grad, None
    unsharded = getattr(parameter, "_unsharded_param", None)
    if gradient is None and unsharded is not None:
        gradient, unsharded.grad = unsharded.grad, None
    return gradient


def full_state(state: Any) -> Any:
    """Return a nested state with a whole tensor on the CPU for each sharded one; all processes must call it alike.

    >>> full_state({"step": 3, "moments": [torch.zeros(2)]})
    {'step': 3, 'moments': [tensor([0., 0.])]}
    """
    if is_sharded(state):
        return as_whole(state.detach()).cpu()
    if type(state) in (list, tuple):
        return type(state)(map(full_state, state))
    if type(state) in MAPPINGS:
        return type(state)({key: full_state(value) for key, value in state.items()})
    return state
