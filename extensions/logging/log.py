"""Lines of text: one for each epoch; or one every so many batches, and one for each evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from train_manager.core.calls import sometimes, with_parameters
from train_manager.core.declarations import always, priority
from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.core.stage import Stage
from train_manager.data.readable import length_of
from train_manager.loop.losses import display_values
from train_manager.manager import TrainManager
from train_manager.metrics.monitor import (
    Monitor,
    is_at_start,
    is_best,
    metric_name,
    metric_value,
    mode_of,
    monitor_of,
)
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.epoch_table import TRAINING, EpochLines, Row, epoch_label
from train_manager.reporting.lines import width_of_lines, write_line
from train_manager.reporting.values import plural, texts_of
from train_manager.runs.showing.ending import ending_lines, evaluations_so_far
from train_manager.schedules import every as every_nth
from train_manager.schedules import scheduled
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import display_path
from train_manager.telling.wrapping import wrap_text
from train_manager.validation import require_count, require_one_of

COUNTS = ("step", "epoch", "batch")  # the entries that a line of a batch may begin with
UNITS = {"examples": "examples/s", "batches": "batches/s", "ms": "ms/batch"}


@recorded
class Log(Extension):
    """Print a line for each epoch; or one every so many batches, and one for each evaluation.

    >>> from train_manager.testing import tiny_manager
    >>> result = tiny_manager(Log(), epochs=2).train()  # doctest: +ELLIPSIS
            training    valid
    epoch       loss      loss  seconds
    start               0.6979
    1/2       0.7001    0.6867     ...  best
    2/2       0.6762    0.6540     ...  best
    done after epoch 2/2 (step 6); the model has its last weights, the best by valid/loss (0.6540)

    A line has the mean loss of the training over the examples of the epoch, and what hooks add to ``train_result``, as
    ``Metrics`` does; the results of each evaluation set; the seconds of the training without the evaluation; and "best"
    if no evaluation before it was as good; a phase has a table and a best of its own. The line "start" is the
    evaluation before the first epoch. If an evaluation is within an epoch, or an epoch is left before its end, the line
    begins with the step.

    In a terminal the lines stand above the bars, and columns that have no room are left out, the monitored one last; in
    a notebook they are a table that is updated in place. An evaluation that is a run of its own has no line.

    The last line says where and by what the run ended, and whose weights the model has; after an error or a signal,
    instead of the weights, what is saved and how to resume. With a ``train_dir`` the command that shows its files
    follows. Calls of one epoch or one batch (``train_epochs(1)``, ``train_on_batch``) have no last line unless they are
    stopped: a run that is held open around them has one.

    With a number, or a schedule, there are lines for batches:

    >>> result = tiny_manager(Log(every=2, rate=None), epochs=2).train()
    step 0, epoch 0, valid: loss 0.6979
    step 2, epoch 1, batch 2 of 3, loss 0.6905
    step 3, epoch 1, valid: loss 0.6867
    step 4, epoch 2, batch 1 of 3, loss 0.6871
    step 6, epoch 2, batch 3 of 3, loss 0.6738
    step 6, epoch 2, valid: loss 0.654
    done after epoch 2/2 (step 6); the model has its last weights, the best by valid/loss (0.6540)

    The arguments choose the entries of such a line. Its rate counts from the line before, so the first line has none:

    >>> by_epoch = Log(every=100, counts=("epoch", "batch"))
    >>> by_step = Log(every=250, counts="step", show={"loss": "loss", "lr": "learning_rates"}, rate="ms")

    The first prints ``epoch 1, batch 200 of 938, loss 0.3012, 51234 examples/s``, the second
    ``step 500, loss 4.3, lr 0.0006, 120 ms/batch``. A tensor is read only for a line that is printed, so other steps do
    not wait for the device. A fixture that is not alive in a step is left out of its line.

    *Runs at:* the end of ``load_checkpoint``, the start and the end of ``phase``, ``train`` and ``train_step_epoch``,
    and the end of ``eval`` and ``run``; with a number or a schedule also the end of ``train_step_batch``.

    *Asks for:* the fixtures that ``show`` names, at the end of ``train_step_batch``; ``checkpoint_loaded``,
    ``step_num``, ``epoch_num``, ``batch_num``, ``samples_seen``, ``train_result``, ``eval_results``,
    ``standalone_eval``, ``stage`` and ``exc_value``.

    *Leaves behind:* lines of text.

    Args:
        every: "epoch"; or the number of batches from one line to the next, counted over all epochs; or a schedule of
            batches, such as ``exponentially(10, 1.5)`` or ``at_most(100)``.
        show: names of fixtures for the lines of batches, by default ``loss``; or a dict from labels to names. A dict,
            such as ``metrics``, is shown entry by entry.
        counts: the counts at the start of the line of a batch: "step", "epoch", "batch", or several of them.
        rate: "examples" or "batches" per second, "ms" per batch, or None, in the line of a batch.
        monitor: the metric that says which epoch is best, such as "valid/accuracy"; by default that of
            ``EarlyStopping(restore_best=True)``, else of ``Checkpoints``, else of ``EarlyStopping``, else the loss of
            the first evaluation set.
        mode: "min" if less is better, "max" if more is better; None derives it from the metric's name.
        file: where to print; None is ``sys.stdout`` at that time.

    Raises:
        InputError: an argument is invalid.
    """

    sole = True
    ranks = 0

    def __init__(
        self,
        every: str | int | Schedule = "epoch",
        show: str | Iterable[str] | Mapping[str, str] | None = None,
        *,
        counts: str | Iterable[str] | None = None,
        rate: str | None = "examples",
        monitor: str | None = None,
        mode: str | None = None,
        file: TextIO | None = None,
    ) -> None:
        self.by_epoch = isinstance(every, str)
        if isinstance(every, str):
            require_one_of(every, "every", ("epoch",))
        if self.by_epoch and not (show is None and counts is None):
            name = "counts" if show is None else "show"
            what = f"`{name}` is for the lines of batches, but every='epoch' prints lines of epochs"
            raise InputError(what, name=name, cure=f"say how often: Log(every=50, {name}=...)")
        names = [show] if isinstance(show, str) else ("loss",) if show is None else show
        self.show = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        given = [counts] if isinstance(counts, str) else COUNTS if counts is None else counts
        self.counts = [require_one_of(count, "counts", COUNTS) for count in given]
        self.rate = None if rate is None else require_one_of(rate, "rate", tuple(UNITS))
        self.file = file
        self._last: tuple[float, int, Any] | None = None  # time, step and examples of the last line, for its rate
        metric = None if monitor is None else metric_name(monitor, "Log")
        own = Monitor(metric, mode_of(metric or "loss", mode, "Log"), "Log")
        self._monitor = None if monitor is mode is None else own
        self._lines = EpochLines()
        if not isinstance(every, str):
            # Only now there is a hook of every batch, so that lines of epochs cost nothing in a step. It names the
            # fixtures of `show`, which are known only here; `sometimes`: one that is not alive is left out.
            asked = ["step_num", "epoch_num", "batch_num", "samples_seen", "stage", "train_manager"]
            shown = map(sometimes, self.show.values())
            self.post_train_step_batch = with_parameters([*asked, *shown], self._print_batch)
            schedule = every if isinstance(every, Schedule) else every_nth(require_count(every, "every", at_least=1))
            scheduled(self, "post_train_step_batch", schedule)

    def post_load_checkpoint(self, checkpoint_loaded: Path | bool, train_manager: TrainManager) -> None:
        if checkpoint_loaded:
            done = plural(train_manager.epoch_num, "epoch")  # the name of the checkpoint has the step
            where = "a checkpoint" if checkpoint_loaded is True else display_path(str(checkpoint_loaded))
            write_line(f"resumes from {where} ({done} done)", self.file)

    def pre_train(self, epoch_num: int, step_num: int, train_manager: TrainManager) -> None:
        # The time between two training calls must not lower the rate of the first line.
        self._last = None
        self._lines.monitored = self._monitor_of(train_manager).metric
        if is_at_start(epoch_num, step_num, train_manager.first_step):
            self._begin_table()

    # ---- a line for each epoch -------------------------------------------------------------------------------------

    def pre_phase(self) -> None:
        self._begin_table()

    def pre_train_step_epoch(self) -> None:
        self._lines.print_waiting(self.file)  # no evaluation has followed the epoch before

    def post_train_step_epoch(
        self, train_result: Mapping[str, float], step_num: int, train_manager: TrainManager
    ) -> None:
        rows = train_manager.history.epochs
        if self.by_epoch and rows and rows[-1]["step"] == step_num:  # an epoch without a batch has no row
            # Not printed yet: the line waits for the evaluation after the epoch, which stands in it too.
            label, seconds = epoch_label(rows[-1], train_manager.epochs), rows[-1]["seconds"]
            self._lines.take_training(Row(label, {TRAINING: train_result}, seconds))

    @always
    @priority(-100)  # before ProgressBar ends the bars, so that the line stands above them
    def post_train(self) -> None:
        self._lines.print_waiting(self.file)

    @always
    def post_phase(self) -> None:
        self._begin_table()

    @always
    @priority(100)  # after the hooks that put other weights into the model, and that write the last files
    def post_run(self, exc_value: BaseException | None, train_manager: TrainManager) -> None:
        self._lines.print_waiting(self.file)  # the last epoch of a loop without train()
        told = list(ending_lines(train_manager, exc_value, self._monitor_of(train_manager)))
        for line in told:
            for part in wrap_text("", line, "  ", width_of_lines(self.file)):
                write_line(part, self.file)
        if told and self.file is None:
            train_manager._progress.run.end_is_told = True

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        step_num: int,
        epoch_num: int,
        samples_seen: Any,
        standalone_eval: bool,
        stage: Stage,
        train_manager: TrainManager,
    ) -> None:
        shown = {name: result for name, result in eval_results.items() if result}  # a hook may have skipped a set
        if self.by_epoch:
            # Columns are those of eval_data: a hook may have evaluated other sets, which would need another table.
            own = {name: result for name, result in shown.items() if name in train_manager.eval_data}
            if own and not standalone_eval:
                label = evaluation_label(step_num, epoch_num, train_manager)
                best = label != "start" and self._is_best(own, shown, train_manager)
                self._lines.print_evaluation(label, own, self.file, is_best=best)
        elif shown:
            sets = "; ".join(f"{name}: {', '.join(entries(texts_of(of)))}" for name, of in shown.items())
            is_left = train_manager._progress.partial is not None  # train_steps(n) has ended within the epoch
            counts = counts_of(step_num, epoch_num, is_in_epoch=is_left or is_in_epoch(stage))
            self._print(counts, [sets], step_num, samples_seen, with_rate=False)

    def _begin_table(self) -> None:
        """Begin a table of a training or a phase, below the last line of the one before."""
        self._lines.print_waiting(self.file)
        self._lines.begin()

    def _is_best(
        self, own: Mapping[str, Mapping[str, float]], results: Mapping[str, Mapping[str, float]], tm: TrainManager
    ) -> bool:
        """Return whether no evaluation of the training, or of the phase, was as good as this one."""
        monitor = self._monitor_of(tm)
        if monitor.metric is None:
            first, result = next(iter(own.items()))
            metric, value = f"{first}/loss", result.get("loss")
        else:
            metric = monitor.metric
            value = metric_value(metric, results, tm.eval_data, monitor.asked_by, tm.optimizers)
        return value is not None and is_best(value, metric, monitor.mode, evaluations_so_far(tm))

    def _monitor_of(self, tm: TrainManager) -> Monitor:
        active = (one for name, one in tm.extensions.items() if name not in tm.paused_extensions)
        return self._monitor or monitor_of(active) or Monitor(None, "min", "Log")

    # ---- a line for each batch -------------------------------------------------------------------------------------

    def _print_batch(self, asked: Mapping[str, Any]) -> None:  # the hook post_train_step_batch: see __init__
        step_num, is_within = asked["step_num"], is_in_epoch(asked["stage"])
        counts = counts_of(step_num, asked["epoch_num"], is_in_epoch=is_within)
        if is_within:
            counts["batch"] = batch_text(asked["batch_num"], asked["train_manager"])
        found = display_values(asked, asked["train_manager"].losses_by_optimizer)
        alive = {label: found[name] for label, name in self.show.items() if name in found}
        self._print(counts, entries(texts_of(alive)), step_num, asked["samples_seen"])

    def _print(
        self, counts: Mapping[str, str], rest: list[str], step_num: int, samples_seen: Any, *, with_rate: bool = True
    ) -> None:
        # The clock is read after the texts were made: reading a tensor for them has waited for the device to finish.
        now, examples = time.perf_counter(), int(samples_seen)
        parts = [*(counts[name] for name in self.counts if name in counts), *rest]
        if with_rate and self.rate is not None and self._last is not None:
            then, step_then, examples_then = self._last
            parts.append(rate_text(self.rate, now - then, step_num - step_then, examples - examples_then))
        self._last = now, step_num, examples
        write_line(", ".join(parts), self.file)


def evaluation_label(step_num: int, epoch_num: int, train_manager: TrainManager) -> str:
    """Return the place of an evaluation: the start, the epoch that ends there, or else the step."""
    if is_at_start(epoch_num, step_num, train_manager.first_step):
        return "start"
    last = next(reversed(train_manager.history.epochs), {})
    is_at_end = (last.get("step"), last.get("phase")) == (step_num, train_manager.fixtures["phase_name"])
    return epoch_label(last, train_manager.epochs) if is_at_end else f"step {step_num}"


def entries(texts: Mapping[str, str]) -> list[str]:
    """Return the entries of a line: names with their texts."""
    return [f"{name} {text}" for name, text in texts.items()]


def counts_of(step_num: int, epoch_num: int, *, is_in_epoch: bool) -> dict[str, str]:
    """Return the texts of the step, and of the epoch: the one that is open, else the last."""
    return {"step": f"step {step_num}", "epoch": f"epoch {epoch_num + is_in_epoch}"}


def is_in_epoch(stage: Stage) -> bool:
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
