"""The speed of a run: examples per second, the share of waiting for data, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from train_manager.loop.books import Book
from train_manager.loop.drawing import Drawing
from train_manager.metrics.speed import Speed
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.figures import speed_figure
from train_manager.validation import require_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter


@recorded
class Throughput(Drawing):
    """Measure how many examples are trained on in a second, and how much of the time goes into waiting for data.

    >>> from train_manager.testing import tiny_manager
    >>> throughput = Throughput(seconds=0.0001)
    >>> result = tiny_manager(throughput, epochs=2).train()
    >>> "examples_per_second" in throughput.curves
    True

    The time from the end of a step to the end of the next one counts, once a second, unless an evaluation or a
    checkpoint comes between. ``throughput`` as the last line of a cell of a notebook shows the curves. They are of this
    process, so no checkpoint holds them.

    *Runs at:* the end of ``train_step_batch``, ``eval`` and ``save_checkpoint``, and the start of
    ``train_step_epoch``.

    *Asks for:* ``global_batch_size``, ``step_num``, ``model``, and ``data_seconds`` if there are any; ``writer`` if
    there is one.

    *Leaves behind:* in ``metrics.sqlite`` the scalars ``examples_per_second``, ``waiting_share``, and on a GPU
    ``peak_memory``, in bytes since the process began.

    Args:
        seconds: how long a metric is measured.
        clock: a function that returns the seconds since any fixed moment.

    Attributes:
        curves: the steps and values of the metrics so far, by these names.

    Raises:
        InputError: ``seconds`` is not a number above 0.
    """

    sole = True  # two would write one series
    ranks = 0

    def __init__(self, seconds: float = 1.0, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds: float = require_number(seconds, "seconds", above=0)
        # A phase may have other data and another model.
        self._speed = Book(lambda: Speed(self.seconds, clock), per="phase", saved=False)

    @property
    def curves(self) -> dict[str, tuple[list[float], list[float]]]:
        return {name: (curve.x, curve.y) for name, curve in self._speed.latest.curves.items()}

    def pre_train_step_epoch(self, train_manager: TrainManager | None = None) -> None:
        # Only steps count: pause() leaves out the time from here to the end of the next step.
        self._speed.of(train_manager).pause()

    def post_train_step_batch(
        self,
        global_batch_size: int,
        step_num: int,
        model: Any,
        data_seconds: float | None = None,
        train_manager: TrainManager | None = None,
        writer: MetricWriter | None = None,
    ) -> None:
        # Empty until `seconds` have gone by, so that most steps only read the clock.
        metrics = self._speed.of(train_manager).append(step_num, global_batch_size, data_seconds, model)
        if metrics and writer is not None:
            writer.scalars(metrics)

    def post_eval(self, train_manager: TrainManager | None = None) -> None:
        self._speed.of(train_manager).pause()

    post_save_checkpoint = post_eval  # saving does not count as a step either

    def _pictures(self) -> dict[str, Figure]:
        return {"examples per second and the share of waiting for data, by step": speed_figure(self.curves)}
