"""One number of an evaluation's results, named as ``"<set>/<metric>"``, and how long it may get no better."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import final

from train_manager.core.errors import InputError, did_you_mean, near
from train_manager.validation import require_one_of

LESS_IS_BETTER = frozenset({"loss", "error", "perplexity", "mse", "rmse", "mae", "nll", "wer", "cer"})
MORE_IS_BETTER = frozenset(
    {"accuracy", "acc", "precision", "recall", "f1", "auc", "auroc", "iou", "dice", "bleu", "psnr", "ssim", "r2"}
)


def mode_of(metric: str, mode: str | None, asked_by: str) -> str:
    """ "min" or "max", as it was given; else as the last word of the metric's name tells.

    >>> mode_of("valid/loss", None, "EarlyStopping"), mode_of("valid/top5_accuracy", None, "EarlyStopping")
    ('min', 'max')

    Raises:
        InputError: it is neither, or the name does not tell.
    """
    if mode is not None:
        return require_one_of(mode, "mode", ("min", "max"), asked_by=asked_by)
    word = metric.replace("/", "_").lower().rpartition("_")[2]
    if word in LESS_IS_BETTER:
        return "min"
    if word in MORE_IS_BETTER:
        return "max"
    raise InputError(
        f"{asked_by} cannot tell from the name {metric!r} whether less of it is better, or more",
        name="mode",
        asked_by=asked_by,
        cure='say it: mode="min" or mode="max"',
    )


def metric_name(metric: str, asked_by: str) -> str:
    """A name with a set and a metric in it.

    Raises:
        InputError: there is no "/" in it.
    """
    if isinstance(metric, str) and all(metric.partition("/")):
        return metric
    cure = 'name the set and the metric: "valid/loss"'
    raise InputError(f"metric is {metric!r:.60}", name="metric", asked_by=asked_by, cure=cure)


def require_set(metric: str, sets: Collection[str], asked_by: str) -> str:
    """The set that a metric is of: the longest name it begins with, for both may have a "/" in them.

    Raises:
        InputError: there is none; with the name that was perhaps meant.
    """
    found = max((name for name in sets if metric.startswith(f"{name}/")), key=len, default=None)
    if found is not None:
        return found
    wanted = metric.rpartition("/")[0]
    nearest = near(wanted, sets)
    known = ", ".join(map(repr, sets))
    raise InputError(
        f"{asked_by} wants {metric!r}, and eval_data has no set {wanted!r}",
        name=metric,
        asked_by=asked_by,
        nearest=nearest,
        cure=did_you_mean(nearest) or (f"its sets are {known}" if known else 'pass eval_data={"valid": batches}'),
    )


def metric_value(
    metric: str, eval_results: Mapping[str, Mapping[str, float]], sets: Collection[str], asked_by: str
) -> float | None:
    """Its value; None where a hook has left out the set in this evaluation.

    >>> metric_value("valid/loss", {"valid": {"loss": 0.5}}, ["valid"], "EarlyStopping")
    0.5

    Raises:
        InputError: nothing of this name is evaluated.
    """
    name = require_set(metric, list(dict.fromkeys([*eval_results, *sets])), asked_by)
    if name not in eval_results:
        return None
    found = eval_results[name].get(metric[len(name) + 1 :])
    if found is None:
        raise _no_metric(metric, name, eval_results[name], asked_by)
    return float(found)


def _no_metric(metric: str, name: str, result: Mapping[str, float], asked_by: str) -> InputError:
    there = [f"{name}/{one}" for one in result]
    nearest = near(metric, there)
    return InputError(
        f"{asked_by} wants {metric!r}, which is not among the results of {name!r}",
        name=metric,
        asked_by=asked_by,
        nearest=nearest,
        cure=did_you_mean(nearest) or f"there is {', '.join(map(repr, there))}",
    )


@final
class Patience:
    """Counts how often in a row a number was no better than the best before; it knows nothing of training.

    >>> patience = Patience(2, mode="min")
    >>> [patience.is_over(value) for value in (.5, .6, .4, .4, .7)]
    [False, False, False, False, True]
    >>> patience.best, patience.waited
    (0.4, 2)

    nan is never better.

    Args:
        limit: over when so many numbers in a row were no better.
        mode: "min" where less is better, "max" where more is.
        min_delta: a number is better only where it is so by more than this.

    Attributes:
        best: the best number so far; None before the first.
        waited: numbers in a row that were no better.
    """

    def __init__(self, limit: int, mode: str, min_delta: float = 0.0) -> None:
        self.limit = limit
        self.mode = mode
        self.min_delta = min_delta
        self.best: float | None = None
        self.waited = 0

    def is_over(self, value: float) -> bool:
        """Take in one more number."""
        if self._is_better(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.limit

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return value == value  # all but nan
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta
