"""Data without a position of their own: their pass is begun again from the same state, and read up to its place.

A DataLoader draws the order of a pass, and a seed for its workers, as the pass begins: from torch's random state, or
from a generator of its own. With these states restored it gives the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from torch import Generator
from torch.utils.data import DataLoader, IterableDataset

from train_manager.data.random_state import preserve_random_state, random_state, set_random_state
from train_manager.data.readable import objects_in
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError, TrainManagerError


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
    """Return the loaders without a state of their own: a loader itself, or those that ``Interleaved`` is made of."""
    if isinstance(data, DataLoader):
        return [] if has_state(data) else [data]
    inner = getattr(data, "data", None) if has_state(data) else None  # of Interleaved and Together by name
    sets = inner.values() if isinstance(inner, dict) else (inner,)
    return [loader for one in sets if isinstance(one, DataLoader) or has_state(one) for loader in loaders_in(one)]


def generators_of(data: object) -> list[Generator]:
    """Return the generators of loaders, and of their samplers and datasets."""
    objects = [item for loader in loaders_in(data) for item in objects_in(loader)]
    found = [getattr(item, "generator", None) for item in objects]
    return [*{id(one): one for one in found if isinstance(one, Generator)}.values()]


def beginning_of(data: Any) -> dict[str, Any] | None:
    """Return the states that a loader draws the order of a pass from, if called right before it; None for other data.

    A loader without workers draws again as its first batch is asked for. If that is later, the caller adds the states
    of that moment under the key "first".
    """
    if not isinstance(data, DataLoader) or stateful(data) is not None:
        return None
    return {"random": random_state(), **_generator_state(data), "datasets": []}


def loader_state(data: Any) -> dict[str, Any]:
    """Return the states that loaders keep from pass to pass: of generators and datasets, and whether workers run."""
    return {**_generator_state(data), "datasets": [dataset.state_dict() for dataset in _datasets_asked_by_number(data)]}


def put_back(data: Any, kept: Mapping[str, Any]) -> None:
    """Restore what ``loader_state`` returned."""
    for loader, had_workers in zip(loaders_in(data), kept["has_workers"], strict=False):
        if had_workers and loader.persistent_workers and loader._iterator is None:
            # The workers of the saved training ran on from an earlier pass, so its next pass drew no seed for them:
            # they are started here, and the draw is undone.
            with preserve_random_state():
                iter(loader)
    with translate_position_errors():
        for generator, state in zip(generators_of(data), kept["generators"], strict=False):
            generator.set_state(state)
        for dataset, state in zip(_datasets_asked_by_number(data), kept["datasets"], strict=False):
            dataset.load_state_dict(state)


def read_past(
    data: Iterable[Any], skipped: int, beginning: Mapping[str, Any] | None, kept: Mapping[str, Any] | None
) -> Iterator[Any]:
    """Return a pass without its first batches; reading these leaves the random states as they are.

    Args:
        data: the data that are read.
        skipped: how many batches are left out.
        beginning: the result of ``beginning_of`` before these batches were given; None if it is unknown.
        kept: the result of ``loader_state`` after these batches were given.
    """
    with preserve_random_state():  # the checkpoint has restored the states from after these batches
        if kept is not None:
            put_back(data, kept)
        if beginning is not None:
            _put_back_beginning(data, beginning)
        batches = iter(data)
        if beginning is not None and "first" in beginning:
            _put_back_beginning(data, beginning["first"])
        for _ in islice(batches, skipped):
            pass
        if kept is not None and skipped:  # reading the skipped batches has moved the states of the datasets
            put_back(data, {**kept, "generators": []})
    return batches


def _generator_state(data: object) -> dict[str, Any]:
    return {
        "generators": [generator.get_state() for generator in generators_of(data)],
        "has_workers": [loader._iterator is not None for loader in loaders_in(data)],
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


def _datasets_asked_by_number(data: object) -> list[Any]:
    # A stream with a state is left out: its state is a place in a pass, which `stateful` returns.
    datasets = [loader.dataset for loader in loaders_in(data)]
    return [one for one in datasets if has_state(one) and not isinstance(one, IterableDataset)]
