"""The share that one of several processes reads of each batch (every R-th row of R processes), and of which data.

A process reads shares only where the loop asks for them (``reading_share``): everywhere else the same data give whole
batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from train_manager.data.batch import map_batch
from train_manager.telling.errors import InputError


class Share(NamedTuple):
    """A batch that is a part of the batch of a step; the loop unpacks it.

    Attributes:
        batch: the rows of this process.
        examples: how many of the step's examples these are; 0 if the batch has one row only so that this process takes
            part in the step.
        of: how many examples the step has.
    """

    batch: Any
    examples: int
    of: int


class Place(NamedTuple):
    """The place of a process among those that train together."""

    rank: int
    number: int  # of processes


ALONE: Final = Place(0, 1)

Numbers = TypeVar("Numbers", bound=Tensor | slice | list[int])
"""The numbers of the examples of a batch."""

_place: ContextVar[Place] = ContextVar("train_manager_place", default=ALONE)


def present_place() -> Place:
    """Return whose shares a pass that begins now gives."""
    return _place.get()


@contextmanager
def reading_share(place: Place) -> Iterator[None]:
    """Let passes that begin in the ``with`` block give the shares of a process."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def size_of(rows: Tensor | slice | list[int]) -> int:
    """Return the number of rows.

    >>> size_of(slice(4, 9)), size_of([7, 3])
    (5, 2)
    """
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def rows_of_rank(rows: Numbers, place: Place) -> Numbers:
    """Return the rows of a batch that a process reads; the first one if none is left for it.

    >>> rows_of_rank(slice(4, 9), Place(1, 2)), rows_of_rank([7], Place(1, 2))
    (slice(5, 9, 2), [7])
    """
    # All processes make equal steps, since the parameters of a sharded model are gathered in each: a process without a
    # row of its own takes part with one that counts nothing.
    first, step = (place.rank, place.number) if place.rank < size_of(rows) else (0, size_of(rows))
    own = slice(rows.start + first, rows.stop, step) if isinstance(rows, slice) else rows[first::step]
    return cast(Numbers, own)


def count_of_rank(rows: Tensor | slice | list[int], place: Place) -> int:
    """Return how many rows of a batch belong to a process.

    >>> [count_of_rank(slice(4, 9), Place(rank, 3)) for rank in range(3)]
    [2, 2, 1]
    """
    return len(range(place.rank, size_of(rows), place.number))


def is_stand_in(examples: Any) -> bool:
    """Return whether a batch has a row only so that its process takes part in the step, and no example that counts."""
    return isinstance(examples, int) and not examples  # a count in a tensor is not read: that would wait for the device


