"""The monitored metric of an evaluation, named ``"<set>/<metric>"``, and the patience with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from train_manager.metrics.history_rows import PART
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.validation import require_one_of

# The last word of a metric's name, which says the direction: "valid/top5_accuracy" is an accuracy.
LESS_IS_BETTER = frozenset({"loss", "error", "perplexity", "mse", "rmse", "mae", "nll", "wer", "cer"})
# Often monitored by mistake, although the metrics of the training are not a set of eval_data.
TRAINING_LOSS = ("train/loss", "training/loss")
MORE_IS_BETTER = frozenset(
    {"accuracy", "acc", "precision", "recall", "f1", "auc", "auroc", "iou", "dice", "bleu", "psnr", "ssim", "r2"}
)


@final
@dataclass(frozen=True)
class Monitor:
    """The metric by which an extension selects the best evaluation: its attribute ``best_by``.

    Attributes:
        metric: set and metric; None for the loss of the first evaluation set.
        mode: "min" or "max", the side on which it is better.
        asked_by: the extension, for errors.
        keeps: what the extension does with the weights of the best evaluation: 2 puts them back, 1 saves them, 0
            does nothing.
    """

    metric: str | None
    mode: str
    asked_by: str
    keeps: int = 0


def monitor_of(extensions: Iterable[object]) -> Monitor | None:
    """Return the monitor that decides which weights are kept; None if no extension has one."""
    found = [one for extension in extensions if isinstance(one := getattr(extension, "best_by", None), Monitor)]
    return max(found, key=lambda one: one.keeps, default=None)


def mode_of(metric: str, mode: str | None, asked_by: str) -> str:
    """Return "min" or "max": the mode itself, or what the last word of the metric's name implies.

    >>> mode_of("valid/loss", None, "EarlyStopping"), mode_of("valid/top5_accuracy", None, "EarlyStopping")
    ('min', 'max')

    Raises:
        InputError: the mode is neither, or is None and the name does not tell.
    """
    if mode is not None:
        return require_one_of(mode, "mode", ("min", "max"), asked_by=asked_by)
    word = metric.replace("/", "_").lower().rpartition("_")[2]
    if word in LESS_IS_BETTER:
        return "min"
    if word in MORE_IS_BETTER:
        return "max"
    raise InputError(
        f"{asked_by} cannot tell from the name {metric!r} whether a smaller or a larger value is better",
        name="mode",
        asked_by=asked_by,
        cure='give mode="min" or mode="max"',
    )


def metric_name(metric: str, asked_by: str) -> str:
    """Return the name, if it has both a set and a metric.

    Raises:
        InputError: one of them is missing.
    """
    if isinstance(metric, str) and all(metric.partition("/")):
        return metric
    what = f"monitor must name a set of eval_data and a metric, but is {metric!r:.60}"
    raise InputError(what, name="monitor", asked_by=asked_by, cure='put a slash between them: "valid/loss"')


def require_set(metric: str, sets: Collection[str], asked_by: str, optimizers: Collection[str] = ()) -> str:
    """Return the set of a metric: the longest set name that it begins with, because names may contain a "/".

    Args:
        metric: set and metric.
        sets: the names that there are.
        asked_by: named in the error.
        optimizers: the names of those that the training has.

    Raises:
        InputError: there is none; with the nearest name, or the losses that several optimizers have.
    """
    found = max((name for name in sets if metric.startswith(f"{name}/")), key=len, default=None)
    if found is not None:
        return found
    missing = metric.rpartition("/")[0]
    nearest = near(missing, sets)
    known = ", ".join(map(repr, sets))
    # The user means the loss of the training. With several optimizers there is one for each, and none for all.
    if metric in TRAINING_LOSS and len(optimizers) > 1:
        columns = " and ".join(repr(f"{PART}{name}") for name in optimizers)
        nearest, known = (), f"{known}; the training has the losses {columns}, unless forward() makes one"
    raise InputError(
        f"{asked_by} monitors {metric!r}, but eval_data has no set {missing!r}",
        name=metric,
        asked_by=asked_by,
        nearest=nearest,
        cure=did_you_mean(nearest) or (f"its sets are {known}" if known else 'pass eval_data={"valid": batches}'),
    )


def metric_value(
    metric: str,
    eval_results: Mapping[str, Mapping[str, float]],
    sets: Collection[str],
    asked_by: str,
    optimizers: Collection[str] = (),
) -> float | None:
    """Return the value of a metric; None if a hook has skipped its set in this evaluation.

    >>> metric_value("valid/loss", {"valid": {"loss": 0.5}}, ["valid"], "EarlyStopping")
    0.5

    Raises:
        InputError: no metric of this name is evaluated.
    """
    # Sets of this evaluation, and of eval_data: a hook may have evaluated another set, or skipped one.
    data_name = require_set(metric, list(dict.fromkeys([*eval_results, *sets])), asked_by, optimizers)
    if data_name not in eval_results:
        return None
    result = eval_results[data_name]
    value = result.get(metric.removeprefix(f"{data_name}/"))
    if value is None:
        raise _missing_metric(metric, data_name, result, asked_by)
    return float(value)


def is_best(value: float, metric: str, mode: str, earlier: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether an evaluation is better than all before it; nan never is.

    >>> rows = [{"set": "valid", "loss": 0.5}, {"set": "test", "loss": 0.125}]
    >>> is_best(0.25, "valid/loss", "min", rows), is_best(0.25, "test/loss", "min", rows)
    (True, False)

    Args:
        value: the value of the metric in this evaluation.
        metric: set and metric.
        mode: "min" or "max".
        earlier: the rows of the history for the evaluations before it.
    """
    best, patience = best_of(metric, mode, earlier), Patience(1, mode)
    if best is not None:
        patience.is_over(best[0])
    return not patience.is_over(value)


