"""Step: the state of the batch that is trained on. The loop makes one for each batch, and lets go of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple, final

from torch import Tensor

from train_manager.core.extension import Extension
from train_manager.core.store import Store
from train_manager.loop.losses import Losses


class Backward(NamedTuple):
    """The last backward pass of an optimizer in a batch."""

    # The loss that train_batch has given; None if the batch steps on gradients of batches before it.
    loss: Tensor | None = None
    # Computes this loss anew; None if train_batch gave a tensor that is not the loss of forward().
    loss_again: Callable[[], Tensor] | None = None


NO_BACKWARD: Final = Backward()


@final
class Step:
    """Hold the losses of the batch that is trained on, and note the steps of its training that are done."""

    __slots__ = (  # no __dict__: a Step is made for each batch
        "asked_to_step",
        "backwards",
        "batch_num",
        "clipped_norm",
        "examples_here",
        "forward_loss",
        "is_counted",
        "is_own",
        "is_own_last",
        "is_skipped_by_all",
        "loss_after_hooks",
        "losses",
        "skip_is_decided",
    )

    def __init__(
        self,
        batch_num: int,
        examples_here: int | None = None,
        *,
        is_own: bool = False,
        is_own_last: bool = False,
        is_counted: bool = False,
    ) -> None:
        # From 1, in the epoch or among the batches that train_on_batch was given; 0 if there is no batch.
        self.batch_num = batch_num
        self.examples_here = examples_here  # how many examples this process has; None if it trains alone
        # Whether train_on_batch was given the batch, outside of an epoch; and its argument last_batch.
        self.is_own, self.is_own_last = is_own, is_own_last
        # is_counted turns True as step_num counts the batch: after that its post hooks run.
        # skip_is_decided turns True as the point of decision has looked at whether the batch is skipped.
        self.is_counted, self.skip_is_decided = is_counted, False
        self.is_skipped_by_all = False  # the point of decision has skipped the batch
        self.forward_loss: Tensor | None = None  # the loss that forward() has computed; None before it
        self.loss_after_hooks: Any = None  # the same loss as the hooks of train_loss_forward have left it
        self.clipped_norm: Tensor | None = None  # of gradients that a graph has clipped, from before
        self.losses = Losses()  # collects the loss terms by name
        # By optimizer: the backward pass of a window that is still open. If the batch fails, these windows are dropped.
        self.backwards: dict[str, Backward] = {}
        self.asked_to_step: set[str] = set()  # the optimizers that train_batch has called update or step for

    def for_probe(self) -> Step:
        """Return a new Step of the same batch, so that the forward pass of a probe adds no loss to this one."""
        return Step(self.batch_num, is_own=self.is_own, is_own_last=self.is_own_last, is_counted=self.is_counted)


class StateOfBatch(NamedTuple):
    """The objects that a stage of a batch may change, for ``Moment``."""

    own: Sequence[object]  # of the loop: their attributes change
    components: Iterable[object]  # the modules, their tensors and the optimizers, which change in place
    extensions: Sequence[Extension]  # with hooks in the stages inside a batch
    data: Sequence[object]  # never looked into: the batches that have been read stay read


@final
class StepClock:
    """How long the body of a step takes, without the time of hooks."""

    def __init__(self, store: Store) -> None:
        # store.hook_seconds grows over the whole run: the difference is the time of the hooks since now.
        self._store, self._began, self._in_hooks = store, perf_counter(), store.hook_seconds

    def seconds(self) -> float:
        """Return the seconds since the clock was made, less the time of hooks."""
        return perf_counter() - self._began - (self._store.hook_seconds - self._in_hooks)


NO_STEP: Final = Step(0, is_counted=True)
"""The Step between two batches, and while nothing is trained: so ``progress.step`` is never None."""
