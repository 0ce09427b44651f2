"""Weight constraints: functions that bring weights back within bounds after each step of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from train_manager.core.extension import Extension
from train_manager.model.modules import Chosen, choices, chosen, require_module
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


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

    A weight has one constraint: two constraints of one weight are refused. A weight that modules share is constrained
    once in each step.

    *Runs at:* the start of ``run``, where it looks up the modules, and the end of ``train_optimizer_step``.

    *Asks for:* the model.

    *Leaves behind:* weights that ``fn`` has returned.

    Args:
        fn: returns the allowed weight for a weight.
        modules: names in the model, patterns (``"blocks.*.conv"``), or modules. Only the weight of the module itself is
            constrained, not those of modules inside it. A pattern leaves out the modules that have no weight.
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
        self._constrained: dict[str, nn.Parameter] = {}

    def pre_run(self, train_manager: TrainManager) -> None:
        self._constrained = self.parameters_of(require_module(train_manager.model, "Constrain"))
        for other in train_manager.extensions.values():
            if isinstance(other, Constrain) and other is not self:
                self._refuse_common(other, train_manager.model)

    def post_train_optimizer_step(self, train_manager: TrainManager) -> None:
        if not self._constrained:  # the extension was added in the middle of a run
            self.pre_run(train_manager)
        with torch.no_grad():
            for name, parameter in self._constrained.items():
                parameter.copy_(self._allowed(name, parameter))

    def parameters_of(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the parameters of the model that ``fn`` constrains, each by one of its names."""
        found = [(name, one) for chosen in self.modules for name, one in self._of(model, chosen).items()]
        once = {id(parameter): name for name, parameter in reversed(found)}  # by its first name
        return {name: parameter for name, parameter in found if once[id(parameter)] == name}

    def _of(self, model: nn.Module, one: Chosen) -> dict[str, nn.Parameter]:
        # `_parameters` has the module's own parameters only: "trunk" does not constrain the weights inside of it.
        constrained = {
            f"{name}.{self.parameter}".lstrip("."): parameter
            for name, module in chosen(model, [one], "Constrain").items()
            if (parameter := module._parameters.get(self.parameter)) is not None
        }
        if not constrained:
            what = f"Constrain finds no parameter {self.parameter!r} in {_text(one)!r}"
            cure = "name modules that have one themselves, or another parameter: parameter=..."
            raise _invalid(what, self.parameter, cure)
        return constrained

    def _allowed(self, name: str, parameter: nn.Parameter) -> Tensor:
        allowed = self.fn(parameter, **self.options)
        if not isinstance(allowed, Tensor) or allowed.shape != parameter.shape:
            found = (
                f"the shape {tuple(allowed.shape)}" if isinstance(allowed, Tensor) else f"a {type(allowed).__name__}"
            )
            what = f"{_text(self.fn)} must keep the shape {tuple(parameter.shape)} of {name!r}, but returned {found}"
            raise _invalid(what, name, "return a tensor of the same shape")
        return allowed

    def _refuse_common(self, other: Constrain, model: nn.Module) -> None:
        taken = {id(parameter) for parameter in other.parameters_of(model).values()}
        common = [name for name, parameter in self._constrained.items() if id(parameter) in taken]
        if common:
            what = f"two Constrain extensions, of {_text(other.fn)} and {_text(self.fn)}, have the weight {common[0]!r}"
            raise _invalid(what, common[0], "give a weight one constraint: write a function that applies both in order")


def _invalid(what: str, name: str, cure: str) -> InputError:
    return InputError(what, name=name, asked_by="Constrain", cure=cure)


def _text(given: object) -> str:
    return given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
