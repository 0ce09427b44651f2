"""An epoch that is open, the part of it that the present call trains, and how that ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import Any, final

from train_manager.loop.books import Lifetime
from train_manager.metrics.averages import mean_of
from train_manager.metrics.deferred import NO_TOTALS, FiniteLosses, Totals, add_totals
from train_manager.metrics.history_rows import PART


@final
@dataclass
class EpochPart:
    """What one opening of the epoch's stage trains; or, outside of epochs, what a run trains by ``train_on_batch``.

    Attributes:
        is_last: no epoch of the call comes after it.
        end_requested: ``end_epoch`` was called.
        data_has_ended: the point of decision has ended the epoch's data during a batch.
    """

    is_last: bool = False
    end_requested: bool = False
    data_has_ended: bool = False


@final
@dataclass
class OpenEpoch:
    """What an epoch has come to so far; it goes on in the next training call if this one leaves it unfinished.

    Attributes:
        lifetime: what the values of a ``Book`` belong to that extensions measure over this epoch.
        total: the sum of its losses, by examples, before the present part.
        examples: how many examples these were.
        seconds: how long they took.
        begun: the same sum and number of a part that a checkpoint was written in, until it goes on.
        is_left: a part of it was begun before the present one.
        by_optimizer: the sums and the numbers of the losses of each of several optimizers, which have no loss together.
        begun_by_optimizer: the same of the part that a checkpoint was written in.
    """

    lifetime: Lifetime = field(default_factory=Lifetime)
    total: float = 0.0
    examples: float = 0.0
    seconds: float = 0.0
    begun: tuple[float, float] = 0.0, 0.0
    is_left: bool = False
    by_optimizer: dict[str, Totals] = field(default_factory=dict)
    begun_by_optimizer: dict[str, Totals] = field(default_factory=dict)

    def add(
        self, total: float, examples: float, seconds: float, by_optimizer: Mapping[str, Totals] = NO_TOTALS
    ) -> None:
        """Add the totals of a part of the epoch, and how long it took."""
        self.by_optimizer = dict(self.by_optimizer)  # a copy of this object has the same dict
        add_totals(self.by_optimizer, by_optimizer)
        self.total += total
        self.examples += examples
        self.seconds += seconds

    def losses_of_part(self, number: int) -> FiniteLosses:
        """Return what keeps the losses of a part that begins, or goes on after a checkpoint.

        Args:
            number: that of the epoch, from 1, for errors.
        """
        begun, self.begun = self.begun, (0.0, 0.0)
        by_optimizer, self.begun_by_optimizer = self.begun_by_optimizer, {}
        return FiniteLosses(number, *begun, by_optimizer)

    def state_dict(self, losses: FiniteLosses, *, is_open: bool) -> dict[str, Any]:
        """Return what the epoch has come to, with the losses of its present part apart, for these are added last.

        Args:
            losses: since the part began, if its stage is open.
            is_open: whether it is.
        """
        checked = losses.totals()
        part = list(checked if is_open else self.begun)
        by_optimizer = self.by_optimizer, losses.by_optimizer if is_open else self.begun_by_optimizer
        several = {"by_optimizer": [lists_of(totals) for totals in by_optimizer]} if any(by_optimizer) else {}
        return {"total": self.total, "examples": self.examples, "seconds": self.seconds, "part": part, **several}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned, or from nothing."""
        self.total, self.examples = state.get("total", 0.0), state.get("examples", 0.0)
        self.seconds = state.get("seconds", 0.0)
        self.begun = tuple(state.get("part", (0.0, 0.0)))
        self.is_left = bool(state)
        self.by_optimizer, self.begun_by_optimizer = map(totals_of, state.get("by_optimizer", ({}, {})))

    def totals(self) -> tuple[float, float]:
        """Return the sum of its losses, by examples, and the number of examples, before the present part."""
        return self.total, self.examples

    def figures(self) -> dict[str, float]:
        """Return the mean loss over examples, if a batch had one, or those of several optimizers."""
        loss = {"loss": mean_of(*self.totals())} if self.examples else {}
        return loss | {f"{PART}{name}": mean_of(*totals) for name, totals in self.by_optimizer.items()}


def lists_of(totals: Mapping[str, Totals]) -> dict[str, list[float]]:
    """Return totals as a checkpoint has them."""
    return {name: list(pair) for name, pair in totals.items()}


def totals_of(lists: Mapping[str, Sequence[float]]) -> dict[str, Totals]:
    """Return the totals of a checkpoint."""
    return {name: (total, weight) for name, (total, weight) in lists.items()}


@final
class OwnEpoch:
    """The epoch of a loop of the program's own: the batches that ``train_on_batch`` was given since the last end.

    Attributes:
        epoch: what it has come to so far.
        losses: of its batches, looked at together.
        batches: how many there were.
    """

    def __init__(self, key: str, number: int) -> None:
        self.epoch = OpenEpoch(Lifetime(key))
        self.losses = FiniteLosses(number)
        self.batches = 0
        self._began = perf_counter()

    def ended(self) -> OpenEpoch:
        """Return what it has come to.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        self.epoch.add(*self.losses.totals(), perf_counter() - self._began, self.losses.by_optimizer)
        return self.epoch

    def state_dict(self) -> dict[str, Any]:
        """Return what it has come to so far.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        seconds = self.epoch.seconds + perf_counter() - self._began
        return {**self.epoch.state_dict(self.losses, is_open=True), "seconds": seconds, "batches": self.batches}

    def load_state_dict(self, state: Mapping[str, Any], number: int) -> None:
        """Go on from what ``state_dict`` returned, in the epoch of this number."""
        self.epoch.load_state_dict(state)
        self.losses, self.batches = self.epoch.losses_of_part(number), state["batches"]


@final
class EpochEnd(Enum):
    """How the batches of an epoch end in a training call."""

    COMPLETE = "the data has ended, or a hook has ended the epoch"
    STOPPED = "a hook or a signal ends the training"
    PAUSED = "the steps that were asked for are done; the next call goes on with the epoch"
