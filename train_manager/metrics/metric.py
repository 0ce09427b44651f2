"""One interface for two kinds of metrics: functions of a batch, and objects that accumulate, such as torchmetrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Protocol, final

import torch
from torch import Tensor

from train_manager.metrics.averages import WeightedMean, as_float
from train_manager.telling.errors import InputError
from train_manager.telling.showing import constructor_text


class Metric(Protocol):
    """A metric as an extension uses it, whatever its kind.

    Attributes:
        original: the function or the object that the user passed.
        parameters: the fixtures that the metric is computed from.
    """

    original: Any
    parameters: list[Parameter]

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the value for one batch, by name, without accumulating it."""

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        """Accumulate a batch of ``weight`` examples."""

    def result(self) -> dict[str, float]:
        """Return the value for all accumulated batches, by name; read rarely."""

    def reset(self) -> None:
        """Forget all accumulated batches."""


def metric_of(name: str, original: Any) -> Metric:
    """Return the metric of a function, or of an object with ``update``, ``compute`` and ``reset``.

    Raises:
        InputError: it is neither.
    """
    accumulates = all(callable(getattr(original, method, None)) for method in ("update", "compute", "reset"))
    if isinstance(original, type) or not (accumulates or callable(original)):
        is_class = isinstance(original, type)
        raise InputError(
            f"metric {name!r} must be a function of (prediction, targets) or a torchmetrics object, "
            f"but is {'the class ' + original.__name__ if is_class else repr(original)[:60]}",
            name=name,
            cure=f"give an instance: {original.__name__}()" if is_class else "",
        )
    return ObjectMetric(name, original) if accumulates else FunctionMetric(name, original)


@final
class FunctionMetric:
    """A function that returns a number for a batch, or one for each example; results are means over examples.

    >>> right = FunctionMetric("accuracy", lambda prediction, targets: prediction.argmax(dim=1) == targets)
    >>> right.append({"prediction": torch.eye(4), "targets": torch.tensor([0, 1, 0, 1])}, weight=4)
    >>> right.append({"prediction": torch.eye(4)[:1], "targets": torch.tensor([0])}, weight=1)
    >>> right.result()
    {'accuracy': 0.6}
    """

    def __init__(self, name: str, original: Callable[..., Any]) -> None:
        self.name = name
        self.original = original
        by_name = parameters_by_name(original)
        self._by_name = by_name is not None
        self.parameters = positional_pair() if by_name is None else by_name
        self._mean = WeightedMean()

    def __repr__(self) -> str:
        return constructor_text(self)

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        if self._by_name:
            # A parameter with a default is left out if its fixture is not alive.
            value = self.original(**{p.name: values[p.name] for p in self.parameters if p.name in values})
        else:
            value = self.original(values["prediction"], values["targets"])
        return {self.name: as_scalar(self.name, value)}

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        self._mean.append(self.of_batch(values)[self.name], weight)

    def result(self) -> dict[str, float]:
        return {self.name: self._mean.value()}

    def reset(self) -> None:
        self._mean = WeightedMean()


@final
class ObjectMetric:
    """An object that accumulates batches with ``update`` and returns the value from ``compute``.

    If ``compute`` returns a dict, as a MetricCollection does, each value is called "name_key".
    """

    def __init__(self, name: str, original: Any) -> None:
        self.name = name
        self.original = original
        self.parameters = positional_pair()

    def __repr__(self) -> str:
        return constructor_text(self)

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        self.original.reset()
        self.append(values, 1)
        scalars = self._computed()
        self.original.reset()  # some objects keep every prediction until then
        return scalars

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        prediction = values["prediction"]
        if isinstance(prediction, Tensor) and getattr(self.original, "device", prediction.device) != prediction.device:
            self.original.to(prediction.device)
        self.original.update(prediction, values["targets"])

    def result(self) -> dict[str, float]:
        return {name: value.item() for name, value in self._computed().items()}

    def reset(self) -> None:
        self.original.reset()

    def _computed(self) -> dict[str, Tensor]:
        value = self.original.compute()
        parts = (
            {f"{self.name}_{key}": value[key] for key in value} if isinstance(value, Mapping) else {self.name: value}
        )
        for name, part in parts.items():
            if isinstance(part, Tensor) and part.numel() != 1:
                raise InputError(
                    f"metric {name!r} must compute one number, but computed a tensor of shape {tuple(part.shape)}",
                    name=self.name,
                    cure='average it, in torchmetrics with average="macro"',
                )
        return {name: as_scalar(name, part) for name, part in parts.items()}


def as_scalar(name: str, value: Any) -> Tensor:
    """Return a floating point scalar: the value itself, or the mean of one value per example.

    A number of Python stays what it is, in 64 bits on the CPU: there are devices that have 32.

    Raises:
        InputError: the value is not a number.
    """
    if not isinstance(value, Tensor):
        if not hasattr(value, "__float__"):
            raise InputError(
                f"metric {name!r} must return a number for the batch, or a tensor with one for each example, "
                f"but returned a {type(value).__name__}",
                name=name,
            )
        return torch.tensor(float(value), dtype=torch.float64)
    number = as_float(value.detach())
    return number.mean() if number.dim() else number


def parameters_by_name(function: Callable[..., Any]) -> list[Parameter] | None:
    """Return the parameters if they name fixtures, that is if a required one is ``prediction``; otherwise None."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters
    except ValueError:  # a function in C without a signature
        return None
    prediction = parameters.get("prediction")
    if prediction is None or prediction.default is not Parameter.empty:
        return None
    return [p for p in parameters.values() if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]


def positional_pair() -> list[Parameter]:
    """Return the parameters of a metric that is called by position, as torch's functions are."""
    return [Parameter(name, Parameter.KEYWORD_ONLY) for name in ("prediction", "targets")]
