"""Which parameters a training leaves out, found from the gradients of an optimizer's first windows.

The loop adds this check by itself, and it leaves as soon as it knows; ``check_parameters`` in ``checks`` reports
more about a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Any, Final, final

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from train_manager.core.extension import Extension
from train_manager.loop.arguments import modules_of_loss
from train_manager.model.modules import plain_name
from train_manager.model.optimizers import parameters_in
from train_manager.telling.findings import Finding, Level

CHECK: Final = "parameters"
# A submodule that every second window leaves out at random is in none of these once in a thousand trainings.
WINDOWS: Final = 10
WHOLE: Final = 4  # of a module with more parameters than these, the module is named in place of its parameters

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
WOKEN: Final = "a module without trained parameters was in eval mode, and its BatchNorm or dropout is in train mode now"
MANY: Final = ("parameters", "tensors", "learn", "are", "have", "them")
ONE: Final = ("parameter", "tensor", "learns", "is", "has", "it")
"""The words of the texts that depend on the number of parameters: for several, and for one."""


@final
class ParameterCheck(Extension):
    """Warns of parameters that a training leaves out, as the first windows of its optimizers have their gradients.

    A ``Setup`` has one for the components that it trains. The loop has it among the extensions of its training calls,
    until it knows of all optimizers.
    """

    priority = -1_000_000  # before hooks that change gradients, or skip the step
    _checked_before_run = False  # an own train_batch may make no step of the loop

    def __init__(self) -> None:
        self._idle: dict[str, Idle] = {}  # by the name of the optimizer, until all is known of it
        self._known: set[str] = set()  # the optimizers of which all is known

    def pre_train_optimizer_step(self, optimizer_name: str, train_manager: Any) -> None:
        setup = train_manager._setup
        # Another one: a hook has replaced a component, which is looked at from the next training call on.
        is_present = setup.parameter_check is self
        if is_present and optimizer_name not in self._known:
            found = self._look(optimizer_name, train_manager)
            if found:
                train_manager.add_finding(*found)
        if not is_present or self.is_done(setup.optimizers):
            train_manager.remove_extension(self)

    def is_done(self, optimizers: Iterable[str]) -> bool:
        """Return whether all is known of these optimizers."""
        return self._known.issuperset(optimizers)

    def _look(self, name: str, train_manager: Any) -> list[Finding]:
        """Look at the gradients of an optimizer's window, and return what they show."""
        setup, idle, found = train_manager._setup, self._idle.get(name), list[Finding]()
        if idle is None:  # the first window: most mistakes show in it
            idle = self._idle[name] = Idle(setup.optimizers[name])
            found += check_first_window(
                setup.model,
                setup.loss,
                setup.optimizers,
                name,
                wrapped=setup.wrapped is not None,
                around=[one for level in train_manager._program.around for one in level.setup.optimizers.values()],
                frozen=train_manager._frozen_parameter_ids(),
                resting=train_manager._progress.call.resting,
            )
        else:
            idle.look()
        # With several sets of data (Interleaved), the batches of another set may use the parameters that are idle here.
        if idle.is_known or train_manager.datasource_name != "train":
            self._known.add(name)
            del self._idle[name]
            if idle.is_known:
                found += idle.find(setup.model, setup.loss, setup.optimizers[name], name)
        return found


def check_first_window(
    model: Any,
    loss: Any,
    optimizers: Mapping[str, Optimizer],
    name: str,
    *,
    wrapped: bool = False,
    around: Iterable[Optimizer] = (),
    frozen: Collection[int] = (),
    resting: Collection[str] = (),
) -> list[Finding]:
    """Return findings about the parameters of a training, as far as one step shows them.

    Parameters that no loss reaches are left to ``Idle``, as one step may pass over a submodule.

    Args:
        model: the model that is trained.
        loss: the loss, which may have parameters too.
        optimizers: the optimizers by name.
        name: the name of the optimizer whose gradients are complete.
        wrapped: a compiled or wrapped form of the model is called, which may have flattened parameters into its own.
        around: the optimizers of the training around a phase.
        frozen: the ids of parameters that an extension has frozen, and will train later.
        resting: the submodules that were in eval mode before the training.
    """
    names, optimizer = names_of(model, loss), optimizers[name]
    owners = Counter(one for owner in optimizers.values() for one in dict.fromkeys(parameters_in(owner)))
    owned = {*map(id, owners), *(id(one) for owner in around for one in parameters_in(owner))}
    # A wrapper (FSDP) that puts many parameters into one tensor has other parameters than the model.
    are_flat = wrapped and any(id(one) not in names for one in parameters_in(optimizer))
    of_model = () if are_flat or not isinstance(model, nn.Module) else model.parameters()
    # With a gradient: a target network, of which no loss takes a gradient, may be in no optimizer.
    learn = (one for one in of_model if one.requires_grad and one.grad is not None)
    # Groups as a whole: `model.parameters()` in one group may well have frozen parameters among others.
    groups: list[list[Tensor]] = [group["params"] for group in optimizer.param_groups]
    idle = (group for group in groups if not any(one.requires_grad or id(one) in frozen for one in group))
    still = {id(one) for one in owners if not one.requires_grad} - {*frozen}
    return [
        *make_findings((one for one in learn if id(one) not in owned), names, UNOWNED),
        *make_findings((one for one, count in owners.items() if count > 1), names, SHARED),
        *make_findings((one for group in idle for one in group), names, FROZEN, name),
        *find_woken(model, () if are_flat else resting, {*frozen, *owned} - still),
    ]


