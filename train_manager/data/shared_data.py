"""Which data several processes can share, and which give each process batches of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from train_manager.data.endless import Endless
from train_manager.data.named_sets import NamedSets
from train_manager.data.passes import Passes
from train_manager.telling.errors import InputError


def sets_in(data: object, name: str) -> Iterator[tuple[str, object]]:
    """Yield the sets that ``Interleaved``, ``Together`` and ``Endless`` read, by their names in errors.

    >>> from train_manager import Interleaved
    >>> [name for name, _ in sets_in(Interleaved({"web": [1], "books": [2]}), "train_data")]
    ["train_data['web']", "train_data['books']"]
    """
    if isinstance(data, Endless):
        yield from sets_in(data.data, name)
    elif isinstance(data, NamedSets):
        for key, inner in data.data.items():
            yield from sets_in(inner, f"{name}[{key!r}]")
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
        if isinstance(one, Passes):
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
        if isinstance(one, Passes):
            one.require_size_for(number, inner)
        elif sampler is not None and sampler.total_size != len(sampler.dataset):  # type: ignore[arg-type]
            what = f"the DistributedSampler of {inner} gives {sampler.total_size} examples of {len(sampler.dataset)}"  # type: ignore[arg-type]
            raise InputError(what, name=name, asked_by="Distributed", cure=cure)
        elif gives_own_batches(one) and not all_are_own:
            what = f"{inner} gives each process batches of its own, and another set of {name} does not"
            raise InputError(what, name=name, asked_by="Distributed", cure=cure)
