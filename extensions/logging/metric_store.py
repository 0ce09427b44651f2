"""All metrics of a training in one file, which other programs read while it runs and after it has ended.

    loop ──BatchRow──> queue ──thread of runs/store/thread.py──> metrics.sqlite
                         ^
    hooks ───────────────┘  the items between the rows

``runs/store/training.py`` makes these items; this module has its hooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_manager.core.declarations import always, fixture, priority
from train_manager.core.extension import Extension
from train_manager.loop.batch_losses import BatchLosses, picks_batches
from train_manager.rebuilding.recorded import recorded
from train_manager.runs.store.priorities import STORE_CLOSES
from train_manager.runs.store.training import StoredManager, StoredRun
from train_manager.runs.store.writer import MetricWriter
from train_manager.telling.errors import StageError

if TYPE_CHECKING:
    from torch import Tensor

    from train_manager.manager import TrainManager


@recorded
class MetricStore(Extension):
    """Write every metric of the training into ``metrics.sqlite``, while it runs.

    >>> import tempfile
    >>> from train_manager.testing import tiny_manager
    >>> from train_manager.tools import read_run
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), epochs=2, train_dir=folder).train()
    >>> read_run(folder).history
    History(2 epochs, 3 evaluations; last epoch: loss 0.6762, valid loss 0.654)

    These are the loss of every batch, its loss terms, learning rates and batch sizes when they change, and the rows of
    ``tm.history``. Hooks add metrics of their own with the fixture ``writer``: ``writer.scalar("grad_norm", norm)``;
    also as the run ends, in ``post_run``. A hook that asks for ``writer=None`` works without a store too.

    A thread writes twice a second, so a run that is killed loses less than a second; a checkpoint waits for the rows of
    its step. Nothing else waits for a device. If the file cannot be written, metrics wait in memory, with a warning,
    and the run continues.

    No row is ever deleted: after a resume, earlier rows count up to the step of the checkpoint. A training that begins
    anew is another run, beside those before it in this folder.

    *Runs at:* the start and the end of ``run`` (the end after other hooks, priority 1,000,000), ``train`` and
    ``train_step_epoch``; around ``phase``; the end of ``load_checkpoint``; the start of ``eval`` and
    ``save_checkpoint``. With a schedule, or in a loop without ``batch_losses``, it records at the end of
    ``train_step_batch``.

    *Asks for:* ``train_dir``, ``step_num``, ``epoch_num``, ``phase_name``, ``checkpoint_loaded`` and ``batch_losses``;
    without the last one ``loss``, ``losses``, ``true_batch_size`` and ``datasource_name`` of a batch.

    *Leaves behind:* the fixture ``writer`` of ``run``; ``metrics.sqlite`` in ``train_dir``.
    """

    sole = True
    ranks = 0

    def __init__(self) -> None:
        self._is_reader = False  # the loop appends the rows, and not the hook post_train_step_batch
        self._stored: StoredManager | None = None  # made by the first run, for one train_dir and one TrainManager

    @fixture("run")
    def writer(self, train_manager: TrainManager, train_dir: Path) -> MetricWriter:
        """The object with which hooks write their own metrics."""
        is_first = not train_manager.ranks.place.rank
        return self._open(train_manager, train_dir).writer if is_first else MetricWriter(None)

    def pre_run(
        self, train_manager: TrainManager, train_dir: Path, epoch_num: int, batch_losses: BatchLosses | None = None
    ) -> None:
        reads = None if picks_batches(self, MetricStore) else batch_losses
        self._is_reader = reads is not None
        self._open(train_manager, train_dir).begin_run(self, train_manager, reads, epoch_num)

    def _open(self, train_manager: TrainManager, train_dir: Path) -> StoredManager:
        # An extension object may move on to another TrainManager or folder: their metrics go into another file.
        of, stored = (train_dir.absolute(), train_manager.run_id), self._stored
        if stored is None or (stored.train_dir, stored.run_id) != of:
            if stored is not None:
                stored.thread.close()
            stored = self._stored = StoredManager(*of)
        return stored

    @property
    def _run(self) -> StoredRun:
        if self._stored is None or self._stored.run is None:
            what = "a hook of MetricStore was called, but no run has opened its file"
            raise StageError(what, name="run", asked_by="MetricStore", cure="call it in a run: with tm.run(): ...")
        return self._stored.run

    def post_load_checkpoint(
        self, step_num: int, epoch_num: int, phase_name: str | None, checkpoint_loaded: Path | bool
    ) -> None:
        self._run.take_loaded(Path(str(checkpoint_loaded)) if checkpoint_loaded else None)
        self._run.look(step_num, epoch_num, phase_name)

    @priority(STORE_CLOSES)  # last: other hooks may write as the run ends
    @always
    def post_run(self) -> None:
        if self._stored is not None:  # None: the run failed as it opened, before a hook here ran
            self._stored.end_run()

    def around_phase(self, epoch_num: int, phase_name: str | None) -> Iterator[None]:
        with self._run.in_phase(epoch_num, phase_name):
            yield

    def pre_train(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._run.begin_training(step_num, epoch_num, phase_name)

    def pre_train_step_epoch(self, step_num: int, epoch_num: int, phase_name: str | None) -> None:
        self._run.look(step_num, epoch_num + 1, phase_name)

    @always
    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._run.be_in(epoch_num)

    def pre_eval(self) -> None:
        self._run.append_history()

    # After the hooks that write what they have measured, and before the one that writes the checkpoint: a process that
    # is killed then leaves no checkpoint of steps whose rows are lost.
    @priority(-500)
    def pre_save_checkpoint(self) -> None:
        self._run.append_history()
        self._run.thread.flush()

    @always
    def post_train(self) -> None:
        self._run.append_history()

    def post_train_step_batch(
        self,
        step_num: int,
        losses: Mapping[str, Tensor],
        datasource_name: str,
        true_batch_size: int,
        loss: Tensor | None = None,
    ) -> None:
        if self._is_reader:  # the loop has appended the row of this batch
            return
        if self._run.manager.losses_by_optimizer:
            loss = None  # only the sum of the losses of several optimizers, which `losses` has one by one
        self._run.append_batch(step_num, loss, losses, datasource_name, true_batch_size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from another place: the next row begins a part."""
        super().load_state_dict(state)
        if self._stored is not None:
            self._stored.begin_anew()

    def __getstate__(self) -> dict[str, Any]:  # a copy opens the file itself: the thread cannot be copied
        return {**vars(self), "_stored": None}
