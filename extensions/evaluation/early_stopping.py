"""Early stopping: an end to the training if a metric gets no better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from train_manager.core.extension import Extension
from train_manager.core.showing import cut
from train_manager.metrics.monitor import Patience, is_at_start, metric_name, metric_value, mode_of, require_set
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class EarlyStopping(Extension):
    """Stop the training if a metric has not improved on its best value in several evaluations in a row.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(EarlyStopping("valid/loss", patience=2, min_delta=0.1), epochs=50)
    >>> result = tm.train()
    >>> tm.epoch_num, tm.stop_reason
    (3, "EarlyStopping: 'valid/loss' was no better than 0.6867 in 2 evaluations")

    Every evaluation counts, except that of the untrained model at the start (unless ``count_start`` is given), an
    evaluation that is a run of its own, and an evaluation from which a hook has left out the set. nan is never better.
    A stopped training can go on; it stops again at the next evaluation that is not better.

    *Runs at:* the start of ``train`` and the end of ``eval``.

    *Asks for:* ``eval_results``, ``standalone_eval``, ``epoch_num``, ``step_num`` and ``start_step``.

    *Leaves behind:* the manager's ``stop_reason``, and its attribute ``patience``.

    Args:
        monitor: the set and the metric, as ``"valid/loss"``.
        patience: the number of evaluations in a row without improvement after which the training stops.
        mode: "min" if less is better, "max" if more is better; None derives it from the metric's name.
        min_delta: an improvement must be larger than this.
        count_start: whether the evaluation before the first epoch counts.

    Attributes:
        patience: the counter, with the ``best`` value so far and the evaluations it has ``waited`` since.

    Raises:
        InputError: an argument is invalid, or the evaluation has no such metric.
    """

    def __init__(
        self,
        monitor: str = "valid/loss",
        *,
        patience: int = 5,
        mode: str | None = None,
        min_delta: float = 0.0,
        count_start: bool = False,
    ) -> None:
        self.monitor: str = metric_name(monitor, "EarlyStopping")
        limit = require_count(patience, "patience", at_least=1)
        better = mode_of(monitor, mode, "EarlyStopping")
        self.count_start = count_start
        self.patience: Patience = Patience(limit, better, require_number(min_delta, "min_delta", at_least=0))

    def pre_train(self, train_manager: TrainManager) -> None:
        require_set(self.monitor, train_manager.eval_data, "EarlyStopping")

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        standalone_eval: bool,
        epoch_num: int,
        step_num: int,
        start_step: int,
        train_manager: TrainManager,
    ) -> None:
        if standalone_eval:
            return
        value = metric_value(self.monitor, eval_results, train_manager.eval_data, "EarlyStopping")
        if value is None or (is_at_start(epoch_num, step_num, start_step) and not self.count_start):
            return
        if self.patience.is_over(value):
            best = "nan" if self.patience.best is None else f"{self.patience.best:.4g}"
            waited = f"in {self.patience.waited} evaluations"
            train_manager.stop(f"EarlyStopping: {self.monitor!r} was no better than {best} {waited}")

    def __repr__(self) -> str:
        limit, mode = self.patience.limit, self.patience.mode
        return cut(f"EarlyStopping({self.monitor!r}, patience={limit}, mode={mode!r})")

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, and the number of evaluations since."""
        return {**super().state_dict(), "best": self.patience.best, "waited": self.patience.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self.patience.best, self.patience.waited = state["best"], state["waited"]
