"""The processes that train together, as the loop sees them; one process alone is the usual case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, Protocol, TypeVar

from train_manager.data.batch import FromSource
from train_manager.data.random_state import random_state, seed_rank, set_random_state
from train_manager.data.reader import END
from train_manager.data.shares import ALONE, Place, Share, reading_share
from train_manager.metrics.deferred import add_totals, on_host
from train_manager.model.weighted_loss import WeightedLoss
from train_manager.telling.errors import InputError

T = TypeVar("T")


class Ranks:
    """The processes that train together: this one alone. ``Joined`` is of several.

    Each collective method is called by all of them, in the same order.

    Attributes:
        place: the rank of this process, and how many there are.
        gradients: makes gradients one; None if there is nothing to do.
        makes_equal_steps: all processes must evaluate equally many batches, as their models wait for each other.
    """

    place: Place = ALONE
    gradients: WeightedLoss | None = None
    makes_equal_steps: bool = False

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums over all processes."""
        return list(numbers)

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of their ranks."""
        return [value]

    def of_first(self, value: T) -> T:
        """Return the value that rank 0 gives."""
        return value

    def require_data(self, train_data: Any, eval_data: Mapping[str, Any]) -> None:
        """Refuse data that the processes cannot share; no collective. Training data may be None: nothing is trained."""

    def counts_in_each(self, data: Any, name: str) -> bool:
        """Return whether batches without shares, of an evaluation, count in each process; no collective."""
        return True

    def fail(self, error: BaseException) -> None:
        """Tell the other processes that this one has failed; the first failure counts."""


ONE_PROCESS: Final = Ranks()

RANKS: Final = "ranks"
"""The entry of a saved state that lists what each of several processes had."""


def require_whole_model(ranks: Ranks, asked_by: str) -> None:
    """Refuse what calls the model of one process alone, where each process has only shards of it.

    Raises:
        InputError: the models wait for each other.
    """
    if ranks.makes_equal_steps:
        what = f'{asked_by} calls the model by itself, but strategy "fsdp" has sharded it over the processes'
        cure = 'run it in one process; or give Distributed(strategy="after"), if the model fits on one device'
        raise InputError(what, name=asked_by, asked_by=asked_by, cure=cure)


def ranks_of(train_manager: Any) -> Ranks:
    """Return the processes that train together; this one alone in a loop other than a TrainManager's."""
    found: Ranks = getattr(train_manager, "ranks", ONE_PROCESS)
    return found


def sum_totals(ranks: Ranks, totals: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return the sums and weights of means over all processes; a process may lack names.

    >>> sum_totals(ONE_PROCESS, {"loss": (3.0, 4.0)})
    {'loss': (3.0, 4.0)}
    """
    found = dict(totals)
    if ranks.place is not ALONE:
        sent = {name: (on_host(total), on_host(weight)) for name, (total, weight) in totals.items()}
        found.clear()
        for each in ranks.gather(sent):
            add_totals(found, each)
    return found


class Foldable(Protocol):
    """What each process has gathered of its own rows, and what several can make one."""

    def totals(self) -> Any:
        """Return what this process has gathered, as it is sent to the others."""
        ...

    def join(self, totals: Sequence[Any]) -> None:
        """Replace it by what all processes have gathered, in the order of their ranks."""
        ...


def fold(ranks: Ranks, parts: Mapping[str, Foldable]) -> None:
    """Give all processes what each of them has gathered, by one message for all parts."""
    if parts and ranks.place is not ALONE:
        of_ranks = ranks.gather({name: part.totals() for name, part in parts.items()})
        for name, part in parts.items():
            part.join([each[name] for each in of_ranks])


def state_of_ranks(
    ranks: Ranks, state: Mapping[str, Any], add: Callable[[list[Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return the sum of a state over all processes, as a checkpoint holds it; all processes must call this.

    With several processes, the entry "ranks" keeps the state of each: to resume on as many to the last bit.

    Args:
        ranks: the processes.
        state: of this process.
        add: returns the sum of a list of states; of no state, the state with which a process begins.
    """
    if ranks.place is ALONE:
        return dict(state)
    each = ranks.gather(dict(state))
    return {**add(each), RANKS: each}


def state_for_rank(
    ranks: Ranks, saved: Mapping[str, Any], add: Callable[[list[Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return what a process resumes from, of a state that ``state_of_ranks`` has returned on any number of processes.

    >>> def add(states):
    ...     return {"total": sum(state["total"] for state in states)}
    >>> state_for_rank(ONE_PROCESS, {"total": 3.0, "ranks": [{"total": 1.0}, {"total": 2.0}]}, add)
    {'total': 3.0}

    On as many processes each one gets its own state; on another number, rank 0 gets the sum and the others begin anew.
    """
    each = saved.get(RANKS, ())
    if len(each) == ranks.place.number:
        return dict(each[ranks.place.rank])
    return add([]) if ranks.place.rank else {name: value for name, value in saved.items() if name != RANKS}


def random_state_of_ranks(ranks: Ranks) -> dict[str, Any]:
    """Return the random states, as a checkpoint holds them: of rank 0, and beside it of each if there are several."""
    return state_of_ranks(ranks, random_state(), lambda states: states[0])


def set_random_state_of_rank(ranks: Ranks, saved: Mapping[str, Any]) -> None:
    """Restore the random states of this process; on another number of processes, all but rank 0 begin new ones."""
    place = ranks.place
    if len(saved.get(RANKS, ())) == place.number:
        saved = saved[RANKS][place.rank]
        set_random_state(saved)
    else:
        set_random_state(saved)
        seed_rank(place.rank)


def without_share(batch: Any) -> tuple[Any, int | None]:
    """Return a batch without its share, and how many examples count here; None if the batch does not say."""
    if type(batch) is FromSource:
        inner, examples = without_share(batch.batch)
        return FromSource(batch.datasource_name, inner), examples
    return (batch.batch, batch.examples) if type(batch) is Share else (batch, None)


def eval_shares(batches: Iterable[Any], ranks: Ranks, data: Any, name: str) -> Iterator[tuple[Any, bool]]:
    """Yield the batches of an evaluation that a process reads, and whether their examples count here.

    Args:
        batches: one pass over the set.
        ranks: the processes that evaluate it.
        data: the set.
        name: the name of the set in warnings.
    """
    if ranks.place is ALONE:
        yield from zip(batches, repeat(True))
        return
    # Else each process reads the same batches, and they count on rank 0.
    iterator, counts_here = iter(batches), ranks.counts_in_each(data, name) or not ranks.place.rank
    while True:
        with reading_share(ranks.place):
            batch = next(iterator, END)
        if batch is END:
            return
        batch, examples = without_share(batch)
        counts = counts_here if examples is None else bool(examples)
        if counts or ranks.makes_equal_steps:
            yield batch, counts
