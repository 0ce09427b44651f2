"""Which parameters a training leaves out, from a look at them as the gradients of an optimizer's first windows are.

The loop looks by itself; ``check_parameters`` in ``diagnosis`` tells more of a model. No hook is needed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.loop.arguments import modules_of_loss
from train_manager.model.optimizers import parameters_in
from train_manager.telling.findings import Finding, Level

CHECK: Final = "parameters"
WINDOWS: Final = 10  # a part that every second window leaves out, at random, is in one of these but once in a thousand
WHOLE: Final = 4  # a module with more parameters than these is named in place of them

Parameters = Iterable[Tensor]


def found_in_first_window(
    model: Any,
    loss: Any,
    optimizers: Mapping[str, Optimizer],
    name: str,
    *,
    wrapped: bool = False,
    around: Iterable[Optimizer] = (),
    frozen: Collection[int] = (),
) -> Iterator[Finding]:
    """Yield what is wrong with the parameters of a training, as far as one step can know.

    Which of them no loss reaches is not among it: ``Idle`` tells that, for a step may pass over a part.

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
    owned = [*optimizers.values(), *around]
    are_flat = wrapped and any(id(one) not in names for one in parameters_in(optimizer))
    yield from told(() if are_flat else in_no_optimizer(_parameters_of(model), owned), names, "warning", UNOWNED)
    yield from told(in_several(optimizers.values()), names, "warning", SHARED)
    groups = (group["params"] for group in optimizer.param_groups)
    rests = [one for group in groups if is_frozen(group, frozen) for one in group]
    yield from told(rests, names, "warning", FROZEN, name)


@final
class Idle:
    """The parameters of an optimizer that had no gradient in any window so far.

    One window cannot tell: stochastic depth leaves blocks out at random, and heads may be trained by turns.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._parameters = without_gradient(optimizer, or_all=True)
        self._windows = 1

    def look(self) -> None:
        """Look at the gradients of a further window."""
        self._parameters = [one for one in self._parameters if one.grad is None]
        self._windows += 1

    @property
    def is_known(self) -> bool:
        """Whether all windows have been looked at."""
        return not self._parameters or self._windows >= WINDOWS

    def found(self, model: Any, loss: Any, optimizer: Optimizer, name: str) -> Iterator[Finding]:
        """Yield them, unless the optimizer trains no other: the loop warns of that itself."""
        trainable = [one for one in self._parameters if one.requires_grad]
        if any(one.grad is not None for one in parameters_in(optimizer)):
            yield from told(trainable, names_of(model, loss), "warning", IDLE, name)


UNOWNED: Final = (
    "{count} {parameters} {have} a gradient and {are} in no optimizer",
    "give {them} to one, or freeze {them}: requires_grad_(False)",
)
SHARED: Final = ("{count} {parameters} {are} in several optimizers", "give {them} to one: each would step {them}")
FROZEN: Final = (
    "{count} {parameters} {are} frozen, and a group of {which} has no other",
    "leave the group out, or train it: requires_grad_(True)",
)
IDLE: Final = (
    "{count} {parameters} of {which} {have} no gradient after a backward pass",
    "does the loss depend on {them}, without detach() or no_grad()? else freeze {them}: requires_grad_(False)",
)


def told(
    parameters: Parameters, names: Mapping[int, str], level: Level, texts: tuple[str, str], optimizer: str = ""
) -> Iterator[Finding]:
    """Yield a finding of parameters, if there are any."""
    found = {id(one): one for one in parameters}
    if not found:
        return
    are, have, them = ("is", "has", "it") if len(found) == 1 else ("are", "have", "them")
    words = {"count": f"{len(found):,}", "parameters": "parameter" if len(found) == 1 else "parameters"}
    words |= {"tensors": "tensor", "learn": "learns"} if len(found) == 1 else {"tensors": "tensors", "learn": "learn"}
    words |= {"are": are, "have": have, "them": them}
    words["which"] = "the optimizer" if optimizer == "optimizer" else f"optimizer {optimizer!r}"
    what, cure = (text.format(**words) for text in texts)
    yield Finding(CHECK, level, what, ", ".join(places(found, names)), cure)


def in_no_optimizer(parameters: Parameters, optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """Return those that a loss has given a gradient, and that no optimizer has.

    A target network, of which no loss takes a gradient, is none of them.
    """
    owned = {id(one) for optimizer in optimizers for one in parameters_in(optimizer)}
    return [one for one in parameters if one.requires_grad and one.grad is not None and id(one) not in owned]


def in_several(optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """Return the parameters that more than one optimizer has."""
    seen: set[int] = set()
    found: list[Tensor] = []
    for optimizer in optimizers:
        own = {id(one): one for one in parameters_in(optimizer)}
        found += [one for key, one in own.items() if key in seen]
        seen |= own.keys()
    return found


def is_frozen(group: Collection[Tensor], frozen: Collection[int] = ()) -> bool:
    """Return whether a group of an optimizer is frozen as a whole, and not by an extension.

    Of a group with others, the frozen ones are left out of each step: it is what ``model.parameters()`` gives.
    """
    return bool(group) and not any(one.requires_grad or id(one) in frozen for one in group)


def without_gradient(optimizer: Optimizer, *, or_all: bool = False) -> list[Tensor]:
    """Return the parameters of an optimizer that have no gradient.

    If none of them has one the loop warns of that itself, and they are returned only if ``or_all`` is set.
    """
    trainable = [one for one in parameters_in(optimizer) if one.requires_grad]
    idle = [one for one in trainable if one.grad is None]
    return [] if len(idle) == len(trainable) and not or_all else idle


# ---- names -----------------------------------------------------------------------------------------------------------


def names_of(model: Any, loss: Any) -> dict[int, str]:
    """Return the names of the parameters, by their ids; those of the loss begin with "loss."."""
    found: dict[int, str] = {}
    for prefix, module in (*(("loss.", one) for one in modules_of_loss(loss)), ("", model)):
        if isinstance(module, nn.Module):
            found |= {id(one): f"{prefix}{name}" for name, one in module.named_parameters()}
    return found


def places(found: Mapping[int, Tensor], names: Mapping[int, str]) -> list[str]:
    """Return the names of parameters; a module all of whose many parameters are among them is named in their place."""
    unnamed = [f"a tensor of shape {tuple(one.shape)}" for key, one in found.items() if key not in names]
    named = [name for key, name in names.items() if key in found]
    inside, all_inside = (
        Counter(module for one in some for module in _around(one)) for some in (named, names.values())
    )
    whole = {module for module, count in inside.items() if count == all_inside[module] > WHOLE}
    shown = [next((f"{module}.*" for module in _around(name) if module in whole), name) for name in named]
    return [*dict.fromkeys(shown), *unnamed]


def _around(name: str) -> list[str]:
    """Return the names of the modules around a parameter, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def _parameters_of(model: Any) -> Parameters:
    return model.parameters() if isinstance(model, nn.Module) else ()
