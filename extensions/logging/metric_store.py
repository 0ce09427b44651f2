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
from train_manager.telling.errors import InputError

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
        self._writer: MetricWriter | None = None
        self._of: tuple[Path, str] | None = None  # the folder and the run that the writer is of
        self._numbers = HostNumbers()
        self._manager: TrainManager | None = None  # while a run is open
        self._must_begin = True  # a segment, before the next row
        self._knows_step = False  # a checkpoint has been loaded, if there is one
        self._early: list[Item] = []  # figures of hooks before that
        self._rows: dict[str, list[dict[str, Any]]] = {EPOCHS: [], EVALUATIONS: []}  # of the history, as written
        self._first_step = self._last_step = self._epoch = 0
        self._phase = ""
        self._series: dict[tuple[str, str], int] = {}  # of batches: their numbers, by name and datasource
        self._copies_loss = True
        self._batch_size = 0
        self._inside: int | None = None  # the step_num with which the present batch began
        self._rates = RateChanges()
        self._has_trained = False

    # ---- the run -------------------------------------------------------------------------------------------------

    @fixture("run")
    def writer(self, train_manager: TrainManager, train_dir: Path) -> FigureWriter:
        """What hooks write their own figures with."""
        writer = self._opened(train_manager, train_dir)
        return FigureWriter(writer.number, self._append_figure, self._place, self._numbers.keep, train_dir)

    def pre_run(self, train_manager: TrainManager, train_dir: Path, step_num: int, epoch_num: int) -> None:
        self._manager, self._knows_step = train_manager, False
        self._first_step, self._epoch = step_num, epoch_num
        self._opened(train_manager, train_dir).keeps_open = True

    def _opened(self, train_manager: TrainManager, train_dir: Path) -> MetricWriter:
        of = train_dir.absolute(), train_manager.run_id
        if self._writer is None or self._of != of:
            if self._writer is not None:
                self._writer.close()
            self._writer, self._of = MetricWriter(of[0] / FILE, of[1], self._numbers), of
            self._must_begin = True
            self._series.clear()
        return self._writer

    def post_load_checkpoint(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._knows_step, self._first_step = True, step_num
        self._look(step_num, epoch_num, phase_name)
        if self._must_begin:
            self._rows = self._history()  # what comes in this run is new

    @always
    def post_run(self) -> None:
        has_new = self._append_history() or bool(self._early)
        is_long, self._has_trained = self._has_trained or self._last_step - self._first_step > 1, False
        if self._must_begin and self._manager is not None:
            has_new = self._append_aside() or has_new
        self._manager = None
        if self._writer is not None:
            self._writer.keeps_open = False
            if is_long or has_new:  # else train_on_batch, each call of which may be a run: the thread closes the file
                self._writer.close()

    def _append_aside(self) -> bool:
        """Append what a run has brought that has not trained: it supersedes nothing."""
        assert self._writer is not None, "it was opened with the run"
        history = self._history()[EVALUATIONS]
        rows = history[len(self._rows[EVALUATIONS]) :] if self._knows_step else []
        if rows or self._early:
            self._writer.append(Begin(LATEST, time(), {}))
        for row in rows:
            self._writer.append(HistoryRow(EVALUATIONS, None, row, time()))
        self._append_early()
        return bool(rows)

    # ---- where the training is -----------------------------------------------------------------------------------

    def _place(self) -> Place:
        if self._manager is None:
            cure = "ask for `writer` in a hook of the present run"
            raise InputError("a figure was written after its run", name="writer", asked_by="writer", cure=cure)
        step = self._manager.step_num
        return Place(step + (step == self._inside), self._epoch, self._phase)

    def _look(self, step_num: int, epoch: int, phase_name: str | None) -> None:
        """Look at what changes between batches: the place, the history, the optimizers."""
        assert self._manager is not None, "a run is open"
        self._epoch, phase, self._inside = epoch, phase_name or "", None
        if phase != self._phase:
            self._phase = phase
            self._series.clear()
        if step_num < self._last_step:
            self._must_begin = True
        self._numbers.look_at_streams()
        self._rates.look(self._manager.optimizers)
        self._append_history()

    def _begin(self, from_step: int) -> None:
        """Begin a segment: earlier rows of later steps count no more."""
        assert self._writer is not None, "it was opened with the run"
        self._rows, self._must_begin, self._last_step = self._history(), False, from_step
        has_history = any(self._rows.values())
        cut = from_step if from_step or has_history else -1
        self._writer.append(Begin(cut, time(), {stage: list(rows) for stage, rows in self._rows.items()}))
        self._rates.forget()
        self._batch_size = 0  # so that both are written for the new segment
        self._append_early()

    # ---- the history ---------------------------------------------------------------------------------------------

    def _history(self) -> dict[str, list[dict[str, Any]]]:
        assert self._manager is not None, "a run is open"
        history = self._manager.history
        return {EPOCHS: [*map(dict, history.epochs)], EVALUATIONS: [*map(dict, history.evaluations)]}

    def _append_history(self) -> bool:
        """Append the rows of the history that are new, and the last one if it was replaced; return whether there are.

        The row of an epoch is looked at after its stage, when hooks have added their figures.
        """
        if self._must_begin or self._manager is None or self._writer is None:
            return False
        history, has_new = self._manager.history, False
        for stage, rows in ((EPOCHS, history.epochs), (EVALUATIONS, history.evaluations)):
            written = self._rows[stage]
            if written and rows[len(written) - 1 : len(written)] != written[-1:]:
                written.pop()
            for number in range(len(written), len(rows)):
                written.append(dict(rows[number]))
                self._writer.append(HistoryRow(stage, number, written[-1], time()))
                has_new = True
        return has_new

    def pre_train(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._has_trained = True
        self._look(step_num, epoch_num, phase_name)
        if self._must_begin:
            self._begin(step_num)

    def pre_train_step_epoch(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._look(step_num, epoch_num + 1, phase_name)

    @always
    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._epoch, self._inside = epoch_num, None

    def pre_eval(self) -> None:
        self._append_history()

    def pre_save_checkpoint(self) -> None:
        self._append_history()

    @always
    def post_train(self) -> None:
        self._append_history()

    # ---- each batch ----------------------------------------------------------------------------------------------

    def pre_train_step_batch(self, step_num: int) -> None:
        self._inside = step_num  # until its end counts it; figures of hooks are of the step that they are in

    def post_train_step_batch(
        self,
        step_num: int,
        losses: Mapping[str, Tensor],
        datasource_name: str,
        true_batch_size: int,
        loss: Tensor | None = None,
    ) -> None:
        if self._must_begin:
            self._begin(step_num - 1)
        writer, epoch, now = self._writer, self._epoch, time()
        assert writer is not None, "it was opened with the run"
        if loss is not None:
            number = self._series.get(("loss", datasource_name))
            if number is None:
                number = self._number("loss", datasource_name)
                self._copies_loss = must_be_copied(loss)  # decided seldom, since losses come from the same code
            writer.append(
                (number, step_num, epoch, now, self._numbers.keep(loss) if self._copies_loss else loss.detach())
            )
        for name, value in losses.items():
            number = self._number(f"losses/{name}", datasource_name)
            writer.append((number, step_num, epoch, now, self._numbers.keep(value)))
        if type(true_batch_size) is not int or true_batch_size != self._batch_size:
            self._batch_size = true_batch_size
            writer.append((self._number("batch_size"), step_num, epoch, now, self._numbers.keep(true_batch_size)))
        if self._rates.have_changed:
            for name, rate in self._rates.take().items():
                writer.append((self._number(name), step_num, epoch, now, rate))
        self._rates.read()
        self._last_step = step_num

    def _number(self, name: str, datasource: str = "") -> int:
        number = self._series.get((name, datasource))
        if number is None:
            assert self._writer is not None, "it was opened with the run"
            number = self._writer.number(Series(name, BATCHES, datasource, self._phase))
            self._series[name, datasource] = number
        return number

    # ---- figures of hooks ----------------------------------------------------------------------------------------

    def _append_figure(self, item: Item) -> None:
        assert self._manager is not None, "a run is open"
        assert self._writer is not None, "it was opened with the run"
        if self._must_begin and (not self._knows_step or not self._has_trained):
            self._early.append(item)  # nothing is superseded before the training begins
        else:
            self._writer.append(item)

    def _append_early(self) -> None:
        assert self._writer is not None, "it was opened with the run"
        early, self._early = self._early, []
        for item in early:
            self._writer.append(item)

    # ---- saved state and copies ----------------------------------------------------------------------------------

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from another place: the next row begins a segment."""
        super().load_state_dict(state)
        self._must_begin = True

    def __getstate__(self) -> dict[str, Any]:  # a copy opens the file itself
        fresh = vars(type(self)())
        return {**vars(self), **{name: fresh[name] for name in fresh if name not in ("_manager", "_epoch", "_phase")}}
