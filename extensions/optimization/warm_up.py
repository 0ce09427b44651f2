"""Warm-up: learning rates that begin small."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from train_manager.core.declarations import always, priority
from train_manager.core.extension import Extension
from train_manager.core.stage import Stage
from train_manager.data.readable import length_of
from train_manager.model.optimizers import Rate, learning_rates, optimizer_of, set_learning_rates, step_hook
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
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

    It counts with the manager's own counters, so a training that resumes does not warm up again; the steps of one of
    several optimizers it counts itself.

    *Runs at:* the start of ``train_optimizer_step``, after other hooks (priority 100), and its end, before other hooks
    (priority -100); the start and the end of ``run``; the start of ``train_step_epoch``.

    *Asks for:* ``update_num``, or ``epoch_num``, ``batch_num`` and ``stage``; ``optimizer_name`` if it is alive; the
    optimizer.

    *Leaves behind:* ``warm_up_factor`` of ``train_step_batch``; with ``optimizer="critic"`` it is called
    ``warm_up_factor_critic``.

    Args:
        steps: the number of steps of the optimizer in which the factor grows; or
        epochs: the number of epochs in which the factor grows, a little with each batch; a phase counts its own epochs,
            so it warms up anew. The factor is constant within an epoch of unknown length: with data without ``len()``,
            with a warning, and in a loop of your own.
        start: the first factor.
        optimizer: the name of one of several optimizers.

    Raises:
        InputError: not exactly one of ``steps`` and ``epochs`` is given, or an argument is out of its range.
    """

    def __init__(
        self,
        steps: int | None = None,
        *,
        epochs: int | None = None,
        start: float = 0.01,
        optimizer: str | None = None,
    ) -> None:
        if (steps is None) == (epochs is None):
            what = f"WarmUp needs steps or epochs, but was given {'neither' if steps is None else 'both'}"
            raise InputError(what, name="steps", cure="give one of them: WarmUp(steps=500)")
        self.steps: int | None = None if steps is None else require_count(steps, "steps", at_least=1)
        self.epochs: int | None = None if epochs is None else require_count(epochs, "epochs", at_least=1)
        self.start: float = require_number(start, "start", at_least=0, at_most=1)
        self.optimizer = optimizer
        self._own_steps = 0  # steps of `optimizer`, which the manager does not count apart
        self._update_num = 0  # of the manager, as the present step of an optimizer began
        self._before: tuple[Optimizer, tuple[Rate, ...]] | None = None  # the schedule's rates, during that step
        asked = ["train_manager", *(["update_num"] if epochs is None else ["epoch_num", "batch_num", "stage"])]
        # Priority 100: after the hooks that set rates for the step, so that their rates are multiplied.
        self.pre_train_optimizer_step = step_hook("warm_up_factor", asked, self._multiply, 100, optimizer)

    def pre_run(self, train_manager: TrainManager, update_num: int) -> None:
        optimizer_of(train_manager, self.optimizer, "WarmUp")  # a wrong name is an error
        self._update_num = update_num

    def pre_train_step_epoch(self, train_manager: TrainManager, epoch_num: int) -> None:
        if self.waits_for_epoch(epoch_num) and length_of_epoch(train_manager) is None:
            what = "train_data has no len(), so the factor of WarmUp(epochs=...) is constant within an epoch"
            cure = "WarmUp(steps=...) grows with each step; or set steps_per_epoch"
            warnings.warn(f"{what}; {cure}", UserWarning, stacklevel=users_level())

    def _multiply(self, asked: Mapping[str, Any]) -> float:  # the hook pre_train_optimizer_step: see __init__
        self._restore()  # Ctrl-C may have ended the last run before its hooks restored the rates
        if self.steps is None:
            factor = self.factor(0, asked["epoch_num"] + epoch_fraction(**asked))
        else:
            factor = self.factor(asked["update_num"] if self.optimizer is None else self._own_steps, 0)
        if factor != 1:
            optimizer = optimizer_of(asked["train_manager"], self.optimizer, "WarmUp")
            assert optimizer is not None, "it is about to step"
            self._before = optimizer, learning_rates(optimizer)
            set_learning_rates(optimizer, [rate * factor for rate in self._before[1]])
        return factor

    @always  # even if the step fails: else the next factor would multiply a multiplied rate
    @priority(-100)  # first, so that other hooks find the rates of the schedule, such as LRSchedule, which steps here
    def post_train_optimizer_step(self, update_num: int, optimizer_name: str | None = None) -> None:
        self._restore()
        if self.optimizer == optimizer_name and update_num > self._update_num:
            self._own_steps += 1  # not if the step was skipped, which leaves update_num
        self._update_num = update_num  # every step moves it, also that of another optimizer

    @always
    def post_run(self) -> None:
        self._restore()

    def _restore(self) -> None:
        """Set the rates of the schedule again."""
        if self._before is not None:
            # Set first, forgotten afterwards: if Ctrl-C comes between, the next call sets them once more.
            set_learning_rates(*self._before)
            self._before = None

    def waits_for_epoch(self, epoch_num: int) -> bool:
        """Return whether the end of an epoch after this one will change the factor."""
        return self.epochs is not None and epoch_num < self.epochs

    def factor(self, update_num: int, epochs: float) -> float:
        """Return the factor after these numbers of steps and epochs."""
        if self.steps is not None:
            return factor_after(update_num, self.steps, self.start)
        assert self.epochs is not None, "one of the two is given"
        return factor_after(epochs, self.epochs, self.start)

    def state_dict(self) -> dict[str, Any]:
        """Return the steps of the optimizer, if it is one of several."""
        if self.optimizer is None:
            return super().state_dict()
        return {**super().state_dict(), "steps": self._own_steps, "update_num": self._update_num}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._own_steps = state.get("steps", 0)
        self._update_num = state.get("update_num", self._update_num)


def length_of_epoch(train_manager: TrainManager) -> int | None:
    """Return the number of batches of an epoch, or None if it is unknown."""
    return train_manager.steps_per_epoch or length_of(train_manager.train_data)


def epoch_fraction(train_manager: TrainManager, stage: Stage, batch_num: int, **_: Any) -> float:
    """Return the share of the epoch before the present batch; 0 if the length of the epoch is unknown."""
    length = length_of_epoch(train_manager) if "train_step_epoch" in stage.path else None
    return 0.0 if not length else min(1.0, (batch_num - 1) / length)


def factor_after(done: float, length: int, start: float) -> float:
    """Return the factor after ``done`` of ``length`` steps or epochs, which grows linearly.

    >>> [factor_after(done, 4, start=0.5) for done in (0, 2, 4, 5)]
    [0.5, 0.75, 1.0, 1.0]
    """
    return 1.0 if done >= length else start + (1 - start) * done / length
