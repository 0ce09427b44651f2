"""The stages inside a batch: the model, the loss, the backward pass and the step, and how a batch opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.decorators import overridable
from train_manager.core.outcome import SkipStage
from train_manager.loop.closed_stages import ClosedStages
from train_manager.loop.interface import Model
from train_manager.loop.losses import Losses
from train_manager.loop.outputs import (
    require_loss_to_update,
    require_prediction,
    require_scalar_loss,
    require_training_loss,
)
from train_manager.loop.own_losses import OwnLosses
from train_manager.loop.region import INNER
from train_manager.loop.skip import raise_if_of_another, skippable
from train_manager.loop.step import NO_BACKWARD, Backward, Step
from train_manager.loop.windows import requires_closure, updated_twice, warn_without_gradients
from train_manager.telling.errors import StageError


class InnerStages(ClosedStages[Model]):
    """The part of a TrainManager that does something with a batch."""

    # ---- what is done with a batch -----------------------------------------------------------------------------------

    @overridable
    def train_batch(self) -> None:
        """Train on a batch: to be overridden, called by fixture names, and free to update as often as it likes.

        >>> from train_manager import TrainManager
        >>> class Distill(TrainManager):
        ...     def train_batch(self, model, inputs, targets):
        ...         prediction = model(inputs)
        ...         self.update(nn.functional.mse_loss(prediction, targets) + prediction.square().mean())
        """
        self.update(self.forward())

    @overridable
    def eval_batch(self) -> None:
        """Evaluate a batch: to be overridden, called by fixture names. An own one may set ``fixtures["loss"]``."""
        self.forward()

    def forward(self) -> Tensor:
        """Open the stages of the forward pass, those of eval in ``eval_batch``; return the loss as hooks left it."""
        if "train_step_batch" in self._store.open:
            self._train_model_forward()
            self._train_loss_forward()
            loss: Tensor = self.fixtures["loss"]  # a hook may have skipped the stage
            self._progress.step.hooked_loss = loss
        elif "eval_step_batch" in self._store.open:
            self._eval_model_forward()
            self._eval_loss_forward()
            loss = self.fixtures["loss"]
        else:
            cure = "call it in train_batch(self, ...) or eval_batch(self, ...)"
            raise StageError("forward() was called, but no batch is alive", stages=self.fixtures.path, cure=cure)
        return loss

    def update(
        self, loss: Tensor | Callable[[], Tensor], optimizer: str | None = None, *, retain_graph: bool = False
    ) -> None:
        """Run ``backward`` and ``step``, for one of the optimizers by its name.

        What ``add_loss`` was given in ``train_batch`` since the last update or backward, beside ``forward()``, is added
        to the loss. A function adds what is added while it runs, and nothing else.

        Args:
            loss: a scalar; or a function that computes it, which optimizers with a closure (LBFGS) and ``SAM`` call
                again. The loss of ``forward()`` needs no function.
            optimizer: its name; may be left out if there is only one.
            retain_graph: keep the graph for another backward.

        Raises:
            InputError: the optimizer is not named, or the loss is not a scalar with a gradient.
            StageError: no batch is being trained on.
        """
        name, used = self._optimizer_in_batch(optimizer, "update")
        self._train_backward(self._loss_to_update(loss, name), name, used, retain_graph)
        self._step_if_window_ends(name)

    def backward(
        self, loss: Tensor | Callable[[], Tensor], optimizer: str | None = None, *, retain_graph: bool = False
    ) -> None:
        """Add the gradients of a loss to the window of an optimizer, which begins with gradients of zero."""
        name, used = self._optimizer_in_batch(optimizer, "backward")
        self._train_backward(self._loss_to_update(loss, name), name, used, retain_graph)

    def step(self, optimizer: str | None = None) -> None:
        """Step an optimizer if its window ends with this batch (``update_ends``) and has had a backward."""
        name, _ = self._optimizer_in_batch(optimizer, "step")
        self._step_if_window_ends(name)

    @contextmanager
    def _collecting(self, step: Step) -> Iterator[None]:
        """Collect what an own ``train_batch`` adds to its loss, outside of the stages inside a batch."""
        open_stages = self._store.open
        own = step.own = OwnLosses(self._losses_of(step), is_resting=lambda: not open_stages.keys().isdisjoint(INNER))
        self._collector.losses = own
        try:
            yield
        finally:
            self._collector.losses = None
        own.warn_of_waiting(self._told)

    def _losses_of(self, step: Step) -> Losses:
        """Return the losses of a batch by name; a hook that has asked for them may have put others in their place."""
        has_owner = self._store.cells["losses"].owner is not None
        return cast(Losses, self._store.cells["losses"].value) if has_owner else step.losses

    def _train_model_forward(self) -> None:
        step = self._progress.step
        try:
            with self.staged("train_model_forward"):
                around = self._collector.losses
                losses = self._collector.losses = self._losses_of(step)
                if step.forward_loss is not None:
                    losses.forget_added()  # the second pass adds its own; both would be in the loss
                try:
                    prediction = require_prediction(self._chosen.train_model_forward(), self.model)
                finally:
                    self._collector.losses = around
                if step.forward_loss is None:
                    self.fixtures.define("prediction", prediction, stage="train_step_batch")
                else:
                    self.fixtures.modify("prediction", prediction)
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_model_forward")

    def _train_loss_forward(self) -> None:
        step = self._progress.step
        try:
            with self.staged("train_loss_forward"):
                around = self._collector.losses
                losses = self._collector.losses = self._losses_of(step)
                try:
                    returned = self._chosen.train_loss_forward()
                finally:
                    self._collector.losses = around
                loss = require_training_loss(losses.total(returned))
                if step.forward_loss is None:
                    self.fixtures.define("loss", loss, stage="train_step_batch")
                else:
                    self.fixtures.modify("loss", loss)
                step.forward_loss = loss
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_loss_forward")

    def _loss_to_update(self, given: Tensor | Callable[[], Tensor], name: str) -> Backward:
        """Return the loss that ``update`` was given, and what computes it anew if an optimizer asks for that."""
        step, fixtures = self._progress.step, self.fixtures
        if name in step.asked_to_step and not (fixtures["update_begins"] and fixtures["update_ends"]):
            raise updated_twice(name)
        self._progress.call.has_updated = True
        if step.own is None:
            if given is step.hooked_loss and given is not None:  # as `forward` has returned it
                return Backward(given, self._forward_again)
            step.own = OwnLosses(self._losses_of(step))
        own = step.own
        if callable(given):
            loss, again = self._computed(given, own), partial(self._computed, given)
        else:
            loss, again = own.take(require_loss_to_update(given)), None
        if loss is step.hooked_loss:
            return Backward(loss, self._forward_again)
        own.add_update(name, require_training_loss(loss))
        return Backward(loss, again)

    def _computed(self, function: Callable[[], Tensor], own: OwnLosses | None = None) -> Tensor:
        """Return the loss that a function computes, with what is added while it runs."""
        collector, own = self._collector, own or OwnLosses(Losses())
        around, collector.losses = collector.losses, own
        waiting, own.waiting = own.waiting, {}  # for the next loss that is a tensor
        try:
            return own.take(require_loss_to_update(function()))
        finally:
            collector.losses, own.waiting = around, waiting

    def _step_if_window_ends(self, name: str) -> None:
        step, window = self._progress.step, self._windows.get(name)
        step.asked_to_step.add(name)
        if not self._store.cells["update_ends"].value:
            return
        if step.own is not None:
            step.own.end_step(name)
        if window is not None:
            warn_without_gradients(window.optimizer, name)
            if name not in self._setup.looked_at:  # not in a region: the first batches of a setup open its stages
                self._look_at_parameters(name)
            step.backwards.setdefault(name, NO_BACKWARD)  # hooks of the step may change the gradients, and fail then
            self._train_optimizer_step(name, window.optimizer)

    def _train_backward(self, backward: Backward, name: str, optimizer: Optimizer, retain_graph: bool) -> None:
        given = {"backward_loss": backward.loss, "optimizer": optimizer, "optimizer_name": name}
        is_last = self._store.cells["update_ends"].value
        try:
            with self.staged("train_backward", given):
                loss = self._store.cells["backward_loss"].value
                self._progress.step.backwards[name] = backward  # before it runs: half a backward must be dropped too
                is_modified = loss is not backward.loss  # a closure would compute another one than the hooks
                self._windows.backward(name, optimizer, loss, retain_graph, is_modified=is_modified, is_last=is_last)
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_backward")

    def _train_optimizer_step(self, name: str, optimizer: Optimizer) -> None:
        counts = self._counts
        try:
            with self.staged("train_optimizer_step", {"optimizer": optimizer, "optimizer_name": name}):
                if requires_closure(type(optimizer)):
                    optimizer.step(self._closure_of_step(name))  # type: ignore[arg-type]
                else:
                    optimizer.step()
                self._windows.close(name)  # which frees the gradients: the next forward pass has their memory
                del self._progress.step.backwards[name]
                counts.count_update(name)
                self._store.cells["update_num"].value = counts.update_num
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_optimizer_step")
            self._windows.close(name)

    @skippable("eval_model_forward")
    def _eval_model_forward(self) -> None:
        with self.staged("eval_model_forward"):
            losses, is_first = self.fixtures["losses"], "prediction" not in self.fixtures
            if not is_first:
                losses.forget_added()
            around, self._collector.losses = self._collector.losses, losses
            try:
                prediction = self._chosen.eval_model_forward()
            finally:
                self._collector.losses = around
            require_prediction(prediction, self.model)
            if is_first:
                self.fixtures.define("prediction", prediction, stage="eval_step_batch")
            else:
                self.fixtures.modify("prediction", prediction)

    @skippable("eval_loss_forward")
    def _eval_loss_forward(self) -> None:
        with self.staged("eval_loss_forward"):
            around = self._collector.losses
            losses = self._collector.losses = self.fixtures["losses"]
            try:
                loss = self._chosen.eval_loss_forward()
            finally:
                self._collector.losses = around
            total = require_scalar_loss(losses.total(loss))
            if "loss" not in self.fixtures:  # an own eval_batch may have set one
                self.fixtures.define("loss", total, stage="eval_step_batch")
            else:
                self.fixtures.modify("loss", total)


InnerStages._trained_by = {
    name: vars(InnerStages)[name] for name in ("train_batch", "forward", "update", "backward", "step")
}
