"""The position of a DataLoader, and of other data that do not tell theirs.

A pass is begun again from the random states that it began with, and read up to its place. A DataLoader draws the order
of a pass, and a seed for its workers, as the pass begins: from torch's random state, or from a generator of its own.
With these states restored, and with the same settings, it gives the same batches, also to an iterable that wraps it.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Generator, Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from train_manager.data.random_state import preserve_random_state, random_state, set_random_state
from train_manager.data.readable import length_of, objects_in, wrapped_in
from train_manager.data.seeded_dataset import SeededDataset, draws_nothing
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError, TrainManagerError
from train_manager.telling.source_locations import users_level


def stateful(data: Any) -> Any:
    """Return the object that knows the place in a pass: the data, or the stream of a loader; None if there is none."""
    if has_state(data):
        return data
    # With workers the stream is read in copies, so that the one in this process stays at its start.
    is_stream = isinstance(data, DataLoader) and isinstance(data.dataset, IterableDataset) and not data.num_workers
    return data.dataset if is_stream and has_state(data.dataset) else None


def tells_its_ends(data: Any) -> bool:
    """Return whether the state of data is saved between two passes too."""
    # Data with set_epoch begin each pass at the number of the epoch, whatever their state was.
    return has_state(data) and not hasattr(data, "set_epoch")


def loaders_in(data: Any) -> list[DataLoader[Any]]:
    """Return the loaders without a state: a loader itself, or those that ``Interleaved`` or a wrapper is made of."""
    if isinstance(data, DataLoader):
        return [] if has_state(data) else [data]
    if not has_state(data):
        return [loader for one in wrapped_in(data) for loader in loaders_in(one)]
    inner = getattr(data, "data", None)  # of Interleaved and Together by name
    sets = inner.values() if isinstance(inner, dict) else (inner,)
    return [loader for one in sets for loader in loaders_in(one)]


def generators_of(data: object) -> list[Generator]:
    """Return the generators of loaders, and of their samplers and datasets."""
    return _generators_in(loaders_in(data))


def _generators_in(loaders: Iterable[DataLoader[Any]]) -> list[Generator]:
    found = [getattr(item, "generator", None) for loader in loaders for item in objects_in(loader)]
    return [*{id(one): one for one in found if isinstance(one, Generator)}.values()]


def beginning_of(data: Any) -> dict[str, Any] | None:
    """Return the states that a pass draws its order from, if called right before it.

    A loader without workers, and a generator function, draw again as the first batch is asked for. If that is later,
    the caller adds the states of that moment under the key "first".

    Returns:
        The states; None of data that draw nothing, or tell their position.
    """
    if data is None or isinstance(data, list | tuple) or stateful(data) is not None:
        return None
    return {"random": random_state(), **_state_of(loaders_in(data)), "datasets": []}


def loader_state(data: Any) -> dict[str, Any]:
    """Return the states that loaders keep from pass to pass: of generators and datasets, and whether workers run."""
    loaders = loaders_in(data)
    return {**_state_of(loaders), "datasets": [dataset.state_dict() for dataset in _datasets_in(loaders)]}


def put_back(data: Any, kept: Mapping[str, Any]) -> None:
    """Restore what ``loader_state`` returned."""
    loaders = loaders_in(data)
    for loader, had_workers in zip(loaders, kept["has_workers"], strict=False):
        if had_workers and loader.persistent_workers and loader._iterator is None:
            # The workers of the saved training ran on from an earlier pass, so its next pass drew no seed for them:
            # they are started here, and the draw is undone.
            with preserve_random_state():
                iter(loader)
    with translate_position_errors():
        for generator, state in zip(_generators_in(loaders), kept["generators"], strict=False):
            generator.set_state(state)
        for dataset, state in zip(_datasets_in(loaders), kept["datasets"], strict=False):
            dataset.load_state_dict(state)


def read_past(
    data: Iterable[Any],
    skipped: int,
    beginning: Mapping[str, Any] | None,
    kept: Mapping[str, Any] | None,
    note: Callable[[int, Any], object] | None = None,
) -> Iterator[Any]:
    """Return a pass without its first batches; reading these leaves the random states as they are.

    Args:
        data: the data that are read.
        skipped: how many batches are left out.
        beginning: the result of ``beginning_of`` before these batches were given; None if it is unknown.
        kept: the result of ``loader_state`` after these batches were given.
        note: is called with the number of each of these batches, from 1, and with the batch.
    """
    with preserve_random_state():  # the checkpoint has restored the states from after these batches
        if kept is not None:
            put_back(data, kept)
        if beginning is not None:
            _put_back_beginning(data, beginning)
        batches = iter(data)
        if beginning is not None and "first" in beginning:
            _put_back_beginning(data, beginning["first"])
        for number, batch in enumerate(islice(batches, skipped), 1):
            if note is not None:
                note(number, batch)
        if kept is not None and skipped:  # reading the skipped batches has moved the states of the datasets
            put_back(data, {**kept, "generators": []})
    return batches


def _state_of(loaders: list[DataLoader[Any]]) -> dict[str, Any]:
    return {
        "generators": [generator.get_state() for generator in _generators_in(loaders)],
        "has_workers": [loader._iterator is not None for loader in loaders],
    }


def _put_back_beginning(data: object, state: Mapping[str, Any]) -> None:
    with translate_position_errors():
        put_back(data, state)
        set_random_state(state["random"])


@contextmanager
def translate_position_errors() -> Iterator[None]:
    """Turn an error that a saved state causes into a CheckpointError that says so."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TrainManagerError):
            raise
        what = f"the position in the data cannot be restored ({type(error).__name__}: {error!s:.200})"
        raise CheckpointError(what, name="train_data", cure="take another checkpoint") from error


