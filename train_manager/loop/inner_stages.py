"""The stages inside a batch: the model, the loss, the backward pass and the step, and how a batch opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.decorators import fixture, overridable
from train_manager.core.outcome import SkipStage
from train_manager.loop.attributes import Model
from train_manager.loop.closed_stages import ClosedStages
from train_manager.loop.losses import Losses
from train_manager.loop.outputs import (
    require_loss_to_update,
    require_prediction,
    require_scalar_loss,
    require_training_loss,
)
from train_manager.loop.own_losses import OwnLosses
from train_manager.loop.region import INNER
from train_manager.loop.skip import raise_if_of_another, skippable, skipped_too_late_error
from train_manager.loop.step import NO_BACKWARD, Backward, Step
from train_manager.loop.windows import requires_closure, updated_twice_error, warn_without_gradients
from train_manager.telling.errors import StageError


class InnerStages(ClosedStages[Model]):
    """The methods that train on a batch or evaluate it, and the inner stages that they open."""

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
        """Open the stages of the forward pass, in ``eval_batch`` those of eval; return the loss as hooks left it.

        An evaluation with metrics may have no loss: then it is None.
        """
        if "train_step_batch" in self._store.open:
            self._train_model_forward()
            self._train_loss_forward()
            # Read from the fixtures, as a hook of train_loss_forward may have modified the loss. If hooks have skipped
            # the stage without defining a loss, the error says that the fixture is missing.
            loss: Tensor = self.fixtures["loss"]
            # `update` recognizes this object: it knows how to compute the loss of forward() anew.
            self._progress.step.hooked_loss = loss
        elif "eval_step_batch" in self._store.open:
            self._eval_model_forward()
            self._eval_loss_forward()
            # None if a metric is all that is asked for, or a hook has skipped the loss of a set without targets.
            loss = self.fixtures.get("loss")
        else:
            cure = "call it in train_batch(self, ...) or eval_batch(self, ...)"
            raise StageError("forward() was called, but no batch is alive", stages=self.fixtures.path, cure=cure)
        return loss

    def update(
        self, loss: Tensor | Callable[[], Tensor], optimizer: str | None = None, *, retain_graph: bool = False
    ) -> None:
        """Run ``backward`` and ``step``, for one of the optimizers by its name.

        Terms that ``train_batch`` has added by ``add_loss`` since the last update or backward, beside ``forward()``,
        are added to a tensor. To the loss of a function, only terms are added that come while the function runs.

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
        """Collect the terms that an own ``train_batch`` adds to its loss, outside of the stages inside a batch."""
        open_stages = self._store.open
        # While one of the inner stages is open, their hooks run, or a backward pass that runs submodules again
        # (activation checkpoints). Terms that these add must not count a second time, so `own` rests.
        own = step.own = OwnLosses(self._losses_of(step), is_resting=lambda: not open_stages.keys().isdisjoint(INNER))
        self._collector.losses = own
        region = self._setup.region
        if region is not None and region.keeps_parts:
            self._losses_of(step).parts = {}
        try:
            yield
        finally:
            self._collector.losses = None
        own.warn_of_waiting(self._warned_of)

    def _losses_of(self, step: Step) -> Losses:
        """Return the losses of a batch by name."""
        # The cell has an owner once a hook has asked for the fixture; the hook may then have modified it.
        has_owner = self._store.cells["losses"].owner is not None
        return cast(Losses, self._store.cells["losses"].value) if has_owner else step.losses

    @fixture("train_step_batch")
    def loss_parts(self) -> dict[str, Tensor]:
        """The loss terms by name, weighted and with their graphs; kept only where a hook or provider names it."""
        return self._losses_of(self._progress.step).required_parts()

    def _train_model_forward(self) -> None:
        step = self._progress.step
        try:
            with self.staged("train_model_forward"):
                around = self._collector.losses
                losses = self._collector.losses = self._losses_of(step)
                if step.forward_loss is not None:
                    # train_batch calls forward() a second time: the terms that the model added in the first pass must
                    # not be in the loss of the second.
                    losses.forget_added()
                try:
                    prediction = require_prediction(
                        self._chosen.train_model_forward(), self.model, type(self), "train_model_forward"
                    )
                finally:
                    self._collector.losses = around  # collects the terms that train_batch adds beside forward()
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
        """Return the loss that ``update`` was given, and a function that computes it anew."""
        step, fixtures = self._progress.step, self.fixtures
        if name in step.asked_to_step and not (fixtures["update_begins"] and fixtures["update_ends"]):
            raise updated_twice_error(name)
        self._progress.call.has_updated = True
        # Nothing was added beside forward(), and `given` is the loss that forward() has returned: the usual case.
        if step.own is None:
            if given is step.hooked_loss and given is not None:
                return Backward(given, self._forward_again)
            step.own = OwnLosses(self._losses_of(step))
        own = step.own
        if callable(given):
            loss, again = self._compute_loss(given, own), partial(self._compute_loss, given)
        else:
            # A tensor takes the terms that were added since the last update; nothing can compute this sum anew.
            loss, again = own.take(require_loss_to_update(given)), None
        if loss is step.hooked_loss:  # nothing had been added: it is the loss of forward() after all
            return Backward(loss, self._forward_again)
        own.add_update(name, require_training_loss(loss))
        return Backward(loss, again)

    def _compute_loss(self, function: Callable[[], Tensor], own: OwnLosses | None = None) -> Tensor:
        """Return the loss that a function computes, with the terms that are added while it runs."""
        collector, own = self._collector, own or OwnLosses(Losses())
        around, collector.losses = collector.losses, own
        waiting, own.waiting = own.waiting, {}  # these terms belong to the next loss that is given as a tensor
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
            # A region has no such line: the first batches of a setup, in which parameters are looked at, open the
            # inner stages (see ClosedStages._watch_first_batch).
            if name not in self._setup.looked_at:
                self._look_at_parameters(name)
            # Also for a window without a backward in this batch: a hook of the step may change its gradients and then
            # fail, so the window must be dropped with the batch.
            step.backwards.setdefault(name, NO_BACKWARD)
            if self._windows.gradients is not None:
                self._windows.complete(name)
            self._train_optimizer_step(name, window.optimizer)

    def _train_backward(self, backward: Backward, name: str, optimizer: Optimizer, retain_graph: bool) -> None:
        given = {"backward_loss": backward.loss, "optimizer": optimizer, "optimizer_name": name}
        is_last = self._store.cells["update_ends"].value
        try:
            with self.staged("train_backward", given):
                loss = self._store.cells["backward_loss"].value  # as the pre hooks have left it
                # Noted before the pass runs: if it fails half-way, its gradients are dropped with the batch.
                self._progress.step.backwards[name] = backward
                is_modified = loss is not backward.loss  # a closure would compute the loss without the hook's change
                self._windows.backward(name, optimizer, loss, retain_graph, is_modified=is_modified, is_last=is_last)
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_backward")
            self._refuse_skip_of_one_process(skip)

    def _refuse_skip_of_one_process(self, skip: SkipStage) -> None:
        if self._windows.gradients is not None:
            raise skipped_too_late_error(self.fixtures.path) from skip

    def _train_optimizer_step(self, name: str, optimizer: Optimizer) -> None:
        counts = self._counts
        try:
            with self.staged("train_optimizer_step", {"optimizer": optimizer, "optimizer_name": name}):
                if requires_closure(type(optimizer).step):
                    optimizer.step(self._closure_of_step(name))  # type: ignore[arg-type]
                else:
                    optimizer.step()
                self._windows.close(name)  # frees the gradients now, so that the next forward pass can use their memory
                del self._progress.step.backwards[name]
                counts.count_update(name)  # before the post hooks, which read update_num
                self._store.cells["update_num"].value = counts.update_num
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_optimizer_step")
            self._refuse_skip_of_one_process(skip)
            self._windows.close(name)  # a pre hook has skipped the step: the gradients must not enter the next one

    @skippable("eval_model_forward")
    def _eval_model_forward(self) -> None:
        with self.staged("eval_model_forward"):
            losses, is_first = self.fixtures["losses"], "prediction" not in self.fixtures
            if not is_first:  # an own eval_batch calls forward() a second time
                losses.forget_added()
            around, self._collector.losses = self._collector.losses, losses
            try:
                prediction = self._chosen.eval_model_forward()
            finally:
                self._collector.losses = around
            require_prediction(prediction, self.model, type(self), "eval_model_forward")
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
            if loss is None and losses.added is None and self._may_lack_a_loss():
                return
            total = require_scalar_loss(losses.total(loss))
            if "loss" not in self.fixtures:  # an own eval_batch may have set one
                self.fixtures.define("loss", total, stage="eval_step_batch")
            else:
                self.fixtures.modify("loss", total)

    def _may_lack_a_loss(self) -> bool:
        """Return whether no loss function was given, and an evaluation has other results than the loss."""
        return self.loss is None and any("eval_result" in hook.written for hook in self._registry.hooks)


InnerStages._trained_by = {
    name: vars(InnerStages)[name] for name in ("train_batch", "forward", "update", "backward", "step")
}
