"""Learning rates that a scheduler of torch sets: per epoch, per step, or by a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch.optim import Optimizer

from train_manager.checkpoints.fit import Difference, Left
from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.loop.books import Book
from train_manager.loop.optimizers import find_rates_below_zero
from train_manager.loop.schedulers import (
    Schedulers,
    Taker,
    counts_steps,
    make_scheduler,
    needs_metric,
    require_scheduler_factory,
)
from train_manager.metrics.monitor import is_at_start, metric_name, metric_value, require_set
from train_manager.model.optimizers import (
    Rate,
    learning_rates,
    optimizer_of,
    optimizers_of,
    step_hook,
)
from train_manager.model.per_object import name_of_part
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_one_of

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

TAKER: Final = Taker("LRSchedule", "make", "LRSchedule({})")


@recorded
class LRSchedule(Extension):
    """Step a scheduler of torch after each epoch, after each step of the optimizer, or with a metric.

    >>> from torch.optim.lr_scheduler import ExponentialLR
    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> schedule = LRSchedule(lambda optimizer: ExponentialLR(optimizer, gamma=0.5))
    >>> rates = []
    >>> note = Extension.of(post_train_step_batch=lambda learning_rates: rates.append(learning_rates))
    >>> result = tiny_manager(schedule, note, epochs=2).train()
    >>> rates
    [(0.5,), (0.5,), (0.5,), (0.25,), (0.25,), (0.25,)]

    With a metric, for ``ReduceLROnPlateau``, it steps after each evaluation, except that of the untrained model at the
    start (unless ``count_start`` is given), an evaluation that is a run of its own, and an evaluation from which a hook
    has left out the set.

    A scheduler of timm is told how many epochs are done, ``step(n)``, or with ``per="step"`` how many updates,
    ``step_update(n)``.

    The scheduler begins when the first run opens, and continues from run to run. If a phase of the training swaps the
    optimizer, and swaps it back, its scheduler continues. With a metric, a phase has a scheduler of its own, because
    its evaluations belong to another training; the rates that it has reached stay. To begin with small rates, add
    ``WarmUp``.

    *Runs at:* the start of ``run``, ``train`` and ``train_step_batch``, the start and the end of ``train_step_epoch``
    and ``train_optimizer_step`` (its start after other hooks, priority 1000), and the end of ``eval``.

    *Asks for:* ``epoch_num``, ``step_num``, ``update_num``, ``eval_results`` and ``standalone_eval``;
    ``optimizer_name`` if it is alive; the optimizer.

    *Leaves behind:* ``learning_rates`` of ``train_step_batch``: the learning rate of each parameter group, with the
    factor of ``WarmUp``; with ``optimizer="critic"`` it is called ``learning_rates_critic``. It is not defined for a
    batch after which the optimizer does not step.

    Args:
        make: returns a scheduler for an optimizer.
        per: "epoch" (the default) or "step", which is a step of the optimizer.
        monitor: the set and the metric, as ``"valid/loss"``, in place of ``per``.
        optimizer: the name of one of several optimizers.
        count_start: whether it steps with the evaluation before the first epoch.

    Attributes:
        scheduler: the scheduler of torch; None before the first run.

    Raises:
        InputError: an argument is invalid, or does not fit the scheduler.
    """

    def __init__(
        self,
        make: Callable[[Optimizer], Any],
        *,
        per: str | None = None,
        monitor: str | None = None,
        optimizer: str | None = None,
        count_start: bool = False,
    ) -> None:
        require_scheduler_factory(make, TAKER)
        if monitor is not None and per is not None:
            what = f"LRSchedule takes per or monitor, but was given per={per!r} and monitor={monitor!r}"
            raise _invalid(what, "per", "leave out one of them")
        self.make = make
        self.monitor: str | None = None if monitor is None else metric_name(monitor, "LRSchedule")
        self.per: str = (
            "evaluation" if monitor is not None else require_one_of(per or "epoch", "per", ("epoch", "step"))
        )
        self.optimizer = optimizer
        self.count_start = count_start
        self._done = 0  # epochs, or steps of the optimizer, that were done when the present one began
        # With a metric each phase has Schedulers of its own, else one object serves the whole training.
        make_schedulers = partial(Schedulers, self._new_scheduler, per=self.per)
        self._schedulers = Book(make_schedulers, per="manager" if monitor is None else "phase")
        # Priority 1000: last, as what WarmUp and other hooks set for the step counts.
        self.pre_train_optimizer_step = step_hook(
            "learning_rates", ["train_manager"], self._rates, 1000, optimizer, in_graph=_changes_nothing
        )

    @property
    def scheduler(self) -> Any:
        return self._schedulers.latest.scheduler

    def _rates(self, asked: Mapping[str, Any]) -> tuple[Rate, ...]:  # the hook pre_train_optimizer_step: see __init__
        train_manager = asked["train_manager"]
        optimizer = optimizer_of(train_manager, self.optimizer, "LRSchedule")
        assert optimizer is not None, "it is about to step"
        rates = learning_rates(optimizer)
        if any(rate.__class__ is float and rate < 0 for rate in rates):  # not a tensor, which would wait for the device
            train_manager.add_finding(*find_rates_below_zero({self.optimizer or "optimizer": optimizer}))
        return rates

    # ---- stepping --------------------------------------------------------------------------------------------------

    def pre_run(self, train_manager: TrainManager) -> None:
        self._begin(train_manager)

    def pre_train(self, train_manager: TrainManager) -> None:
        if self.monitor is not None:
            require_set(self.monitor, train_manager.eval_data, "LRSchedule", train_manager.optimizers)

    def pre_train_step_epoch(self, epoch_num: int) -> None:
        if self.per == "epoch":
            self._done = epoch_num

    @always  # the epoch is done, even if another hook of its end fails
    def post_train_step_epoch(self, epoch_num: int, train_manager: TrainManager | None = None) -> None:
        if self.per == "epoch" and epoch_num > self._done:
            self._schedulers.of(train_manager).step()

    def pre_train_step_batch(self, train_manager: TrainManager, update_num: int) -> None:
        self._begin(train_manager)  # here too: the extension may join an open run, or the optimizer be swapped
        if self.per == "step":
            self._done = update_num

    @always  # the optimizer has stepped, even if a hook after it fails or skips the batch
    def post_train_optimizer_step(
        self, update_num: int, optimizer_name: str | None = None, train_manager: TrainManager | None = None
    ) -> None:
        if self.per == "step":
            if update_num > self._done and self.optimizer in (None, optimizer_name):
                self._schedulers.of(train_manager).step()
            self._done = update_num  # every step moves update_num, also that of another optimizer

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        standalone_eval: bool,
        epoch_num: int,
        step_num: int,
        train_manager: TrainManager,
    ) -> None:
        if self.monitor is None or standalone_eval:
            return
        value = metric_value(self.monitor, eval_results, train_manager.eval_data, "LRSchedule")
        if value is not None and (self.count_start or not is_at_start(epoch_num, step_num, train_manager.first_step)):
            self._begin(train_manager)
            self._schedulers.of(train_manager).step(value)

    # ---- the scheduler ---------------------------------------------------------------------------------------------

    def _begin(self, train_manager: TrainManager) -> None:
        """Let the optimizer that is trained now have a scheduler."""
        schedulers = self._schedulers.of(train_manager)
        is_known = self.optimizer is None or self.optimizer in optimizers_of(train_manager)
        schedulers.is_idle = not is_known and any(met.scheduler is not None for met in self._schedulers.values())
        # In a phase without this optimizer the name is not an error: the scheduler waits until the phase ends.
        if schedulers.is_idle:
            return
        optimizer = optimizer_of(train_manager, self.optimizer, "LRSchedule")
        # None: a run that only evaluates has made none.
        if optimizer is not None and not schedulers.uses(optimizer):
            is_met = any(met is not schedulers and met.has(optimizer) for met in self._schedulers.values())
            schedulers.use(optimizer, name_of_part(train_manager, "optimizer"), keeps_rates=is_met)

    def waits_for_epoch(self, epoch_num: int) -> bool:
        """Return whether the end of an epoch after this one will change the rates."""
        return self.per == "epoch"

    def _new_scheduler(self, optimizer: Optimizer) -> Any:
        cure = None if self.monitor is not None else 'name it: monitor="valid/loss"'
        scheduler = make_scheduler(self.make, optimizer, TAKER, with_metric=cure)
        if counts_steps(scheduler):
            _require_what_it_counts(scheduler, self.per)
        elif self.monitor is not None and not needs_metric(scheduler):
            what = f"LRSchedule: {type(scheduler).__name__} takes no metric, but {self.monitor!r} is named"
            raise _invalid(what, "monitor", 'give per="epoch" or per="step" instead')
        return scheduler

    # ---- saved state -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each scheduler and the rates that it has set, by the names of the optimizers."""
        met = self._schedulers.state_dict()
        return super().state_dict() | ({"met": met} if met else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned and the rates; the state of an optimizer waits until it is there."""
        super().load_state_dict(state)
        self._schedulers.load_state_dict(state.get("met", {}))

    def compared_with(self, state: Mapping[str, Any], *, left: Left) -> Iterator[str | Difference]:
        """Yield why a saved state does not fit the schedulers that are here, and which options differ.

        Args:
            state: what ``state_dict`` returned.
            left: how much is left to train.
        """
        left = Left() if self.per == "evaluation" else left
        for schedulers in self._schedulers.values():
            for saved in state.get("met", {}).values():
                yield from schedulers.compared_with(saved, left, self.per)


def _require_what_it_counts(scheduler: Any, per: str) -> None:
    """Refuse a scheduler of timm that counts epochs if it would be told of updates, and the other way."""
    counts = "epoch" if getattr(scheduler, "t_in_epochs", per != "step") else "step"
    if (per == "step") != (counts == "step"):
        name, units = type(scheduler).__name__, {"epoch": "epochs", "step": "updates"}[counts]
        what = f"LRSchedule was given per={per!r}, but this {name} counts {units}"
        raise _invalid(what, "per", f"LRSchedule(make, per={counts!r})")


def _changes_nothing() -> None:
    """Say that the rates may be read after the step."""


def _invalid(what: str, name: str, cure: str) -> InputError:
    return InputError(what, name=name, asked_by="LRSchedule", cure=cure)