def _datasets_in(loaders: list[DataLoader[Any]]) -> list[Any]:
    # A stream with a state is left out: its state is a place in a pass, which `stateful` returns.
    datasets = [loader.dataset for loader in loaders]
    return [one for one in datasets if has_state(one) and not isinstance(one, IterableDataset)]


WEIGHTS: Final = "weights of the sampler"
SEED: Final = "seed"  # of data that know their position, whose saved state has the seed too
WORKERS: Final = "num_workers"  # the order of the batches does not depend on it
GENERATORS: Final = "seeds of the generators"  # the saved states of the generators are put back
ONLY_WARNED: Final = (SEED, WORKERS, GENERATORS)  # a difference in any other setting is refused


def order_of(data: Any) -> dict[str, Any]:
    """Return the settings that decide which batches a pass gives, as far as they are known.

    >>> order_of([1, 2, 3])
    {'position': 'counted off', 'batches': 3}
    """
    found: dict[str, Any] = {}
    counts_off = stateful(data) is None
    if counts_off:
        found |= {"position": "counted off", "batches": length_of(data)}
    else:
        found |= {"position": "its own", SEED: getattr(data, "seed", None)}
    if counts_off and isinstance(data, DataLoader):
        found |= _of_loader(data)
    else:
        for number, loader in enumerate(loaders_in(data), 1):  # of Interleaved, of a wrapper, and the like
            found |= {f"{name} of loader {number}": value for name, value in _of_loader(loader).items()}
            del found[f"{WORKERS} of loader {number}"]
    if generators := generators_of(data):
        found[GENERATORS] = [generator.initial_seed() for generator in generators]
    return found


