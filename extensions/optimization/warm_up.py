"""Warm-up: learning rates that begin small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from train_manager.core.decorators import always, priority, provides
from train_manager.core.errors import InputError
from train_manager.core.extension import Extension
from train_manager.model.optimizers import Rate, learning_rates, set_learning_rates
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class WarmUp(Extension):
    """Multiply the learning rates by a factor that grows from ``start`` to 1, in steps or in epochs.

    The rates are multiplied during the step of the optimizer only, and restored after it. So ``WarmUp`` works with
    every schedule, however that computes its rates: ``LRSchedule``, the manager's ``lr_schedule``, or your own. The
    schedule runs from the first step; the warm-up makes its first rates smaller.

    >>> from train_manager.testing import tiny_manager
    >>> factors = []
    >>> show = Extension.of(post_train_step_batch=lambda warm_up_factor: factors.append(round(warm_up_factor, 2)))
    >>> result = tiny_manager(WarmUp(steps=4, start=0.2), show, epochs=2).train()
    >>> factors
    [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]

    It counts with the manager's own counters, so a training that goes on does not warm up again.

    *Runs at:* the start of ``train_optimizer_step``, after other hooks (priority 100), and its end, before other hooks
    (priority -100).

    *Asks for:* ``update_num`` and ``epoch_num``; the optimizer.

    *Leaves behind:* ``warm_up_factor`` of ``train_step_batch``.

    Args:
        steps: the number of steps of the optimizer in which the factor grows; or
        epochs: the number of epochs; the factor is constant within an epoch.
        start: the first factor.

    Raises:
        InputError: not exactly one of ``steps`` and ``epochs`` is given, or an argument is out of its range.
    """

    def __init__(self, steps: int | None = None, *, epochs: int | None = None, start: float = 0.01) -> None:
        if (steps is None) == (epochs is None):
            what = f"WarmUp needs steps or epochs, but was given {'neither' if steps is None else 'both'}"
            raise InputError(what, name="steps", cure="give one of them: WarmUp(steps=500)")
        self.steps = None if steps is None else require_count(steps, "steps", at_least=1)
        self.epochs = None if epochs is None else require_count(epochs, "epochs", at_least=1)
        self.start = require_number(start, "start", at_least=0, at_most=1)
        self._before: tuple[Rate, ...] | None = None  # the schedule's rates, during the step of the optimizer

    @priority(100)  # last, to multiply the rates that other hooks have set
    @provides("warm_up_factor", stage="train_step_batch")
    def pre_train_optimizer_step(self, train_manager: TrainManager, update_num: int, epoch_num: int) -> float:
        factor = self.factor(update_num, epoch_num)
        if factor != 1:
            assert train_manager.optimizer is not None, "it is about to step"
            self._before = learning_rates(train_manager.optimizer)
            set_learning_rates(train_manager.optimizer, [rate * factor for rate in self._before])
        return factor

    @always  # also if the step fails: the next factor must not multiply a multiplied rate
    @priority(-100)  # first, so that other hooks find the rates of the schedule
    def post_train_optimizer_step(self, train_manager: TrainManager) -> None:
        before, self._before = self._before, None
        if before is not None and train_manager.optimizer is not None:
            set_learning_rates(train_manager.optimizer, before)

    def factor(self, update_num: int, epoch_num: int) -> float:
        """Return the factor after these numbers of steps and epochs."""
        if self.steps is not None:
            return factor_after(update_num, self.steps, self.start)
        assert self.epochs is not None, "one of the two is given"
        return factor_after(epoch_num, self.epochs, self.start)


def factor_after(done: int, length: int, start: float) -> float:
    """Return the factor after ``done`` of ``length`` steps, which grows linearly.

    >>> [factor_after(done, 4, start=0.5) for done in (0, 2, 4, 5)]
    [0.5, 0.75, 1.0, 1.0]
    """
    return 1.0 if done >= length else start + (1 - start) * done / length
