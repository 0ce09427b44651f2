"""An epoch: the sums of its losses, and its present part, which one training call trains; and how such a part ends."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import Enum
from time import perf_counter
from typing import Any, final

from train_manager.loop.books import Lifetime
from train_manager.loop.ranks import ONE_PROCESS, Ranks, state_for_rank, state_of_ranks, sum_totals
from train_manager.loop.requests import NOTHING
from train_manager.metrics.averages import mean_of
from train_manager.metrics.deferred import FiniteLosses, Totals, add_totals
from train_manager.metrics.history_rows import PART


@final
class Epoch:
    """The losses of an epoch: of its parts that have ended, and of the present one.

    One training call trains one part; an epoch that a call leaves unfinished continues in the next call. The batches
    of ``train_on_batch`` are an epoch of the program's own, in one part.

    Args:
        number: the number of the epoch, from 1, for errors.
        key: the name of the epoch in checkpoints.
    """

    def __init__(self, number: int, key: str = "") -> None:
        self.lifetime = Lifetime(key)  # values of a Book that extensions measure over this epoch belong to this object
        # Of the parts that have ended: the sum of the losses, each times its examples; the examples; the time.
        self.total = self.examples = self.seconds = 0.0
        # If there are several optimizers, and no loss that is common to them: sum and weight for each, as above.
        self.by_optimizer: dict[str, Totals] = {}
        # Of the present part. They stay on the device until many are looked at together: a look at each would wait for
        # a GPU. A part in which a checkpoint was written continues with the losses that it had there.
        self.losses = FiniteLosses(number)
        self.is_left = False  # a part of the epoch was begun before the present one
        self.skipped = 0  # batches that hooks have skipped
        self.batches = 0  # how many batches train_on_batch was given; 0 in an epoch of the loop
        self.batch_num = 0  # of the last of them; 0 after a batch that was said to be the last
        self._began: float | None = None  # when the present part began; None between two parts
        self.prepare_part()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy counts its losses for itself."""
        return {**self.__dict__, "losses": copy.deepcopy(self.losses)}

    def prepare_part(self) -> None:
        """Make the present part a new one, before its first hook."""
        self.is_last = False  # no epoch of the training call comes after this one
        # The end of the epoch that end_epoch() has asked for, and the end of its data that the point of decision has
        # found during a batch.
        self.requests = NOTHING

    def begin_part(self, number: int) -> None:
        """Begin the present part, or continue with the one in which a checkpoint was written.

        Args:
            number: the number of the epoch, from 1, for errors.
        """
        self.is_left, self._began = True, perf_counter()
        self.losses.epoch = number  # a hook may have set tm.epoch_num since

    def end_part(self) -> None:
        """Add the losses and the time of the present part to those of the epoch.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        losses, self.losses = self.losses, FiniteLosses(self.losses.epoch)
        total, examples = losses.totals()
        # In a new dict: a copy of this object (of a copied manager) shares the one from before.
        self.by_optimizer = dict(self.by_optimizer)
        add_totals(self.by_optimizer, losses.by_optimizer)
        self.total += total
        self.examples += examples
        self.seconds, self._began = self._seconds_so_far(), None

    def forget_part(self) -> None:
        """Forget the losses of a part that has failed."""
        self.losses, self._began = FiniteLosses(self.losses.epoch), None

    def count_own_batch(self, *, is_last: bool) -> int:
        """Count a batch of ``train_on_batch``, and return its number; after the last one, numbers begin anew."""
        self.requests = NOTHING
        self.batches += 1
        number = self.batch_num + 1
        self.batch_num = 0 if is_last else number
        return number

    def _seconds_so_far(self) -> float:
        return self.seconds if self._began is None else self.seconds + perf_counter() - self._began

    # ---- metrics and saved state ---------------------------------------------------------------------------------

    def totals(self) -> tuple[float, float]:
        """Return the sum of the losses, each times its examples, and the number of examples, without the open part."""
        return self.total, self.examples

    def metrics(self, ranks: Ranks = ONE_PROCESS) -> dict[str, float]:
        """Return the mean loss over examples, if a batch had a loss, and the mean of each of several optimizers."""
        parts = {f"{PART}{name}": totals for name, totals in self.by_optimizer.items()}
        found = sum_totals(ranks, {"loss": self.totals(), **parts})
        return {name: mean_of(*totals) for name, totals in found.items() if name != "loss" or totals[1]}

    def state_dict(self, ranks: Ranks = ONE_PROCESS) -> dict[str, Any]:
        """Return the sums of the epoch, and apart from them the sums of its present part.

        Args:
            ranks: the processes that train together, whose sums are added.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        # Apart from self.total: the program that resumes adds the rest of the part to it first, and then both to the
        # total. In another order the floats would round to another mean than in a training without a stop.
        part = list(self.losses.totals())
        by_optimizer = self.by_optimizer, self.losses.by_optimizer
        several = {"by_optimizer": [lists_of(totals) for totals in by_optimizer]} if any(by_optimizer) else {}
        sums = {"total": self.total, "examples": self.examples, "seconds": self._seconds_so_far(), "part": part}
        # All processes skip the same batches, and are given as many.
        counts = {"skipped": self.skipped, "batches": self.batches, "batch_num": self.batch_num}
        return {**state_of_ranks(ranks, {**sums, **several}, add_epochs), **counts}

    def load_state_dict(self, state: Mapping[str, Any], ranks: Ranks = ONE_PROCESS) -> None:
        """Resume from what ``state_dict`` returned, in the part in which it was called."""
        of_rank = state_for_rank(ranks, state, add_epochs)
        self.total, self.examples, self.seconds = of_rank["total"], of_rank["examples"], of_rank["seconds"]
        self.by_optimizer, of_part = map(totals_of, of_rank.get("by_optimizer", ({}, {})))
        total, examples = of_rank["part"]
        self.losses = FiniteLosses(self.losses.epoch, total, examples, of_part)
        self.skipped, self.batches, self.batch_num = state["skipped"], state["batches"], state["batch_num"]
        self.is_left = True  # the program that wrote the state has trained a part of the epoch


def add_epochs(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of what ``Epoch.state_dict`` has returned in several processes, in the time of the first one.

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
    }


def lists_of(totals: Mapping[str, Totals]) -> dict[str, list[float]]:
    """Return totals as a checkpoint has them."""
    return {name: list(pair) for name, pair in totals.items()}


def totals_of(lists: Mapping[str, Sequence[float]]) -> dict[str, Totals]:
    """Return the totals of a checkpoint."""
    return {name: (total, weight) for name, (total, weight) in lists.items()}


@final
class EpochEnd(Enum):
    """How the batches of an epoch end in a training call; only a complete epoch counts and steps the schedules."""

    COMPLETE = "the data has ended, or a hook has ended the epoch"
    STOPPED = "a hook or a signal ends the training call"
    PAUSED = "the steps that were asked for are done; the next call continues with the epoch"
