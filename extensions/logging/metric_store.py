"""All metrics of a training in one file, which other programs read while it runs and after it has ended.

    loop ──BatchRow──> queue ──thread of runs/record/background_writer.py──> metrics.sqlite
                         ^
    this module ─────────┘  the items between the rows: Begin, Position, Rates, HistoryRow, metrics of hooks

``Begin`` says where a segment of rows begins: after a resume, earlier rows of later steps no longer count. ``Position``
says the epoch and the phase of the rows after it, ``Rates`` their learning rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, final

from train_manager.checkpoints.manifest import run_of
from train_manager.core.decorators import always, fixture, priority, replaced_by
from train_manager.core.extension import Extension
from train_manager.core.hooks import replacement_of
from train_manager.data.shares import ALONE
from train_manager.loop.batch_losses import BatchLosses, BatchRow, detach_terms
from train_manager.metrics.host_numbers import HostNumbers
from train_manager.metrics.rate_changes import RateChanges
from train_manager.rebuilding.recorded import recorded
from train_manager.runs.record.background_writer import BackgroundWriter
from train_manager.runs.record.metric_items import Begin, HistoryRow, Item, Position, Rates, Row
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, FILE, LATEST, RANKS, Series
from train_manager.runs.record.metric_writer import STORE_CLOSES, MetricWriter, Place
from train_manager.runs.record.shared_writer import SharedWriter
from train_manager.telling.errors import InputError, StageError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from train_manager.manager import TrainManager


@recorded
class MetricStore(Extension):
    """Write every metric of the training into ``metrics.sqlite``, while it runs.

    >>> import tempfile, train_manager
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), epochs=2, train_dir=folder).train()
    >>> train_manager.read_run(folder).history
    History(2 epochs, 3 evaluations; last epoch: loss 0.6762, valid loss 0.654)

    These are the loss of every batch, its loss terms, learning rates and batch sizes when they change, and the rows of
    ``tm.history``. Hooks add metrics of their own with the fixture ``writer``: ``writer.scalar("grad_norm", norm)``;
    also as the run ends, in ``post_run``. A hook that asks for ``writer=None`` works without a store too.

    A thread writes twice a second, so a run that is killed loses less than a second; a checkpoint waits for the rows of
    its step. Nothing else waits for a device.
    After a resume, rows of later steps are deleted with the first new one. A training that begins anew keeps the rows
    of those before it in this folder, which count no more. If the file cannot be written, metrics wait in memory, with
    a warning, and the run continues.

    *Runs at:* the start and the end of ``run`` (the end after other hooks, priority 1,000,000), ``train`` and
    ``train_step_epoch``; around ``phase``; the end of ``load_checkpoint``; the start of ``eval`` and
    ``save_checkpoint``. With a schedule, or in a loop without ``batch_losses``, at the end of ``train_step_batch`` too.

    *Asks for:* ``train_dir``, ``step_num``, ``epoch_num``, ``phase_name``, ``checkpoint_loaded`` and ``batch_losses``;
    without the last one ``loss``, ``losses``, ``true_batch_size`` and ``datasource_name`` of a batch.

    *Leaves behind:* the fixture ``writer`` of ``run``; ``metrics.sqlite`` in ``train_dir``.
    """

    ranks = 0

    def __init__(self) -> None:
        self._present: StoredRuns | None = None  # made by the first run, for one train_dir and one TrainManager

    @fixture("run")
    def writer(self, train_manager: TrainManager, train_dir: Path) -> MetricWriter:
        """The object with which hooks write their own metrics."""
        place = train_manager.ranks.place
        own = None if place.rank else self._open(train_manager, train_dir).hook_writer
        return SharedWriter(own) if own is None or place is not ALONE else own

    def pre_run(
        self,
        train_manager: TrainManager,
        train_dir: Path,
        step_num: int,
        epoch_num: int,
        batch_losses: BatchLosses | None = None,
    ) -> None:
        # With a schedule, or a subclass that overrides it, the hook
        # post_train_step_batch appends the rows, not the loop.
        reads = batch_losses if replacement_of(self, "post_train_step_batch") else None
        self._open(train_manager, train_dir).begin_run(self, train_manager, reads, step_num, epoch_num)

    def _open(self, train_manager: TrainManager, train_dir: Path) -> StoredRuns:
        # An extension object may move on to another TrainManager or folder: their metrics go into another file.
        of, present = (train_dir.absolute(), train_manager.run_id), self._present
        if present is None or present.of != of:
            if present is not None:
                present.writer.close()
            present = self._present = StoredRuns(*of)
        return present

    @property
    def _runs(self) -> StoredRuns:
        if self._present is None:
            what = "a hook of MetricStore was called, but no run has opened its file"
            raise StageError(what, name="run", asked_by="MetricStore", cure="call it in a run: with tm.run(): ...")
        return self._present

    def post_load_checkpoint(
        self, step_num: int, epoch_num: int, phase_name: str | None, checkpoint_loaded: Path | bool
    ) -> None:
        run = run_of(Path(str(checkpoint_loaded))) if checkpoint_loaded else None
        self._runs.begin_after_loading(step_num, epoch_num, phase_name, run)

    @priority(STORE_CLOSES)  # last: other hooks may write as the run ends
    @always
    def post_run(self) -> None:
        if self._present is not None:  # None: the run failed as it opened, before a hook here ran
            self._present.end_run()

    def around_phase(self, epoch_num: int, phase_name: str | None) -> Iterator[None]:
        with self._runs.in_phase(epoch_num, phase_name):
            yield

    def pre_train(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._runs.begin_training(step_num, epoch_num, phase_name)

    def pre_train_step_epoch(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._runs.look(step_num, epoch_num + 1, phase_name)

    @always
    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._runs.be_in(epoch_num)

    def pre_eval(self) -> None:
        self._runs.append_history()

    # After the hooks that write what they have measured, and before the one that writes the checkpoint: a process that
    # is killed then leaves no checkpoint of steps whose rows are lost.
    @priority(-500)
    def pre_save_checkpoint(self) -> None:
        self._runs.append_history()
        self._runs.writer.flush()

    @always
    def post_train(self) -> None:
        self._runs.append_history()

    @replaced_by("batch_losses")
    def post_train_step_batch(
        self,
        step_num: int,
        losses: Mapping[str, Tensor],
        datasource_name: str,
        true_batch_size: int,
        loss: Tensor | None = None,
    ) -> None:
        if self._runs.manager.losses_by_optimizer:
            loss = None  # only the sum of the losses of several optimizers, which `losses` has one by one
        self._runs.append_batch(step_num, loss, losses, datasource_name, true_batch_size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from another place: the next row begins a segment."""
        super().load_state_dict(state)
        if self._present is not None:
            self._present.begin_anew()

    def __getstate__(self) -> dict[str, Any]:  # a copy opens the file itself: the thread cannot be copied
        return {**vars(self), "_present": None}


