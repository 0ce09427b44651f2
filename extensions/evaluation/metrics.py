"""Metrics beside the loss: moving averages in training, means over all examples in an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import Tensor

from train_manager.core.decorators import fixture, modifies
from train_manager.core.extension import Extension
from train_manager.core.signature import with_parameters
from train_manager.loop.books import Book
from train_manager.metrics.averages import ExponentialMovingAverage, WeightedMeans, mean_of
from train_manager.metrics.history_rows import refuse_names_of_places
from train_manager.metrics.metric import metric_of
from train_manager.metrics.shelf import from_shelf
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.lines import write_line
from train_manager.reporting.tables import text_table
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

    There are ``"accuracy"`` and ``"f1"``, exact over a whole evaluation set. A function returns one number for the
    batch, or one for each example. It is called like a loss, with prediction and targets; or, if one of its required
    parameters is called ``prediction``, with the fixtures that its parameters name. An object of torchmetrics, or any
    object with ``update``, ``compute`` and ``reset``, is moved to the device of the prediction, and is reset around
    each training batch and each evaluation, of which it sees every batch.

    **A plain function is a mean over batches**, weighted by the true batch size. That is exact if the function is a
    mean over examples, as an accuracy or an error is, and wrong for an F1 score, an AUROC or a correlation: give
    ``"f1"``, a torchmetrics object, or ``whole(function)`` of ``train_manager.metrics``.

    In a training batch every value is a moving average over batches; at the end of an epoch it is the mean over the
    batches of the epoch.

    *Runs at:* the start and the end of ``train_step_batch`` and ``eval_step_epoch``, and the end of
    ``train_step_epoch``, ``eval_step_batch``, ``eval`` and ``train``.

    *Asks for:* ``loss``, ``true_batch_size``, ``train_result``, ``eval_result`` and ``eval_results``; for its metrics
    ``prediction`` and ``targets``, or the fixtures that they name.

    *Leaves behind:* the lazy fixture ``metrics`` of ``train_step_batch``, a dict of scalar tensors (the loss of the
    batch, ``moving_loss``, then the metrics; of several optimizers ``losses/critic`` and ``moving_losses/critic`` for
    each, not their sum), which are not read on the host; the metrics in ``eval_result``, after the loss; and their
    means over the epoch in ``train_result``, and so in ``tm.history``.

    Args:
        functions: metrics that are named after their functions; or ``"accuracy"`` and ``"f1"``.
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
        InputError: a metric is neither a function nor such an object, or its name is missing or taken.
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
        self._train = {name: metric_of(name, metric) for name, metric in by_name(both, by_name(train)).items()}
        self._eval = {name: metric_of(name, metric) for name, metric in by_name(both, by_name(eval)).items()}
        self.share = share
        self.table = table
        self.file = file
        self.epoch: dict[str, float] = {}
        self.eval_sets: dict[str, dict[str, float]] = {}
        self._is_pending = False  # whether the present batch is not in the averages yet
        self._of_epoch = Book(WeightedMeans)
        self.reset()
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
        self._losses: dict[str, Tensor] = {}  # of the last batch: its loss, or those of several optimizers
        self._means: dict[str, ExponentialMovingAverage] = {}

    def totals(self) -> dict[str, tuple[float, float]]:
        """Return the sum and the weight of each mean over the examples of the epoch; this waits for the device."""
        return self._of_epoch.latest.totals()

    # ---- hooks -----------------------------------------------------------------------------------------------------

    def pre_train_step_batch(self) -> None:
        self._is_pending = True

    @modifies("train_result")
    def post_train_step_epoch(
        self, train_result: Mapping[str, float], train_manager: TrainManager | None = None
    ) -> dict[str, float]:
        totals = self._of_epoch.of(train_manager).totals()
        self.epoch = {**train_result, **{name: mean_of(*of) for name, of in totals.items()}}
        return dict(self.epoch)

    def pre_eval_step_epoch(self) -> None:
        for metric in self._eval.values():
            metric.reset()

    @modifies("eval_result")
    def post_eval_step_epoch(self, eval_result: Mapping[str, float]) -> dict[str, float]:
        found = dict(eval_result)
        for metric in self._eval.values():
            found.update(metric.result())
            metric.reset()
        return found

    def post_eval(self, eval_results: Mapping[str, Mapping[str, float]]) -> None:
        self.eval_sets.update({name: dict(result) for name, result in eval_results.items()})

    def post_train(self) -> None:
        if self.table and (self.epoch or self.eval_sets):
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
        before = {} if state.get("loss") is None else {"loss": state["loss"]}  # in the form of older checkpoints
        self._losses, self.epoch = dict(state.get("losses", before)), dict(state["epoch"])
        self.eval_sets = {name: dict(result) for name, result in state["eval_sets"].items()}
        for name, saved in state["means"].items():
            self._means[name] = ExponentialMovingAverage(self.share)
            self._means[name].load_state_dict(saved)
        before = {"": state.get("of_epoch", {})}  # of a checkpoint of an earlier version
        self._of_epoch.load_state_dict(state.get("epochs", before))

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _train_on(self, values: Mapping[str, Any]) -> None:  # the hook post_train_step_batch: see __init__
        if not self._is_pending:  # a hook has read the fixture `metrics` before
            return
        self._is_pending = False
        of_epoch = self._of_epoch.of(values.get("train_manager"))
        several = getattr(values.get("train_manager"), "losses_by_optimizer", None)
        self._losses = {name: loss.detach() for name, loss in (several or {"loss": values["loss"]}).items()}
        with torch.no_grad():
            for name, loss in self._losses.items():
                self._append(f"moving_{name}", loss)
            for metric in self._train.values():
                for name, value in metric.of_batch(values).items():
                    self._append(name, value)
                    of_epoch.append(name, value, values["true_batch_size"])

    def _provide(self, values: Mapping[str, Any]) -> dict[str, Tensor]:  # the fixture metrics: see __init__
        self._train_on(values)
        return self._read() if self._losses else {}

    def _evaluate(self, values: Mapping[str, Any]) -> None:  # the hook post_eval_step_batch: see __init__
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
        metric = from_shelf(given) if isinstance(given, str) else given
        if name in found or name in ("loss", "moving_loss"):
            raise InputError(f"two metrics are called {name!r}", name=name, cure="give one of them another name")
        found[name] = metric
    refuse_names_of_places(found, "Metrics has a metric called {!r}".format, _renamed)
    return found


def _renamed(name: str) -> str:
    return f"give it another name: Metrics(my_{name}=...)"


def name_of(metric: Any) -> str:
    """Return the name of a function; of one on the shelf, the one that is given.

    Raises:
        InputError: it is a lambda or an object without a name.
    """
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "<lambda>")
    if isinstance(metric, type) or name == "<lambda>":
        what = f"a metric must have a name, but {metric!r:.60} has none"
        raise InputError(what, name="functions", cure="give it one: Metrics(accuracy=...)")
    return str(name)
