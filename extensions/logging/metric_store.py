"""All figures of a training in one file, which is read while it runs and after it has ended, in whatever way.

The training appends; ``runs/record/metric_writer.py`` has the thread that writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from train_manager.core.decorators import always, fixture
from train_manager.core.extension import Extension
from train_manager.metrics.deferred import must_be_copied
from train_manager.metrics.host_numbers import HostNumbers
from train_manager.metrics.rate_changes import RateChanges
from train_manager.rebuilding.recorded import recorded
from train_manager.runs.record.figure_writer import FigureWriter, Place
from train_manager.runs.record.metric_items import Begin, HistoryRow, Item
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, FILE, LATEST, Series
from train_manager.runs.record.metric_writer import MetricWriter
from train_manager.telling.errors import InputError, StageError

if TYPE_CHECKING:
    from torch import Tensor

    from train_manager.manager import TrainManager


@recorded
class MetricStore(Extension):
    """Write every figure of the training into ``metrics.sqlite``, while it runs.

    >>> import tempfile, train_manager
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), epochs=2, train_dir=folder).train()
    >>> train_manager.read_run(folder).history
    History(2 epochs, 3 evaluations; last epoch: loss 0.6762, valid loss 0.654)

    These are the loss of every batch, its parts, learning rates and batch sizes when they change, and the rows of
    ``tm.history``.
    Hooks add figures of their own with the fixture ``writer``: ``writer.scalar("grad_norm", norm)``.

    A thread writes twice a second, so a training that is killed loses less than a second. Nothing waits for a device.
    After a resume, rows of later steps count no more; they stay in the file, marked as superseded. If the file cannot
    be written, figures wait in memory, with a warning, and the training goes on.

    *Runs at:* the start and the end of ``run``, ``train``, ``train_step_epoch``, ``train_step_batch`` and ``eval``; the
    end of ``load_checkpoint``; the start of ``save_checkpoint``.

    *Asks for:* ``train_dir``, ``step_num``, ``epoch_num``, ``phase_name``; ``loss``, ``losses``, ``true_batch_size``
    and ``datasource_name`` of a batch.

    *Leaves behind:* the fixture ``writer`` of ``run``; ``metrics.sqlite`` in ``train_dir``.
    """

    def __init__(self) -> None:
        self._present: StoredRuns | None = None  # from the first run on

    @fixture("run")
    def writer(self, train_manager: TrainManager, train_dir: Path) -> FigureWriter:
        """What hooks write their own figures with."""
        runs = self._open(train_manager, train_dir)
        return FigureWriter(runs.writer.number, runs.append_figure, runs.place, runs.numbers.keep, train_dir)

    def pre_run(self, train_manager: TrainManager, train_dir: Path, step_num: int, epoch_num: int) -> None:
        self._open(train_manager, train_dir).begin_run(train_manager, step_num, epoch_num)

    def _open(self, train_manager: TrainManager, train_dir: Path) -> StoredRuns:
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

    def post_load_checkpoint(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._runs.go_on(step_num, epoch_num, phase_name)

    @always
    def post_run(self) -> None:
        if self._present is not None:  # else what opens the run has failed
            self._present.end_run()

    def pre_train(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._runs.begin_training(step_num, epoch_num, phase_name)

    def pre_train_step_epoch(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._runs.look(step_num, epoch_num + 1, phase_name)

    @always
    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._runs.epoch, self._runs.inside = epoch_num, None

    def pre_eval(self) -> None:
        self._runs.append_history()

    def pre_save_checkpoint(self) -> None:
        self._runs.append_history()

    @always
    def post_train(self) -> None:
        self._runs.append_history()

    def pre_train_step_batch(self, step_num: int) -> None:
        self._runs.inside = step_num

    def post_train_step_batch(
        self,
        step_num: int,
        losses: Mapping[str, Tensor],
        datasource_name: str,
        true_batch_size: int,
        loss: Tensor | None = None,
    ) -> None:
        self._runs.append_batch(step_num, loss, losses, datasource_name, true_batch_size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from another place: the next row begins a segment."""
        super().load_state_dict(state)
        if self._present is not None:
            self._present.must_begin = True

    def __getstate__(self) -> dict[str, Any]:  # a copy opens the file itself
        return {**vars(self), "_present": None}


