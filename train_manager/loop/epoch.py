"""An epoch that is open, the part of the epoch that the present training call trains, and how this part ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import Any, final

from train_manager.loop.books import Lifetime
from train_manager.loop.ranks import ONE_PROCESS, Ranks, state_for_rank, state_of_ranks, sum_totals
from train_manager.metrics.averages import mean_of
from train_manager.metrics.deferred import NO_TOTALS, FiniteLosses, Totals, add_totals
from train_manager.metrics.history_rows import PART


@final
@dataclass
class EpochPart:
    """One opening of the epoch's stage; or, outside of epochs, all calls of ``train_on_batch`` in a run."""

    is_last: bool = False  # no epoch of the training call comes after this one
    end_requested: bool = False  # end_epoch() was called
    data_has_ended: bool = False  # the point of decision has ended the epoch's data during a batch


@final
@dataclass
class OpenEpoch:
    """The sums of an epoch so far, which continues in the next training call if this one leaves it unfinished.

    One training call trains one part of the epoch. The losses of the present part are in ``progress.losses``; as the
    part ends, they are added here.
    """

    # Values of a Book that extensions measure over this epoch belong to this object.
    lifetime: Lifetime = field(default_factory=Lifetime)
    # Of the parts that have ended: the sum of the losses, each times its examples; the examples; the time.
    total: float = 0.0
    examples: float = 0.0
    seconds: float = 0.0
    # Sum and examples of the part in which a checkpoint was written: losses_of_part continues with them.
    begun: tuple[float, float] = 0.0, 0.0
    is_left: bool = False  # a part of the epoch was begun before the present one
    skipped: int = 0  # batches that hooks have skipped
    # If there are several optimizers, and no loss that is common to them: sum and weight for each, as above.
    by_optimizer: dict[str, Totals] = field(default_factory=dict)
    begun_by_optimizer: dict[str, Totals] = field(default_factory=dict)

    def add(
        self, total: float, examples: float, seconds: float, by_optimizer: Mapping[str, Totals] = NO_TOTALS
    ) -> None:
        """Add the totals of a part of the epoch, and how long it took."""
        # In a new dict: a copy of this object (of a copied manager) shares the one from before.
        self.by_optimizer = dict(self.by_optimizer)
        add_totals(self.by_optimizer, by_optimizer)
        self.total += total
        self.examples += examples
        self.seconds += seconds

    def losses_of_part(self, number: int) -> FiniteLosses:
        """Return an object for the losses of a part that begins, or that resumes after a checkpoint.

        Args:
            number: the number of the epoch, from 1, for errors.
        """
        # Each is handed over once: the next part of this epoch begins with nothing.
        begun, self.begun = self.begun, (0.0, 0.0)
        by_optimizer, self.begun_by_optimizer = self.begun_by_optimizer, {}
        return FiniteLosses(number, *begun, by_optimizer)

    def state_dict(self, losses: FiniteLosses, *, is_open: bool) -> dict[str, Any]:
        """Return the sums of the epoch, and apart from them the sums of its present part.

        Args:
            losses: the losses since the present part began.
            is_open: whether the stage of the epoch is open, so that there is a present part.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        checked = losses.totals()  # also if the stage is closed: a nan must not get into a checkpoint
        # Apart from self.total: the program that resumes adds the rest of the part to it first, and then both to the
        # total. In another order the floats would round to another mean than in a training without a stop.
        part = list(checked if is_open else self.begun)
        by_optimizer = self.by_optimizer, losses.by_optimizer if is_open else self.begun_by_optimizer
        several = {"by_optimizer": [lists_of(totals) for totals in by_optimizer]} if any(by_optimizer) else {}
        sums = {"total": self.total, "examples": self.examples, "seconds": self.seconds, "part": part}
        return {**sums, **({"skipped": self.skipped} if self.skipped else {}), **several}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what ``state_dict`` returned; an empty state begins the epoch anew."""
        self.total, self.examples = state.get("total", 0.0), state.get("examples", 0.0)
        self.seconds = state.get("seconds", 0.0)
        self.begun = tuple(state.get("part", (0.0, 0.0)))
        self.skipped = state.get("skipped", 0)
        self.is_left = bool(state)  # the program that wrote the state has trained a part of the epoch
        self.by_optimizer, self.begun_by_optimizer = map(totals_of, state.get("by_optimizer", ({}, {})))

    def totals(self) -> tuple[float, float]:
        """Return the sum of the losses, each times its examples, and the number of examples, without the open part."""
        return self.total, self.examples

    def metrics(self, ranks: Ranks = ONE_PROCESS) -> dict[str, float]:
        """Return the mean loss over examples, if a batch had a loss, and the mean of each of several optimizers."""
        parts = {f"{PART}{name}": totals for name, totals in self.by_optimizer.items()}
        found = sum_totals(ranks, {"loss": self.totals(), **parts})
        return {name: mean_of(*totals) for name, totals in found.items() if name != "loss" or totals[1]}


