"""Which parameters a training leaves out, from a look at them as the gradients of an optimizer's first windows are.

The loop looks by itself; ``check_parameters`` in ``diagnosis`` tells more of a model. No hook is needed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Any, Final, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.loop.arguments import modules_of_loss
from train_manager.model.optimizers import parameters_in
from train_manager.telling.findings import Finding, Level

CHECK: Final = "parameters"
WINDOWS: Final = 10  # a part that every second window leaves out, at random, is in one of these but once in a thousand
WHOLE: Final = 4  # a module with more parameters than these is named in place of them

Texts = tuple[Level, str, str]
"""How bad a finding is, what was found, and the cure."""

UNOWNED: Final[Texts] = (
    "warning",
    "{count} {parameters} {have} a gradient and {are} in no optimizer",
    "give {them} to one, or freeze {them}: requires_grad_(False)",
)
SHARED: Final[Texts] = (
    "warning",
    "{count} {parameters} {are} in several optimizers",
    "give {them} to one: each would step {them}",
)
FROZEN: Final[Texts] = (
    "warning",
    "{count} {parameters} {are} frozen, and a group of {which} has no other",
    "leave the group out, or train it: requires_grad_(True)",
)
IDLE: Final[Texts] = (
    "warning",
    "{count} {parameters} of {which} {have} no gradient after a backward pass",
    "does the loss depend on {them}, without detach() or no_grad()? else freeze {them}: requires_grad_(False)",
)
MANY: Final = ("parameters", "tensors", "learn", "are", "have", "them")
ONE: Final = ("parameter", "tensor", "learns", "is", "has", "it")
"""The words of a text that are others if it is of one."""


def found_in_first_window(
    model: Any,
    loss: Any,
    optimizers: Mapping[str, Optimizer],
    name: str,
    *,
    wrapped: bool = False,
    around: Iterable[Optimizer] = (),
    frozen: Collection[int] = (),
) -> list[Finding]:
    """Return what is wrong with the parameters of a training, as far as one step can know.

    A target network, of which no loss takes a gradient, may be in no optimizer; and what ``model.parameters()`` gives
    may be frozen, but no group as a whole. Which parameters no loss reaches is not among it: ``Idle`` tells that, for a
    step may pass over a part.

    Args:
        model: what is trained.
        loss: may have parameters too.
        optimizers: by name.
        name: of the one whose gradients are complete.
        wrapped: a compiled or wrapped form of the model is called, which may have flattened parameters into its own.
        around: the optimizers of the training around a phase.
        frozen: the ids of parameters that an extension has frozen, and will train later.
    """
    names, optimizer = names_of(model, loss), optimizers[name]
    owners = Counter(one for owner in optimizers.values() for one in dict.fromkeys(parameters_in(owner)))
    owned = {*map(id, owners), *(id(one) for owner in around for one in parameters_in(owner))}
    are_flat = wrapped and any(id(one) not in names for one in parameters_in(optimizer))
    of_model = () if are_flat or not isinstance(model, nn.Module) else model.parameters()
    learn = (one for one in of_model if one.requires_grad and one.grad is not None)
    groups: list[list[Tensor]] = [group["params"] for group in optimizer.param_groups]
    resting = (group for group in groups if not any(one.requires_grad or id(one) in frozen for one in group))
    return [
        *told((one for one in learn if id(one) not in owned), names, UNOWNED),
        *told((one for one, count in owners.items() if count > 1), names, SHARED),
        *told((one for group in resting for one in group), names, FROZEN, name),
    ]


@final
class Idle:
    """The parameters of an optimizer that had no gradient in any window so far.

    One window cannot tell: stochastic depth leaves blocks out at random, and heads may be trained by turns.

    Args:
        optimizer: the gradients of its first window are complete.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._parameters = [one for one in parameters_in(optimizer) if one.requires_grad]
        self._windows = 0
        self.look()

    def look(self) -> None:
        """Look at the gradients of a window."""
        self._parameters = [one for one in self._parameters if one.grad is None]
        self._windows += 1

    @property
    def is_known(self) -> bool:
        """Whether all windows have been looked at."""
        return not self._parameters or self._windows >= WINDOWS

    def found(self, model: Any, loss: Any, optimizer: Optimizer, name: str) -> list[Finding]:
        """Return them, unless the optimizer trains no other: the loop warns of that itself."""
        if all(one.grad is None for one in parameters_in(optimizer)):
            return []
        return told((one for one in self._parameters if one.requires_grad), names_of(model, loss), IDLE, name)


# ---- texts and names -------------------------------------------------------------------------------------------------


def told(parameters: Iterable[Tensor], names: Mapping[int, str], texts: Texts, optimizer: str = "") -> list[Finding]:
    """Return a finding of parameters, if there are any."""
    found = {id(one): one for one in parameters}
    if not found:
        return []
    words = dict(zip(MANY, ONE if len(found) == 1 else MANY, strict=True))
    which = "the optimizer" if optimizer == "optimizer" else f"optimizer {optimizer!r}"
    level, what, cure = texts
    what, cure = (text.format(**words, count=f"{len(found):,}", which=which) for text in (what, cure))
    return [Finding(CHECK, level, what, ", ".join(places(found, names)), cure)]


def names_of(model: Any, loss: Any) -> dict[int, str]:
    """Return the names of the parameters, by their ids; those of the loss begin with "loss."."""
    modules = [*(("loss.", one) for one in modules_of_loss(loss)), ("", model)]
    named = [(prefix, module) for prefix, module in modules if isinstance(module, nn.Module)]
    return {id(one): f"{prefix}{name}" for prefix, module in named for name, one in module.named_parameters()}


def places(found: Mapping[int, Tensor], names: Mapping[int, str]) -> list[str]:
    """Return the names of parameters; a module all of whose many parameters are among them is named in their place."""
    unnamed = [f"a tensor of shape {tuple(one.shape)}" for key, one in found.items() if key not in names]
    named = [name for key, name in names.items() if key in found]
    inside, every = (Counter(module for one in some for module in _around(one)) for some in (named, names.values()))
    whole = {module for module, count in inside.items() if count == every[module] > WHOLE}
    shown = [next((f"{module}.*" for module in _around(name) if module in whole), name) for name in named]
    return [*dict.fromkeys(shown), *unnamed]


def _around(name: str) -> Iterable[str]:
    """Return the names of the modules around a parameter, the outermost first."""
    return accumulate(name.split(".")[:-1], "{}.{}".format)
