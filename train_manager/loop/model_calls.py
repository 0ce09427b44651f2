"""How a model is called with its inputs: the parameters of its forward are read once, and looked up in each step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, final

from torch import Tensor, nn

from train_manager.telling.argument_names import is_required
from train_manager.telling.errors import InputError


@final
class ModelCall:
    """The call of a model: a tuple is spread where the forward needs several, a dict where it names the keys.

    >>> class Distance(nn.Module):
    ...     def forward(self, a, b):
    ...         return a - b
    >>> model = Distance()
    >>> ModelCall(model)(model, (3, 5)), ModelCall(model)(model, {"b": 5, "a": 3})
    (-2, -2)

    A dict goes by keyword if all required parameters are keys of it, and all its keys are parameters, or the forward
    has ``**kwargs`` and names one of them. All other inputs are given as they are, as one argument.

    Args:
        model: the model whose forward is read; of a model that torch has compiled or wrapped, the one inside.

    Raises:
        InputError: in a call, the forward needs several arguments and the inputs do not have them.
    """

    __slots__ = ("_all", "_by_position", "_known", "_label", "_needs_several", "_positional", "_required", "_rest")

    def __init__(self, model: Any) -> None:
        parameters = _parameters_of_forward(model)
        given = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
        named = [p for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
        # For a tuple of inputs: the parameters that it must fill, and how many it can fill (None: any number, *args).
        self._positional = tuple(p.name for p in given if p.default is Parameter.empty)
        self._by_position = None if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters) else len(given)
        # For a dict of inputs: the keys that it must have, the keys that it may have, and whether there is **kwargs.
        self._required = {p.name for p in parameters if is_required(p)}
        self._all = {p.name for p in named}
        self._rest = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
        self._known: dict[tuple[Any, ...], bool] = {}  # keys of a dict -> whether it goes by keyword
        self._needs_several = len(self._required) > 1
        self._label = f"{type(_inner(model)).__name__}.forward"

    def __call__(self, model: Any, inputs: Any) -> Any:
        """Call a model with the inputs: the model that was read, or a compiled or wrapped form of it."""
        if type(inputs) is Tensor and not self._needs_several:  # the usual case first: this runs in each step
            return model(inputs)
        if isinstance(inputs, Mapping) and self._names(inputs):
            return model(**inputs)
        if self._needs_several:
            if self.spreads(inputs):
                return model(*inputs)
            raise self._misfit(inputs)
        return model(inputs)

    def arguments(self, inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of the call by position and by keyword, as a graph takes them."""
        if isinstance(inputs, Mapping) and self._names(inputs):
            return (), inputs
        return (tuple(inputs) if self.spreads(inputs) else (inputs,)), {}

    def spreads(self, inputs: Any) -> bool:
        """Return whether the model takes these inputs as several arguments."""
        return self._needs_several and isinstance(inputs, (tuple, list)) and self._takes(len(inputs))

    def _names(self, inputs: Mapping[Any, Any]) -> bool:
        keys = tuple(inputs)
        known = self._known.get(keys)  # the batches of a run have the same keys, so the answer is kept
        if known is None:
            known = self._known[keys] = self._names_keys(set(keys))
        return known

    def _names_keys(self, keys: set[Any]) -> bool:
        if not self._required <= keys or not all(isinstance(key, str) for key in keys):
            return False
        return keys <= self._all or (self._rest and (not self._all or not self._all.isdisjoint(keys)))

    def _takes(self, number: int) -> bool:
        enough = number >= len(self._positional) == len(self._required)
        return enough and (self._by_position is None or number <= self._by_position)

    def _misfit(self, inputs: Any) -> InputError:
        names = [*self._positional, *sorted(self._required.difference(self._positional))]
        wanted = f"{self._label} needs {', '.join(names)}"
        if isinstance(inputs, Mapping):
            found = f"a dict of {', '.join(map(str, inputs))}"
        elif isinstance(inputs, (tuple, list)):
            found = f"a {type(inputs).__name__} of {len(inputs)}"
        else:
            found = f"a {type(inputs).__name__}"
        cure = f"give batches of (({', '.join(names)}), targets), or override model_forward(self, inputs)"
        return InputError(f"{wanted}, but the inputs are {found}", name="inputs", asked_by=self._label, cure=cure)


def _parameters_of_forward(model: Any) -> list[Parameter]:
    inner = _inner(model)
    forward = inner.forward if isinstance(inner, nn.Module) else inner
    try:
        return list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):  # not callable, or a function in C without a signature
        return []


def _inner(model: Any) -> Any:
    """Return the model that torch has compiled (``torch.compile``) or wrapped (``nn.DataParallel``)."""
    while isinstance(model, nn.Module):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model