def best_of(metric: str, mode: str, rows: Iterable[Mapping[str, Any]]) -> tuple[float, Mapping[str, Any]] | None:
    """Return the best value among the rows of the history for evaluations, and its row; None if all are nan."""
    patience, found = Patience(1, mode), None
    for row in rows:
        name = metric.removeprefix(f"{row['set']}/")
        if name != metric and name in row and not patience.is_over(float(row[name])):
            found = float(row[name]), row
    return found


def is_at_start(epoch_num: int, step_num: int, first_step: int) -> bool:
    """Return whether an evaluation is of a model that was not trained yet, in the training or in a phase.

    Args:
        epoch_num: epochs completed.
        step_num: batches trained on.
        first_step: the batches that were trained on as the training or the phase began.
    """
    return epoch_num == 0 and step_num == first_step


def _missing_metric(metric: str, data_name: str, result: Mapping[str, float], asked_by: str) -> InputError:
    names = [f"{data_name}/{name}" for name in result]
    nearest = near(metric, names)
    known = f"the results are {', '.join(map(repr, names))}"
    if not names:
        known = "it has no results: set fixtures['loss'] in eval_batch, or measure something with Metrics(...)"
    elif f"{data_name}/loss" not in names:
        known += "; there is no loss, since eval_batch sets no fixtures['loss']"
    return InputError(
        f"{asked_by} monitors {metric!r}, which is not among the results of {data_name!r}",
        name=metric,
        asked_by=asked_by,
        nearest=nearest,
        cure=did_you_mean(nearest) or known,
    )


@final
class Patience:
    """Count how many numbers in a row did not improve on the best one.

    >>> patience = Patience(2, mode="min")
    >>> [patience.is_over(value) for value in (.5, .6, .4, .4, .7)]
    [False, False, False, False, True]
    >>> patience.best, patience.waited
    (0.4, 2)

    nan is never an improvement.

    Args:
        limit: the patience is over after this many numbers in a row without an improvement.
        mode: "min" if smaller is better, "max" if larger is better.
        min_delta: an improvement must be larger than this.

    Attributes:
        best: the best number so far; None before the first.
        waited: the numbers in a row without an improvement.
    """

    def __init__(self, limit: int, mode: str, min_delta: float = 0.0) -> None:
        self.limit = limit
        self.mode = mode
        self.min_delta = min_delta
        self.best: float | None = None
        self.waited: int = 0

    def is_over(self, value: float) -> bool:
        """Count one more number, and return whether the patience is over."""
        if self._improves(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.limit

    def _improves(self, value: float) -> bool:
        if self.best is None:
            return value == value  # the first number is the best, unless it is nan
        # With nan the gain is nan, which is not larger than anything.
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta
