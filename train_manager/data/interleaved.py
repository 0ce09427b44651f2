"""Several sets of data, read in turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, final

import numpy as np

from train_manager.core.errors import InputError
from train_manager.data.iteration import FromSource, begin_epoch, is_endless, length_of, no_batch, reset, walk
from train_manager.validation import require_count

ANEW = 1 << 20  # what the number of an epoch grows by for a second pass within it: no training has so many epochs


@final
class Interleaved:
    """Batches of several sets in turns, so many of each; every batch says which set it is of.

    >>> from train_manager import Interleaved
    >>> data = Interleaved({"web": [1, 2, 3, 4, 5, 6], "books": [7]}, ratios={"web": 3, "books": 1})
    >>> [(batch.datasource_name, batch.batch) for batch in data]
    [('web', 1), ('web', 2), ('books', 7), ('web', 3), ('web', 4), ('web', 5), ('books', 7), ('web', 6)]

    A round has as many batches of each set as its ratio says. An epoch is as many whole rounds as it takes for every
    set to be read to its end; a set that ends earlier begins anew. Sets without an end are not waited for; where all
    are, the epoch has none either. Each epoch begins every set from its start, as its next pass.

    With a seed the order within each round is drawn, as a pure function of seed, epoch and round; without one it is
    always the same and spreads each set evenly.

    In a training ``train_manager.datasource_name`` is the name of the set that the batch is of.

    Args:
        data: iterables of batches, by name.
        ratios: whole numbers by the same names; None takes one of each.
        seed: what the orders are made of.

    Raises:
        InputError: a ratio has no set, a set no ratio, or a set gives no batch.
    """

    def __init__(
        self, data: Mapping[str, Iterable[Any]], ratios: Mapping[str, int] | None = None, seed: int | None = None
    ) -> None:
        self.data = dict(data)
        self.ratios = checked_ratios(self.data, ratios)
        self.seed = None if seed is None else require_count(seed, "Interleaved's seed", at_least=0)
        self._round = spread(self.ratios)
        self._next_epoch = 0

    @property
    def endless(self) -> bool:
        """Whether no set has an end."""
        return all(is_endless(data) for data in self.data.values())

    def __len__(self) -> int:
        rounds = 0
        for name, data in self.data.items():
            length = 0 if is_endless(data) else length_of(data)
            if self.endless or length is None:
                raise TypeError(f"Interleaved has no length, as its set {name!r} has none")
            rounds = max(rounds, -(-length // self.ratios[name]))
        return rounds * len(self._round)

    def __iter__(self) -> Iterator[FromSource]:
        epoch = self._next_epoch
        self._next_epoch += 1
        return self._pass(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is, counted from 0."""
        self._next_epoch = epoch

    def reset(self) -> None:
        """Let all sets go back to their start, where they have a ``reset``."""
        for data in self.data.values():
            reset(data)

    def _pass(self, epoch: int) -> Iterator[FromSource]:
        waited_for = {name for name, data in self.data.items() if not is_endless(data)}
        ended: set[str] = set()
        sets = {name: passes(name, data, epoch, ended) for name, data in self.data.items()}
        for number in count():
            for name in self._turns(epoch, number):
                yield FromSource(name, next(sets[name]))
            if waited_for and waited_for <= ended:
                return

    def _turns(self, epoch: int, number: int) -> Iterable[str]:
        if self.seed is None:
            return self._round
        bits = np.random.Philox(np.random.SeedSequence((self.seed, epoch, number)))
        order = np.random.Generator(bits).permutation(len(self._round))
        return [self._round[place] for place in order]


def passes(name: str, data: Iterable[Any], epoch: int, ended: set[str]) -> Iterator[Any]:
    """The batches of one set, pass after pass; its name goes to ``ended`` with the last one of the first pass."""
    for number in count():
        begin_epoch(data, epoch + number * ANEW)
        gave_any = False
        for batch, last_batch in ((batch, False) for batch in data) if is_endless(data) else walk(data, name):
            gave_any = True
            if last_batch:
                ended.add(name)
            yield batch
        if not gave_any:
            raise no_batch(data, f"set {name!r} of Interleaved", f"in pass {number + 1} of an epoch")
        ended.add(name)  # also where its length was wrong, and no batch was marked as the last


def spread(ratios: Mapping[str, int]) -> list[str]:
    """One round, in which the turns of each set are apart from each other.

    Each turn adds to every set its ratio, and goes to the set that has the most, which pays for it with the sum.

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


def checked_ratios(data: Mapping[str, Any], ratios: Mapping[str, int] | None) -> dict[str, int]:
    """A ratio for each set."""
    if not data:
        raise InputError(
            "Interleaved was given no set of data", name="data", cure='Interleaved({"a": data, "b": more})'
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