class StoredRuns:
    """The runs of one TrainManager in one ``train_dir``: appends their metrics to the queue of the file."""

    def __init__(self, train_dir: Path, run_id: str) -> None:
        self.of, self.numbers, self._rates = (train_dir, run_id), HostNumbers(), RateChanges(self._append_rates)
        self.writer = BackgroundWriter(train_dir / FILE, run_id, self.numbers)
        self.hook_writer = MetricWriter(self.writer.number, self.append_metric, self.place, self.numbers, train_dir)
        self._manager: TrainManager | None = None  # while a run is open
        self._reader: object = None  # the extension that `batch_losses` knows as the reader of these rows
        # The fixture of the run; None if a hook of every batch appends the rows.
        self._losses: BatchLosses | None = None
        self.must_begin = True  # the next row needs a Begin before it
        # While True, the next row comes to `append`, which puts the items that have changed before it. Then the loop
        # appends rows to the queue itself, which costs less.
        self._is_looking = True
        self._knows_step = False  # from the end of load_checkpoint until the run ends
        self._has_trained = False  # from the start of a training call until the run ends
        self._early: list[Item] = []  # metrics that hooks have written before both are True
        self._written = {EPOCHS: Written(), EVALUATIONS: Written()}  # the rows of the history that the queue has had
        self._first_step = self._last_step = 0  # at the start of the run, and of the last row in the queue
        self._loaded_run: str | None = None  # the run whose checkpoint was loaded, until a segment has begun
        self._last_row: BatchRow | None = None  # the row that _last_step is of
        self._position = Position(0, "")  # where the training is
        self._queued_position = self._position  # the same, as the queue has it

    @property
    def manager(self) -> TrainManager:
        """The manager whose run is open."""
        if self._manager is None:
            cure = "ask for `writer` in a hook of the present run"
            raise InputError("a metric was written after its run", name="writer", asked_by="writer", cure=cure)
        return self._manager

    def begin_run(
        self, reader: object, train_manager: TrainManager, losses: BatchLosses | None, step_num: int, epoch_num: int
    ) -> None:
        """Keep the manager and the file, and read the rows of batches, until the run ends."""
        self._manager, self.writer.keeps_open = train_manager, True
        self._reader, self._losses, self._last_row = reader, losses, None
        self._first_step = step_num
        self.be_in(epoch_num)

    def begin_after_loading(self, step_num: int, epoch_num: int, phase_name: str | None, run: str | None) -> None:
        """Note the step at which the run begins, and the run that wrote the checkpoint that was loaded, if any."""
        self._knows_step, self._first_step, self._loaded_run = True, step_num, run
        self.look(step_num, epoch_num, phase_name)
        if self.must_begin:
            self._take_history_for_written()  # the loaded history comes with the next Begin, as a whole

    def end_run(self) -> None:
        """Append what is new, and let go of the manager; after more than one batch, close the file."""
        self._note_last_step()
        is_long, self._has_trained = self._has_trained or self._last_step - self._first_step > 1, False
        self._rates.end()  # first: if warnings are errors, one below would leave hooks on the optimizers
        if self._losses is not None:
            self._losses.end(self._reader)
        has_new = self._append_aside() if self.must_begin else self.append_history()
        self._manager, self._reader, self._losses, self._last_row = None, None, None, None
        self._knows_step, self.writer.keeps_open = False, False
        # A run of one batch may be one of many calls of train_on_batch: closing the file each time would take longer
        # than the batch, so the thread closes it later.
        if is_long or has_new:
            self.writer.close()

    def _append_aside(self) -> bool:
        """Append the metrics of a run without training, such as an evaluation; return whether there are any."""
        rows = self.manager.history.evaluations[len(self._written[EVALUATIONS].rows) :] if self._knows_step else []
        if not rows and not self._early:
            return False
        # LATEST as its step lets this segment supersede nothing, since no row is of a later step.
        early, self._early = self._early, []
        new = (HistoryRow(EVALUATIONS, None, dict(row), time()) for row in rows)
        for item in (Begin(LATEST, time(), {}), *new, *early):
            self.writer.append(item)
        return True

    # ---- where the training is -----------------------------------------------------------------------------------

    def place(self) -> Place:
        """Return the step, epoch and phase of a metric that a hook writes now."""
        # Within a step the counter is still that of the step before.
        is_within = not self.manager._progress.step.is_counted
        return Place(self.manager.step_num + is_within, self._position.epoch, self._position.phase)

    def be_in(self, epoch: int) -> None:
        """Note the epoch of the next rows."""
        self._position = replace(self._position, epoch=epoch)
        self._look_at_next_row()

    def look(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look at the place, the history and the optimizers, which change between batches."""
        self._position = Position(epoch, phase_name or "")
        self._note_last_step()
        # An earlier state was loaded, so the rows of later steps no longer count.
        if step_num < self._last_step:
            self.must_begin = True
        self.numbers.look_at_streams()
        self._rates.look(self.manager.optimizers)
        self.append_history()
        self._look_at_next_row()

    @contextmanager
    def in_phase(self, epoch: int, phase_name: str | None) -> Iterator[None]:
        """Be in a phase for a ``with`` block, and then again at the place around it."""
        # Put back here and not by the next hook: after the block the next row may
        # be one of train_on_batch, which opens no stage that has a hook here.
        around, optimizers = self._position, self._rates.optimizers
        self._go_to(Position(epoch, phase_name or ""), self.manager.optimizers)
        try:
            yield
        finally:
            self._go_to(around, optimizers)

    def _go_to(self, position: Position, optimizers: Mapping[str, Optimizer]) -> None:
        self._position = position
        self._rates.look(optimizers)
        self._look_at_next_row()

    def begin_training(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look at the changes, and begin a segment if the training is not where the last one has ended."""
        self._has_trained = True
        self.look(step_num, epoch, phase_name)
        if self.must_begin:
            self._begin(step_num)

    def begin_anew(self) -> None:
        """Begin a segment with the next row: the training resumes from another place."""
        self.must_begin = True
        self._look_at_next_row()

    def _begin(self, from_step: int) -> None:
        """Begin a segment: earlier rows of later steps no longer count."""
        self.must_begin, self._last_step = False, from_step
        history = self._history()
        self._take_history_for_written()
        # -1 for a training that begins: then also rows of step 0 are superseded.
        cut = from_step if from_step or any(history.values()) else -1
        self.writer.append(Begin(cut, time(), history, self._loaded_run))
        self._loaded_run = None
        place = self.manager.ranks.place
        if place is not ALONE:  # so that a reader knows which rows the losses of batches are of
            row = self.writer.number(Series(RANKS, BATCHES)), from_step + 1, self._position.epoch, time(), place.number
            self.writer.append(row)
        self._rates.forget()  # so that the first row of the segment has its rates, changed or not
        early, self._early = self._early, []
        for item in early:
            self.writer.append(item)

    # ---- the history ---------------------------------------------------------------------------------------------

    def _history(self) -> dict[str, list[Row]]:
        """Copy all rows, for a segment that begins."""
        history = self.manager.history
        return {EPOCHS: [*map(dict, history.epochs)], EVALUATIONS: [*map(dict, history.evaluations)]}

    def _take_history_for_written(self) -> None:
        history = self.manager.history
        self._written[EPOCHS].take(history.epochs)
        self._written[EVALUATIONS].take(history.evaluations)

    def append_history(self) -> bool:
        """Append the rows of the history that are new, or were replaced or moved; return whether there are any.

        The row of an epoch is looked at after its stage, when hooks have added their metrics.
        """
        if self.must_begin or not self.writer.keeps_open:  # keeps_open: while a run is open
            return False
        history, has_new = self.manager.history, False
        present = ((EPOCHS, history.epochs), (EVALUATIONS, history.evaluations))
        if any(len(rows) < len(self._written[stage].rows) for stage, rows in present):
            self.begin_anew()  # a program has taken rows out: the next Begin has the rows that are left
            return False
        for stage, rows in present:
            first = self._written[stage].first_new(rows)
            for number in range(first, len(rows)):
                self.writer.append(HistoryRow(stage, number, dict(rows[number]), time()))
                has_new = True
            if first < len(rows):
                self._written[stage].take(rows, first)
        return has_new

    # ---- metrics -------------------------------------------------------------------------------------------------

    def append_batch(
        self, step: int, loss: Tensor | None, losses: Mapping[str, Tensor], datasource: str, batch_size: int
    ) -> None:
        """Append a batch whose row the loop does not append."""
        row = self.numbers.keep(loss), step, self.numbers.keep(batch_size), time(), datasource, detach_terms(losses)
        self.append(row)
        self._last_step = step

    def append(self, row: BatchRow) -> None:
        """Append a row, and before it the items that have changed; the loop appends the rows after it to the queue."""
        loss, step, _, _, _, parts = row
        for value in (loss, *(parts or {}).values()):
            self.numbers.note_stream(value)
        if self.must_begin:
            self._begin(step - 1)
        if self._position != self._queued_position:
            self._queued_position = self._position
            self.writer.append(self._position)
        if self._rates.have_changed:
            self.writer.append(Rates(self._rates.take()))
        self.writer.append(row)
        if self._losses is not None:
            self._is_looking = False  # from now on rows go to the queue, not to this method
            self._losses.read(self._reader, self.writer.queue, look=self.writer.look)

    def _look_at_next_row(self) -> None:
        self._is_looking = True
        if self._losses is not None:
            self._losses.read(self._reader, self)

    def _append_rates(self) -> None:
        """Append the rates that an optimizer is about to step with, unless ``append`` will do it with the next row."""
        if not self._is_looking:
            self.writer.append(Rates(self._rates.take()))

    def _note_last_step(self) -> None:
        """Note the step of the last row that the loop has appended to the queue."""
        latest = None if self._losses is None else self._losses.latest
        if latest is not None and latest is not self._last_row:
            self._last_row, self._last_step = latest, latest[1]

    def append_metric(self, item: Item) -> None:
        """Append a metric of a hook."""
        if self.must_begin and (not self._knows_step or not self._has_trained):
            self._early.append(item)  # until the Begin of the training, or until a run ends without training
        else:
            self.writer.append(item)


@final
class Written:
    """The rows of the history that were appended."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.last: Row | None = None  # a copy of the last one, as it was appended

    def first_new(self, rows: Sequence[Row]) -> int:
        """Return the number of the first row to append: a new one, or one that was replaced or has moved."""
        first = len(self.rows)
        # By value: hooks change the last row in place, and the copy shows that.
        if not first or rows[first - 1 : first] == [self.last]:
            return first
        first -= 1
        # By identity: a row of an epoch that was replaced has moved the rows of phases behind it.
        while first and rows[first - 1] is not self.rows[first - 1]:
            first -= 1
        return first

    def take(self, rows: Sequence[Row], first: int = 0) -> None:
        """Note that the rows from this one on were appended."""
        self.rows[first:] = rows[first:]
        self.last = dict(rows[-1]) if rows else None
