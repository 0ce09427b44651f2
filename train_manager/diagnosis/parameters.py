"""Parameters that a training leaves out, and layers in the wrong mode: found after a backward pass, from one look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from train_manager.loop.arguments import modules_of_loss
from train_manager.loop.parameter_check import (
    CHECK,
    FROZEN,
    IDLE,
    SHARED,
    UNOWNED,
    in_no_optimizer,
    in_several,
    is_frozen,
    names_of,
    told,
    without_gradient,
)
from train_manager.model.optimizers import parameters_in
from train_manager.telling.findings import Coverage, Finding, Findings

ZEROS: Final = (
    "{count} {parameters} of {which} {have} a gradient of zeros alone",
    "is a layer behind {them} dead, or multiplied by zero? behind a layer that begins with zeros it is so at step 1",
)
SHIFTS: Final = (
    "{count} {parameters} of {which} {have} a gradient of zeros alone, in a layer that learns",
    "a loss of differences does not see what all outputs share: bias=False leaves {them} out",
)
AMONG_OTHERS: Final = (
    "{count} {parameters} of {which} {are} frozen, beside others that are trained",
    "leave {them} out of the optimizer if that is for good; each step passes over {them}",
)
OF_THE_LOSS: Final = (
    "{count} {parameters} of the loss {are} in no optimizer",
    "give {them} to one: [*model.parameters(), *loss.parameters()], or freeze {them}: requires_grad_(False)",
)

UNREGISTERED: Final = (
    "{count} {tensors} that {learn} {are} no {parameters} of the model",
    "keep layers in an nn.ModuleList, not in a list; give a tensor as nn.Parameter; or freeze {them}: "
    "requires_grad_(False)",
)


def check_parameters(model: nn.Module, optimizers: Mapping[str, Optimizer] | Optimizer, loss: Any = None) -> Findings:
    """Find parameters that a training leaves out, and layers in eval mode, after a backward pass of its loss.

    It looks at the gradients as they are: call it between ``backward()`` and ``zero_grad()``. The loop tells by itself
    what its first steps can know (``tm.check_parameters``); here are also gradients of zeros, which are usual in the
    first step behind a layer that begins with zeros, the parameters of the loss, and modes.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    >>> model(torch.ones(3, 2)).sum().backward()
    >>> print(check_parameters(model, optimizer)[0])
    warning: 2 parameters have a gradient and are in no optimizer
      where  1.weight, 1.bias
      do     give them to one, or freeze them: requires_grad_(False)

    Args:
        model: what is trained, in the mode in which it is trained.
        optimizers: one, or several by name.
        loss: if it is a module, its parameters are looked at too.
    """
    by_name = {"optimizer": optimizers} if isinstance(optimizers, Optimizer) else dict(optimizers)
    parameters = list(dict.fromkeys(_parameters(model, loss)))
    if not by_name:
        return Findings(covered=[Coverage(CHECK, "there is no optimizer", could_look=False)])
    if all(one.grad is None for one in parameters):
        why = "no parameter has a gradient: it looks after a backward pass, before the gradients are freed"
        return Findings(covered=[Coverage(CHECK, why, could_look=False)])
    found = [*_of_gradients(model, loss, by_name), *_of_modes(model)]
    optimizer = "1 optimizer" if len(by_name) == 1 else f"{len(by_name):,} optimizers"
    mode = "train" if model.training else "eval"
    trained = sum(one.requires_grad for one in parameters)
    frozen = f" ({trained:,} trained, {len(parameters) - trained:,} frozen)" if trained < len(parameters) else ""
    return Findings(found, [Coverage(CHECK, f"{len(parameters):,} parameters{frozen}, {optimizer}, {mode} mode")])


def check_unregistered(
    leaves: Sequence[Tensor], model: nn.Module, optimizers: Mapping[str, Optimizer], loss: Any = None
) -> Iterator[Finding]:
    """Yield whether tensors that learn are parameters of nothing, as those of layers in a plain list.

    Args:
        leaves: what a backward pass gives gradients to, as ``leaves_behind`` returns it.
        model: what is trained.
        optimizers: by name.
        loss: if it is a module, its parameters are known too.
    """
    known = {*map(id, _parameters(model, loss))}
    known |= {id(one) for optimizer in optimizers.values() for one in parameters_in(optimizer)}
    yield from told([one for one in leaves if id(one) not in known], {}, "error", UNREGISTERED)


def leaves_behind(loss: Tensor) -> list[Tensor]:
    """Return the tensors without a graph of their own that a backward pass of a loss gives gradients to.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> [one is weight for one in leaves_behind((2 * weight).sum())]
    [True]
    """
    ahead, seen, found = [loss.grad_fn], set[Any](), list[Tensor]()
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead += [inner for inner, _ in node.next_functions]
            found += [node.variable] if hasattr(node, "variable") else []
    return found


def _of_gradients(model: nn.Module, loss: Any, optimizers: Mapping[str, Optimizer]) -> Iterator[Finding]:
    names, every = names_of(model, loss), list(optimizers.values())
    owned = {id(one) for optimizer in every for one in parameters_in(optimizer)}
    of_loss = [one for module in modules_of_loss(loss) for one in module.parameters()]
    yield from told(in_no_optimizer(model.parameters(), every), names, "warning", UNOWNED)
    left_out = [one for one in of_loss if one.requires_grad and id(one) not in owned]
    yield from told(left_out, names, "warning", OF_THE_LOSS)
    yield from told(in_several(every), names, "warning", SHARED)
    for name, optimizer in optimizers.items():
        groups = [group["params"] for group in optimizer.param_groups]
        rests = [one for group in groups if is_frozen(group) for one in group]
        among = [one for group in groups if not is_frozen(group) for one in group if not one.requires_grad]
        yield from told(rests, names, "warning", FROZEN, name)
        yield from told(among, names, "note", AMONG_OTHERS, name)
        yield from told(without_gradient(optimizer), names, "warning", IDLE, name)
        zeros = _zeros(optimizer)
        shifts = _shifts(model, {id(one) for one in zeros})
        yield from told([one for one in zeros if id(one) not in shifts], names, "warning", ZEROS, name)
        yield from told([one for one in zeros if id(one) in shifts], names, "note", SHIFTS, name)


def _zeros(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters whose gradient is zero everywhere; this waits for the device."""
    return [one for one in parameters_in(optimizer) if one.grad is not None and not any_nonzero(one.grad)]


def _shifts(model: nn.Module, zeros: set[int]) -> set[int]:
    """Return the biases among them whose layers have weights with a gradient that is not zero."""
    pairs = ((getattr(one, "weight", None), getattr(one, "bias", None)) for one in model.modules())
    learn = ((weight, bias) for weight, bias in pairs if getattr(weight, "grad", None) is not None)
    return {id(bias) for weight, bias in learn if id(bias) in zeros and id(weight) not in zeros}


def any_nonzero(gradient: Tensor) -> bool:
    """Return whether a gradient, sparse or not, has a number that is not zero; this waits for the device."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(torch.count_nonzero(values))


def _of_modes(model: nn.Module) -> Iterator[Finding]:
    """Yield the layers in eval mode of a model in train mode, unless they are frozen."""
    if not model.training:
        return
    resting = [(name, module) for name, module in model.named_modules() if not module.training]
    norms = [name for name, one in resting if isinstance(one, _NormBase) and _is_trained(one)]
    dropouts = [name for name, one in resting if isinstance(one, _DropoutNd) and one.p > 0 and _is_beside(name, model)]
    for kind, names in (("norm", norms), ("dropout", dropouts)):
        if names:
            layers = f"{kind} is" if len(names) == 1 else f"{kind}s are"
            what = f"{len(names):,} {layers} in eval mode, while the model is trained"
            yield Finding(CHECK, "warning", what, ", ".join(names), "call model.train() after each evaluation")


def _is_trained(module: nn.Module) -> bool:
    return any(one.requires_grad for one in module.parameters())


def _is_beside(name: str, model: nn.Module) -> bool:
    """Return whether the innermost module around a layer that has parameters is trained."""
    while name:
        name = name.rpartition(".")[0]
        around = model.get_submodule(name)
        if next(around.parameters(), None) is not None:
            return _is_trained(around)
    return False


def _parameters(model: nn.Module, loss: Any) -> Iterator[nn.Parameter]:
    yield from model.parameters()
    for module in modules_of_loss(loss):
        yield from module.parameters()
