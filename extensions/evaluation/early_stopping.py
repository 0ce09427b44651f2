"""Early stopping: an end to the training if a metric gets no better."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, final

from torch import nn

from train_manager.core.declarations import priority
from train_manager.core.extension import Extension
from train_manager.loop.arguments import modules_of_loss
from train_manager.loop.books import Book
from train_manager.loop.eval_at import NEVER
from train_manager.loop.saved_state import module_misfits, restore
from train_manager.metrics.monitor import (
    Monitor,
    Patience,
    is_at_start,
    metric_name,
    metric_value,
    mode_of,
    require_set,
)
from train_manager.model.per_object import name_of_part
from train_manager.rebuilding.recorded import recorded
from train_manager.runs.showing.ending import restored_text
from train_manager.telling.findings import Finding
from train_manager.telling.showing import cut
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class EarlyStopping(Extension):
    """Stop the training if a metric has not improved on its best value in several evaluations in a row.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(EarlyStopping("valid/loss", patience=2, min_delta=0.1), epochs=50)
    >>> result = tm.train()
    >>> tm.epoch_num, tm.stop_reason
    (3, "EarlyStopping: 'valid/loss' was no better than 0.6867 in 2 evaluations")

    Every evaluation counts, except that of the untrained model at the start (unless ``count_start`` is given), an
    evaluation that is a run of its own, and an evaluation from which a hook has left out the set. nan is never better.
    A stopped training can continue; it stops again at the next evaluation that is not better. A phase counts for
    itself, and leaves what is around it as it was. A training without an evaluation that counts is told in
    ``tm.findings``.

    The model is left with its last weights, ``patience`` evaluations after the best one; with ``restore_best``, with
    the weights of the best evaluation, however the training ends, except by an error. The best weights are put back as
    the run or the phase ends; ``result.metrics`` are then their metrics too, while an evaluation within the run is of
    the last weights. Optimizers, schedules and counters are not put back. The average of ``EMA``, if there is one, is.

    >>> tm = tiny_manager(EarlyStopping(patience=1, min_delta=0.1, restore_best=True), epochs=50)
    >>> result = tm.train()
    >>> tm.eval()["valid"]["loss"] == tm.history.by_epoch()[0]["valid loss"] == result.metrics["valid"]["loss"]
    True

    *Runs at:* the start of ``run`` and ``train``, the end of ``eval``, ``phase`` and ``run``.

    *Asks for:* ``eval_results``, ``standalone_eval``, ``epoch_num`` and ``step_num``.

    *Leaves behind:* the manager's ``stop_reason``, a finding if no evaluation counts, and its attribute
    ``patience``; with ``restore_best`` the best weights in the model, and a copy of these weights.

    Args:
        monitor: the set and the metric, as ``"valid/accuracy"``; None takes the loss of the first evaluation set.
        patience: the number of evaluations in a row without improvement after which the training stops.
        mode: "min" if less is better, "max" if more is better; None derives it from the metric's name.
        min_delta: an improvement must be larger than this.
        count_start: whether the evaluation before the first epoch counts.
        restore_best: whether to restore the weights and buffers of the best evaluation at the end. Each evaluation that
            is better than all before copies the model.

    Attributes:
        patience: the counter of the last evaluation, with the ``best`` value so far and the evaluations it has
            ``waited`` since. Each phase has a counter, and the training outside of phases has one.

    Raises:
        InputError: an argument is invalid, or the evaluation has no such metric.
    """

    def __init__(
        self,
        monitor: str | None = None,
        *,
        patience: int = 5,
        mode: str | None = None,
        min_delta: float = 0.0,
        count_start: bool = False,
        restore_best: bool = False,
    ) -> None:
        self.monitor: str | None = None if monitor is None else metric_name(monitor, "EarlyStopping")
        # Arguments are checked here and handed to each Found: a phase that begins later makes its counter from them.
        limit = require_count(patience, "patience", at_least=1)
        better = mode_of(monitor or "valid/loss", mode, "EarlyStopping")
        self.count_start = count_start
        least = require_number(min_delta, "min_delta", at_least=0)
        self.restore_best: bool = restore_best
        self.best_by = Monitor(self.monitor, better, "EarlyStopping", keeps=2 if restore_best else 0)
        # One Found for each phase, one for the rest.
        self._found = Book(partial(Found, limit, better, least), per="phase")

    @property
    def patience(self) -> Patience:
        return self._found.latest.patience

    def pre_run(self, train_manager: TrainManager) -> None:
        # Only a training call of this run may have its weights replaced as the run ends. The flag may still be set if
        # an error has ended the last run before its weights were put back.
        self._found.of(train_manager).is_trained = False

    def pre_train(self, train_manager: TrainManager) -> None:
        # A wrong name of the monitored set is an error before the first epoch, not at the first evaluation.
        require_set(self._metric(train_manager), train_manager.eval_data, "EarlyStopping", train_manager.optimizers)
        found = self._found.of(train_manager)
        found.is_trained = True
        was_loaded, found.is_loaded = found.is_loaded, False
        # The loaded checkpoint was written where the patience was over: a program that is started again must stop there
        # too, and not train on until the next evaluation.
        if was_loaded and found.over_at == train_manager.step_num and found.patience.waited >= found.patience.limit:
            self._stop(train_manager)

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        standalone_eval: bool,
        epoch_num: int,
        step_num: int,
        train_manager: TrainManager,
    ) -> None:
        if standalone_eval:
            return
        value = metric_value(self._metric(train_manager), eval_results, train_manager.eval_data, "EarlyStopping")
        # None: a hook has left the set out of this evaluation.
        if value is None or (is_at_start(epoch_num, step_num, train_manager.first_step) and not self.count_start):
            return
        found = self._found.of(train_manager)
        is_over = found.patience.is_over(value)
        # `is_over` has counted the value: it is a new best one if nothing was waited since.
        if self.restore_best and found.patience.waited == 0 and found.patience.best == value:
            found.best = BestWeights(train_manager, eval_results)
        if is_over:
            found.over_at = step_num  # the place where a training that resumes from here stops again
            self._stop(train_manager)

    def _metric(self, train_manager: TrainManager) -> str:
        return self.monitor or f"{next(iter(train_manager.eval_data), 'valid')}/loss"

    def _stop(self, train_manager: TrainManager) -> None:
        found = self._found.of(train_manager)
        best = "nan" if found.patience.best is None else f"{found.patience.best:.4g}"
        waited = f"in {found.patience.waited} evaluations"
        end = "" if found.best is None else restored_text(found.best.step_num)
        reason = f"EarlyStopping: {self._metric(train_manager)!r} was no better than {best} {waited}{end}"
        train_manager.stop(reason)

    @priority(-10)  # before the hooks that save the model, which must find the best weights
    def post_phase(self, train_manager: TrainManager) -> None:
        self._put_back(train_manager)

    @priority(-10)  # the same, for the weights that were found outside of phases
    def post_run(self, train_manager: TrainManager) -> None:
        self._put_back(train_manager)
        # Not after a part of an epoch, if evaluations are to come.
        is_long = train_manager._progress.run.has_ended_epoch or train_manager.eval_at == NEVER
        found = self._found.of(train_manager)
        if found.is_trained and found.patience.best is None and not found.patience.waited and is_long:
            metric = repr(self._metric(train_manager))
            what = f"EarlyStopping saw no evaluation of {metric} after the start, so it could not stop the training"
            cure = 'let the training evaluate: eval_at=("start", "epoch")'
            train_manager.add_finding(Finding("early stopping", "warning", what, cure=cure, code="no-evaluation"))

    def _put_back(self, train_manager: TrainManager) -> None:
        """Put the best weights back, if the model was trained since they were found."""
        found = self._found.of(train_manager)
        # In a run without training (an evaluation, say) the weights in the model are those that the user has put there.
        if found.best is not None and found.is_trained and found.best.put_back(train_manager):
            found.is_trained = False
            run = train_manager._progress.run
            run.restored_at = found.best.step_num
            run.keep_results(found.best.results, found.best.step_num)

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Forget the best weights, if they do not fit any more: a layer has grown."""
        for found in self._found.values() if any(old.shape != new.shape for old, new in replaced.items()) else ():
            found.best = None

    def __repr__(self) -> str:
        limit, mode = self.patience.limit, self.patience.mode
        restores = ", restore_best=True" if self.restore_best else ""
        return cut(f"EarlyStopping({self.monitor!r}, patience={limit}, mode={mode!r}{restores})")

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, the number of evaluations since, and with ``restore_best`` the best weights."""
        monitored = {"monitor": self.monitor, "mode": self.patience.mode}
        return {**super().state_dict(), "found": self._found.state_dict(), **monitored}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, unless it was found with another monitor or mode."""
        super().load_state_dict(state)
        here = self.monitor, self.patience.mode
        if here == (state["monitor"], state["mode"]):
            self._found.load_state_dict(state["found"])