def add_epochs(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of what ``OpenEpoch.state_dict`` has returned in several processes, in the time of the first one.

    >>> state = {"total": 1.0, "examples": 2.0, "seconds": 0.5, "part": [1.5, 3.0]}
    >>> add_epochs([state, state])
    {'total': 2.0, 'examples': 4.0, 'seconds': 0.5, 'part': [3.0, 6.0]}
    """
    by_optimizer: tuple[dict[str, Totals], dict[str, Totals]] = {}, {}
    for state in states:
        for to, more in zip(by_optimizer, state.get("by_optimizer", ({}, {})), strict=True):
            add_totals(to, totals_of(more))
    return {
        "total": sum((state["total"] for state in states), start=0.0),
        "examples": sum((state["examples"] for state in states), start=0.0),
        "seconds": states[0]["seconds"] if states else 0.0,
        "part": [sum((state["part"][place] for state in states), start=0.0) for place in (0, 1)],
        **({"by_optimizer": [lists_of(totals) for totals in by_optimizer]} if any(by_optimizer) else {}),
        **({"skipped": states[0]["skipped"]} if states and "skipped" in states[0] else {}),  # all skip the same batches
    }


def lists_of(totals: Mapping[str, Totals]) -> dict[str, list[float]]:
    """Return totals as a checkpoint has them."""
    return {name: list(pair) for name, pair in totals.items()}


def totals_of(lists: Mapping[str, Sequence[float]]) -> dict[str, Totals]:
    """Return the totals of a checkpoint."""
    return {name: (total, weight) for name, (total, weight) in lists.items()}


@final
class OwnEpoch:
    """The epoch of a loop of the program's own: the batches that ``train_on_batch`` got since an epoch ended last."""

    def __init__(self, key: str, number: int) -> None:
        self.epoch = OpenEpoch(Lifetime(key))
        # The losses stay on the device until many are looked at together: a look at each would wait for a GPU.
        self.losses = FiniteLosses(number)
        self.batches = 0  # how many batches train_on_batch was given
        self._number = 0  # of the last of them; 0 after a batch that was said to be the last
        self.examples_here: int | None = None  # of the present batch; None if this process trains alone
        self._began = perf_counter()

    def begin_batch(self, examples: int | None, *, is_last: bool) -> int:
        """Count a batch, and return its number; after a batch that is the last, numbers begin anew.

        Args:
            examples: how many of them this process has; None if it trains alone.
            is_last: whether an epoch of the program's own ends with this batch.
        """
        self.batches, self.examples_here = self.batches + 1, examples
        number = self._number + 1
        self._number = 0 if is_last else number
        return number

    def end(self) -> OpenEpoch:
        """Return the epoch with the sums of all its batches.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        self.epoch.add(*self.losses.totals(), perf_counter() - self._began, self.losses.by_optimizer)
        return self.epoch

    def state_dict(self, ranks: Ranks = ONE_PROCESS) -> dict[str, Any]:
        """Return the sums, the time and the number of the batches so far.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        seconds = self.epoch.seconds + perf_counter() - self._began
        sums = {**self.epoch.state_dict(self.losses, is_open=True), "seconds": seconds}
        return {**state_of_ranks(ranks, sums, add_epochs), "batches": self.batches, "number": self._number}

    def load_state_dict(self, state: Mapping[str, Any], number: int, ranks: Ranks = ONE_PROCESS) -> None:
        """Resume from what ``state_dict`` returned, in the epoch of this number."""
        self.epoch.load_state_dict(state_for_rank(ranks, state, add_epochs))
        self.losses = self.epoch.losses_of_part(number)
        self.batches, self._number = state["batches"], state["number"]


@final
class EpochEnd(Enum):
    """How the batches of an epoch end in a training call; only a complete epoch counts and steps the schedules."""

    COMPLETE = "the data has ended, or a hook has ended the epoch"
    STOPPED = "a hook or a signal ends the training call"
    PAUSED = "the steps that were asked for are done; the next call continues with the epoch"