def in_row_order(batches_of_ranks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the batches of one process, of the rows that each of several processes has of them.

    >>> in_row_order([[torch.tensor([0, 2]), torch.tensor([3])], [torch.tensor([1])]])
    [tensor([0, 1, 2]), tensor([3])]

    Rows that are not shares as ``rows_of_rank`` makes them, as of a ``DistributedSampler``, are in the order of ranks.
    """
    found = []
    for batches in zip_longest(*batches_of_ranks):
        parts = [batch for batch in batches if batch is not None]
        rows = torch.cat(parts)
        places = [slice(rank, len(rows), len(parts)) for rank in range(len(parts))]
        if [len(range(len(rows))[place]) for place in places] == [len(part) for part in parts]:
            for place, part in zip(places, parts, strict=True):
                rows[place] = part
        found.append(rows)
    return found


def join_shares(batches: Mapping[str, Any]) -> dict[str, Any] | Share:
    """Return batches of several sets as one batch, and as one share if they are shares.

    Raises:
        InputError: a process has another part of one set's batch than of another's.
    """
    shares = {name: batch for name, batch in batches.items() if isinstance(batch, Share)}
    if not shares:
        return dict(batches)
    first = next(iter(shares.values()))
    if len(shares) < len(batches) or any(one.examples * first.of != first.examples * one.of for one in shares.values()):
        sizes = ", ".join(f"{one.examples} of {one.of} of {name!r}" for name, one in shares.items())
        cure = "give each set a batch_size that is a multiple of the number of processes, and drop_last=True"
        raise InputError(f"a process has unequal parts of the sets of Together: {sizes}", name="data", cure=cure)
    return Share({name: one.batch for name, one in shares.items()}, first.examples, first.of)


class Shareable(ABC):
    """Data of which each of several processes can read a share of each batch."""

    @abstractmethod
    def require_size_for(self, number: int, name: str) -> None:
        """Refuse batches with fewer rows than processes that share them."""


class MadeOfSets(ABC):
    """Data that read other data: these are asked whether processes can share them."""

    @property
    @abstractmethod
    def sets(self) -> Mapping[Any, object]:
        """The data that are read, by name; the name None says that there is only one."""


def sets_in(data: object, name: str) -> Iterator[tuple[str, object]]:
    """Yield the sets that ``Interleaved``, ``Together`` and ``Endless`` read, by their names in errors.

    >>> from train_manager import Interleaved
    >>> [name for name, _ in sets_in(Interleaved({"web": [1], "books": [2]}), "train_data")]
    ["train_data['web']", "train_data['books']"]
    """
    if isinstance(data, MadeOfSets):
        for key, inner in data.sets.items():
            yield from sets_in(inner, name if key is None else f"{name}[{key!r}]")
    else:
        yield name, data


def gives_own_batches(data: object) -> bool:
    """Return whether each process gets other batches, by a ``DistributedSampler`` or as the class of the data says."""
    return all(
        sampler_of_ranks(one) is not None or bool(getattr(one, "gives_shares", False)) for _, one in sets_in(data, "")
    )


def sampler_of_ranks(data: object) -> DistributedSampler[Any] | None:
    """Return the sampler by which a loader of torch reads other examples in each process, if it has one."""
    if not isinstance(data, DataLoader):
        return None
    samplers = data.sampler, getattr(data.batch_sampler, "sampler", None)
    return next((one for one in samplers if isinstance(one, DistributedSampler)), None)


def require_shares(data: object, name: str, number: int) -> None:
    """Refuse training data that give several processes the same batches, or batches with fewer rows than processes.

    Raises:
        InputError: with data to give instead.
    """
    for inner, one in sets_in(data, name):
        if isinstance(one, Shareable):
            one.require_size_for(number, inner)
        elif not gives_own_batches(one):
            cure = "give SeededDataLoader(dataset, ...), InMemory or Rows; or a DataLoader with a DistributedSampler, "
            cure += "whose batch_size is that of one process"
            what = f"{inner} is a {type(one).__name__}, of which each process would train on the same batches"
            raise InputError(what, name=name, asked_by="Distributed", cure=cure)


def require_eval_shares(data: object, name: str, number: int) -> None:
    """Refuse evaluation data of which not every example would count once.

    Raises:
        InputError: with data to give instead.
    """
    all_are_own = gives_own_batches(data)
    for inner, one in sets_in(data, name):
        sampler, cure = sampler_of_ranks(one), "give SeededDataLoader(dataset, ...), of which each example counts once"
        if isinstance(one, Shareable):
            one.require_size_for(number, inner)
        elif sampler is not None and sampler.total_size != len(sampler.dataset):  # type: ignore[arg-type]
            what = f"the DistributedSampler of {inner} gives {sampler.total_size} examples of {len(sampler.dataset)}"  # type: ignore[arg-type]
            raise InputError(what, name=name, asked_by="Distributed", cure=cure)
        elif gives_own_batches(one) and not all_are_own:
            what = f"{inner} gives each process batches of its own, and another set of {name} does not"
            raise InputError(what, name=name, asked_by="Distributed", cure=cure)


CURE: Final = "give the rows of this process as Share(batch, examples, of), of train_manager.data.shares"


def cut_rows(batch: Any, rows: slice, size: int) -> Any:
    """Return some of the rows of a batch that was given to each process as a whole.

    Raises:
        InputError: an entry has another number of rows than ``size``.
    """

    def is_of_examples(entries: Any) -> bool:  # such as a text for each example
        holds_more = any(isinstance(one, Mapping | list | tuple) or hasattr(one, "shape") for one in entries)
        return bool(entries) and not holds_more

    def cut(value: Any) -> Any:
        if isinstance(value, Tensor) or type(value).__module__ == "numpy":
            has_rows = value.shape[:1] == (size,)
        elif isinstance(value, list | tuple) and not hasattr(value, "to"):
            has_rows = len(value) == size
        elif value is None or isinstance(value, str | bool | int | float):
            return value
        else:
            has_rows = False
        if not has_rows:
            shape = getattr(value, "shape", None)
            kind = f"a {type(value).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
            raise uncut(f"it has {size} rows, and {kind}")
        return value[rows]

    return map_batch(batch, cut, is_of_examples)


def uncut(why: str) -> InputError:
    """Return the error for a batch that cannot be cut for several processes."""
    what = f"train_on_batch cannot cut this batch for several processes: {why}"
    return InputError(what, name="batch", asked_by="Distributed", cure=CURE)
