"""Parameters that a training leaves out, and layers in the wrong mode, as the gradients of a few windows show them.

The loop asks as the first windows of an optimizer have their gradients, and ``check_parameters`` after a backward pass
of the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from train_manager.model.modules import plain_name
from train_manager.model.optimizers import parameters_in
from train_manager.telling.findings import Finding, Level

CHECK: Final = "parameters"
# A submodule that every second window leaves out at random is in none of these once in a thousand trainings.
WINDOWS: Final = 10
WHOLE: Final = 4  # of a module with more parameters than these, the module is named in place of its parameters

Texts = tuple[str, Level, str, str]
"""The code of a finding, how bad it is, what was found, and the cure.

In the texts "{...}" stands for numbers and words in singular or plural.
"""

UNOWNED: Final[Texts] = (
    "parameter-without-optimizer",
    "warning",
    "{count} {parameters} {have} a gradient and {are} in no optimizer",
    "give {them} to one, or freeze {them}: requires_grad_(False)",
)
SHARED: Final[Texts] = (
    "parameter-in-two-optimizers",
    "warning",
    "{count} {parameters} {are} in several optimizers",
    "give {them} to one: each would step {them}",
)
FROZEN: Final[Texts] = (
    "frozen-group",
    "warning",
    "{count} {parameters} {are} frozen, and a group of {which} has no other",
    "leave the group out, or train it: requires_grad_(True)",
)
IDLE: Final[Texts] = (
    "no-gradient",
    "warning",
    "{count} {parameters} of {which} {have} no gradient after a backward pass",
    "does the loss depend on {them}, without detach() or no_grad()? else freeze {them}: requires_grad_(False)",
)
ZEROS: Final[Texts] = (
    "zero-gradient",
    "warning",
    "{count} {parameters} of {which} {have} a gradient of zeros alone",
    "is a layer behind {them} dead, or multiplied by zero? behind a layer that begins with zeros it is so at step 1",
)
# Before a softmax or a norm, a bias shifts all outputs alike, and has no gradient.
SHIFTS: Final[Texts] = (
    "zero-gradient-of-bias",
    "note",
    "{count} {parameters} of {which} {have} a gradient of zeros alone, in a layer that learns",
    "a loss of differences does not see what all outputs share: bias=False leaves {them} out",
)
AMONG_OTHERS: Final[Texts] = (
    "frozen-among-trained",
    "note",
    "{count} {parameters} of {which} {are} frozen, beside others that are trained",
    "leave {them} out of the optimizer if that is for good; each step passes over {them}",
)
OF_THE_LOSS: Final[Texts] = (
    "loss-without-optimizer",
    "warning",
    "{count} {parameters} of the loss {are} in no optimizer",
    "give {them} to one: [*model.parameters(), *loss.parameters()], or freeze {them}: requires_grad_(False)",
)
UNREGISTERED: Final[Texts] = (
    "unregistered-parameter",
    "error",
    "{count} {tensors} that {learn} {are} not among the parameters of the model",
    "keep layers in an nn.ModuleList, not in a list; give a tensor as nn.Parameter; or freeze {them}: "
    "requires_grad_(False)",
)
WOKEN: Final = "a module without trained parameters was in eval mode, and its BatchNorm or dropout is in train mode now"
MANY: Final = ("parameters", "tensors", "learn", "are", "have", "them")
ONE: Final = ("parameter", "tensor", "learns", "is", "has", "it")
"""The words of the texts that depend on the number of parameters: for several, and for one."""
RESTING: Final = {"norm": _NormBase, "dropout": _DropoutNd}  # layers that behave otherwise in eval mode


# ---- as a window has its gradients -----------------------------------------------------------------------------------


def check_first_window(
    model: Any,
    names: Mapping[int, str],
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
        names: the names of all parameters, as ``names_of`` returns them.
        optimizers: the optimizers by name.
        name: the name of the optimizer whose gradients are complete.
        wrapped: a compiled or wrapped form of the model is called, which may have flattened parameters into its own.
        around: the optimizers of the training around a phase.
        frozen: the ids of parameters that an extension has frozen, and will train later.
        resting: the submodules that were in eval mode before the training.
    """
    optimizer = optimizers[name]
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
    return [Finding(CHECK, "warning", WOKEN, names, cure, code="frozen-part-awake")] if woken else []


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

    def find(self, names: Mapping[int, str], optimizer: Optimizer, name: str) -> list[Finding]:
        """Return a finding of the idle parameters, if there are any."""
        # Not if no parameter at all has a gradient: warn_without_gradients warns of that.
        if all(one.grad is None for one in parameters_in(optimizer)):
            return []
        return make_findings((one for one in self._parameters if one.requires_grad), names, IDLE, name)


# ---- as one backward pass has left them ------------------------------------------------------------------------------


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
        cure = "call its eval() before the training"
        yield Finding(CHECK, "warning", what, names, cure, code="teacher-in-train-mode")


def any_nonzero(gradient: Tensor) -> bool:
    """Return whether a gradient, sparse or not, has a number that is not zero; this waits for the device."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(torch.count_nonzero(values))


def check_gradients(model: nn.Module, optimizer: Optimizer, names: Mapping[int, str], name: str) -> list[Finding]:
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


def check_modes(model: nn.Module) -> Iterator[Finding]:
    """Yield findings about layers in eval mode in a model in train mode, unless they are frozen."""
    # Frozen norms are put into eval mode on purpose.
    resting = [(name, one) for name, one in model.named_modules() if model.training and not one.training]
    for kind, type_of_it in RESTING.items():
        names = [name for name, one in resting if isinstance(one, type_of_it) and _is_trained(name, model)]
        if names:
            layers = f"{kind} is" if len(names) == 1 else f"{kind}s are"
            what = f"{len(names):,} {layers} in eval mode, while the model is trained"
            cure = "call model.train() after each evaluation"
            yield Finding(CHECK, "warning", what, ", ".join(names), cure, code="layer-in-eval-mode")


def _is_trained(name: str, model: nn.Module) -> bool:
    """Return whether a layer is trained; a layer without parameters counts like the module around it."""
    around = [*model.get_submodule(name).parameters()]
    if around or not name:
        return any(one.requires_grad for one in around)
    return _is_trained(name.rpartition(".")[0], model)


# ---- findings --------------------------------------------------------------------------------------------------------


def make_findings(
    parameters: Iterable[Tensor], names: Mapping[int, str], texts: Texts, optimizer: str = ""
) -> list[Finding]:
    """Return a finding of parameters, if there are any."""
    found = {id(one): one for one in parameters}
    if not found:
        return []
    words = dict(zip(MANY, ONE if len(found) == 1 else MANY, strict=True))
    which = "the optimizer" if optimizer == "optimizer" else f"optimizer {optimizer!r}"
    code, level, what, cure = texts
    what, cure = (text.format(**words, count=f"{len(found):,}", which=which) for text in (what, cure))
    return [Finding(CHECK, level, what, ", ".join(places(found, names)), cure, code=code)]


def names_of(model: Any, of_loss: Iterable[nn.Module]) -> dict[int, str]:
    """Return the names of the parameters by their ids; those of the modules of the loss begin with "loss."."""
    modules = [*(("loss.", one) for one in of_loss), ("", model)]
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
