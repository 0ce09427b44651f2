"""Lines of text: one every so many batches, and one for each evaluation."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Scope
from train_manager.core.signature import with_parameters
from train_manager.data.iteration import length_of
from train_manager.manager import TrainManager
from train_manager.reporting.values import texts_of
from train_manager.schedules import every as every_nth
from train_manager.schedules import scheduled
from train_manager.validation import require_count, require_one_of

COUNTS = ("step", "epoch", "batch")
UNITS = {"examples": "examples/s", "batches": "batches/s", "ms": "ms/batch"}


class Log(Extension):
    """Print a line every so many batches, and one for each evaluation.

    >>> from train_manager.testing import tiny_manager
    >>> result = tiny_manager(Log(every=2, rate=None), epochs=2).train()
    step 0, epoch 0, valid: loss 0.6979
    step 2, epoch 1, batch 2 of 3, loss 0.6905
    step 3, epoch 1, valid: loss 0.6867
    step 4, epoch 2, batch 1 of 3, loss 0.6871
    step 6, epoch 2, batch 3 of 3, loss 0.6738
    step 6, epoch 2, valid: loss 0.654

    The arguments choose what a line has. Its rate is that since the line before, so the first line has none:

    >>> by_epoch = Log(every=100, counts=("epoch", "batch"))
    >>> by_step = Log(every=250, counts="step", show={"loss": "loss", "lr": "learning_rates"}, rate="ms")

    The first prints ``epoch 1, batch 200 of 938, loss 0.3012, 51234 examples/s``, the second
    ``step 500, loss 4.3, lr 0.0006, 120 ms/batch``. A tensor is read only for a line that is printed, so other steps do
    not wait for the device. A fixture that is not alive in a step is left out of its line.

    *Runs at:* the start of ``train``, and the end of ``train_step_batch`` and ``eval``.

    *Asks for:* the fixtures that ``show`` names, at the end of ``train_step_batch``; ``step_num``, ``epoch_num``,
    ``batch_num``, ``samples_seen``, ``eval_results`` and ``stage``.

    *Leaves behind:* lines of text.

    Args:
        every: the number of batches from one line to the next, counted over all epochs; or a schedule, such as
            ``exponentially(10, 1.5)`` or ``at_most(100)``.
        show: names of fixtures; or a dict of their names by what the line calls them. A dict, such as ``metrics``, is
            shown entry by entry.
        counts: what the line begins with: "step", "epoch", "batch", or several of them.
        rate: "examples" or "batches" per second, "ms" per batch, or None.
        file: where to print; None is ``sys.stdout`` at that time.

    Raises:
        InputError: an argument is invalid.
    """

    def __init__(
        self,
        every: int | Schedule = 50,
        show: str | Iterable[str] | Mapping[str, str] = ("loss",),
        *,
        counts: str | Iterable[str] = COUNTS,
        rate: str | None = "examples",
        file: TextIO | None = None,
    ) -> None:
        names = [show] if isinstance(show, str) else show
        self.show = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        given = [counts] if isinstance(counts, str) else counts
        self.counts = [require_one_of(count, "counts", COUNTS) for count in given]
        self.rate = None if rate is None else require_one_of(rate, "rate", tuple(UNITS))
        self.file = file
        self._last: tuple[float, int, Any] | None = None  # time, batches and examples at the last line
        asked = ["step_num", "epoch_num", "batch_num", "samples_seen", "stage", "train_manager"]
        self.post_train_step_batch = with_parameters(asked, self._print_batch, seldom=self.show.values())
        schedule = every if isinstance(every, Schedule) else every_nth(require_count(every, "every", at_least=1))
        scheduled(self, "post_train_step_batch", schedule)

    def pre_train(self) -> None:
        self._last = None  # the time between two trainings is not part of a rate

    def _print_batch(self, asked: Mapping[str, Any]) -> None:  # the hook post_train_step_batch: see __init__
        step_num, counts = asked["step_num"], counts_of(asked["step_num"], asked["epoch_num"], asked["stage"])
        if is_in_epoch(asked["stage"]):
            counts["batch"] = batch_text(asked["batch_num"], asked["train_manager"])
        alive = {label: asked[name] for label, name in self.show.items() if name in asked}
        shown = [text for label, value in alive.items() for text in texts_of(label, value, between=" ")]
        self._print([*self._chosen(counts), *shown], step_num, asked["samples_seen"])

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        step_num: int,
        epoch_num: int,
        samples_seen: Any,
        stage: Scope,
    ) -> None:
        shown = {name: result for name, result in eval_results.items() if result}
        if shown:  # else hooks have skipped every set, or no set has results
            sets = "; ".join(f"{name}: {', '.join(texts_of(name, of, between=' '))}" for name, of in shown.items())
            counts = self._chosen(counts_of(step_num, epoch_num, stage))
            self._print([*counts, sets], step_num, samples_seen, with_rate=False)

    # ---- lines -----------------------------------------------------------------------------------------------------

    def _chosen(self, counts: Mapping[str, str]) -> Iterator[str]:
        return (counts[name] for name in self.counts if name in counts)

    def _print(self, parts: list[str], step_num: int, samples_seen: Any, *, with_rate: bool = True) -> None:
        now, examples = time.perf_counter(), int(samples_seen)  # now: the device has done what was read for the line
        if with_rate and self.rate is not None and self._last is not None:
            then, step_then, examples_then = self._last
            parts.append(rate_text(self.rate, now - then, step_num - step_then, examples - examples_then))
        self._last = now, step_num, examples
        print(", ".join(parts), file=self.file or sys.stdout, flush=True)


def counts_of(step_num: int, epoch_num: int, stage: Scope) -> dict[str, str]:
    """Return the texts of the step, and of the epoch: the one that is open, else the last."""
    return {"step": f"step {step_num}", "epoch": f"epoch {epoch_num + is_in_epoch(stage)}"}


def is_in_epoch(stage: Scope) -> bool:
    """Return whether an epoch is open, and not completed yet."""
    return "train_step_epoch" in stage.path


def batch_text(batch_num: int, train_manager: TrainManager) -> str:
    """Return the text of the batch in its epoch, with the number of batches if that is known."""
    length = train_manager.steps_per_epoch or length_of(train_manager.train_data)
    return f"batch {batch_num}" if length is None else f"batch {batch_num} of {length}"


def rate_text(rate: str, seconds: float, batches: int, examples: float) -> str:
    """Return the text of a rate.

    >>> rate_text("examples", 2, 50, 1600), rate_text("batches", 2, 50, 1600), rate_text("ms", 6, 50, 1600)
    ('800 examples/s', '25 batches/s', '120 ms/batch')
    """
    if rate == "ms":
        value = 1000 * seconds / max(1, batches)
    else:
        value = (examples if rate == "examples" else batches) / max(seconds, 1e-9)  # a coarse clock may stand still
    return f"{value:.0f} {UNITS[rate]}" if value >= 100 else f"{value:.3g} {UNITS[rate]}"
