"""Step: one batch that is trained on, and what is done with it; made with the batch, and dies with it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, NamedTuple, final

from torch import Tensor

from train_manager.core.store import Store
from train_manager.loop.losses import Losses
from train_manager.loop.own_losses import OwnLosses


class Backward(NamedTuple):
    """The last backward pass of an optimizer in a batch.

    Attributes:
        loss: what ``train_batch`` has given; None if the batch steps on gradients of batches before it.
        loss_again: computes it anew; None if it was given as a tensor of its own.
    """

    loss: Tensor | None = None
    loss_again: Callable[[], Tensor] | None = None


NO_BACKWARD: Final = Backward()


@final
class Step:
    """What the loop knows of the batch that it trains on; with it go the losses and their graphs.

    Attributes:
        batch_num: its number in the epoch, or of those that ``train_on_batch`` was given, from 1; 0 if there is none.
        is_own: ``train_on_batch`` was given it, outside of an epoch.
        is_own_last: what ``train_on_batch`` was told of it.
        is_counted: it was trained on, and what follows are its post hooks.
        skip_is_decided: the point of decision has looked at whether it is skipped.
        forward_loss: the loss of its forward pass; None before that.
        hooked_loss: the same as hooks left it.
        losses: collects the losses by name.
        own: what ``train_batch`` has added beside its forward pass, and updated with; None if it did neither.
        backwards: of the optimizers that it has run a backward for, or begun to step, and whose windows are open.
        asked_to_step: the names of the optimizers that it was asked to step.
    """

    __slots__ = (
        "asked_to_step",
        "backwards",
        "batch_num",
        "forward_loss",
        "hooked_loss",
        "is_counted",
        "is_own",
        "is_own_last",
        "losses",
        "own",
        "skip_is_decided",
    )

    def __init__(
        self, batch_num: int, *, is_own: bool = False, is_own_last: bool = False, is_counted: bool = False
    ) -> None:
        self.batch_num = batch_num
        self.is_own, self.is_own_last = is_own, is_own_last
        self.is_counted, self.skip_is_decided = is_counted, False
        self.forward_loss: Tensor | None = None
        self.hooked_loss: Any = None
        self.losses = Losses()
        self.own: OwnLosses | None = None
        self.backwards: dict[str, Backward] = {}
        self.asked_to_step: set[str] = set()

    def for_probe(self) -> Step:
        """Return one of the same batch, for a forward pass that leaves nothing in this one."""
        return Step(self.batch_num, is_own=self.is_own, is_own_last=self.is_own_last, is_counted=self.is_counted)


@final
class StepClock:
    """How long the body of a step takes, without the time of hooks."""

    def __init__(self, store: Store) -> None:
        self._store, self._began, self._in_hooks = store, perf_counter(), store.hook_seconds

    def seconds(self) -> float:
        """Return the seconds since it was made."""
        return perf_counter() - self._began - (self._store.hook_seconds - self._in_hooks)


NO_STEP: Final = Step(0, is_counted=True)
"""Between two batches, and while nothing is trained."""
