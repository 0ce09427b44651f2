"""One interface for two kinds of metrics: functions of a batch, and objects that accumulate, such as torchmetrics."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from typing import Any, Protocol, final

import torch
from torch import Tensor

from train_manager.data.batch import FIXTURES_OF_A_BATCH
from train_manager.metrics.averages import WeightedMeans, as_float, mean_of
from train_manager.metrics.deferred import on_host
from train_manager.telling.errors import InputError
from train_manager.telling.showing import constructor_text


class Metric(Protocol):
    """A metric as an extension uses it, whatever its kind."""

    original: Any  # the function or the object that the user passed
    parameters: list[Parameter]  # the fixtures that the metric is computed from

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the value for one batch, by name, without accumulating it."""

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        """Accumulate a batch of ``weight`` examples."""

    def totals(self) -> Any:
        """Return what was accumulated in this process, as it is sent to others."""

    def join(self, totals: Sequence[Any]) -> None:
        """Replace it by what all processes have accumulated, in the order of their ranks."""

    def result(self) -> dict[str, float]:
        """Return the value for all accumulated batches, by name; read rarely."""

    def reset(self) -> None:
        """Forget all accumulated batches."""


def metric_of(name: str, original: Any) -> Metric:
    """Return the metric of a function, or of an object with ``update``, ``compute`` and ``reset``.

    Raises:
        InputError: it is neither.
    """
    # By methods and not by class, so that torchmetrics need not be installed.
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


class MeanMetric:
    """Base of metrics whose results are means over examples, of what ``of_batch`` returns for each batch.

    Attributes:
        names: the names that have a result, nan, before the first batch too.
    """

    names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._means = WeightedMeans()  # over the batches since reset()

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        raise NotImplementedError

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        for name, value in self.of_batch(values).items():
            self._means.append(name, value, weight)

    def totals(self) -> dict[str, tuple[float, float]]:
        return self._means.totals()

    def join(self, totals: Sequence[Mapping[str, tuple[float, float]]]) -> None:
        self._means.join(totals)

    def result(self) -> dict[str, float]:
        means = {name: mean_of(*of) for name, of in self._means.totals().items()}
        return dict.fromkeys(self.names, math.nan) | means

    def reset(self) -> None:
        self._means = WeightedMeans()


