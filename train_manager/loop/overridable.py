"""The methods that users override, and which of them a call uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from train_manager.core.declarations import overridable
from train_manager.data.batch import unpack
from train_manager.data.readable import refuse_examples
from train_manager.loop.arguments import (
    FIXTURES_OF_A_BATCH,
    bind_loss,
)
from train_manager.loop.attributes import Model
from train_manager.loop.how_far import HowFar
from train_manager.loop.losses import Losses
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.outputs import (
    count_rows,
    loss_in,
    no_targets,
)
from train_manager.loop.stretched import refusing_stretched
from train_manager.telling.errors import FixtureNotFound, StageError
from train_manager.telling.tracebacks import hide_own_frames


class Chosen(NamedTuple):
    """The methods that every batch calls, each ready to be called with the live fixtures."""

    # None of unpack_batch, get_true_batch_size and its two forms is overridden: the loop need not call them by names.
    unpacks_as_usual: bool
    # One of train_batch, forward, update, backward and step is overridden, so it may add losses beside forward().
    trains_in_own_way: bool
    # The methods of these names. If train_model_forward only hands on to model_forward, the latter stands here.
    unpack_batch: Callable[[], Any]
    train_get_true_batch_size: Callable[[], Any]
    eval_get_true_batch_size: Callable[[], Any]
    train_batch: Callable[[], Any]
    eval_batch: Callable[[], Any]
    train_model_forward: Callable[[], Any]
    eval_model_forward: Callable[[], Any]
    train_loss_forward: Callable[[], Any]
    eval_loss_forward: Callable[[], Any]


# The method that train_... and eval_... call unless they are overridden.
_COMMON = {
    "train_get_true_batch_size": "get_true_batch_size",
    "eval_get_true_batch_size": "get_true_batch_size",
    "train_model_forward": "model_forward",
    "eval_model_forward": "model_forward",
    "train_loss_forward": "loss_forward",
    "eval_loss_forward": "loss_forward",
}
_CALL_THE_MODEL = ("model_forward", "train_model_forward", "eval_model_forward")
_COMPUTE_A_LOSS = ("train_loss_forward", "eval_loss_forward")
_COUNT_EXAMPLES = ("get_true_batch_size", "train_get_true_batch_size", "eval_get_true_batch_size")
_CALL_THE_LOSS = ("loss_forward", *_COMPUTE_A_LOSS)
_TRAIN_A_BATCH = frozenset({"forward", "update", "backward", "step"})
_TRAIN = ("train_batch", *sorted(_TRAIN_A_BATCH))
_OF_A_BATCH = {
    "train": (("model_forward", "train_model_forward", "loss_forward", "train_loss_forward"), _TRAIN),
    "eval": (("model_forward", "eval_model_forward", "loss_forward", "eval_loss_forward"), ("eval_batch", "forward")),
    "predict": (("model_forward", "eval_model_forward"), ()),
}
"""The methods that compute something of a batch, and those around them."""

_METHODS = Chosen._fields[2:]
_READ_A_BATCH = (*_METHODS, *dict.fromkeys(_COMMON.values()))
_LOOKED_AT = (*_READ_A_BATCH, *sorted(_TRAIN_A_BATCH))
_FOUND_ONCE = frozenset({*_METHODS, *_COMMON.values()})
"""Methods that are found once per call: a method that was replaced meanwhile would count from the next call only."""


class Overridable(HowFar[Model]):
    """The methods of a TrainManager that a subclass may override; each is called by fixture names.

    >>> from train_manager import TrainManager
    >>> class Autoencoder(TrainManager):
    ...     def loss_forward(self, prediction, inputs):
    ...         return (prediction - inputs).square().mean()
    """

    # From the start of a training call, an evaluation or a prediction to its end; None in between.
    _chosen: Chosen = None  # type: ignore[assignment]
    # The loss, and its call by fixture names (None: it is called by position). A pair, so that the call is made anew
    # once the loss is another object; the same for the model, and how it is called.
    _named_loss: tuple[Any, Any] = (None, None)
    _model_call: tuple[Any, Any] = (None, None)

    @overridable
    def initialize_params(self) -> None:
        """Initialise the model's parameters, once, as the first run opens. Here: they stay as the modules made them."""

    @overridable
    def unpack_batch(self, batch: Any) -> tuple[Any, ...] | Mapping[str, Any]:
        """Return the inputs and targets of a batch. Here: of a pair, also one with names, or of a dict that has
        ``inputs``; any other batch is ``inputs`` as a whole.

        Return ``(inputs, targets)``, or a dict of the two if one is missing. For other parts of a batch write a
        ``@fixture("train_step_batch")`` method of that name.
        """
        return unpack(batch)

    @overridable
    def get_true_batch_size(self, batch: Any) -> int | Tensor:
        """Return how many examples a batch has, the weight of its loss. Here: rows of the first tensor in it, or the
        length of inputs and targets that are lists of examples.

        A tensor, as of the tokens that are not padding, is not read on the host.
        """
        fixtures = self.fixtures
        is_unpacked = "inputs" in fixtures and batch is fixtures["batch"]
        unpacked = {"inputs": fixtures["inputs"], "targets": fixtures.get("targets")} if is_unpacked else unpack(batch)
        return count_rows(batch, self._spreads, unpacked)

    @overridable
    def train_get_true_batch_size(self) -> int | Tensor:
        """Return how many examples a batch has in training. Here: ``get_true_batch_size``."""
        return self.call_by_name(self.get_true_batch_size)

    @overridable
    def eval_get_true_batch_size(self) -> int | Tensor:
        """Return how many examples a batch has in evaluation. Here: ``get_true_batch_size``."""
        return self.call_by_name(self.get_true_batch_size)

    @overridable
    def model_forward(self, inputs: Any) -> Any:
        """Return the prediction, in training and evaluation. Here: the objective's, or the model's of the inputs.

        A tuple of inputs is spread if the model's forward needs several, and a dict goes by keyword if it names the
        keys.
        """
        setup = self._setup
        if setup.objective is not None and not setup.objective.predicts_as_usual:
            return setup.objective.predict(setup.called_model, inputs)
        if setup.model is not self._model_call[0]:
            self._read_model()
        return self._model_call[1](setup.called_model, inputs)

    @overridable
    def train_model_forward(self) -> Any:
        """Return the prediction in training. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def eval_model_forward(self) -> Any:
        """Return the prediction in evaluation. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def loss_forward(self) -> Tensor | None:
        """Return the loss, in training and evaluation. Here: ``loss``, called by fixture names or as PyTorch's losses;
        without one, the ``loss`` that the model's output has, as those of Hugging Face do, or the sum of a dict of
        scalar losses, as torchvision's detectors return it.

        Return None if there is none, because the model adds all of it (``add_loss``), or because an evaluation has
        metrics alone.
        """
        loss = self.loss
        if loss is None:
            return loss_in(self.fixtures["prediction"])
        if loss is not self._named_loss[0]:
            self._read_loss()
        by_name = self._named_loss[1]
        if by_name is not None:
            return by_name(self._store)  # type: ignore[no-any-return]
        try:
            targets = self.fixtures["targets"]
        except FixtureNotFound:
            # A provider of the targets has failed, as it asked for another fixture that is missing.
            if "targets" in self.fixtures:
                raise
            raise no_targets(self.fixtures["batch"]) from None
        return loss(self.fixtures["prediction"], targets)  # type: ignore[no-any-return]

    @overridable
    def train_loss_forward(self) -> Tensor | None:
        """Return the loss in training. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    @overridable
    def eval_loss_forward(self) -> Tensor | None:
        """Return the loss in evaluation. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    def _read_model(self) -> None:
        """Read how the model is called."""
        self._model_call = self._setup.model, ModelCall(self._setup.model)

    def _read_loss(self) -> None:
        """Read how the loss is called."""
        self._named_loss = self.loss, bind_loss(self.loss, FIXTURES_OF_A_BATCH.union(self._store.names()))

    def _own_method(self, kind: str) -> str:
        """Return the name of a method that is overridden, so that a batch is more than model, loss and step; or "".

        Args:
            kind: ``"train"``, ``"eval"`` or ``"predict"``.
        """
        calls, opens = _OF_A_BATCH[kind]
        own = [name for name in calls if self._overrides(name, Overridable)]
        own += [name for name in opens if not _is_of_the_library(self._function_of(name))]
        return next(iter(own), "")

    def _spreads(self, inputs: Any) -> bool:
        """Return whether the model takes these inputs as several arguments; an own forward may call it in any way."""
        objective = self.objective
        calls_model = objective is None or objective.predicts_as_usual
        is_own = any(self._overrides(name, Overridable) for name in _CALL_THE_MODEL)
        return calls_model and not is_own and ModelCall(self.model).spreads(inputs)

    def _forward_again(self) -> Tensor:
        """Compute the loss of the forward pass anew, without its stages; the fixtures keep their values."""
        before = self.fixtures["prediction"]
        # Written into the cell: `modify` would raise in a hook that has not declared that it modifies the prediction.
        cell = self._store.cells["prediction"]
        try:
            with Losses() as losses:
                cell.value = self._chosen.train_model_forward()
                return losses.total(self._chosen.train_loss_forward())
        finally:
            cell.value = before

    # ---- chosen once per call of train, eval and the like ------------------------------------------------------------

    def _refuse_unusable_loss(self) -> None:
        """Refuse a loss that could not be called."""
        # Not if a method that calls the loss is overridden: it may call the loss in another way.
        if not any(self._overrides(name, Overridable) for name in _CALL_THE_LOSS):
            bind_loss(self.loss)

    def _refuse_single_examples(self, train_data: Any, eval_data: Mapping[str, Any]) -> None:
        """Refuse examples in place of batches, unless an own method reads the batches."""
        if all(_is_of_the_library(getattr(type(self), name)) for name in _READ_A_BATCH):
            refuse_examples(train_data, "train_data")
            for name, data in eval_data.items():
                refuse_examples(data, f"eval_data[{name!r}]")

    def _choose(self) -> Chosen:
        """Find the methods that the batches to come will call."""
        choice = choice_of(tuple(map(self._function_of, _LOOKED_AT)))
        ready = {
            field: getattr(self, name) if name in choice.plain else self._ready(name)
            for field, name in choice.names.items()
        }
        ready |= {field: refusing_stretched(ready[field], self._store) for field in _COMPUTE_A_LOSS}
        return Chosen(choice.unpacks_as_usual, choice.trains_in_own_way, **ready)

    @contextmanager
    def _methods_chosen(self) -> Iterator[None]:
        """Choose the methods that each batch calls, anew for each call from outside; errors show the user's frames."""
        before, self._chosen = self._chosen, self._choose()
        try:
            yield
        except BaseException as error:
            hide_own_frames(error)
            self.ranks.fail(error)
            raise
        finally:
            self._chosen = before

    if not TYPE_CHECKING:  # a type checker that saw __setattr__ would accept any attribute

        def __setattr__(self, name: str, value: Any) -> None:
            # The present training call has found its methods already, and would not see the new one.
            if self._chosen is not None and name in _FOUND_ONCE:
                raise StageError(
                    f"{type(self).__name__}.{name} was replaced while a call that uses it runs",
                    name=name,
                    stages=self.fixtures.path,
                    cure="override it in a class, or replace it before the call",
                )
            if name == "decide":
                self._decides = True
            elif name in _TRAIN_A_BATCH and self._chosen is not None:
                self._chosen = self._chosen._replace(trains_in_own_way=True)
            super().__setattr__(name, value)


