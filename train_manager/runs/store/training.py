"""What a TrainManager appends to the queue of ``metrics.sqlite``: the items between the rows of batches.

``Begin`` says where a part of a run begins: it goes on from an earlier part, up to a step. ``EpochAndPhase`` has those
of the rows after it, ``Rates`` their learning rates. The extension ``MetricStore`` calls this from its hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, final

from train_manager.checkpoints.manifest import run_of
from train_manager.data.shares import ALONE
from train_manager.loop.batch_losses import BatchLosses, BatchRow, detach_terms
from train_manager.metrics.host_numbers import HostNumbers
from train_manager.metrics.rate_changes import RateChanges
from train_manager.runs.store.batches import EpochAndPhase, Rates, Written
from train_manager.runs.store.rows import Begin, HistoryRow, Metric, Row
from train_manager.runs.store.schema import BATCHES, EPOCHS, EVALUATIONS, FILE, RANKS, Series
from train_manager.runs.store.thread import StoreThread, Take
from train_manager.runs.store.writer import MetricWriter, TrainingPosition
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from train_manager.loop.how_far import HowFar
    from train_manager.reporting.history import History


@final
class StoredManager:
    """A TrainManager in one ``train_dir``: what stays from one of its runs to the next.

    Attributes:
        writer: the fixture of hooks.
        part: the part that rows go into; None if the next row begins one.
        run: the run that is open.
        resumes: the run_id of the run that the next part of a training goes on from: its own, or that of a checkpoint.
    """

    def __init__(self, train_dir: Path, run_id: str) -> None:
        self.train_dir, self.run_id, self.numbers = train_dir, run_id, HostNumbers()
        self.thread = StoreThread(train_dir / FILE, run_id, self.numbers)
        self.writer = MetricWriter(self)
        self.rates = RateChanges(self._append_rates)
        self.part: PartInMemory | None = None
        self.run: StoredRun | None = None
        self.resumes = run_id

    def place(self) -> TrainingPosition:
        """Return the step, epoch and phase of a metric that a hook writes now."""
        return self._run_to_write.place()

    def write(self, metric: Metric) -> None:
        """Append a metric of a hook."""
        self._run_to_write.write(metric)

    def follow(self, take: Take) -> Callable[[], None]:
        """Hand rows to a function as they are written, and return what ends that."""
        return self.thread.follow(take)

    @property
    def _run_to_write(self) -> StoredRun:
        if self.run is None:
            cure = "ask for `writer` in a hook of the present run"
            raise InputError("a metric was written after its run", name="writer", asked_by="writer", cure=cure)
        return self.run

    def begin_run(self, reader: object, train_manager: HowFar[Any], losses: BatchLosses | None, epoch_num: int) -> None:
        """Keep the file open, and read the rows of batches, until the run ends."""
        self.thread.open()
        self.run = StoredRun(self, reader, train_manager, losses, epoch_num)

    def end_run(self) -> None:
        """Append what is new; close the file, except after a single batch."""
        run, self.run = self.run, None
        if run is not None:
            run.end()

    def begin_anew(self) -> None:
        """Let the next row begin a part: another state was loaded."""
        self.part = None
        if self.run is not None:
            self.run.look_at_next_row()

    def _append_rates(self) -> None:
        self.thread.append(Rates(self.rates.take()))


@final
class StoredRun:
    """A run that is open: appends its metrics to the queue of the file.

    Args:
        stored: its TrainManager.
        reader: the extension that ``batch_losses`` knows as the reader of these rows.
        manager: the TrainManager itself.
        losses: the fixture of the run; None if a hook of every batch appends the rows.
        epoch: the epoch of the first rows.
    """

    def __init__(
        self, stored: StoredManager, reader: object, manager: HowFar[Any], losses: BatchLosses | None, epoch: int
    ) -> None:
        self.manager, self.thread = manager, stored.thread
        self._stored, self._reader, self._losses = stored, reader, losses
        self._position = EpochAndPhase(epoch, "")
        self._first_step, self._trains = manager.step_num, False
        self._known = len(manager.history.evaluations)  # evaluations that are not of this run
        self._early: list[Metric] = []  # of hooks, until it is known whether the run trains
        self.look_at_next_row()

    def take_loaded(self, checkpoint: Path | None) -> None:
        """Note what the history has before the run, and the run that wrote the checkpoint that was loaded, if any."""
        self._known = len(self.manager.history.evaluations)
        if checkpoint is not None:
            self._stored.part = None
            self._stored.resumes = run_of(checkpoint) or ""  # without a run_id it goes on from no run of the file

    def end(self) -> None:
        """Append what is new; after more than one batch, close the file."""
        self._stored.rates.end()  # first: if warnings are errors, one below would leave hooks on the optimizers
        if self._losses is not None:
            self._losses.end(self._reader)
        has_new, own = self.append_history(), len(self.manager.history.evaluations) - self._known
        if self._stored.part is None and (own > 0 or self._early):
            self._begin(None, own)
            has_new = True
        has_new |= self._append_early()
        # A run of one batch may be one of many calls of train_on_batch: closing the file each time would take longer
        # than the batch, so the thread closes it later.
        if self._trains or has_new or self.manager.step_num - self._first_step > 1:
            self.thread.close()
        else:
            self.thread.rest()

    # ---- where the training is -----------------------------------------------------------------------------------

    def place(self) -> TrainingPosition:
        """Return the step, epoch and phase of a metric that a hook writes now."""
        # Within a step the counter is still that of the step before.
        is_within = not self.manager._progress.step.is_counted
        return TrainingPosition(self.manager.step_num + is_within, self._position.epoch, self._position.phase)

    def be_in(self, epoch: int) -> None:
        """Note the epoch of the next rows."""
        self._position = replace(self._position, epoch=epoch)
        self.look_at_next_row()

    def look(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look at the place, the history and the optimizers, which change between batches."""
        self._position = EpochAndPhase(epoch, phase_name or "")
        part = self._stored.part
        if part is not None and step_num < part.last_step:  # an earlier state was loaded
            self._stored.part = None
        self._stored.numbers.look_at_streams()
        self._stored.rates.look(self.manager.optimizers)
        self.append_history()
        self.look_at_next_row()

    @contextmanager
    def in_phase(self, epoch: int, phase_name: str | None) -> Iterator[None]:
        """Be in a phase for a ``with`` block, and then again at the place around it."""
        # Put back here and not by the next hook: after the block the next row may
        # be one of train_on_batch, which opens no stage that has a hook here.
        around, optimizers = self._position, self._stored.rates.optimizers
        self._go_to(EpochAndPhase(epoch, phase_name or ""), self.manager.optimizers)
        try:
            yield
        finally:
            self._go_to(around, optimizers)

    def _go_to(self, position: EpochAndPhase, optimizers: Mapping[str, Optimizer]) -> None:
        self._position = position
        self._stored.rates.look(optimizers)
        self.look_at_next_row()

    # ---- parts ---------------------------------------------------------------------------------------------------

    def begin_training(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look at the changes, and begin a part if the training is not where the last one has ended."""
        self._trains = True
        self.look(step_num, epoch, phase_name)
        self._ensure_part_of_training(step_num)

    def _ensure_part_of_training(self, step: int) -> None:
        part = self._stored.part
        if part is None or part.is_aside:
            self._begin(step)

    def _begin(self, step: int | None, own: int = 0) -> None:
        """Begin a part of the run after a step; or, with None, one for what was measured without a training.

        Args:
            step: the last one of the part before that counts.
            own: how many evaluations at the end of the history are of this run, if it trains nothing.
        """
        history, place = self.manager.history, self.manager.ranks.place
        rows: dict[str, list[Row]] = {EPOCHS: [*map(dict, history.epochs)]}
        rows[EVALUATIONS] = [*map(dict, history.evaluations)]
        self.thread.append(Begin(time(), self._stored.resumes, step, rows, own))
        if step is not None:
            self._stored.resumes = self._stored.run_id
        self._stored.part = PartInMemory(self.manager, is_aside=step is None)
        if place is not ALONE and step is not None:  # so that a reader knows which rows the losses of batches are of
            series = Series(RANKS, BATCHES)
            self.thread.append(Written((series, step + 1, None, self._position.epoch, time(), place.number)))
        self._stored.rates.forget()  # so that the first row of the part has its rates, changed or not
        if self._stored.rates.have_changed:
            self.thread.append(Rates(self._stored.rates.take()))
        self._append_early()

    def append_history(self) -> bool:
        """Append the rows of the history that are new, or were replaced or moved; return whether there are any.

        The row of an epoch is looked at after its stage, when hooks have added their metrics.
        """
        part, history = self._stored.part, self.manager.history
        if part is None:  # the part that begins next has all rows
            return False
        part.last_step = max(part.last_step, self.manager.step_num)
        if part.lacks_rows_of(history):
            self._begin(self.manager.step_num)  # a program has taken rows out: a part has the rows that are left
            return True
        new = [*part.take_new(history)]
        for row in new:
            self.thread.append(row)
        return bool(new)

    # ---- metrics -------------------------------------------------------------------------------------------------

    def append_batch(
        self, step: int, loss: Tensor | None, losses: Mapping[str, Tensor], datasource: str, batch_size: int
    ) -> None:
        """Append a batch whose row the loop does not append."""
        keep = self._stored.numbers.keep
        self.append((keep(loss), step, keep(batch_size), time(), datasource, detach_terms(losses)))

    def append(self, row: BatchRow) -> None:
        """Append a row, after what has changed before it; the loop appends the rows after it to the queue."""
        loss, step, _, _, _, parts = row
        for value in (loss, *(parts or {}).values()):
            self._stored.numbers.note_stream(value)
        self._ensure_part_of_training(step - 1)
        self.thread.append(self._position)
        self.thread.append(row)
        if self._losses is not None:
            self._losses.read(self._reader, self.thread.queue, look=self.thread.look)

    def look_at_next_row(self) -> None:
        """Let the loop give the next row to ``append``, and not to the queue."""
        if self._losses is not None:
            self._losses.read(self._reader, self)

    def write(self, metric: Metric) -> None:
        """Append a metric of a hook."""
        if self._trains:
            self._ensure_part_of_training(self.manager.step_num)
        part = self._stored.part
        if part is None or part.is_aside:
            self._early.append(metric)
        else:
            self.thread.append(Written(metric))

    def _append_early(self) -> bool:
        early, self._early = self._early, []
        for metric in early:
            self.thread.append(Written(metric))
        return bool(early)


@final
class PartInMemory:
    """A part of a run that has begun: what the queue has had of it.

    Attributes:
        is_aside: nothing was trained in it yet.
        last_step: the last step that was seen; an earlier one is of another part.
    """

    def __init__(self, manager: HowFar[Any], is_aside: bool) -> None:
        self.is_aside, self.last_step = is_aside, manager.step_num
        self._appended = {EPOCHS: AppendedRows(manager.history.epochs)}
        self._appended[EVALUATIONS] = AppendedRows(manager.history.evaluations)

    def lacks_rows_of(self, history: History) -> bool:
        """Return whether the history has fewer rows than were appended."""
        present = {EPOCHS: history.epochs, EVALUATIONS: history.evaluations}
        return any(len(present[stage]) < len(appended.rows) for stage, appended in self._appended.items())

    def take_new(self, history: History) -> Iterator[HistoryRow]:
        """Yield the rows that were not appended as they are now."""
        for stage, rows in ((EPOCHS, history.epochs), (EVALUATIONS, history.evaluations)):
            for number in self._appended[stage].take_new(rows):
                yield HistoryRow(stage, number, dict(rows[number]), time())


@final
class AppendedRows:
    """The rows of a stage of the history that were appended."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: list[Row] = []
        self._last: Row | None = None  # a copy of the last one, as it was appended
        self.take_new(rows)

    def take_new(self, rows: Sequence[Row]) -> range:
        """Return the numbers of the rows to append: new ones, and those that were replaced or have moved."""
        first = len(self.rows)
        # By value: hooks change the last row in place, and the copy shows that.
        if first and rows[first - 1] != self._last:
            first -= 1
            # By identity: a row of an epoch that was replaced has moved the rows of phases behind it.
            while first and rows[first - 1] is not self.rows[first - 1]:
                first -= 1
        if first < len(rows):
            self.rows[first:] = rows[first:]
            self._last = dict(rows[-1])
        return range(first, len(rows))
