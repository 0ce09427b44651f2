"""The loss and the first metric as a picture below the cell of a notebook, drawn anew while the training runs.

``runs/showing/live_losses.py`` keeps the losses of the batches, and ``live_svg.py`` draws them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.data.shares import ALONE
from train_manager.loop.batch_losses import BatchLosses, BatchRow
from train_manager.loop.books import Book
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.lines import NotebookOutput, is_notebook
from train_manager.reporting.loss_panels import loss_label
from train_manager.runs.showing.live_losses import LiveLosses
from train_manager.runs.showing.live_svg import live_svg
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class Live(Extension):
    """Show the loss and the first metric in a notebook, as a picture that is renewed once a second.

    Outside of notebooks it does nothing.

    >>> from train_manager.testing import tiny_manager
    >>> result = tiny_manager(Live(), epochs=2).train()

    In the left panel is the loss of the batches, pale behind its running mean, with the loss of each evaluation set; in
    the right one the first metric that is measured, by ``Metrics`` or by a hook that adds to ``eval_result`` or
    ``train_result``. A cell has one such output, which keeps its size and does not flicker. It is light or dark as the
    notebook. A drawing takes a few milliseconds; the losses are read from the device when it is drawn. A phase has a
    picture of its own.

    *Runs at:* the start and the end of ``run``, and the end of ``train`` and ``train_step_batch``.

    *Asks for:* ``batch_losses``, ``phase_name``, ``step_num`` and ``start_step``.

    *Leaves behind:* an output below each cell that trains.

    Args:
        interval: the seconds between two drawings.

    Raises:
        InputError: ``interval`` is not a number of at least 0.
    """

    ranks = 0

    def __init__(self, interval: float = 1.0) -> None:
        self.interval = require_number(interval, "interval", at_least=0)
        self._output = NotebookOutput()
        self._losses = Book(LiveLosses, per="phase")
        self._rows: list[BatchRow] = []  # rows of batches that are not in the curves yet
        self._manager: TrainManager | None = None  # while a run is open in a notebook; outside of notebooks None
        self._drawn_at = -math.inf  # so that the first batch is drawn at once

    def pre_run(self, batch_losses: BatchLosses, train_manager: TrainManager) -> None:
        if is_notebook():  # elsewhere nothing reads the losses, so that a step costs no append
            self._manager = train_manager
            batch_losses.read(self, self._rows, look=self._take)

    def post_train_step_batch(self, phase_name: str | None) -> None:
        if self._manager is not None and time.monotonic() - self._drawn_at >= self.interval:
            self._show(phase_name)

    @always
    def post_train(self, phase_name: str | None) -> None:
        self._show(phase_name)

    @always
    def post_run(self, step_num: int, start_step: int, phase_name: str | None, batch_losses: BatchLosses) -> None:
        # A run of one batch may be one of many calls of train_on_batch, which would draw a picture each.
        if self._rows and step_num > start_step + 1:
            self._show(phase_name)
        batch_losses.end(self)
        self._manager = None

    def _take(self) -> None:
        """Move the losses of the rows into the curves, with one copy from the device for all of them."""
        rows = list(self._rows)
        self._rows.clear()  # not a new list: `batch_losses` appends to this one
        self._losses.of(self._manager).take(rows)

    def _show(self, phase_name: str | None) -> None:
        """Renew the picture below the cell that runs."""
        if self._manager is None:
            return
        self._take()
        history = self._manager.history
        # The picture of a phase has the rows of this phase only; an evaluation that is a run of its own is in none.
        epochs, evaluations = (
            [row for row in rows if row.get("phase") == phase_name and "standalone" not in row]
            for rows in (history.epochs, history.evaluations)
        )
        label = loss_label("batch", self._manager.ranks.place is not ALONE)
        self._output.show(*live_svg(self._losses.of(self._manager).curves, epochs, evaluations, label))
        self._drawn_at = time.monotonic()

    # ---- saved state -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the curves of the batches; those of evaluations are in the history."""
        if self._manager is not None:
            self._take()
        return {**super().state_dict(), "losses": self._losses.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._rows.clear()
        self._losses.load_state_dict(state["losses"])
