"""How far the training of a TrainManager has come."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from torch import Tensor

from train_manager.core.declarations import fixture
from train_manager.core.hooks import EVERY_STAGE
from train_manager.data.readable import example_index_of, objects_in
from train_manager.loop.arguments import INNER
from train_manager.loop.attributes import Attributes, Model
from train_manager.loop.books import Lifetime
from train_manager.loop.level import Level
from train_manager.loop.step import StateOfBatch
from train_manager.metrics.history_rows import PART
from train_manager.model.optimizers import learning_rates
from train_manager.schedules.rules import CallProgress
from train_manager.telling.errors import StageError


class HowFar(Attributes[Model]):
    """How far a training has come, and the batch, the training call and the phase that it is in."""

    @property
    def first_step(self) -> int:
        """``step_num`` as the training began, or the present phase."""
        return self._progress.first_step

    @property
    def start_step(self) -> int:
        return self._progress.call.start_step

    @property
    def end_step(self) -> int | None:
        return self._progress.call.end

    @property
    def step_limit(self) -> int | None:
        """The ``step_num`` at which the present call of ``train_steps`` ends; None in other training calls."""
        return self._progress.call.step_limit

    @property
    def learning_rates(self) -> dict[str, tuple[float | Tensor, ...]]:
        """The present learning rates by the names of the optimizers, one for each group of parameters.

        >>> from train_manager.testing import tiny_manager
        >>> tiny_manager().learning_rates
        {'optimizer': (0.5,)}

        They stand in the optimizers now. The factor of ``WarmUp`` is among them only while an optimizer steps; the
        fixture ``learning_rates`` of ``LRSchedule`` has the rates that it steps with.
        """
        return {name: learning_rates(optimizer) for name, optimizer in self.optimizers.items()}

    @property
    def losses_by_optimizer(self) -> dict[str, Tensor]:
        """The losses of several optimizers in this batch, if its ``loss`` is only their sum; else empty.

        So it is where ``train_batch`` makes no loss by ``forward()``. Tables and curves show these in place of the
        sum, by the same names: "losses/generator".
        """
        losses = self._progress.step.losses
        by_optimizer = losses.by_optimizer if losses.is_shown_apart else None
        return {f"{PART}{name}": loss for name, loss in (by_optimizer or {}).items()}

    @property
    def stop_reason(self) -> str | None:
        return self._progress.run.stop_reason

    @property
    def entered_by(self) -> str | None:
        """The method that opened the present or last run, as "train"; None if the program holds it open."""
        return self._progress.run.entry

    @property
    def batch_num(self) -> int:
        """The number of the batch in its epoch, from 1, also of one that was skipped."""
        return self._progress.feed.batch_num

    @property
    def datasource_name(self) -> str:
        """The set of ``Interleaved`` data that the batch is of; "train" if there is one set only."""
        return self._progress.feed.datasource_name

    @property
    def progress(self) -> CallProgress:
        """How far the present or last training call has come."""
        call, end = self._progress.call, self.end_step
        total = None if end is None else end - call.start_step
        return CallProgress(call.number, self._steps_begun() - call.start_step, total, self._is_last_step)

    @property
    def resumed_stages(self) -> Set[str]:
        """The stages that were open in the checkpoint that this run resumes from, until they have opened again."""
        return self._progress.reopens

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: it imports fractions and decimal, which few programs need

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    def _is_last_step(self) -> bool:
        """Return whether the training call ends with the present step, as far as that is known."""
        requests, call, epoch = self._progress.run.requests, self._progress.call, self._progress.present_epoch
        if requests.stop or self._steps_begun() == call.end_step:
            return True
        ends_with_epoch = epoch.is_last or requests.stop_after_epoch
        return ends_with_epoch and (epoch.requests.end_epoch or self._is_last_batch())

    def _steps_begun(self) -> int:
        """Return ``step_num``, with a batch that is not counted yet."""
        return self.step_num + (not self._progress.step.is_counted)

    def _is_last_batch(self) -> bool:
        return self._progress.step.is_own_last if self._progress.step.is_own else self._progress.feed.is_last()

    @fixture("train_step_batch")
    def last_batch(self) -> bool:
        """Whether the epoch's data ends with this batch; if its length is unknown, this looks one batch ahead."""
        return self._is_last_batch()

    @fixture("train_step_batch")
    def example_index(self) -> Any:
        """The rows of this batch in the data set, if the data knows them (``InMemory``, ``Rows``)."""
        return example_index_of(None if self._progress.step.is_own else self.train_data, self._progress.feed.data_name)

    @fixture("train_step_batch")
    def data_seconds(self) -> float:
        """How long the training has waited for this batch; nan for one of your own, and where no hook has asked."""
        progress = self._progress
        return float("nan") if progress.step.is_own else progress.feed.data_seconds

    def _state_of_batch(self) -> StateOfBatch:
        """Return the objects that a stage of the open batch may change.

        Raises:
            StageError: no batch is open.
        """
        if not any(f"{kind}_step_batch" in self._store.open for kind in ("train", "eval", "predict")):
            cure = "make it in train_batch(self) or eval_batch(self); checkpoints keep a training as a whole"
            what = "a Moment of a TrainManager is of one batch, and no batch is open"
            raise StageError(what, stages=self.fixtures.path, cure=cure)
        progress, windows = self._progress, self._windows
        losses = self.fixtures.get("losses", progress.step.losses)  # an evaluation has no Step, but has losses
        own: list[object] = [self._counts, progress, progress.run, progress.call, progress.present_epoch, progress.step]
        own += [losses, windows, *(windows[name] for name in windows.names())]
        inside = {hook.owner for hook in self._registry.hooks if hook.stage in (*INNER, EVERY_STAGE)}
        extensions = [one for name, one in self._registry.extensions.items() if name in inside]
        sets = [self.train_data, *self.eval_data.values()]
        data = [part for one in sets if one is not None for part in objects_in(one)]
        return StateOfBatch(own, self._setup.changed_in_place(), extensions, data)

    @property
    def _level(self) -> Level:
        """The training, or the phase that is open in it."""
        return Level(self._setup, self._progress)

    @_level.setter
    def _level(self, level: Level) -> None:
        self._setup, self._progress = level

    def _levels(self) -> list[Level]:
        """Return the training, and the phases that are open in it, from the outside in."""
        return [*self._program.around, self._level]

    def _lifetime(self, per: str) -> Lifetime:
        """Return the lifetime of the present epoch, of the present phase, or of all."""
        if per == "epoch":
            return self._progress.present_epoch.lifetime
        return self._progress.lifetime if per == "phase" else self._levels()[0].progress.lifetime

    def _place_of_checkpoint(self) -> tuple[int, ...]:
        """Return step, epoch and depth of phases: where these are the same, a second checkpoint has nothing new."""
        return self.step_num, self.epoch_num, len(self._program.around)
