"""Parameters that take the place of others in an optimizer, as when a layer grows during a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from train_manager.model.optimizers import parameters_in
from train_manager.model.sharding import as_sharded
from train_manager.telling.errors import InputError


def replace_in_optimizers(optimizers: Iterable[Optimizer], replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
    """Replace parameters in all optimizers that have them; on an error, nothing is changed.

    Args:
        optimizers: all optimizers of a training.
        replaced: old parameter -> new parameter.

    Raises:
        InputError: no optimizer has an old one, an optimizer has a new one, or the number of dimensions differs.
    """
    optimizers = list(optimizers)
    _require_replaceable(optimizers, replaced)
    for optimizer in optimizers:
        replace_in_optimizer(optimizer, replaced)
    for old in replaced:
        old.grad = None  # as large as the parameter; nothing would free it while the user holds the old one


def replace_in_optimizer(optimizer: Optimizer, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
    """Put new parameters in the places of old ones, with the state of these in the optimizer, such as moments.

    A state of the parameter's shape is copied as far as both shapes reach, and is zero beyond; other states are kept.

    >>> import torch
    >>> old, new = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([old], lr=0.5, momentum=0.9)
    >>> old.sum().backward()
    >>> optimizer.step()
    >>> replace_in_optimizer(optimizer, {old: new})
    >>> optimizer.state[new]
    {'momentum_buffer': tensor([1., 0.])}
    """
    for group in optimizer.param_groups:
        parameters = group["params"]
        for index, old in enumerate(parameters):
            if old in replaced:
                parameters[index] = replaced[old]  # at the same index, by which a checkpoint knows a parameter
    for old, new in replaced.items():
        if old in optimizer.state:
            state = optimizer.state.pop(old)
            optimizer.state[new] = {name: _moved(value, old, new) for name, value in state.items()}


def _moved(value: Any, old: Tensor, new: Tensor) -> Any:
    """Return an entry of the state in the shape, on the device, and in the shards of the new parameter."""
    # A counter of steps has no shape; an equal shape on the same device needs no copy.
    if not isinstance(value, Tensor) or not value.dim() or (old.shape == new.shape and old.device == new.device):
        return as_sharded(value, new)
    # A factored moment (Adafactor) has size 1 in place of some dimensions, and keeps it.
    pairs = zip(value.shape, old.shape, new.shape, strict=True)
    moved = value.new_zeros([now if size == before else size for size, before, now in pairs], device=new.device)
    block = tuple(slice(min(sizes)) for sizes in zip(value.shape, moved.shape, strict=True))
    moved[block] = value[block].to(new.device)
    return as_sharded(moved, new)


def _require_replaceable(optimizers: list[Optimizer], replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
    """Refuse a mapping that cannot be carried out, before anything changes."""
    own = {id(parameter) for optimizer in optimizers for parameter in parameters_in(optimizer)}
    added: set[int] = set()
    for old, new in replaced.items():
        for parameter in (old, new):
            if not isinstance(parameter, Tensor):
                cure = "give tensors: {old_layer.weight: new_layer.weight}"
                raise _refused(f"a {type(parameter).__name__} is not a parameter", cure)
        if id(old) not in own:
            raise _refused(f"no optimizer has the old parameter {_shape(old)}", "was it replaced already?")
        if id(new) in own or id(new) in added:
            raise _refused(f"the new parameter {_shape(new)} is in use already", "give each old one a new one")
        if not new.is_leaf or (not new.is_floating_point() and not new.is_complex()):
            raise _refused(f"the new parameter {_shape(new)} cannot be trained", "wrap it: nn.Parameter(value)")
        if old.dim() != new.dim():
            cure = "give one with as many dimensions, or make a new optimizer"
            raise _refused(f"the old parameter {_shape(old)} and the new one {_shape(new)} differ in dimensions", cure)
        added.add(id(new))
    _require_states_of_one_parameter(optimizers, replaced)


def _require_states_of_one_parameter(
    optimizers: list[Optimizer], replaced: Mapping[nn.Parameter, nn.Parameter]
) -> None:
    """Refuse a change of shapes if an optimizer keeps anything else than tensors shaped like a parameter."""
    for optimizer in optimizers:
        for old, new in replaced.items():
            entries = optimizer.state.get(old, {})
            if old.shape == new.shape or not any(old is parameter for parameter in parameters_in(optimizer)):
                continue
            odd = next((name for name, value in entries.items() if not _is_shaped_like(value, old)), None)
            # LBFGS keeps the state of all parameters, as one vector, at the first of them.
            if odd is not None or isinstance(optimizer, LBFGS):
                kind = type(optimizer).__name__
                what = f"the state of {kind} is not shaped like its parameters, so it cannot follow a change of shape"
                raise _refused(what, f"make a new optimizer: tm.optimizer = {kind}(tm.model.parameters())")


def _is_shaped_like(value: Any, parameter: Tensor) -> bool:
    """Return whether ``_moved`` can give an entry of the state another shape, or may leave it as it is."""
    if isinstance(value, list | tuple):
        return not any(isinstance(inner, Tensor) for inner in value)
    if not isinstance(value, Tensor) or not value.dim():
        return True
    same = value.dim() == parameter.dim()
    return same and all(size in (1, full) for size, full in zip(value.shape, parameter.shape, strict=True))


def _shape(parameter: Tensor) -> str:
    return f"of shape {tuple(parameter.shape)}"


def _refused(what: str, cure: str) -> InputError:
    return InputError(what, name="replace_parameters", asked_by="replace_parameters", cure=cure)
