"""One metric behind one face: a function of a batch, or an object that accumulates, as those of torchmetrics do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Protocol, final

import torch
from torch import Tensor

from train_manager.core.errors import InputError
from train_manager.metrics.averages import WeightedMean

PAIR = ("prediction", "targets")


class Metric(Protocol):
    """What an extension needs of a metric, whatever it is made of.

    Attributes:
        given: what the user gave.
        wishes: the fixtures that it is computed from.
    """

    given: Any
    wishes: list[Parameter]

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Its value for one batch, by name; nothing is remembered."""

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        """Take in one batch of so many examples."""

    def result(self) -> dict[str, float]:
        """Its value for all that was taken in, by name; read rarely."""

    def reset(self) -> None:
        """Forget what was taken in."""


def metric_of(name: str, given: Any) -> Metric:
    """The metric that a user means: a function, or an object with ``update``, ``compute`` and ``reset``.

    Raises:
        InputError: it is neither.
    """
    if isinstance(given, type) or not callable(given):
        raise InputError(
            f"metric {name!r} is {'the class ' + given.__name__ if isinstance(given, type) else repr(given)[:60]}",
            name=name,
            cure="give a function of (prediction, targets), or a torchmetrics object",
        )
    accumulates = all(callable(getattr(given, method, None)) for method in ("update", "compute", "reset"))
    return ObjectMetric(name, given) if accumulates else FunctionMetric(name, given)


@final
class FunctionMetric:
    """A function that gives a number for a batch, or one for each example; a mean over examples, for several batches.

    >>> right = FunctionMetric("accuracy", lambda prediction, targets: prediction.argmax(dim=1) == targets)
    >>> right.append({"prediction": torch.eye(4), "targets": torch.tensor([0, 1, 0, 1])}, weight=4)
    >>> right.append({"prediction": torch.eye(4)[:1], "targets": torch.tensor([0])}, weight=1)
    >>> right.result()
    {'accuracy': 0.6}
    """

    def __init__(self, name: str, given: Callable[..., Any]) -> None:
        self.name = name
        self.given = given
        by_name = parameters_by_name(given)
        self._by_name = by_name is not None
        self.wishes = positional_pair() if by_name is None else by_name
        self._names = [wish.name for wish in self.wishes]
        self._mean = WeightedMean()

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        if self._by_name:
            value = self.given(**{name: values[name] for name in self._names if name in values})
        else:
            value = self.given(values["prediction"], values["targets"])
        return {self.name: one_number(self.name, value)}

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        self._mean.append(self.of_batch(values)[self.name], weight)

    def result(self) -> dict[str, float]:
        return {self.name: self._mean.value()}

    def reset(self) -> None:
        self._mean = WeightedMean()


@final
class ObjectMetric:
    """An object that takes in batches with ``update`` and gives the value with ``compute``.

    Several at once (a MetricCollection) give several values: "name_key" for each.
    """

    def __init__(self, name: str, given: Any) -> None:
        self.name = name
        self.given = given
        self.wishes = positional_pair()

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        self.given.reset()
        self.append(values, 1)
        found = self._computed()
        self.given.reset()  # some keep every prediction
        return found

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        prediction = values["prediction"]
        if isinstance(prediction, Tensor) and getattr(self.given, "device", prediction.device) != prediction.device:
            self.given.to(prediction.device)
        self.given.update(prediction, values["targets"])

    def result(self) -> dict[str, float]:
        return {name: value.item() for name, value in self._computed().items()}

    def reset(self) -> None:
        self.given.reset()

    def _computed(self) -> dict[str, Tensor]:
        value = self.given.compute()
        found = {f"{self.name}_{key}": part for key, part in value.items()} if isinstance(value, Mapping) else None
        found = {self.name: value} if found is None else found
        for name, part in found.items():
            if isinstance(part, Tensor) and part.numel() != 1:
                raise InputError(
                    f"metric {name!r} computed a tensor of shape {tuple(part.shape)}, not one number",
                    name=self.name,
                    cure='let it average: for torchmetrics average="macro"',
                )
        return {name: one_number(name, part) for name, part in found.items()}


def one_number(name: str, value: Any) -> Tensor:
    """A scalar, of floating point; the mean, where there is one value per example."""
    if not isinstance(value, Tensor):
        if not hasattr(value, "__float__"):
            raise InputError(
                f"metric {name!r} returned a {type(value).__name__}",
                name=name,
                cure="return a number for the batch, or a tensor with one per example",
            )
        return torch.tensor(float(value))
    number = value.detach() if value.is_floating_point() else value.detach().float()
    return number.mean() if number.dim() else number


def parameters_by_name(function: Callable[..., Any]) -> list[Parameter] | None:
    """Its parameters, where they name fixtures: where ``prediction`` is a required one. Else None."""
    reads = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(reads).parameters
    except ValueError:  # written in C, without a signature
        return None
    prediction = parameters.get("prediction")
    if prediction is None or prediction.default is not Parameter.empty:
        return None
    return [p for p in parameters.values() if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]


def positional_pair() -> list[Parameter]:
    """What a metric is called with as torch's functions are."""
    return [Parameter(name, Parameter.KEYWORD_ONLY) for name in PAIR]
