"""The algorithm of a TrainManager: the methods that a subclass overrides, called by the names of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import Tensor

from train_manager.core.decorators import overridable
from train_manager.core.extensible import Extensible
from train_manager.core.state import Options
from train_manager.data.batch import parts_of
from train_manager.data.iteration import refuse_examples
from train_manager.loop.arguments import FIXTURES_OF_A_BATCH, bind_loss
from train_manager.loop.losses import Losses
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.objectives import Objective
from train_manager.loop.outputs import count_rows, loss_in, no_targets
from train_manager.telling.errors import FixtureNotFound, StageError
from train_manager.telling.words import Words
from train_manager.words.fixtures import EXTENSIONS, FIXTURES, STAGES, SUMMARIES
from train_manager.words.hooks import HOOKS

WORDS: Final = Words(
    fixtures=FIXTURES,
    stages=STAGES,
    summaries=SUMMARIES,
    extensions=EXTENSIONS,
    hooks=HOOKS,
    hook="post_train_step_batch",
    extension="EMA",
    called_by=("_chosen",),
)


class Chosen(NamedTuple):
    """The methods that every batch calls, each ready to be called with the live fixtures.

    Attributes:
        unpacks_as_usual: neither ``unpack_batch`` nor ``get_true_batch_size`` is overridden, so that they need not be
            called by name.
    """

    unpacks_as_usual: bool
    unpack_batch: Callable[[], Any]
    get_true_batch_size: Callable[[], Any]
    train_batch: Callable[[], Any]
    eval_batch: Callable[[], Any]
    train_model_forward: Callable[[], Any]
    eval_model_forward: Callable[[], Any]
    train_loss_forward: Callable[[], Any]
    eval_loss_forward: Callable[[], Any]


class OverridableMethods(Extensible):
    """From a batch to a loss. These methods open no stages, so hooks may call them again.

    >>> from train_manager import TrainManager
    >>> class Autoencoder(TrainManager):
    ...     def loss_forward(self, prediction, inputs):
    ...         return (prediction - inputs).square().mean()
    """

    _options = Options(own_name="train_manager", times_hooks=True, notes_errors=True, joined="run", words=WORDS)
    _chosen: Chosen = None  # type: ignore[assignment]  # while no call runs

    model: Any
    called_model: Any
    loss: Any
    objective: Objective | None
    _named_loss: tuple[Any, Any] = (None, None)  # the loss, and its call by fixture names if it is called so
    _model_call: tuple[Any, Any] = (None, None)  # the model, and how it is called

    # ---- to be overridden ----------------------------------------------------------------------------------------

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
        return parts_of(batch)

    @overridable
    def get_true_batch_size(self, batch: Any) -> int:
        """Return how many examples a batch has, the weight of its loss. Here: rows of the first tensor in it."""
        return count_rows(batch)

    @overridable
    def model_forward(self, inputs: Any) -> Any:
        """Return the prediction, in training and evaluation. Here: the objective's, or the model's of the inputs.

        A tuple of inputs is spread if the model's forward needs several, and a dict goes by keyword if it names the
        keys.
        """
        model, objective = self.called_model, self.objective
        if objective is not None and not objective.predicts_as_usual:
            return objective.predict(model, inputs)
        if self.model is not self._model_call[0]:
            self._model_call = self.model, ModelCall(self.model)
        return self._model_call[1](model, inputs)

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
        without one, the ``loss`` that the model's output has, as those of Hugging Face do.

        Return None if there is none, because the model adds all of it (``add_loss``).
        """
        if self.loss is None:
            return loss_in(self.fixtures["prediction"])
        if self.loss is not self._named_loss[0]:
            self._named_loss = self.loss, bind_loss(self.loss, FIXTURES_OF_A_BATCH.union(self._store.names()))
        by_name = self._named_loss[1]
        if by_name is not None:
            return by_name(self._store)  # type: ignore[no-any-return]
        try:
            targets = self.fixtures["targets"]
        except FixtureNotFound:
            if "targets" in self.fixtures:  # a provider of them has asked for another fixture
                raise
            raise no_targets(self.fixtures["batch"]) from None
        return self.loss(self.fixtures["prediction"], targets)  # type: ignore[no-any-return]

    @overridable
    def train_loss_forward(self) -> Tensor | None:
        """Return the loss in training. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    @overridable
    def eval_loss_forward(self) -> Tensor | None:
        """Return the loss in evaluation. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    def _forward_again(self) -> Tensor:
        """Compute the loss of the forward pass anew, without its stages; the fixtures keep their values."""
        cell = self._store.cells["prediction"]  # not by `modify`, which a hook would have to declare
        before = cell.value
        try:
            with Losses() as losses:
                cell.value = self._chosen.train_model_forward()
                return losses.total(self._chosen.train_loss_forward())
        finally:
            cell.value = before

    # ---- chosen once per call of train, eval and the like --------------------------------------------------------

    def _refuse_unusable_loss(self) -> None:
        """Refuse a loss that could not be called, as it is given; what an own method does with it is not known."""
        if not any(self._overrides(name, OverridableMethods) for name in _CALL_THE_LOSS):
            bind_loss(self.loss)

    def _refuse_single_examples(self, train_data: Any, eval_data: Mapping[str, Any]) -> None:
        """Refuse examples in place of batches, if all methods that read a batch are those of this library."""
        modules = (str(getattr(getattr(type(self), name), "__module__", "")) for name in _READ_A_BATCH)
        if all(module.startswith("train_manager.") for module in modules):
            refuse_examples(train_data, "train_data")
            for name, data in eval_data.items():
                refuse_examples(data, f"eval_data[{name!r}]")

    def _choose(self) -> Chosen:
        """Find the methods that the batches to come will call, past those that only hand on to the common one."""
        names = {name: name for name in Chosen._fields[1:]}
        own = {name for name in names if name in vars(OverridableMethods) and self._overrides(name, OverridableMethods)}
        names |= {name: common for name, common in _COMMON.items() if name not in own}
        as_usual = own.isdisjoint({"unpack_batch", "get_true_batch_size"})
        return Chosen(as_usual, **{field: self._ready(name) for field, name in names.items()})

    if not TYPE_CHECKING:  # which would let any attribute be set

        def __setattr__(self, name: str, value: Any) -> None:
            if self._chosen is not None and name in _FOUND_ONCE:
                raise StageError(
                    f"{type(self).__name__}.{name} was replaced while a call that uses it runs",
                    name=name,
                    stages=self.fixtures.path,
                    cure="override it in a class, or replace it before the call",
                )
            super().__setattr__(name, value)


_COMMON = {
    "train_model_forward": "model_forward",
    "eval_model_forward": "model_forward",
    "train_loss_forward": "loss_forward",
    "eval_loss_forward": "loss_forward",
}
_CALL_THE_LOSS = ("loss_forward", "train_loss_forward", "eval_loss_forward")
_READ_A_BATCH = (*(name for name in Chosen._fields if name != "unpacks_as_usual"), "model_forward", "loss_forward")
_FOUND_ONCE = frozenset({*Chosen._fields[1:], *_COMMON.values()})
"""Methods that are found once per call: a method that was replaced meanwhile would count from the next call only."""
