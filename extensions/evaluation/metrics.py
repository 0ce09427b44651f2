"""Metrics beside the loss: moving averages in training, means over all examples in an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import Tensor

from train_manager.core.calls import with_parameters
from train_manager.core.declarations import fixture, modifies
from train_manager.core.extension import Extension
from train_manager.data.shares import ALONE, is_stand_in
from train_manager.loop.books import Book
from train_manager.loop.ranks import fold, ranks_of, sum_totals
from train_manager.metrics.averages import ExponentialMovingAverage, WeightedMeans, add_means, as_float, mean_of
from train_manager.metrics.history_rows import refuse_names_of_places
from train_manager.metrics.loss_terms import LossTerms
from train_manager.metrics.metric import Metric, ObjectMetric, metric_of
from train_manager.metrics.shelf import ClassMetric, from_shelf
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.lines import write_line
from train_manager.reporting.values import text_table
from train_manager.telling.errors import InputError
from train_manager.telling.showing import cut

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

Functions = Mapping[str, Any] | Iterable[Callable[..., Any] | str]


@recorded
class Metrics(Extension):
    """Measure the training and every evaluation with functions of prediction and targets, or with torchmetrics objects.

    >>> from train_manager.testing import tiny_manager
    >>> def distance(prediction, targets):
    ...     return (prediction.argmax(dim=1) - targets).abs()
    >>> tm = tiny_manager(Metrics("accuracy", "f1", distance), epochs=30)
    >>> result = tm.train()
    >>> round(tm.eval()["valid"]["f1"], 3)
    0.933

    There are ``"accuracy"`` and ``"f1"`` (macro: the mean over the classes; of two classes, the F1 of class 1), exact
    over a whole evaluation set, and ``"losses"``: each loss term under its own name. A function returns one number for
    the batch, or one for each example. It is called like a loss, with prediction and targets; or, if one of its
    required parameters is called ``prediction`` or it cannot be called with two arguments, with the fixtures that its
    parameters name. An object of torchmetrics, or any object with ``update``, ``compute`` and ``reset``, is moved to
    the device of the prediction, and is reset around each training batch and each evaluation, of which it sees every
    batch.

    **A plain function is a mean over batches**, weighted by the true batch size. That is exact if the function is a
    mean over examples, as an accuracy or an error is, and wrong for an F1 score, an AUROC or a correlation: give
    ``"f1"``, a torchmetrics object, or ``whole(function)`` of ``train_manager.metrics``.

    In a training batch every value is a moving average over batches; at the end of an epoch it is the mean over the
    batches of the epoch, and ``"accuracy"`` and ``"f1"`` are those of all its examples.

    A prediction with a single number for each example says class 1 if the number is above 0, or above 0.5 if ``loss``
    is ``nn.BCELoss`` or ``binary_cross_entropy``. With another loss than these and their forms with logits, there is a
    warning if all numbers of an evaluation after the start's lie between 0 and 1.

    Where several processes train together, an epoch and an evaluation are measured on the rows of all, each moving
    average on those of its process. Of objects, torchmetrics and ``whole(function)`` can measure the rows of all.

    *Runs at:* the start of ``run`` and ``phase``, the start and the end of ``train_step_batch`` and
    ``eval_step_epoch``, and the end of ``train_step_epoch``, ``eval_step_batch``, ``eval`` and ``train``.

    *Asks for:* ``loss``, ``true_batch_size``, ``train_result``, ``eval_result`` and ``eval_results``; for its metrics
    ``prediction`` and ``targets``, or the fixtures that they name.

    *Leaves behind:* the lazy fixture ``metrics`` of ``train_step_batch``, a dict of scalar tensors (the loss of the
    batch, ``moving_loss``, then the metrics; of several optimizers ``losses/critic`` and ``moving_losses/critic`` for
    each, not their sum), which are not read on the host; the metrics in ``eval_result``, after the loss; and their
    means over the epoch in ``train_result``, and so in ``tm.history``.

    Args:
        functions: metrics that are named after their functions; or ``"accuracy"``, ``"f1"`` and ``"losses"``.
        train: metrics of the training only, by name or as a list of functions.
        eval: metrics of the evaluations only.
        share: the weight of a new batch in a moving average, once it has seen many batches.
        table: whether to print the last numbers as a table at the end of the training.
        file: where to print; None is ``sys.stdout`` at that time.
        named: metrics by name, of training and evaluations.

    Attributes:
        training: the moving averages of the training, and its last loss; reading it waits for the device.
        epoch: the means over the examples of the last epoch, as the table has them.
        eval_sets: the last numbers of each evaluation set.
        train_metrics: the functions and objects of the training, by name.
        eval_metrics: the functions and objects of the evaluations, by name.

    Raises:
        InputError: a metric is neither a function nor such an object, or its name is missing or taken; in a run of
            several processes, an object would measure the rows of one; in the first batch of a set, the targets of
            ``"accuracy"`` or ``"f1"`` are several labels for each example, or numbers of a regression.
    """

    def __init__(
        self,
        *functions: Callable[..., Any] | str,
        train: Functions = (),
        eval: Functions = (),
        share: float = 0.01,
        table: bool = False,
        file: TextIO | None = None,
        **named: Any,
    ) -> None:
        both = by_name(functions, named)
        # Each metric is wrapped twice, because the wrapper of the evaluations accumulates batches.
        self._train = metrics_of(by_name(both, by_name(train)))
        self._eval = metrics_of(by_name(both, by_name(eval)))
        self.share = share
        self.table = table
        self.file = file
        self.epoch: dict[str, float] = {}  # of the last epoch that ended
        self.eval_sets: dict[str, dict[str, float]] = {}
        self._is_pending = False  # from the start of a training batch until it is in the averages
        self._of_epoch = Book(WeightedMeans, add=add_means)  # the means over the open epoch
        self.reset()
        # A metric names the fixtures that it needs, so the parameters of three hooks are known only here.
        parameters: list[Any] = [
            "loss",
            "true_batch_size",
            *(name for metric in self._train.values() for name in metric.parameters),
            Parameter("train_manager", Parameter.KEYWORD_ONLY, default=None),
        ]
        self.post_train_step_batch = with_parameters(parameters, self._train_on)
        self.metrics = fixture("train_step_batch")(with_parameters(parameters, self._provide))
        parameters = ["true_batch_size", *(name for metric in self._eval.values() for name in metric.parameters)]
        self.post_eval_step_batch = with_parameters(parameters, self._evaluate)

    @property
    def train_metrics(self) -> dict[str, Any]:
        return {name: metric.original for name, metric in self._train.items()}

    @property
    def eval_metrics(self) -> dict[str, Any]:
        return {name: metric.original for name, metric in self._eval.items()}

    @property
    def training(self) -> dict[str, float]:
        return {name: value.item() for name, value in self._read().items()} if self._losses else {}

    def reset(self) -> None:
        """Start the moving averages anew."""
        self._losses: dict[str, Tensor] = {}  # of the last batch: its loss, or one loss for each optimizer
        self._means: dict[str, ExponentialMovingAverage] = {}  # the moving average of each loss and metric, by name

    def totals(self) -> dict[str, tuple[float, float]]:
        """Return the sum and the weight of each mean over the examples of the epoch, and the counts of "accuracy" and
        "f1" with the number of batches; this waits for the device.
        """
        return self._of_epoch.latest.totals()

    # ---- hooks -----------------------------------------------------------------------------------------------------

    def pre_run(self, train_manager: TrainManager | None = None) -> None:
        ranks = ranks_of(train_manager)
        if ranks.place is not ALONE:
            for metric in self._eval.values():
                if isinstance(metric, ObjectMetric):
                    metric.join_by(ranks.gather)

    def pre_phase(self, train_manager: TrainManager) -> None:
        self.pre_run(train_manager)  # a phase may have brought the extension

    def pre_train_step_batch(self) -> None:
        self._is_pending = True

    @modifies("train_result")
    def post_train_step_epoch(
        self, train_result: Mapping[str, float], train_manager: TrainManager | None = None
    ) -> dict[str, float]:
        totals = self._of_epoch.of(train_manager).totals()
        if self._train:
            totals = sum_totals(ranks_of(train_manager), totals)
        # `train_result` already has the mean loss of the epoch, and what hooks before this one have added.
        self.epoch = {**train_result, **{name: self._value_of(name, *of) for name, of in totals.items()}}
        return dict(self.epoch)

    def _value_of(self, name: str, total: Any, weight: Any) -> float:
        metric = self._train.get(name)
        if isinstance(metric, ClassMetric) and isinstance(total, Tensor):
            return metric.score(as_float(total)).item()  # not a mean of the scores of batches, which an F1 score is not
        return mean_of(total, weight)  # type: ignore[no-any-return]

    def pre_eval_step_epoch(self) -> None:
        for metric in self._eval.values():
            metric.reset()

    @modifies("eval_result")
    def post_eval_step_epoch(
        self, eval_result: Mapping[str, float], train_manager: TrainManager | None = None
    ) -> dict[str, float]:
        found = dict(eval_result)
        fold(ranks_of(train_manager), self._eval)
        for metric in self._eval.values():
            if isinstance(metric, ClassMetric):
                metric.reader.tell(train_manager)
            found.update(metric.result())
            # Results are taken; an object that keeps all predictions frees them now, not at the next evaluation.
            metric.reset()
        return found

    def post_eval(self, eval_results: Mapping[str, Mapping[str, float]]) -> None:
        self.eval_sets.update({name: dict(result) for name, result in eval_results.items()})

    def post_train(self, train_manager: TrainManager | None = None) -> None:
        is_first = train_manager is None or not train_manager.ranks.place.rank  # all ranks have the same numbers
        if self.table and is_first and (self.epoch or self.eval_sets):
            write_line(self.text(), self.file)

    # ---- table and saved state -------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return a table with a row for each metric, and a column for the training and for each evaluation set."""
        columns = {"training": self.epoch} if self.epoch else {}
        return text_table({**columns, **self.eval_sets}, corner="metric")

    def __repr__(self) -> str:
        return cut(f"Metrics({', '.join({**self._train, **self._eval})})")

    def state_dict(self) -> dict[str, Any]:
        """Return the moving averages, the means of the open epoch, and the last numbers of each evaluation set."""
        means = {name: mean.state_dict() for name, mean in self._means.items()}
        sets = {name: dict(result) for name, result in self.eval_sets.items()}
        last = {"losses": dict(self._losses), "epoch": dict(self.epoch), "eval_sets": sets}
        return {**super().state_dict(), "means": means, "epochs": self._of_epoch.state_dict(), **last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self.reset()
        self._losses, self.epoch = dict(state["losses"]), dict(state["epoch"])
        self.eval_sets = {name: dict(result) for name, result in state["eval_sets"].items()}
        for name, saved in state["means"].items():
            self._means[name] = ExponentialMovingAverage(self.share)
            self._means[name].load_state_dict(saved)
        self._of_epoch.load_state_dict(state["epochs"])

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _train_on(self, values: Mapping[str, Any]) -> None:  # the hook post_train_step_batch: see __init__
        # The fixture `metrics` is lazy: a hook that has read it before this one has made it, with this batch in it.
        if not self._is_pending:
            return
        self._is_pending = False
        weight = values["true_batch_size"]
        counts = not is_stand_in(weight)
        if not counts and self._losses:  # without any, hooks that ask for `metrics` would find nothing
            return
        of_epoch = self._of_epoch.of(values.get("train_manager"))
        # With several optimizers `loss` is only the sum of their losses, so each of them has an average.
        several = getattr(values.get("train_manager"), "losses_by_optimizer", None)
        self._losses = {name: loss.detach() for name, loss in (several or {"loss": values["loss"]}).items()}
        # A metric that kept the graph of a prediction alive would keep its memory too.
        with torch.no_grad():
            for name, loss in self._losses.items():
                self._append(f"moving_{name}", loss)
            for metric in self._train.values():
                if isinstance(metric, ClassMetric) and metric.name not in of_epoch:
                    metric.reset()  # the first batch of the epoch: it shows what the targets are
                for name, value in metric.of_batch(values).items():
                    self._append(name, value)
                    if counts and isinstance(metric, ClassMetric):
                        of_epoch.append(name, metric.of_last, 1)
                    elif counts:
                        of_epoch.append(name, value, weight)

    def _provide(self, values: Mapping[str, Any]) -> dict[str, Tensor]:  # the fixture metrics: see __init__
        self._train_on(values)
        return self._read() if self._losses else {}

    def _evaluate(self, values: Mapping[str, Any]) -> None:  # the hook post_eval_step_batch: see __init__
        if not is_stand_in(values["true_batch_size"]):
            for metric in self._eval.values():
                metric.append(values, values["true_batch_size"])

    def _append(self, name: str, value: Tensor) -> None:
        if name not in self._means:
            self._means[name] = ExponentialMovingAverage(self.share)
        self._means[name].append(value)

    def _read(self) -> dict[str, Tensor]:
        means = {name: mean.value for name, mean in self._means.items() if mean.value is not None}
        return {**self._losses, **means}


def by_name(functions: Functions, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return metrics by name; a function in a list has its own name.

    Raises:
        InputError: a metric has no name, or the name is taken, by another one or by the history.
    """
    found: dict[str, Any] = {}
    pairs = functions.items() if isinstance(functions, Mapping) else ((name_of(metric), metric) for metric in functions)
    for name, given in [*pairs, *(more or {}).items()]:
        # "accuracy" and "f1" are made anew for each use, because they accumulate.
        metric = from_shelf(given) if isinstance(given, str) else given
        if name in found or name in ("loss", "moving_loss"):  # the fixture `metrics` has these two already
            raise InputError(f"two metrics are called {name!r}", name=name, cure="give one of them another name")
        found[name] = metric
    # A row of the history has columns such as "epoch" and "step", which no metric may overwrite.
    refuse_names_of_places(found, "Metrics has a metric called {!r}".format, _rename_cure)
    return found


def metrics_of(given: Mapping[str, Any]) -> dict[str, Metric]:
    """Return metrics by name; those of loss terms refuse a term that has the name of another metric."""
    return {
        name: metric.named(name)
        if isinstance(metric, ClassMetric)
        else LossTerms(frozenset(given) - {name})
        if isinstance(metric, LossTerms)
        else metric_of(name, metric)
        for name, metric in given.items()
    }


def _rename_cure(name: str) -> str:
    return f"give it another name: Metrics(my_{name}=...)"


def name_of(metric: Any) -> str:
    """Return the name of a function; of one on the shelf, the one that is given.

    Raises:
        InputError: it is a list, a lambda or an object without a name.
    """
    if isinstance(metric, list | tuple):
        each = (repr(one) if isinstance(one, str) else getattr(one, "__name__", "...") for one in metric)
        what = f"a metric must be a name or a function, but is a {type(metric).__name__}"
        raise InputError(what, name="functions", cure=f"give its entries: Metrics({', '.join(each)})")
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "<lambda>")
    if isinstance(metric, type) or name == "<lambda>":
        what = f"a metric must have a name, but {metric!r:.60} has none"
        raise InputError(what, name="functions", cure="give it one: Metrics(accuracy=...)")
    return str(name)
