"""The check of parameters that a training leaves out, and of layers in the wrong mode, after a backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from train_manager.loop.arguments import modules_of_loss
from train_manager.model.optimizers import parameters_in
from train_manager.model.parameters import (
    CHECK,
    OF_THE_LOSS,
    UNREGISTERED,
    Idle,
    check_first_window,
    check_gradients,
    check_modes,
    hidden_in,
    make_findings,
    names_of,
)
from train_manager.telling.findings import Coverage, Findings


def check_parameters(model: nn.Module, optimizers: Mapping[str, Optimizer] | Optimizer, loss: Any = None) -> Findings:
    """Find parameters that a training leaves out, and layers in eval mode, after a backward pass of its loss.

    It looks at the gradients as they are: call it between ``backward()`` and ``zero_grad()``. The loop itself reports
    the faults that its first steps show (``tm.check_parameters``). This check also finds gradients of zeros, which are
    usual in the first step behind a layer that begins with zeros, the parameters of the loss, layers in a plain list,
    and modes.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    >>> model(torch.ones(3, 2)).sum().backward()
    >>> print(check_parameters(model, optimizer)[0])
    warning: 2 parameters have a gradient and are in no optimizer [parameter-without-optimizer]
      where  1.weight, 1.bias
      do     give them to one, or freeze them: requires_grad_(False)

    Args:
        model: the model, in the mode in which it is trained.
        optimizers: one optimizer, or several by name.
        loss: the loss; if it is a module, its parameters are checked too.
    """
    by_name = {"optimizer": optimizers} if isinstance(optimizers, Optimizer) else dict(optimizers)
    of_loss = [one for module in modules_of_loss(loss) for one in module.parameters()]
    parameters = list(dict.fromkeys([*model.parameters(), *of_loss]))
    if not by_name:
        return Findings.not_looked(CHECK, "there is no optimizer")
    if all(one.grad is None for one in parameters):
        why = "no parameter has a gradient: it looks after a backward pass, before the gradients are freed"
        return Findings.not_looked(CHECK, why)
    owned = {id(one) for optimizer in by_name.values() for one in parameters_in(optimizer)}
    names, hidden = names_of(model, modules_of_loss(loss)), hidden_in(model)
    found = [
        *make_findings((one for one in hidden if one.grad is not None and id(one) not in owned), names, UNREGISTERED),
        *make_findings((one for one in of_loss if one.requires_grad and id(one) not in owned), names, OF_THE_LOSS),
    ]
    for name, optimizer in by_name.items():
        found += check_first_window(model, names, by_name, name)
        found += Idle(optimizer).find(names, optimizer, name)
        found += check_gradients(model, optimizer, names, name)
    found += check_modes(model)
    optimizer_text = "1 optimizer" if len(by_name) == 1 else f"{len(by_name):,} optimizers"
    trained, mode = sum(one.requires_grad for one in parameters), "train" if model.training else "eval"
    frozen = f" ({trained:,} trained, {len(parameters) - trained:,} frozen)" if trained < len(parameters) else ""
    covered = f"{len(parameters):,} parameters{frozen}, {optimizer_text}, {mode} mode"
    return Findings(dict.fromkeys(found), [Coverage(CHECK, covered)])