class StoredRuns:
    """The runs of one TrainManager in one ``train_dir``, and their figures on the way into the file."""

    def __init__(self, train_dir: Path, run_id: str) -> None:
        self.of, self.numbers, self._rates = (train_dir, run_id), HostNumbers(), RateChanges()
        self.writer = MetricWriter(train_dir / FILE, run_id, self.numbers)
        self._manager: TrainManager | None = None  # while a run is open
        self.must_begin = True  # a segment, before the next row
        self._knows_step = self._has_trained = False  # the checkpoint is loaded, if there is one; `train` has opened
        self._early: list[Item] = []  # figures of hooks before that
        self._rows: dict[str, list[dict[str, Any]]] = {EPOCHS: [], EVALUATIONS: []}  # of the history, as written
        self._first_step = self._last_step = self.epoch = self._batch_size = 0
        self._phase, self._copies_loss = "", True
        self._series: dict[tuple[str, str], int] = {}  # of batches: their numbers, by name and datasource
        self.inside: int | None = None  # the step_num with which the present batch began, until its end counts it

    @property
    def manager(self) -> TrainManager:
        """The manager whose run is open."""
        if self._manager is None:
            cure = "ask for `writer` in a hook of the present run"
            raise InputError("a figure was written after its run", name="writer", asked_by="writer", cure=cure)
        return self._manager

    def begin_run(self, train_manager: TrainManager, step_num: int, epoch_num: int) -> None:
        """Keep the manager and the file, until the run ends."""
        self._manager, self.writer.keeps_open = train_manager, True
        self._first_step, self.epoch = step_num, epoch_num

    def go_on(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        """Note where the run begins, now that a checkpoint has been loaded if there is one."""
        self._knows_step, self._first_step = True, step_num
        self.look(step_num, epoch_num, phase_name)
        if self.must_begin:
            self._rows = self._history()  # what comes in this run is new

    def end_run(self) -> None:
        """Append what is new, and let go of the manager; after more than one batch, close the file."""
        is_long, self._has_trained = self._has_trained or self._last_step - self._first_step > 1, False
        has_new = self._append_aside() if self.must_begin else self.append_history()
        self._manager, self._knows_step, self.writer.keeps_open = None, False, False
        if is_long or has_new:  # else train_on_batch, each call of which may be a run: the thread closes the file
            self.writer.close()

    def _append_aside(self) -> bool:
        """Append what a run has brought that has not trained: it supersedes nothing; return whether there is any."""
        rows = self._history()[EVALUATIONS][len(self._rows[EVALUATIONS]) :] if self._knows_step else []
        if not rows and not self._early:
            return False
        early, self._early = self._early, []
        for item in (Begin(LATEST, time(), {}), *(HistoryRow(EVALUATIONS, None, row, time()) for row in rows), *early):
            self.writer.append(item)
        return True

    # ---- where the training is -----------------------------------------------------------------------------------

    def place(self) -> Place:
        """Return where a figure belongs that is written now: in the step that it is within."""
        step = self.manager.step_num
        return Place(step + (step == self.inside), self.epoch, self._phase)

    def look(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look at what changes between batches: the place, the history, the optimizers."""
        self.epoch, phase, self.inside = epoch, phase_name or "", None
        if phase != self._phase:
            self._phase = phase
            self._series.clear()
        if step_num < self._last_step:
            self.must_begin = True
        self.numbers.look_at_streams()
        self._rates.look(self.manager.optimizers)
        self.append_history()

    def begin_training(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look, and begin a segment if the training is not where the last one has ended."""
        self._has_trained = True
        self.look(step_num, epoch, phase_name)
        if self.must_begin:
            self._begin(step_num)

    def _begin(self, from_step: int) -> None:
        """Begin a segment: earlier rows of later steps count no more."""
        self._rows, self.must_begin, self._last_step = self._history(), False, from_step
        cut = from_step if from_step or any(self._rows.values()) else -1
        self.writer.append(Begin(cut, time(), {stage: list(rows) for stage, rows in self._rows.items()}))
        self._rates.forget()
        self._batch_size = 0  # so that both are written for the new segment
        early, self._early = self._early, []
        for item in early:
            self.writer.append(item)

    # ---- the history ---------------------------------------------------------------------------------------------

    def _history(self) -> dict[str, list[dict[str, Any]]]:
        history = self.manager.history
        return {EPOCHS: [*map(dict, history.epochs)], EVALUATIONS: [*map(dict, history.evaluations)]}

    def append_history(self) -> bool:
        """Append the rows of the history that are new, and the last one if it was replaced; return whether there are.

        The row of an epoch is looked at after its stage, when hooks have added their figures.
        """
        if self.must_begin or not self.writer.keeps_open:  # which it is while a run is open
            return False
        history, has_new = self.manager.history, False
        for stage, rows in ((EPOCHS, history.epochs), (EVALUATIONS, history.evaluations)):
            written = self._rows[stage]
            if written and rows[len(written) - 1 : len(written)] != written[-1:]:
                written.pop()
            for number in range(len(written), len(rows)):
                written.append(dict(rows[number]))
                self.writer.append(HistoryRow(stage, number, written[-1], time()))
                has_new = True
        return has_new

    # ---- figures -------------------------------------------------------------------------------------------------

    def append_batch(
        self, step: int, loss: Tensor | None, losses: Mapping[str, Tensor], datasource: str, batch_size: int
    ) -> None:
        """Append the losses of a batch, and its size and learning rates if they have changed."""
        if self.must_begin:
            self._begin(step - 1)
        append, keep, epoch, now = self.writer.append, self.numbers.keep, self.epoch, time()
        if loss is not None:
            if ("loss", datasource) not in self._series:
                self._copies_loss = must_be_copied(loss)  # decided seldom, since losses come from the same code
            kept = keep(loss) if self._copies_loss else loss.detach()
            append((self._number("loss", datasource), step, epoch, now, kept))
        for name, value in losses.items():
            append((self._number(f"losses/{name}", datasource), step, epoch, now, keep(value)))
        if type(batch_size) is not int or batch_size != self._batch_size:
            self._batch_size = batch_size
            append((self._number("batch_size"), step, epoch, now, keep(batch_size)))
        if self._rates.have_changed:
            for name, rate in self._rates.take().items():
                append((self._number(name), step, epoch, now, rate))
        self._rates.read()
        self._last_step = step

    def _number(self, name: str, datasource: str = "") -> int:
        number = self._series.get((name, datasource))
        if number is None:
            number = self._series[name, datasource] = self.writer.number(Series(name, BATCHES, datasource, self._phase))
        return number

    def append_figure(self, item: Item) -> None:
        """Append a figure of a hook."""
        if self.must_begin and (not self._knows_step or not self._has_trained):
            self._early.append(item)  # nothing is superseded before the training begins
        else:
            self.writer.append(item)
