"""The base of extensions that measure the layers of a model: it keeps, sends and saves their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train_manager.core.declarations import always, priority
from train_manager.loop.books import Book
from train_manager.loop.drawing import Drawing
from train_manager.metrics.layer_series import LayerSeriesByName


class LayerWatcher(Drawing):
    """Keep numbers of layers, of each phase apart, and give them to the ``writer`` if there is one.

    A subclass appends in its hooks to ``self._series.of(train_manager)``, and calls ``send`` there as that is full.

    *Runs at:* the start of ``save_checkpoint``, and the end of ``train``, ``phase`` and ``run``.

    *Asks for:* ``writer`` if there is one.

    *Leaves behind:* the arrays that the subclass names.

    Attributes:
        series: the numbers so far, by the names of the arrays.
    """

    def __init__(self) -> None:
        # Per phase: the layers of a phase with another model are other layers.
        self._series = Book(LayerSeriesByName, per="phase")

    @property
    def series(self) -> LayerSeriesByName:
        self._series.latest.send(None)  # brings values that still wait on the device into the series
        return self._series.latest

    @always
    def post_train(self, train_manager: Any, writer: Any = None) -> None:
        self._series.of(train_manager).send(writer)

    post_phase = post_run = post_train

    # Before the hook that saves the state: with unsent values in the state, a training that resumes would send them
    # to the writer a second time.
    @priority(-1000)
    def pre_save_checkpoint(self, train_manager: Any, writer: Any = None) -> None:
        self._series.of(train_manager).send(writer)

    def state_dict(self) -> dict[str, Any]:
        """Return all numbers so far."""
        return {**super().state_dict(), "series": self._series.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._series.load_state_dict(state["series"])