def differences(data: Any, saved: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings of ``order_of`` that were different when they were saved: as they are, and as they were."""
    here = order_of(data)
    # Data that know their position have other settings than data that are counted off: comparing them would list all.
    names = ["position"] if here["position"] != saved["position"] else [*{**here, **saved}]
    return {name: (here.get(name), saved.get(name)) for name in names if here.get(name) != saved.get(name)}


def other_order(data: Any, saved: Mapping[str, Any]) -> list[str]:
    """Return a text for each setting without which the data do not give the batches of the saved pass."""
    return [
        f"{name} = {here} here, but {before} in the checkpoint"
        for name, (here, before) in differences(data, saved).items()
        if name not in ONLY_WARNED
    ]


def warn_of_other_draws(data: Any, saved: Mapping[str, Any], *, is_within: bool) -> None:
    """Warn if the draws of the data will differ from those of the training that was saved."""
    found = [
        text
        for name, (here, before) in differences(data, saved).items()
        for text in _texts_of_draws(data, name, here, before, is_within)
    ]
    if found:
        text = f"train_data ({type(data).__name__}): {'; '.join(found)}"
        warnings.warn(text, RuntimeWarning, stacklevel=users_level())


def draws(dataset: object) -> bool:
    """Return whether fetching an example may draw a random number whose state is that of the process."""
    return not draws_nothing(dataset) and not isinstance(dataset, SeededDataset)


def _texts_of_draws(data: Any, name: str, here: Any, before: Any, is_within: bool) -> Iterator[str]:
    if name == WEIGHTS:
        yield "its sampler has other weights than in the checkpoint, and those here are used"
    elif name == SEED and is_within and None not in (here, before):  # at the end of an epoch the new seed is used
        yield f"its seed is {here} here, but {before} in the checkpoint; the latter is used"
    elif name == WORKERS and (here or 0) != (before or 0) and draws(getattr(data, "dataset", None)):
        yield f"num_workers is {here or 0} here, but {before or 0} in the checkpoint; so its dataset draws otherwise"
    elif name == GENERATORS:
        for seed, former in zip(here or (), before or (), strict=False):
            if seed != former:
                seeds = f"{seed} here, but {former} in the checkpoint"
                yield f"the seed of its generator is {seeds}; the latter is used"


def _of_loader(loader: DataLoader[Any]) -> dict[str, Any]:
    batch_sampler = None if loader.batch_sampler is None else type(loader.batch_sampler).__name__
    found = {"batch_size": loader.batch_size, "sampler": type(loader.sampler).__name__, "batch_sampler": batch_sampler}
    found |= {"examples": length_of(loader.dataset), WORKERS: loader.num_workers}
    for item in objects_in(loader):
        if isinstance(seed := getattr(item, "seed", None), int):
            found[f"seed of {type(item).__name__}"] = seed
    if isinstance(weights := getattr(loader.sampler, "weights", None), Tensor):
        found[WEIGHTS] = f"sha256 {_short_hash(weights)}"
    return found


def _short_hash(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(content.numpy().data).hexdigest()[:8]


DRAW_AS_THEY_BEGIN: Final = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, BatchSampler)
"""Samplers whose order depends on nothing but the random state that their pass begins with."""


class Doubt(NamedTuple):
    """Why a training that resumes may get other batches."""

    what: str
    cure: str
    is_at_ends: bool = False  # whether it concerns checkpoints at the end of an epoch too


def repeats_its_order(data: object) -> bool:
    """Return whether every pass that begins alike is sure to give the same batches, so that they can be counted off.

    >>> repeats_its_order(["first", "second"])
    True

    A list does; and so does a DataLoader with torch's samplers, or with a sampler that draws its order from the epoch
    alone (it has ``set_epoch``, as torch's ``DistributedSampler``).
    """
    if isinstance(data, list | tuple):
        return True
    if not isinstance(data, DataLoader):
        return _has_epochs(data)
    if not getattr(data, "in_order", True):  # batches come as workers finish them
        return False
    # A stream decides its order itself: it is known only if it is a function of the epoch.
    if isinstance(data.dataset, IterableDataset):
        return any(map(_has_epochs, objects_in(data)))
    samplers = [one for one in (data.batch_sampler, data.sampler) if one is not None]
    # `type` and not isinstance: a subclass of RandomSampler may draw from elsewhere.
    return _has_epochs(samplers[0]) or all(type(one) in DRAW_AS_THEY_BEGIN or _has_epochs(one) for one in samplers)


def doubts(data: Any) -> Iterator[Doubt]:
    """Yield why a training on a DataLoader, or on data made of such, may not resume as if it had never ended."""
    for loader in loaders_in(data):
        if loader.persistent_workers and draws(loader.dataset):
            what = (
                "keeps its workers, whose random states are in no checkpoint: from any checkpoint, also at the end of "
            )
            cure = "persistent_workers=False resumes exactly"
            yield Doubt(f"{what}an epoch, its dataset draws otherwise", cure, is_at_ends=True)
        if not repeats_its_order(loader) and stateful(loader) is None:
            what = (
                "does not tell its position: from a checkpoint within an epoch, also that of a signal or a time limit,"
            )
            yield Doubt(f"{what} it must give the same batches again", cure_of_order(loader))


def cure_of_order(data: object) -> str:
    """Return what lets data resume exactly that are neither a list nor torch's own."""
    if not isinstance(data, DataLoader):
        return "give it state_dict() and load_state_dict(), or set_epoch() if its order depends on the epoch alone"
    if not getattr(data, "in_order", True):
        return "leave out in_order=False"
    if isinstance(data.dataset, IterableDataset):
        where = "the loader, since workers read its dataset," if data.num_workers else "its dataset"
        return f"give {where} state_dict() and load_state_dict()"
    return "give its sampler set_epoch(), if its order depends on the epoch alone"


def _has_epochs(item: object) -> bool:
    return callable(getattr(item, "set_epoch", None))


def left_as_found(data: object) -> AbstractContextManager[None]:
    """Return a context in which passes over the data begin at their start, and which puts back what they moved."""
    if callable(method := getattr(data, "left_as_found", None)):
        kept: AbstractContextManager[None] = method()
        return kept
    return _loader_as_found(data) if isinstance(data, DataLoader) else _wrapped_as_found(data)


@contextmanager
def _wrapped_as_found(data: object) -> Iterator[None]:
    with ExitStack() as stack:
        for one in wrapped_in(data):
            stack.enter_context(left_as_found(one))
        yield


@contextmanager
def _loader_as_found(loader: DataLoader[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for generator in _generators_in([loader]):  # from which the next pass of the training draws its order
            stack.callback(generator.set_state, generator.get_state())
        if loader.persistent_workers:
            stack.enter_context(_other_workers(loader))
        yield


# The iterator of each loader whose workers read evaluations, for as long as the loader lives. Weak keys suffice,
# because an iterator does not refer to its loader.
_workers: WeakKeyDictionary[DataLoader[Any], Any] = WeakKeyDictionary()


@contextmanager
def _other_workers(loader: DataLoader[Any]) -> Iterator[None]:
    """Give a loader with persistent workers a second set of workers for a ``with`` block."""
    # A loader has one iterator, in `_iterator` (torch 2.13), and iter(loader) winds it back: a training in the middle
    # of an epoch would lose batches without an error, and the random states of its workers would move.
    training, loader._iterator = loader._iterator, _workers.pop(loader, None)
    try:
        yield
        _workers[loader] = loader._iterator  # not after an error, which may have broken them
    finally:
        loader._iterator = training
