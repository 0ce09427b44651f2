"""Several sets of data, read in turns by fixed ratios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, final

import numpy as np

from train_manager.core.errors import InputError
from train_manager.data.batch import FromSource
from train_manager.data.iteration import begin_epoch, is_endless, length_of, no_batch, reset, walk
from train_manager.validation import require_count

NEXT_PASS = 1 << 20  # added to the epoch for each further pass within it: no training has as many epochs


@final
class Interleaved:
    """Batches of several sets of data in turns; every batch carries the name of its set.

    >>> from train_manager import Interleaved
    >>> data = Interleaved({"web": [1, 2, 3, 4, 5, 6], "books": [7]}, ratios={"web": 3, "books": 1})
    >>> [(batch.datasource_name, batch.batch) for batch in data]
    [('web', 1), ('web', 2), ('books', 7), ('web', 3), ('web', 4), ('web', 5), ('books', 7), ('web', 6)]

    A round has as many batches of each set as its ratio. An epoch has whole rounds, until every set has been read to
    its end; a set that ends earlier starts again. An endless set does not prolong the epoch; if all sets are endless,
    so is the epoch. Each epoch reads every set from its start.

    With a seed, the order within each round is drawn, as a pure function of seed, epoch and round. Without one, every
    round has the same order, which spreads each set evenly.

    In a training, ``train_manager.datasource_name`` is the name of the batch's set.

    Args:
        data: iterables of batches, by name.
        ratios: batches per round, by the same names; None takes one of each.
        seed: determines the orders; None keeps one order.

    Raises:
        InputError: a ratio has no set, a set has no ratio; or, while reading, a set gives no batch.
    """

    def __init__(
        self, data: Mapping[str, Iterable[Any]], ratios: Mapping[str, int] | None = None, seed: int | None = None
    ) -> None:
        self.data = dict(data)
        self.ratios = require_ratios(self.data, ratios)
        self.seed = None if seed is None else require_count(seed, "Interleaved's seed", at_least=0)
        self._round = spread(self.ratios)
        self._next_epoch = 0

    @property
    def endless(self) -> bool:
        """Whether every set is endless."""
        return all(is_endless(data) for data in self.data.values())

    def __len__(self) -> int:
        rounds = 0
        for name, data in self.data.items():
            length = 0 if is_endless(data) else length_of(data)
            if self.endless or length is None:
                raise TypeError(f"Interleaved has no length, because its set {name!r} has none")
            rounds = max(rounds, -(-length // self.ratios[name]))
        return rounds * len(self._round)

    def __iter__(self) -> Iterator[FromSource]:
        epoch = self._next_epoch
        self._next_epoch += 1
        return self._pass(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, counted from 0."""
        self._next_epoch = epoch

    def reset(self) -> None:
        """Call the ``reset`` of every set that has one."""
        for data in self.data.values():
            reset(data)

    def _pass(self, epoch: int) -> Iterator[FromSource]:
        finite = {name for name, data in self.data.items() if not is_endless(data)}
        ended: set[str] = set()
        sets = {name: passes(name, data, epoch, ended) for name, data in self.data.items()}
        for number in count():
            for name in self._turns(epoch, number):
                yield FromSource(name, next(sets[name]))
            if finite and finite <= ended:
                return

    def _turns(self, epoch: int, number: int) -> Iterable[str]:
        if self.seed is None:
            return self._round
        bits = np.random.Philox(np.random.SeedSequence((self.seed, epoch, number)))
        order = np.random.Generator(bits).permutation(len(self._round))
        return [self._round[index] for index in order]


def passes(name: str, data: Iterable[Any], epoch: int, ended: set[str]) -> Iterator[Any]:
    """Yield the batches of one set, pass after pass; add its name to ``ended`` at the last batch of the first pass."""
    for number in count():
        begin_epoch(data, epoch + number * NEXT_PASS)
        gave_any = False
        for batch, last_batch in ((batch, False) for batch in data) if is_endless(data) else walk(data, name):
            gave_any = True
            if last_batch:
                ended.add(name)
            yield batch
        if not gave_any:
            raise no_batch(data, f"set {name!r} of Interleaved", f"in pass {number + 1} of an epoch")
        ended.add(name)  # again, because a wrong length marks no batch as the last


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
        InputError: there is no set, or the names of sets and ratios differ.
    """
    if not data:
        raise InputError(
            "Interleaved was given no set of data", name="data", cure='give sets by name: Interleaved({"a": data})'
        )
    ratios = dict.fromkeys(data, 1) if ratios is None else ratios
    for name in [*ratios, *data]:
        if name not in data or name not in ratios:
            missing = "set" if name not in data else "ratio"
            raise InputError(
                f"Interleaved has no {missing} for {name!r}",
                name="ratios",
                cure=f"the sets are {', '.join(map(repr, data))}; the ratios {', '.join(map(repr, ratios))}",
            )
    return {name: require_count(ratios[name], f"Interleaved's ratio of {name!r}", at_least=1) for name in data}