@final
class Found:
    """Keep the findings of the evaluations of one phase, or of all evaluations outside of phases."""

    def __init__(self, limit: int, mode: str, min_delta: float) -> None:
        self.patience = Patience(limit, mode, min_delta)
        self.best: BestWeights | None = None  # with `restore_best`, from the first evaluation on
        self.is_trained = False  # from the start of a training call until the best weights are put back
        self.is_loaded = False  # from a checkpoint, until the next training call begins
        self.over_at: int | None = None  # the step of the evaluation at which the patience was over

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, the number of evaluations since, and the best weights."""
        state: dict[str, Any] = {"best": self.patience.best, "waited": self.patience.waited}
        if self.over_at is not None:
            state["over_at"] = self.over_at
        if self.best is not None:
            kept = self.best
            state |= {"weights": kept.modules, "averages": kept.averages, "best_step": kept.step_num}
            state |= {"model": kept.name, "is_trained": self.is_trained, "results": kept.results}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.patience.best, self.patience.waited = state["best"], state["waited"]
        self.over_at, self.is_loaded = state.get("over_at"), True
        self.best = BestWeights.from_state(state) if "weights" in state else None
        self.is_trained = state.get("is_trained", False)


@final
class BestWeights:
    """A copy of the weights and buffers of a model and its loss, and of the averages of extensions such as ``EMA``."""

    def __init__(self, train_manager: TrainManager, results: Mapping[str, Mapping[str, float]]) -> None:
        # The metrics of the evaluation that found these weights.
        self.results = {name: dict(result) for name, result in results.items()}
        self.step_num = train_manager.step_num  # the number of batches that the weights were trained on
        self.model: nn.Module | None = train_manager.model  # the model that is copied; None if loaded from a checkpoint
        # Its name in checkpoints, which says which phase has brought it.
        self.name = name_of_part(train_manager, "model")
        # deepcopy, because state_dict() returns the tensors themselves, which the next step changes.
        self.modules = [copy.deepcopy(module.state_dict()) for module in _modules(train_manager)]
        self.averages = {name: copy.deepcopy(one.state_dict()) for name, one in _averaging(train_manager).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BestWeights:
        best = cls.__new__(cls)  # without __init__, which would copy a model
        best.step_num, best.name, best.results = state["best_step"], state["model"], state["results"]
        best.model, best.modules, best.averages = None, list(state["weights"]), dict(state["averages"])
        return best

    def put_back(self, train_manager: TrainManager) -> bool:
        """Put the weights and averages back; if the present model is another one, do nothing and return False."""
        # A model is known by identity. After a resume there is another object: then by its name in checkpoints.
        is_loaded = self.model is None
        if name_of_part(train_manager, "model") != self.name if is_loaded else train_manager.model is not self.model:
            return False
        pairs = list(zip(_modules(train_manager), self.modules, strict=True))
        # Checked for all modules before any is changed: a head may have been exchanged since.
        if any(misfit for module, state in pairs for misfit in module_misfits("", module, state)):
            return False
        for module, state in pairs:
            restore(module, state)
        averaging = _averaging(train_manager)
        for name in averaging.keys() & self.averages.keys():
            averaging[name].load_state_dict(self.averages[name])
        return True


def _modules(train_manager: TrainManager) -> list[nn.Module]:
    """Return the model and the modules of its loss, which may have weights of their own."""
    found = (train_manager.model, *modules_of_loss(train_manager.loss))
    return [module for module in found if isinstance(module, nn.Module)]


def _averaging(train_manager: TrainManager) -> dict[str, Extension]:
    """Return the extensions that evaluate other weights than the trained ones; they have a method ``applied``."""
    extensions = train_manager.extensions.items()
    return {name: extension for name, extension in extensions if callable(getattr(extension, "applied", None))}
