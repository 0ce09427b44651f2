"""The learning rate range test: train on a few batches with a growing rate, and see where the loss falls.

After Smith 2015 (arXiv:1506.01186), with the smoothing, the end and the suggestion of fastai.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from train_manager.data.batch import FromSource
from train_manager.data.readable import no_batch
from train_manager.data.reader import one_pass
from train_manager.manager import TrainManager
from train_manager.model.optimizers import learning_rates, set_learning_rates
from train_manager.reporting.figures import for_notebook, panels_figure, set_log_ticks
from train_manager.reporting.panels import COLOURS, TRAINING_COLOUR, Line, Panel, Panels
from train_manager.trials.trial import TRAIN_DATA, Trial, data_of, require_manager
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHING = 0.98  # of the average of the losses, as in fastai
DIVERGED = 4.0  # times the lowest smoothed loss, at which the test ends
PLOT_WIDTH, PLOT_HEIGHT = 600, 330  # pixels
BATCH_LOOK = {"color": TRAINING_COLOUR, "linewidth": 0.8, "alpha": 0.6}
SETTLED = 10  # first batches without a judgement: one easy batch has a low loss too


def lr_finder(
    train_manager: TrainManager,
    *,
    lowest: float = 1e-7,
    highest: float = 1.0,
    steps: int = 100,
    optimizer: str | None = None,
    keep: Iterable[str] = (),
) -> FoundRates:
    """Train on a few batches with learning rates from the lowest to the highest, and put everything back.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager()
    >>> found = lr_finder(tm, lowest=1e-4, highest=100, steps=60)
    >>> found
    FoundRates(suggestion 0.11; 60 rates from 0.0001 to 100)
    >>> tm.step_num
    0

    It does what training does with a batch, an own ``train_batch`` included, and ends where the loss is four times its
    best. Then weights, buffers, gradients, optimizers, random states, counters and the data are as they were: a
    training after it equals, to the bit, a training without it.

    Extensions pause meanwhile; those that the training needs, or that change which rate is right, can be kept:
    ``keep=["mixed_precision", "clip_gradients"]``. The counters of these extensions are not put back.

    Args:
        train_manager: the manager that will train; no run of it may be open.
        lowest: the first rate.
        highest: the last rate.
        steps: how many batches to train on; the data begin again after their last batch.
        optimizer: the name of one of several optimizers, whose rates are tried; the others keep theirs.
        keep: the names of extensions that do not pause.

    Returns:
        The rates, the losses and a suggestion. Groups of parameters keep the ratios of their rates; the rates are those
        of the group with the largest one.

    Raises:
        InputError: an argument is invalid, the model has lazy parameters, the data can be read only once, or
            ``train_batch`` has no loss.
        StageError: a run is open.
    """
    require_number(lowest, "lowest", above=0)
    require_number(highest, "highest", above=lowest)
    require_count(steps, "steps", at_least=2)
    data = data_of(require_manager(train_manager, "lr_finder"), "train on")[TRAIN_DATA]
    tried = train_manager.optimizers[train_manager._setup.optimizer_name(optimizer, "lr_finder")]
    # A geometric series: each rate is the same factor above the one before it.
    rates = [lowest * (highest / lowest) ** (step / (steps - 1)) for step in range(steps)]
    own = [float(rate) for rate in learning_rates(tried)]
    # Groups of parameters keep the ratios of their rates.
    ratios = [rate / max(own) if max(own) else 1.0 for rate in own]
    losses, smooth = list[float](), Smoothed()
    with Trial(train_manager, "lr_finder", keep=keep) as trial, one_after_another(data) as batches, trial.run() as step:
        for rate, batch in zip(rates, batches, strict=False):
            set_learning_rates(tried, [rate * ratio for ratio in ratios])
            losses.append(step(batch))
            if smooth.diverges(losses[-1]):
                break
    return FoundRates(rates[: len(losses)], losses, smooth.values)


@final
@dataclass(frozen=True, slots=True)
class FoundRates:
    """The result of a range test.

    Attributes:
        rates: the learning rates that were tried, in their order.
        losses: the loss of each.
        smoothed: the losses without the noise of single batches.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]

    @property
    def suggestion(self) -> float | None:
        """A rate in the middle of the longest descent of the loss; None if the loss has not fallen."""
        position = valley(self.smoothed)
        return None if position is None else float(f"{self.rates[position]:.2g}")

    def plot(self) -> Figure:
        """Return a matplotlib figure of the loss over the rate. A notebook shows it."""
        limits = _limits(self.losses, self.smoothed)
        lines = {
            "of each batch": Line(BATCH_LOOK, self.rates, self.losses),
            "smoothed": Line({"color": COLOURS[0]}, self.rates, self.smoothed),
        }
        if self.suggestion is not None:
            look = {"color": COLOURS[1], "linestyle": "--"}
            lines[f"suggestion {self.suggestion:g}"] = Line(look, [self.suggestion] * 2, limits)
        panel = Panel("learning rate", "loss", "linear", [*lines.values()])
        legend = [(name, line.look) for name, line in lines.items()]
        figure = panels_figure(Panels([(PLOT_HEIGHT, [panel])], legend, PLOT_WIDTH))
        axes = figure.axes[0]
        axes.set(xscale="log", ylim=limits)
        set_log_ticks(axes.xaxis)
        return for_notebook(figure)

    def __repr__(self) -> str:
        suggestion = "no suggestion" if self.suggestion is None else f"suggestion {self.suggestion:g}"
        return f"FoundRates({suggestion}; {len(self.rates)} rates from {self.rates[0]:.3g} to {self.rates[-1]:.3g})"