@final
class FunctionMetric(MeanMetric):
    """A function that returns a number for a batch, or one for each example; results are means over examples.

    >>> right = FunctionMetric("accuracy", lambda prediction, targets: prediction.argmax(dim=1) == targets)
    >>> right.append({"prediction": torch.eye(4), "targets": torch.tensor([0, 1, 0, 1])}, weight=4)
    >>> right.append({"prediction": torch.eye(4)[:1], "targets": torch.tensor([0])}, weight=1)
    >>> right.result()
    {'accuracy': 0.6}
    """

    def __init__(self, name: str, original: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.names = name, (name,)
        self.original = original
        by_name = parameters_by_name(original)  # None: called with (prediction, targets)
        self._by_name = by_name is not None
        self.parameters = positional_pair() if by_name is None else by_name

    def __repr__(self) -> str:
        return constructor_text(self)

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        try:
            if self._by_name:
                # A parameter with a default is left out if its fixture is not alive.
                value = self.original(**{p.name: values[p.name] for p in self.parameters if p.name in values})
            else:
                value = self.original(values["prediction"], values["targets"])
        except Exception as error:
            add_shapes(error, self.name, values)
            raise
        return {self.name: as_scalar(self.name, value)}


@final
class ObjectMetric:
    """An object that accumulates batches with ``update`` and returns the value from ``compute``.

    If ``compute`` returns a dict, as a MetricCollection does, each value is called "name_key".
    """

    def __init__(self, name: str, original: Any) -> None:
        self.name = name
        self.original = original
        # A metric that can take a pair is given one, as those of torchmetrics are, whatever its parameters are called.
        by_name = None if _can_take_a_pair(original.update) else parameters_by_name(original.update)
        self._by_name = by_name is not None
        self.parameters = positional_pair() if by_name is None else by_name

    def __repr__(self) -> str:
        return constructor_text(self)

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        # Reset first: an evaluation that an error has ended may have left batches in the object.
        self.original.reset()
        if _is_joined() and self._syncing:  # compute() would wait for all processes, in each batch
            self._move_to(values.get("prediction"))
            scalars = self._scalars(self._call(self.original, values))
        else:
            self.append(values, 1)
            scalars = self._scalars(self.original.compute())
        self.original.reset()  # some objects keep every prediction until reset()
        return scalars

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        self._move_to(values.get("prediction"))
        self._call(self.original.update, values)

    def _call(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        if not self._by_name:
            return function(values["prediction"], values["targets"])
        return function(**{one.name: values[one.name] for one in self.parameters if one.name in values})

    def _move_to(self, prediction: Any) -> None:
        # The states of torchmetrics are on the CPU until somebody moves them.
        if isinstance(prediction, Tensor) and getattr(self.original, "device", prediction.device) != prediction.device:
            self.original.to(prediction.device)

    @property
    def _syncing(self) -> list[Any]:
        """The parts of the object whose ``compute`` is over all processes, as that of torchmetrics is."""
        parts = self.original.modules() if isinstance(self.original, torch.nn.Module) else ()
        return [part for part in parts if getattr(part, "sync_on_compute", False)]

    def join_by(self, gather: Callable[[Any], list[Any]]) -> None:
        """Let several processes have one value.

        Args:
            gather: returns what all processes give.

        Raises:
            InputError: the object would see the batches of this process alone.
        """
        for part in self._syncing:
            # By default torchmetrics gathers by torch, which fails if a process has had no batch.
            part.dist_sync_fn = part.dist_sync_fn or partial(_gather_state, gather)
        if not (self._syncing or hasattr(self.original, "join")):
            kind = type(self.original).__name__
            what = f"metric {self.name!r} is a {kind}, which would see the examples of one process alone"
            cure = "give whole(function), or a torchmetrics object, which gathers those of all"
            raise InputError(what, name=self.name, asked_by="Metrics", cure=cure)

    def totals(self) -> Any:
        return None if self._syncing else self.original.totals()

    def join(self, totals: Sequence[Any]) -> None:
        if not self._syncing:
            self.original.join(totals)

    def result(self) -> dict[str, float]:
        return {name: value.item() for name, value in self._scalars(self.original.compute()).items()}

    def reset(self) -> None:
        self.original.reset()

    def _scalars(self, value: Any) -> dict[str, Tensor]:
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


def _is_joined() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _gather_state(gather: Callable[[Tensor], list[Tensor]], state: Tensor, group: Any = None) -> list[Tensor]:
    """Return a state of torchmetrics in all processes, as ``Metric.dist_sync_fn`` must; without those of no batch."""
    found = [one.to(state.device) for one in gather(on_host(state))]
    return [one for one in found if one.numel()] or found


def add_shapes(error: Exception, name: str, values: Mapping[str, Any]) -> None:
    """Note the metric and the shapes that it was given, which are the usual cause, and the cure for class scores."""
    tensors = {name: value for name in ("prediction", "targets") if isinstance(value := values.get(name), Tensor)}
    shown = " and ".join(f"{name} of shape {tuple(value.shape)}" for name, value in tensors.items())
    error.add_note(f"in metric {name!r}{shown and f' of {shown}'}{_cure(error)}")
    shapes = [value.shape for value in tensors.values()]
    # An axis of one number has no classes, of which argmax could choose.
    if len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) + 1 and shapes[0][1:2] > (1,):
        error.add_note("  labels: prediction.argmax(1); over a whole set: whole(...)")


def as_scalar(name: str, value: Any) -> Tensor:
    """Return a floating point scalar: the value itself, or the mean of one value per example.

    A number of Python stays what it is, in 64 bits on the CPU: there are devices that have 32.

    Raises:
        InputError: the value is not a number.
    """
    if not isinstance(value, Tensor):
        # numpy scalars count as numbers too.
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
    """Return the parameters if they name fixtures, otherwise None.

    They do if a required one is ``prediction``, or if the function cannot be called with prediction and targets. They
    do not if the targets would go to a parameter with a default that is not the name of a fixture.
    """
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called)
    except ValueError:  # a function in C without a signature
        return None
    parameters = signature.parameters
    prediction = parameters.get("prediction")
    is_named = prediction is not None and prediction.default is Parameter.empty
    if _takes_a_pair(signature) and not (is_named and _is_fixture_or_required(signature)):
        return None
    return [p for p in parameters.values() if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]


def _takes_a_pair(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def _can_take_a_pair(function: Callable[..., Any]) -> bool:
    try:
        return _takes_a_pair(inspect.signature(function))
    except ValueError:  # a function in C without a signature
        return True


def _is_fixture_or_required(signature: inspect.Signature) -> bool:
    """Return whether the parameter that targets would go to by position names a fixture, or must be given."""
    _, second, *_ = [*signature.parameters.values(), None]
    is_rest = second is None or second.kind is not Parameter.POSITIONAL_OR_KEYWORD
    return second is None or is_rest or second.default is Parameter.empty or second.name in FIXTURES_OF_A_BATCH


def _cure(error: Exception) -> str:
    """Return the arguments of a metric if a call did not fit them: behind ``*args`` a signature does not show it."""
    if not isinstance(error, TypeError) or "positional argument" not in str(error):
        return ""
    return ": a metric takes (prediction, targets), or fixtures by name if one of them is prediction"


def positional_pair() -> list[Parameter]:
    """Return the parameters of a metric that is called by position, as torch's functions are."""
    return [Parameter(name, Parameter.KEYWORD_ONLY) for name in ("prediction", "targets")]