def find_woken(model: Any, resting: Collection[str], trained: Collection[int]) -> list[Finding]:
    """Return a finding of submodules that are not trained, and whose BatchNorm or dropout has left eval mode.

    Args:
        model: the model.
        resting: the names of its modules that were in eval mode before the training.
        trained: the ids of the parameters that are trained, now or later.
    """
    modules = {plain_name(name): one for name, one in model.named_modules()} if resting else {}
    # Models of Hugging Face come in eval mode as a whole, and adapters train with the dropout of the frozen parts.
    kinds = _BatchNorm if "" in resting else _BatchNorm | _DropoutNd
    woken: list[str] = []
    for name in resting:
        # The names are in the order of the model: an outer module comes before those inside it, and stands for them.
        inside = [*modules[name].modules()] if name in modules and not name.startswith(tuple(woken)) else []
        is_awake = any(isinstance(one, kinds) and one.training for one in inside)
        parameters = {id(one) for one in modules[name].parameters()} if is_awake else set()
        if parameters and parameters.isdisjoint(trained):
            woken.append(f"{name}.")
    names = ", ".join(name[:-1] for name in woken)
    cure = f'keep it in eval mode: FreezeModules("{names.split(", ")[0]}", dropout="off")'
    return [Finding(CHECK, "warning", WOKEN, names, cure)] if woken else []


@final
class Idle:
    """The parameters of an optimizer that had no gradient in any window so far.

    One window cannot tell: stochastic depth leaves blocks out at random, and heads may be trained by turns.

    Args:
        optimizer: the optimizer; the gradients of its first window are complete.
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

    def find(self, model: Any, loss: Any, optimizer: Optimizer, name: str) -> list[Finding]:
        """Return a finding of the idle parameters, if there are any."""
        # Not if no parameter at all has a gradient: warn_without_gradients warns of that.
        if all(one.grad is None for one in parameters_in(optimizer)):
            return []
        return make_findings((one for one in self._parameters if one.requires_grad), names_of(model, loss), IDLE, name)


def make_findings(
    parameters: Iterable[Tensor], names: Mapping[int, str], texts: Texts, optimizer: str = ""
) -> list[Finding]:
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
    """Return the names of the parameters by their ids; the names of the loss's parameters begin with "loss."."""
    modules = [*(("loss.", one) for one in modules_of_loss(loss)), ("", model)]
    named = [(prefix, module) for prefix, module in modules if isinstance(module, nn.Module)]
    return {id(one): f"{prefix}{name}" for prefix, module in named for name, one in module.named_parameters()}


def places(found: Mapping[int, Tensor], names: Mapping[int, str]) -> list[str]:
    """Return the names of parameters; if they are all parameters of a large module, its name instead."""
    unnamed = [f"a tensor of shape {tuple(one.shape)}" for key, one in found.items() if key not in names]
    named = [name for key, name in names.items() if key in found]
    # For each module: how many of the found parameters are inside it, and how many parameters are inside it in all.
    inside, every = (Counter(module for one in some for module in _around(one)) for some in (named, names.values()))
    whole = {module for module, count in inside.items() if count == every[module] > WHOLE}
    shown = [next((f"{module}.*" for module in _around(name) if module in whole), name) for name in named]
    return [*dict.fromkeys(shown), *unnamed]


def _around(name: str) -> Iterable[str]:
    """Return the names of the modules around a parameter, the outermost first."""
    return accumulate(name.split(".")[:-1], "{}.{}".format)
