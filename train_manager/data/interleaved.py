"""Several sets of data, read in turns: by fixed ratios, or as a function chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, final

import numpy as np

from train_manager.data.batch import FromSource, sets_text, without_source
from train_manager.data.named_sets import NamedSets, PassProgress, join_names
from train_manager.data.reader import END
from train_manager.telling.errors import InputError
from train_manager.telling.showing import short
from train_manager.validation import require_count


@final
class Interleaved(NamedSets):
    """Batches of several sets of data in turns; every batch carries the name of its set.

    >>> from train_manager import Interleaved
    >>> data = Interleaved({"web": [1, 2, 3, 4, 5, 6], "books": [7]}, ratios={"web": 3, "books": 1})
    >>> [(batch.datasource_name, batch.batch) for batch in data]
    [('web', 1), ('web', 2), ('books', 7), ('web', 3), ('web', 4), ('web', 5), ('books', 7), ('web', 6)]

    A round has as many batches of each set as its ratio. An epoch has whole rounds, until every set has been read to
    its end; a set that ends earlier starts again. An endless set does not prolong the epoch; if all sets are endless,
    so is the epoch. Each epoch reads every set from its start.

    All sets are opened in their order as the first batch of an epoch is asked for, and none is read ahead: DataLoaders
    draw their orders as in a loop that calls ``iter`` on each, and then ``next`` in turns. A set that gave its last
    batch is read to its end at its next turn, or at the end of the epoch. If the length of a set is unknown, its end is
    found when its turn comes after its last batch; if all other sets have ended by then, the epoch ends there, perhaps
    within a round.

    With a seed, the order within each round is drawn, as a pure function of seed, epoch and round. Without one, every
    round has the same order, which spreads each set evenly.

    With ``choose`` there are no rounds: the function is called for each batch as it is asked for, and names its set. A
    set that ends starts again, so that the data are endless: epochs need ``steps_per_epoch``. Each set is opened at its
    first turn.

    >>> level = "easy"
    >>> lessons = iter(Interleaved({"easy": [1, 2], "hard": [10, 20]}, choose=lambda: level))
    >>> next(lessons).batch
    1
    >>> level = "hard"
    >>> next(lessons).batch
    10

    In a run, ``train_manager.datasource_name`` is the name of the batch's set.

    Args:
        data: iterables of batches, by name.
        ratios: batches per round, by the same names; None takes one of each.
        seed: determines the orders; None keeps one order.
        choose: returns the name of the next batch's set; replaces ratios and seed.

    Raises:
        InputError: a ratio has no set, a set has no ratio, or ``choose`` has ratios or a seed beside it; while reading,
            a set gives no batch, or ``choose`` returns no set's name.
    """

    def __init__(
        self,
        data: Mapping[str, Iterable[Any]],
        ratios: Mapping[str, int] | None = None,
        seed: int | None = None,
        choose: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(data)
        self.data: Mapping[str, Iterable[Any]] = self._sets
        if choose is not None and (ratios is not None or seed is not None):
            raise InputError(
                "Interleaved was given choose, which replaces ratios and seed",
                name="choose",
                cure="leave out choose, or the other two",
            )
        self.ratios: dict[str, int] = require_ratios(self.data, ratios)
        self.seed: int | None = None if seed is None else require_count(seed, "Interleaved's seed", at_least=0)
        self.choose = choose
        self._round = spread(self.ratios)  # the names of the sets whose turns a round has, in order

    def __repr__(self) -> str:
        order = f"ratios={short(self.ratios)}" if self.choose is None else f"choose={short(self.choose)}"
        return f"Interleaved({sets_text(self.data)}, {order})"

    @property
    def endless(self) -> bool:
        """Whether no epoch ends: every set is endless, or a function chooses them."""
        return self.choose is not None or super().endless

    @property
    def example_index(self) -> Any:
        """The numbers of the examples in the batch given last, if its set numbers them."""
        if self._present is None:
            raise AttributeError("Interleaved has given no batch, so there is no example_index")
        return self.data[self._present].example_index  # type: ignore[attr-defined]  # the AttributeError of a set without it is right here too

    def __len__(self) -> int:
        if self.endless:
            raise TypeError("Interleaved has no length, because it has no end")
        # -(-a // b) rounds up. An endless set has no length, and does not prolong the epoch.
        rounds = max(-(-(self._length_of(name) or 0) // ratio) for name, ratio in self.ratios.items())
        return rounds * len(self._round)

    def _batches(self, progress: PassProgress) -> Iterator[FromSource]:
        ends = not self.endless
        # With `choose` each set is opened at its first turn, since perhaps it never has one.
        if self.choose is None:
            progress.open()
        for name, ends_round in self._turns(progress.epoch, progress.given):
            batch = progress.readers[name].read_of_epoch()
            # Only reading has shown that the set had ended. Its turn gets
            # the first batch of its next pass, unless the epoch ends here.
            if batch is END:
                if ends and all(progress.finite()):
                    return
                batch = progress.readers[name].read_of_epoch()
            # Counted before the batch is given: a checkpoint that is written during a batch counts this batch.
            progress.given += 1
            progress.is_complete = ends and ends_round and all(progress.finite())
            self._present = name
            yield FromSource(name, without_source(batch))
            del batch  # else two batches would be in memory while the next one is read
            if progress.is_complete:
                return

    def _turns(self, epoch: int, first: int) -> Iterator[tuple[str, bool]]:
        """Yield the name of each set whose turn it is, from turn number ``first`` on, and whether it ends a round."""
        while self.choose is not None:  # without an end: `choose` is called for each batch
            yield self._choose_set(self.choose), False
        size = len(self._round)
        # A pass may resume within a round: the order of this round is computed, and the turns before are left out.
        order = self._order(epoch, first // size)
        for turn in count(first):
            if turn % size == 0:
                order = self._order(epoch, turn // size)
            yield order[turn % size], turn % size == size - 1

    def _choose_set(self, choose: Callable[[], str]) -> str:
        name = choose()
        if name not in self.data:
            raise InputError(
                f"Interleaved's choose returned {name!r:.60}, which is the name of no set",
                name="choose",
                cure=f"the sets are {join_names(self.data)}",
            )
        return name

    def _order(self, epoch: int, number: int) -> Sequence[str]:
        """Return the turns of one round."""
        if self.seed is None:
            return self._round
        # A counter-based generator, seeded by all three numbers:
        # any round can be computed without the rounds before it.
        bits = np.random.Philox(np.random.SeedSequence((self.seed, epoch, number)))
        order = np.random.Generator(bits).permutation(len(self._round))
        return [self._round[index] for index in order]


def spread(ratios: Mapping[str, int]) -> list[str]:
    """Return one round, in which the turns of each set are spread evenly (smooth weighted round-robin).

    In each turn every set earns its ratio. The turn goes to the richest set, which pays the sum of all ratios.

    >>> spread({"a": 3, "b": 1}), spread({"a": 1, "b": 1})
    (['a', 'a', 'b', 'a'], ['a', 'b'])
    """
    total, credit, turns = sum(ratios.values()), dict.fromkeys(ratios, 0), []
    for _ in range(total):
        for name, ratio in ratios.items():
            credit[name] += ratio
        turn = max(credit, key=credit.__getitem__)
        credit[turn] -= total
        turns.append(turn)
    return turns


def require_ratios(data: Mapping[str, Any], ratios: Mapping[str, int] | None) -> dict[str, int]:
    """Return a ratio for each set.

    Raises:
        InputError: the names of sets and ratios differ.
    """
    ratios = dict.fromkeys(data, 1) if ratios is None else ratios
    for name in [*ratios, *data]:
        if name not in data or name not in ratios:
            missing = "set" if name not in data else "ratio"
            raise InputError(
                f"Interleaved has no {missing} for {name!r}",
                name="ratios",
                cure=f"the sets are {join_names(data)}; the ratios {join_names(ratios)}",
            )
    return {name: require_count(ratios[name], f"Interleaved's ratio of {name!r}", at_least=1) for name in data}