def _is_of_the_library(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("train_manager.")


class Choice(NamedTuple):
    """What ``Chosen`` is made of for all objects with the same methods."""

    unpacks_as_usual: bool
    trains_in_own_way: bool
    names: Mapping[str, str]  # the method that each field of Chosen calls
    plain: frozenset[str]  # the methods without parameters, which need no fixtures


@lru_cache(maxsize=64)  # as each evaluation asks; bounded, as the cache keeps the functions alive
def choice_of(functions: tuple[Any, ...]) -> Choice:
    """Return which methods the batches call, and how.

    Args:
        functions: those of the methods in ``_LOOKED_AT``; None stands for a callable that has replaced a method.
    """
    found = dict(zip(_LOOKED_AT, functions, strict=True))
    names = {name: name for name in _METHODS}
    own = {name for name in _READ_A_BATCH if found[name] is not vars(Overridable).get(name, found[name])}
    # A train_model_forward that is not overridden only calls model_forward: the latter takes its place.
    names |= {name: common for name, common in _COMMON.items() if name not in own}
    as_usual = own.isdisjoint({"unpack_batch", *_COUNT_EXAMPLES})
    in_own_way = not all(_is_of_the_library(found[name]) for name in ("train_batch", *_TRAIN_A_BATCH))
    plain = frozenset(name for name in names.values() if found[name] is not None and _takes_self_only(found[name]))
    return Choice(as_usual, in_own_way, names, plain)


def _takes_self_only(function: Any) -> bool:
    try:
        parameters = [*signature(function).parameters.values()]
    except (TypeError, ValueError):  # a function in C without a signature
        return False
    return len(parameters) == 1 and parameters[0].kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
