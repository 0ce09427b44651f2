"""Weight constraints: functions that bring weights back within bounds after each step of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from train_manager.core.extension import Extension
from train_manager.model.modules import Chosen, ModulesIn, choices, choose_modules, require_module
from train_manager.model.per_object import PerObject
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


Parameters = Mapping[str, nn.Parameter]


@recorded
class Constrain(Extension):
    """Replace the weight of a module by ``fn(weight)`` after each step of the optimizer.

    ``max_norm``, ``unit_norm`` and ``non_negative`` are in ``train_manager.model.constraints``; ``fn`` may be any
    function that returns a tensor of the same shape.

    >>> from train_manager.model.constraints import max_norm
    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Constrain(max_norm, "0", limit=0.5))
    >>> result = tm.train()
    >>> bool((tm.model[0].weight.norm(dim=1) < 0.5001).all())
    True

    A weight has one constraint: two constraints of one weight are refused, unless one of them pauses. A weight that
    modules share is constrained once in each step.

    Names are looked up in the model that is trained: as each epoch begins, after ``tm.replace_parameters``, and in a
    phase with a model of its own. If that one lacks a name, a warning says so, and it is left out.

    *Runs at:* the start of ``run`` and ``train_step_epoch``, and the end of ``train_optimizer_step``.

    *Asks for:* the model.

    *Leaves behind:* weights that ``fn`` has returned.

    Args:
        fn: returns the allowed weight for a weight.
        modules: names in the model, patterns (``"blocks.*.conv"``), or modules. Modules inside a module keep their
            weights. A pattern leaves out the modules without a weight.
        parameter: the name of the parameter in each module.
        options: further arguments of ``fn``.

    Raises:
        InputError: a module does not exist or has no such parameter; two constraints have one weight; or ``fn`` does
            not keep the shape.
    """

    def __init__(
        self,
        fn: Callable[..., Tensor],
        *modules: Chosen | Iterable[Chosen],
        parameter: str = "weight",
        **options: Any,
    ) -> None:
        if not callable(fn):
            what = f"fn must be a function of a weight, but is {fn!r:.60}"
            raise _invalid(what, "fn", 'give a function: Constrain(max_norm, "fc")')
        self.fn = fn
        self.modules = choices(modules, "Constrain")
        self.parameter = parameter
        self.options = options
        # The parameters that were found in each model: a phase may swap the model, and swap it back.
        self._constrained: PerObject[nn.Module, dict[str, nn.Parameter]] = PerObject()
        self._present = ModulesIn(self.modules, "Constrain", self._of)

    def pre_run(self, train_manager: TrainManager) -> None:
        self.parameters_of(require_module(train_manager.model, "Constrain"))  # a wrong name is an error
        self._look_up(train_manager)

    def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
        self._look_up(train_manager)

    def post_train_optimizer_step(self, train_manager: TrainManager) -> None:
        constrained = self._constrained.get(train_manager.model)
        if constrained is None:  # train_on_batch opens no epoch, where the names are looked up otherwise
            constrained = self._look_up(train_manager)
        # In place, so that the optimizer and the model keep their parameter.
        with torch.no_grad():
            for name, parameter in constrained.items():
                parameter.copy_(self._apply_constraint(name, parameter))

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Forget the parameters, so that the next step finds the new ones, which are in the model by then."""
        self._constrained.clear()

    def parameters_of(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the parameters of the model that ``fn`` constrains, each by one of its names."""
        return _each_once(found for one in self.modules for found in self._of(model, one).items())

    def _look_up(self, train_manager: TrainManager) -> dict[str, nn.Parameter]:
        """Find the parameters in the model that is trained now, and refuse a second constraint of one."""
        model, paused = train_manager.model, train_manager.paused_extensions
        found = _each_once(self._present.of(model).items())
        for name, other in train_manager.extensions.items():
            if isinstance(other, Constrain) and other is not self and name not in paused:
                self._refuse_common(found, other, other._present.of(model))
        if isinstance(model, nn.Module):
            self._constrained[model] = found
        return found

    def _of(self, model: nn.Module, one: Chosen) -> dict[str, nn.Parameter]:
        # `_parameters` has the module's own parameters only: "trunk"
        # must not constrain the weights of the modules in it.
        constrained = {
            f"{name}.{self.parameter}".lstrip("."): parameter
            for name, module in choose_modules(model, [one], "Constrain").items()
            if (parameter := module._parameters.get(self.parameter)) is not None
        }
        if not constrained:
            what = f"Constrain finds no parameter {self.parameter!r} in {_text(one)!r}"
            cure = "name modules that have one themselves, or another parameter: parameter=..."
            raise _invalid(what, self.parameter, cure)
        return constrained

    def _apply_constraint(self, name: str, parameter: nn.Parameter) -> Tensor:
        allowed = self.fn(parameter, **self.options)
        if not isinstance(allowed, Tensor) or allowed.shape != parameter.shape:
            found = (
                f"the shape {tuple(allowed.shape)}" if isinstance(allowed, Tensor) else f"a {type(allowed).__name__}"
            )
            what = f"{_text(self.fn)} must keep the shape {tuple(parameter.shape)} of {name!r}, but returned {found}"
            raise _invalid(what, name, "return a tensor of the same shape")
        return allowed

    def _refuse_common(self, own: Parameters, other: Constrain, others: Parameters) -> None:
        # By identity: tensors compare number by number, and two names may share one weight.
        taken = set(map(id, others.values()))
        common = [name for name, parameter in own.items() if id(parameter) in taken]
        if common:
            what = f"two Constrain extensions, of {_text(other.fn)} and {_text(self.fn)}, have the weight {common[0]!r}"
            raise _invalid(what, common[0], "give a weight one constraint: write a function that applies both in order")


def _each_once(found: Iterable[tuple[str, nn.Parameter]]) -> dict[str, nn.Parameter]:
    """Return parameters by name, each once: a parameter that modules share has its first name."""
    found = list(found)
    first = {id(parameter): name for name, parameter in reversed(found)}
    return {name: parameter for name, parameter in found if first[id(parameter)] == name}


def _invalid(what: str, name: str, cure: str) -> InputError:
    return InputError(what, name=name, asked_by="Constrain", cure=cure)


def _text(given: object) -> str:
    return given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
