"""One batch, from the pull to its counts, and the stages inside it.

    _train_step_batch               the batch; pre hooks, and the inputs and targets out of it
    └─ train_batch                  a method that may be overridden; here it updates with what forward returns
       ├─ forward
       │  ├─ train_model_forward    the prediction
       │  └─ train_loss_forward     the loss, with the terms that the model has added
       └─ update
          ├─ backward
          │  └─ train_backward      gradients, added up to the end of the optimizer's window
          └─ step
             └─ train_optimizer_step   where the window ends: the update, and no gradients after it

Each of the four stages stays closed while nothing looks into it (``Stage.__enter__``); what they do is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, cast

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.declarations import fixture, overridable
from train_manager.core.outcome import SkipStage
from train_manager.data.batch import Unpacked, unpack
from train_manager.data.cures import add_cure
from train_manager.data.shares import ALONE
from train_manager.loop.arguments import INNER
from train_manager.loop.attributes import Model
from train_manager.loop.batch_losses import BatchLosses
from train_manager.loop.losses import Losses
from train_manager.loop.outputs import (
    count_rows,
    require_batch_size,
    require_loss_to_update,
    require_prediction,
    require_scalar_loss,
    require_training_loss,
    require_unpacked,
    returned_value_error,
    with_weight,
)
from train_manager.loop.requests import SKIP_BATCH, Requests
from train_manager.loop.run import Run
from train_manager.loop.skip import SkipBatch, raise_if_of_another, skipped_too_late_error
from train_manager.loop.step import NO_BACKWARD, NO_STEP, Backward, Step, StepClock
from train_manager.loop.windows import requires_closure, updated_twice_error, warn_without_gradients
from train_manager.telling.errors import StageError

CLOCKED: Final = 50
"""The loop clocks every 50th step, and the first step of each training call."""


class Batch(Run[Model]):
    """The methods that train on a batch or evaluate it, and the stages that they open."""

    def _train_or_drop(self, batch: Any, step: Step) -> Tensor | None:
        """Train on a batch, or drop all of it: a batch that is skipped or fails leaves no gradient behind."""
        progress = self._progress
        progress.step = step
        try:
            return self._train_step_batch(batch, step)
        except BaseException as error:
            if isinstance(error, SkipStage):
                raise_if_of_another(error, *self.fixtures.path, "train_step_batch")
                self.decide(SKIP_BATCH)
                progress.present_epoch.skipped += 1
                return None
            is_skipped = isinstance(error, SkipBatch)
            # A pre hook has skipped the batch before `_agree_on_batch`, which the other processes wait for. After an
            # error they do not: `ranks.fail` tells them.
            if is_skipped and not step.skip_is_decided:
                self.decide(SKIP_BATCH)
            elif is_skipped and not (step.is_skipped_by_all or step.is_counted) and self.ranks.place is not ALONE:
                raise skipped_too_late_error(self.fixtures.path) from error
            # A SkipBatch of a post hook comes after the step: only the remaining hooks are skipped, and the gradients
            # of a batch inside an open window stay.
            if not (is_skipped and step.is_counted):
                self._windows.drop(step.backwards)
            if not is_skipped:
                raise
            if not step.is_counted:
                progress.present_epoch.skipped += 1
            return None
        finally:
            progress.step = NO_STEP

    def _train_step_batch(self, batch: Any, step: Step) -> Tensor | None:
        feed = self._progress.feed
        with self.staged(
            "train_step_batch",
            {
                "batch": batch,
                "update_ends": True,
                "batch_num": step.batch_num,
                "datasource_name": feed.datasource_name,
                "update_begins": self._windows.begin,
                "losses": step.losses,
            },
        ):
            done = self._counts.step_num
            is_clocked = not done % CLOCKED or done == self._progress.call.start_step
            clock = StepClock(self._store) if is_clocked else None  # after the pre hooks, whose time does not count
            size = seen = self._unpack(feed.data_name)
            if self._decides:
                size, seen = self._agree_on_batch(step, size)
            if isinstance(self.model, nn.Module):
                try:
                    self._train_on_unpacked(step)
                except Exception as error:
                    add_cure(error, self._store.computed)
                    raise
            else:
                self.fixtures["loss"] = require_scalar_loss(self.model.train_step(self.fixtures["batch"]))
            loss = self._count_step(step, size, seen)  # before the post hooks: to them the batch is counted in step_num
            if clock is not None:
                self._step_seconds.append(clock.seconds())
        return loss

    def _train_on_unpacked(self, step: Step) -> None:
        """Train in ``train_batch``, which opens the inner stages."""
        # Only an own train_batch can add losses around forward().
        with self._collecting(step) if self._chosen.trains_in_own_way else nullcontext():
            returned = self._chosen.train_batch()
        if returned is not None:
            raise returned_value_error(returned, "train_batch")

    # ---- the methods that a batch calls, and that an own train_batch may call ----------------------------------------

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
            self._train_model_forward(self._chosen.train_model_forward)
            loss = self._forward_loss()
        elif "eval_step_batch" in self._store.open:
            self._eval_model_forward(self._chosen.eval_model_forward)
            self._eval_loss_forward(self._chosen.eval_loss_forward)
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
        self,
        loss: Tensor | Callable[[], Tensor],
        optimizer: str | None = None,
        *,
        weight: float | Tensor | None = None,
        retain_graph: bool = False,
    ) -> None:
        """Add the gradients of a loss to the window of an optimizer, which begins with gradients of zero.

        Args:
            loss: a scalar, or a function that computes it; with a ``weight`` for each of its elements, any tensor.
            optimizer: its name; may be left out if there is only one.
            weight: what the loss is multiplied by: the share of a part of the batch, whose losses then add up to that
                of the batch. Or a tensor in the shape of ``loss``: the gradient that comes back to each element, as
                ``gradient`` of ``torch.Tensor.backward``; then set ``fixtures["loss"]`` to the loss that is shown.
            retain_graph: keep the graph for another backward.

        Raises:
            InputError: the optimizer is not named, the weight has another shape than the loss, or the loss is not a
                scalar with a gradient.
            StageError: no batch is being trained on.
        """
        name, used = self._optimizer_in_batch(optimizer, "backward")
        weighted = loss if weight is None else with_weight(loss, weight)
        is_gradient = isinstance(weight, Tensor) and weight.dim() > 0  # a gradient times values is not a loss
        self._train_backward(self._loss_to_update(weighted, name, is_shown=not is_gradient), name, used, retain_graph)

    def step(self, optimizer: str | None = None) -> None:
        """Step an optimizer if its window ends with this batch (``update_ends``) and has had a backward."""
        name, _ = self._optimizer_in_batch(optimizer, "step")
        self._step_if_window_ends(name)

    # ---- the stages inside a batch of the training -------------------------------------------------------------------

    def _forward_loss(self) -> Tensor:
        """Open the stage of the loss; return the loss as hooks left it."""
        self._train_loss_forward()
        # Read from the fixtures, as a hook of train_loss_forward may have modified the loss. If hooks have skipped
        # the stage without defining a loss, the error says that the fixture is missing.
        loss: Tensor = self.fixtures["loss"]
        # `update` recognizes this object: it knows how to compute the loss of forward() anew.
        self._progress.step.loss_after_hooks = loss
        return loss

    def _train_model_forward(self, forward: Callable[[], Any]) -> None:
        step = self._progress.step
        try:
            with self.staged("train_model_forward"):
                losses = self._collector.losses = self._losses
                if step.forward_loss is not None:
                    # train_batch calls forward() a second time: the terms that the model added in the first pass must
                    # not be in the loss of the second.
                    losses.forget_added()
                try:
                    prediction = require_prediction(forward(), self.model, type(self), "train_model_forward")
                finally:
                    self._collector.losses = None
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
                losses = self._collector.losses = self._losses
                try:
                    returned = self._chosen.train_loss_forward()
                finally:
                    self._collector.losses = None
                loss = require_training_loss(losses.total(returned))
                if step.forward_loss is None:
                    self.fixtures.define("loss", loss, stage="train_step_batch")
                else:
                    self.fixtures.modify("loss", loss)
                step.forward_loss = loss
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_loss_forward")

    def _loss_to_update(self, given: Tensor | Callable[[], Tensor], name: str, *, is_shown: bool = True) -> Backward:
        """Return the loss that ``update`` was given, and a function that computes it anew."""
        step, fixtures = self._progress.step, self.fixtures
        if name in step.asked_to_step and not (fixtures["update_begins"] and fixtures["update_ends"]):
            raise updated_twice_error(name)
        self._progress.call.has_updated = True
        if callable(given):
            loss, again = self._compute_loss(given, step.losses), partial(self._compute_loss, given)
        else:
            # A tensor takes the terms that were added since the last update; nothing can compute this sum anew.
            loss, again = step.losses.take(require_loss_to_update(given)), None
        if loss is step.loss_after_hooks:  # nothing was added: it is the loss that forward() has returned
            return Backward(loss, self._forward_again)
        require_training_loss(loss)
        if is_shown:
            step.losses.add_update(name, loss)
        return Backward(loss, again)

    def _compute_loss(self, function: Callable[[], Tensor], losses: Losses | None = None) -> Tensor:
        """Return the loss that a function computes, with the terms that are added while it runs."""
        # Computed anew, the function runs while the stage of the step is open, where the terms of a batch would rest.
        resting = () if losses is None else (self._collector.is_resting,)
        losses = Losses() if losses is None else losses
        waiting, losses.waiting = losses.waiting, {}  # these terms belong to the next loss that is given as a tensor
        try:
            with self._collector.collecting_beside(losses, *resting):
                return losses.take(require_loss_to_update(function()))
        finally:
            losses.waiting = waiting

    def _train_backward(
        self,
        backward: Backward,
        name: str,
        optimizer: Optimizer,
        retain_graph: bool,
        known: Callable[[], None] | None = None,
    ) -> None:
        given = {"backward_loss": backward.loss, "optimizer": optimizer, "optimizer_name": name}
        is_last = self._store.cells["update_ends"].value
        try:
            with self.staged("train_backward", given) as stage:
                # As the pre hooks have left it; a closed stage has none.
                loss = cast(Tensor, self._store.cells["backward_loss"].value if stage.is_open else backward.loss)
                # Noted before the pass runs: if it fails half-way, its gradients are dropped with the batch.
                self._progress.step.backwards[name] = backward
                is_modified = loss is not backward.loss  # a closure would compute the loss without the hook's change
                self._windows.backward(
                    name, optimizer, loss, retain_graph, is_modified=is_modified, is_last=is_last, known=known
                )
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_backward")
            self._refuse_skip_of_one_process(skip)

    def _step_if_window_ends(self, name: str, graph: Callable[[Optimizer], None] | None = None) -> None:
        step, window = self._progress.step, self._windows.get(name)
        step.asked_to_step.add(name)
        if not self._store.cells["update_ends"].value:
            return
        step.losses.end_step(name)
        if window is not None:
            warn_without_gradients(window.optimizer, name)
            # Also for a window without a backward in this batch: a hook of the step may change its gradients and then
            # fail, so the window must be dropped with the batch.
            step.backwards.setdefault(name, NO_BACKWARD)
            if self._windows.gradients is not None:
                self._windows.complete(name)
            self._train_optimizer_step(name, window.optimizer, graph)

    def _train_optimizer_step(
        self, name: str, optimizer: Optimizer, graph: Callable[[Optimizer], None] | None = None
    ) -> None:
        try:
            with self.staged("train_optimizer_step", {"optimizer": optimizer, "optimizer_name": name}):
                if graph is not None:
                    graph(optimizer)
                elif requires_closure(type(optimizer).step):
                    optimizer.step(self._closure_of_step(name))  # type: ignore[arg-type]
                else:
                    optimizer.step()
                self._windows.close(name)  # frees the gradients now, so that the next forward pass can use their memory
                del self._progress.step.backwards[name]
                self._counts.count_update(name)  # before the post hooks, which read update_num
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "train_optimizer_step")
            self._refuse_skip_of_one_process(skip)
            self._windows.close(name)  # a pre hook has skipped the step: the gradients must not enter the next one

    def _refuse_skip_of_one_process(self, skip: SkipStage) -> None:
        if self._windows.gradients is not None:
            raise skipped_too_late_error(self.fixtures.path) from skip

    # ---- the stages inside a batch of an evaluation ------------------------------------------------------------------

    def _eval_model_forward(self, forward: Callable[[], Any]) -> None:
        try:
            with self.staged("eval_model_forward"):
                losses = self._collector.losses = self._losses
                is_first = not self._is_there("prediction")
                if not is_first:  # an own eval_batch calls forward() a second time
                    losses.forget_added()
                try:
                    prediction = require_prediction(forward(), self.model, type(self), "eval_model_forward")
                finally:
                    self._collector.losses = None
                if is_first:
                    self.fixtures.define("prediction", prediction, stage="eval_step_batch")
                else:
                    self.fixtures.modify("prediction", prediction)
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "eval_model_forward")

    def _eval_loss_forward(self, compute: Callable[[], Any]) -> None:
        try:
            with self.staged("eval_loss_forward"):
                losses = self._collector.losses = self._losses
                try:
                    returned = compute()
                finally:
                    self._collector.losses = None
                if returned is None and losses.added is None and self._may_lack_a_loss():
                    return
                loss = require_scalar_loss(losses.total(returned))
                if not self._is_there("loss"):  # an own eval_batch may have set one
                    self.fixtures.define("loss", loss, stage="eval_step_batch")
                else:
                    self.fixtures.modify("loss", loss)
        except SkipStage as skip:
            raise_if_of_another(skip, *self.fixtures.path, "eval_loss_forward")

    def _is_there(self, name: str) -> bool:
        """Return whether a fixture is alive that the stages inside an evaluated batch do not give as they open."""
        # `name in self.fixtures` would also look for a stage that runs closed and gives it, in five calls.
        cell = self._store.cells.get(name)
        return cell is not None and cell.owner is not None

    def _may_lack_a_loss(self) -> bool:
        """Return whether no loss function was given, and an evaluation has other results than the loss."""
        return self.loss is None and any("eval_result" in hook.written for hook in self._registry.hooks)

    # ---- before and after them, without a stage ----------------------------------------------------------------------

    def _inputs_and_targets(self, data_name: str) -> Unpacked:
        """Return the inputs and the targets of the batch, as its pre hooks have left it."""
        as_usual = self._chosen.unpacks_as_usual
        unpacked = (
            unpack(self._store.cells["batch"].value) if as_usual else require_unpacked(self._chosen.unpack_batch())
        )
        self._progress.run.structures[data_name].check(unpacked, self._counts.step_num + 1)
        return unpacked

    def _unpack(self, data_name: str) -> Any:
        """Define inputs, targets and the batch size; return the size."""
        unpacked, is_trained = self._inputs_and_targets(data_name), "train_step_batch" in self._store.open
        chosen = self._chosen
        if chosen.unpacks_as_usual:
            size = require_batch_size(count_rows(self._store.cells["batch"].value, self._spreads, unpacked))
        else:
            self.fixtures.define_all(unpacked)  # at once: an own get_true_batch_size may ask for them
            count = chosen.train_get_true_batch_size if is_trained else chosen.eval_get_true_batch_size
            size, unpacked = require_batch_size(count()), {}
        if is_trained:
            self.fixtures.define_all({**unpacked, "true_batch_size": size, "global_batch_size": size})
        else:
            self.fixtures.define_all({**unpacked, "true_batch_size": size})
        return size

    def _agree_on_batch(self, step: Step, size: Any) -> tuple[Any, Any]:
        """Decide with all processes whether the batch is skipped, and how many examples it has here and in all.

        The pre hooks of this process have not skipped the batch, else it would not come here.
        """
        # A batch without an example of its own has a row that stands in. An own get_true_batch_size may count otherwise
        # than in rows, so the number of rows is not taken from the share.
        size = 0 if step.examples_here == 0 else size
        step.skip_is_decided = True
        requests = self.decide(Requests(examples=size))
        if requests.skip_batch or requests.data_ended:
            epoch = self._progress.present_epoch
            epoch.requests = epoch.requests.joined(Requests(data_ended=requests.data_ended))
            step.is_skipped_by_all = True
            raise SkipBatch
        self.fixtures.modify("true_batch_size", size)
        self.fixtures.modify("global_batch_size", requests.examples)
        return size, requests.examples

    @contextmanager
    def _collecting(self, step: Step) -> Iterator[None]:
        """Collect the terms that an own ``train_batch`` adds to its loss, outside of the stages inside a batch."""
        # While one of the inner stages runs, their hooks run, or a backward pass that runs submodules again (activation
        # checkpoints). Terms that these add must not count a second time, so the collector rests.
        with self._collector.collecting_beside(step.losses, lambda: not INNER.isdisjoint(self._store.path)):
            yield
        step.losses.warn_of_waiting(self._warned_of)

    @property
    def _losses(self) -> Losses:
        """The losses of the batch by name, as its hooks have left them."""
        losses: Losses = self._store.cells["losses"].value  # not `cast`, which is a call: this runs four times a batch
        return losses

    @fixture("train_step_batch")
    def loss_parts(self) -> dict[str, Tensor]:
        """The loss terms by name, weighted and with their graphs."""
        return self._losses.parts()

    def _count_step(self, step: Step, size: Any, seen: Any) -> Tensor | None:
        """Move the counts, before the post hooks of the batch; return its loss, as the last hook has left it.

        Args:
            step: the state of the batch.
            size: the examples of the batch in this process.
            seen: those in all processes.
        """
        counts, cells, loss = self._counts, self._store.cells, step.forward_loss
        # From the cells, as hooks have left them.
        examples, is_whole, seen = cells["true_batch_size"].value, seen is size, cells["global_batch_size"].value
        loss = self._loss_without_forward(step) if loss is None else cells["loss"].value
        kept = self._progress.count_losses(loss, step.losses, counts.step_num + 1, examples)
        step.is_counted = True
        self._windows.ended = self._store.cells["update_ends"].value
        counts.step_num += 1
        counts.samples_seen = counts.samples_seen + seen  # not `+=`: it may be a tensor that a hook has kept
        rows: BatchLosses = self._store.cells["batch_losses"].value
        if rows.appends:
            name = cells["datasource_name"].value
            rows.add(kept, counts.step_num, examples if is_whole else seen, name, self._losses)
        return loss

    def _loss_without_forward(self, step: Step) -> Tensor | None:
        """Return the loss of a batch without ``forward``: the loss that ``train_batch`` set, or that of its updates."""
        loss: Tensor | None = self.fixtures.get("loss")
        if loss is not None:
            return require_scalar_loss(loss)
        loss = step.losses.sum_of_updates()
        if loss is not None:
            self.fixtures["loss"] = loss
            # The sum over a generator and a critic says nothing: tables and curves show the loss of each in its place.
            step.losses.is_shown_apart = len(self.optimizers) > 1
        return loss

    # ---- which of the stages stay closed -----------------------------------------------------------------------------

    def _notes_on_stages(self) -> Mapping[str, str]:
        closed = "stays closed: nothing looks into it"
        late = dict.fromkeys(INNER.intersection(self._store.open), "opened late: code inside it has asked for it")
        looking = {stage: ", ".join(self._registry.plans[stage].lookers) for stage in INNER}
        return {
            stage: f"opened for {lookers}" if lookers else late.get(stage, closed) for stage, lookers in looking.items()
        }
