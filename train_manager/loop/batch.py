"""One batch that is trained on, from the pull to its counts."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

from torch import Tensor, nn

from train_manager.core.outcome import SkipStage
from train_manager.data.batch import Unpacked, unpack
from train_manager.data.cures import add_cure
from train_manager.data.shares import ALONE
from train_manager.loop.attributes import Model
from train_manager.loop.batch_losses import BatchLosses
from train_manager.loop.inner_stages import InnerStages
from train_manager.loop.outputs import (
    count_rows,
    require_batch_size,
    require_scalar_loss,
    require_unpacked,
    returned_value_error,
)
from train_manager.loop.requests import SKIP_BATCH, Requests
from train_manager.loop.skip import SkipBatch, raise_if_of_another, skipped_too_late_error
from train_manager.loop.step import NO_STEP, Step, StepClock

CLOCKED: Final = 50
"""The loop clocks every 50th step, and the first step of each training call."""


class Batch(InnerStages[Model]):
    """The stage of a batch, around the stages inside it."""

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
            elif is_skipped and not (step.is_left_out or step.is_counted) and self.ranks.place is not ALONE:
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
            step.is_left_out = True
            raise SkipBatch
        self.fixtures.modify("true_batch_size", size)
        self.fixtures.modify("global_batch_size", requests.examples)
        return size, requests.examples

    # ---- methods of a step without a stage ---------------------------------------------------------------------------

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
        unpacked = self._inputs_and_targets(data_name)
        if self._chosen.unpacks_as_usual:
            size = require_batch_size(count_rows(self._store.cells["batch"].value, self._spreads, unpacked))
        else:
            self.fixtures.define_all(unpacked)  # at once: an own get_true_batch_size may ask for them
            size, unpacked = require_batch_size(self._chosen.get_true_batch_size()), {}
        if "train_step_batch" in self._store.open:
            self.fixtures.define_all({**unpacked, "true_batch_size": size, "global_batch_size": size})
        else:
            self.fixtures.define_all({**unpacked, "true_batch_size": size})
        return size

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
        self._store.cells["step_num"].value = counts.step_num
        self._store.cells["samples_seen"].value = counts.samples_seen
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
