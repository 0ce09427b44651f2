"""What of the algorithm is there to be overridden: called with the fixtures that the parameters name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from train_manager.core.decorators import overridable
from train_manager.data.batch import SameStructure, parts_of
from train_manager.loop.arguments import loss_by_name
from train_manager.loop.feed import Feeding
from train_manager.loop.objectives import Objective
from train_manager.loop.outputs import no_targets, require_batch_size, require_parts, rows_of


class Shortcuts(NamedTuple):
    """Which parts of a training step do what is written here, so that they can do it without the calls."""

    batch: bool
    model: bool
    loss: bool


class Forwarding(Feeding):
    """From a batch to a loss. These methods open no stages, so hooks may call them again.

    >>> from train_manager import TrainManager
    >>> class Autoencoder(TrainManager):
    ...     def loss_forward(self, prediction, inputs):
    ...         return (prediction - inputs).square().mean()
    """

    objective: Objective | None
    _named_loss: tuple[Any, Any]
    _plain_loss: Any  # the loss where it is called as PyTorch's are, else None
    _shortcuts: Shortcuts

    @overridable
    def unpack_batch(self, batch: Any) -> tuple[Any, ...] | Mapping[str, Any]:
        """What is ``inputs`` and what is ``targets`` in a batch. Here: a pair is both, also one with names, and a dict
        that has ``inputs``; anything else is ``inputs``.

        Return ``(inputs, targets)``, or a dict of the two where one is missing. For other parts of a batch write
        a ``@fixture("train_step_batch")`` method of that name.
        """
        return parts_of(batch)

    @overridable
    def get_true_batch_size(self, batch: Any) -> int:
        """How many examples a batch has, the weight of its loss. Here: rows of the first tensor in it."""
        return rows_of(batch)

    @overridable
    def model_forward(self, inputs: Any) -> Any:
        """The prediction, in training and evaluation. Here: of the objective, or what the model makes of the inputs."""
        return self.model(inputs) if self.objective is None else self.objective.predict(self.model, inputs)

    @overridable
    def train_model_forward(self) -> Any:
        """The prediction in training. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def eval_model_forward(self) -> Any:
        """The prediction in evaluation. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def loss_forward(self) -> Tensor | None:
        """The loss, in training and evaluation. Here: ``loss``, by fixture names or as PyTorch's losses are called.

        None where there is none, because all is added by the model (``add_loss``).
        """
        if self.loss is not self._named_loss[0]:
            self._note_loss()
        by_name = self._named_loss[1]
        if by_name is not None:
            return by_name(self._store)  # type: ignore[no-any-return]
        if self.loss is None:
            return None
        if "targets" not in self.fixtures:
            raise no_targets(self.fixtures["batch"])
        return self.loss(self.fixtures["prediction"], self.fixtures["targets"])  # type: ignore[no-any-return]

    @overridable
    def train_loss_forward(self) -> Tensor | None:
        """The loss in training. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    @overridable
    def eval_loss_forward(self) -> Tensor | None:
        """The loss in evaluation. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    # ---- how the loop gets there -------------------------------------------------------------------------------------

    def _find_shortcuts(self) -> Shortcuts:
        """Where the steps to come need no calls by name. An override counts from the next call of ``train``."""
        return Shortcuts(
            batch=self._has_defaults(_DEFAULTS, "unpack_batch", "get_true_batch_size"),
            model=self._has_defaults(_DEFAULTS, "train_model_forward", "model_forward") and self.objective is None,
            loss=self._has_defaults(_DEFAULTS, "train_loss_forward", "loss_forward"),
        )

    def _note_loss(self) -> None:
        """How ``loss`` is called."""
        by_name = loss_by_name(self.loss)
        self._named_loss = self.loss, by_name
        self._plain_loss = self.loss if by_name is None else None

    def _define_batch_parts(self, data_name: str) -> None:
        """Unpack the batch as the pre hooks have left it: what they did to it is what is trained on."""
        batch, structure = self._cells["batch"].value, self._structures[data_name]
        if self._shortcuts.batch and type(batch) in (tuple, list) and len(batch) == 2:
            self._define_pair(batch, structure)
            return
        parts = require_parts(self.call_by_name(self.unpack_batch))
        structure.check(parts, self.step_num + 1)
        if "inputs" in parts:
            self.fixtures["inputs"] = parts["inputs"]
        if "targets" in parts:
            self.fixtures["targets"] = parts["targets"]
        self.fixtures["true_batch_size"] = require_batch_size(self.call_by_name(self.get_true_batch_size))

    def _define_pair(self, batch: tuple[Any, Any] | list[Any], structure: SameStructure) -> None:
        """The same for a pair, where nothing is overridden."""
        inputs, targets = batch
        if not (type(inputs) is type(targets) is Tensor and structure.is_pair):
            structure.check({"inputs": inputs, "targets": targets}, self.step_num + 1)
        self.fixtures.define("inputs", inputs)
        self.fixtures.define("targets", targets)
        shape = inputs.shape if type(inputs) is Tensor else None
        size = shape[0] if shape and shape[0] else require_batch_size(rows_of(batch))
        self.fixtures.define("true_batch_size", size)


_DEFAULTS = dict(vars(Forwarding))