@final
class Smoothed:
    """An exponential moving average without its bias towards zero.

    >>> smooth = Smoothed()
    >>> [smooth.diverges(loss) for loss in (1.0, 2.0, math.inf)], [round(value, 2) for value in smooth.values]
    ([False, False, True], [1.0, 1.51, inf])
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        self._average = 0.0

    def diverges(self, loss: float) -> bool:
        """Add a loss; return whether it is not finite, or the average is far above the best one."""
        self._average = SMOOTHING * self._average + (1 - SMOOTHING) * loss
        # The division removes the bias towards the zero with which the average begins.
        self.values.append(self._average / (1 - SMOOTHING ** (len(self.values) + 1)))
        # abs(): a loss may be negative, and four times a negative number is lower still.
        settled = self.values[SETTLED:]
        return not math.isfinite(loss) or (bool(settled) and settled[-1] > DIVERGED * abs(min(settled)))


def valley(losses: Sequence[float]) -> int | None:
    """Return the position in the middle of the longest descent; None if there is none.

    The descent is the longest falling subsequence, so that single losses that are larger do not end it (fastai).

    >>> valley([5., 5., 4., 4.5, 3., 2., 1., 9.]), valley([1., 2., 3.])
    (4, None)
    """
    descents: list[list[int]] = []  # of each position, the longest falling subsequence that ends there
    for end, loss in enumerate(losses):
        before = max((one for one in descents if losses[one[-1]] > loss), key=len, default=[])
        descents.append([*before, end])
    longest = max(descents, key=len, default=[])
    return longest[len(longest) // 2] if len(longest) > 2 else None


def one_after_another(data: Iterable[Any]) -> closing[Generator[Any, None, None]]:
    """Return a ``with`` block that gives batches, pass after pass, and leaves the data where they were."""
    return closing(_passes(data))


def _passes(data: Iterable[Any]) -> Generator[Any, None, None]:
    while True:
        gave_any = False
        with one_pass(data) as batches:
            for batch in batches:
                gave_any = True
                yield batch.batch if type(batch) is FromSource else batch
        if not gave_any:
            raise no_batch(data, "train_data", "for lr_finder")


def _limits(losses: Sequence[float], smoothed: Sequence[float]) -> tuple[float, float]:
    """Return the limits of the y axis."""
    # The losses after the divergence would flatten the rest: the highest tenth of the losses is cut off.
    finite = [loss for loss in losses if math.isfinite(loss)]
    calm = [loss for loss in smoothed if math.isfinite(loss)]
    if not finite or not calm:
        return 0.0, 1.0
    low, high = min(finite), max(calm[0], sorted(finite)[int(0.9 * (len(finite) - 1))])
    margin = 0.1 * (high - low) or 0.1
    return low - margin, high + margin
