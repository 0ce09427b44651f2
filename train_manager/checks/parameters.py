"""Parameters that a training leaves out, and layers in the wrong mode: found in one look after a backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from train_manager.loop.arguments import modules_of_loss
from train_manager.loop.parameter_check import CHECK, Idle, Texts, check_first_window, make_findings, names_of
from train_manager.model.optimizers import parameters_in
from train_manager.telling.findings import Coverage, Finding, Findings

# The texts of the findings; "{...}" stands for numbers and for words in singular or plural.
ZEROS: Final[Texts] = (
    "warning",
    "{count} {parameters} of {which} {have} a gradient of zeros alone",
    "is a layer behind {them} dead, or multiplied by zero? behind a layer that begins with zeros it is so at step 1",
)
# Before a softmax or a norm, a bias shifts all outputs alike, and has no gradient.
SHIFTS: Final[Texts] = (
    "note",
    "{count} {parameters} of {which} {have} a gradient of zeros alone, in a layer that learns",
    "a loss of differences does not see what all outputs share: bias=False leaves {them} out",
)
AMONG_OTHERS: Final[Texts] = (
    "note",
    "{count} {parameters} of {which} {are} frozen, beside others that are trained",
    "leave {them} out of the optimizer if that is for good; each step passes over {them}",
)
OF_THE_LOSS: Final[Texts] = (
    "warning",
    "{count} {parameters} of the loss {are} in no optimizer",
    "give {them} to one: [*model.parameters(), *loss.parameters()], or freeze {them}: requires_grad_(False)",
)
UNREGISTERED: Final[Texts] = (
    "error",
    "{count} {tensors} that {learn} {are} not among the parameters of the model",
    "keep layers in an nn.ModuleList, not in a list; give a tensor as nn.Parameter; or freeze {them}: "
    "requires_grad_(False)",
)
RESTING: Final = {"norm": _NormBase, "dropout": _DropoutNd}  # layers that behave otherwise in eval mode


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
    warning: 2 parameters have a gradient and are in no optimizer
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
    names, hidden = names_of(model, loss), hidden_in(model)
    found = [
        *make_findings((one for one in hidden if one.grad is not None and id(one) not in owned), names, UNREGISTERED),
        *make_findings((one for one in of_loss if one.requires_grad and id(one) not in owned), names, OF_THE_LOSS),
    ]
    for name, optimizer in by_name.items():
        found += check_first_window(model, loss, by_name, name)
        found += Idle(optimizer).find(model, loss, optimizer, name)
        found += _of_gradients(model, optimizer, names, name)
    found += _of_modes(model)
    optimizer_text = "1 optimizer" if len(by_name) == 1 else f"{len(by_name):,} optimizers"
    trained, mode = sum(one.requires_grad for one in parameters), "train" if model.training else "eval"
    frozen = f" ({trained:,} trained, {len(parameters) - trained:,} frozen)" if trained < len(parameters) else ""
    covered = f"{len(parameters):,} parameters{frozen}, {optimizer_text}, {mode} mode"
    return Findings(dict.fromkeys(found), [Coverage(CHECK, covered)])


def hidden_in(model: nn.Module) -> list[Tensor]:
    """Return the tensors with gradients in attributes of modules, also in lists of layers, that are not parameters."""
    leaves = [leaf for module in model.modules() for leaf in tree_leaves(vars(module))]
    tensors = [one for leaf in leaves for one in (leaf.parameters() if isinstance(leaf, nn.Module) else [leaf])]
    known = {*map(id, model.parameters())}
    learn = (one for one in tensors if isinstance(one, Tensor) and one.is_leaf and one.requires_grad)
    return [one for one in learn if id(one) not in known]


def sums_and_counts(module: nn.Module) -> tuple[list[float], dict[str, int]]:
    """Return the sum of each parameter, and how many batches each norm has seen; nothing without such a norm."""
    norms = [(name, one.num_batches_tracked) for name, one in module.named_modules() if isinstance(one, _NormBase)]
    counts = {name: int(count) for name, count in norms if count is not None}
    return [one.sum().item() for one in module.parameters() if counts], counts


def check_beside(module: nn.Module, sums: list[float], counts: dict[str, int]) -> Iterator[Finding]:
    """Yield a finding about a module beside the model whose statistics have changed, while its parameters have not."""
    sums_now, counts_now = sums_and_counts(module)
    if counts != counts_now and sums == sums_now:  # the parameters of a mean teacher change too
        what = f"a {type(module).__name__} that no optimizer trains is in train mode, so its statistics change"
        names = ", ".join(name for name in counts if counts[name] != counts_now[name])
        yield Finding(CHECK, "warning", what, names, "call its eval() before the training")


def any_nonzero(gradient: Tensor) -> bool:
    """Return whether a gradient, sparse or not, has a number that is not zero; this waits for the device."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(torch.count_nonzero(values))


def _of_gradients(model: nn.Module, optimizer: Optimizer, names: Mapping[int, str], name: str) -> list[Finding]:
    """Return findings about frozen parameters in trained groups, and about gradients of zeros."""
    groups: list[list[Tensor]] = [group["params"] for group in optimizer.param_groups]
    trained = (group for group in groups if any(one.requires_grad for one in group))
    zeros = [one for one in parameters_in(optimizer) if one.grad is not None and not any_nonzero(one.grad)]
    keys = {*map(id, zeros)}
    # A bias with zeros, whose weight has a gradient, is harmless, and gets a note of its own.
    pairs = ((getattr(one, "weight", None), getattr(one, "bias", None)) for one in model.modules())
    learn = ((weight, bias) for weight, bias in pairs if getattr(weight, "grad", None) is not None)
    shifts = {id(bias) for weight, bias in learn if id(weight) not in keys}
    return [
        *make_findings((one for group in trained for one in group if not one.requires_grad), names, AMONG_OTHERS, name),
        *make_findings((one for one in zeros if id(one) not in shifts), names, ZEROS, name),
        *make_findings((one for one in zeros if id(one) in shifts), names, SHIFTS, name),
    ]


def _of_modes(model: nn.Module) -> Iterator[Finding]:
    """Yield findings about layers in eval mode in a model in train mode, unless they are frozen."""
    # Frozen norms are put into eval mode on purpose.
    resting = [(name, one) for name, one in model.named_modules() if model.training and not one.training]
    for kind, type_of_it in RESTING.items():
        names = [name for name, one in resting if isinstance(one, type_of_it) and _is_trained(name, model)]
        if names:
            layers = f"{kind} is" if len(names) == 1 else f"{kind}s are"
            what = f"{len(names):,} {layers} in eval mode, while the model is trained"
            yield Finding(CHECK, "warning", what, ", ".join(names), "call model.train() after each evaluation")


def _is_trained(name: str, model: nn.Module) -> bool:
    """Return whether a layer is trained; a layer without parameters counts like the module around it."""
    around = [*model.get_submodule(name).parameters()]
    if around or not name:
        return any(one.requires_grad for one in around)
    return _is_trained(name.rpartition(".")[0], model)
