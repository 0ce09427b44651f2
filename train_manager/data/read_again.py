"""Data without a position of their own: what their pass began with, so that it can be read again up to its place.

A DataLoader draws the order of a pass, and a seed for its workers, as the pass begins: from torch's random state, or
from a generator of its own. Whoever restores these states gets the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from torch import Generator
from torch.utils.data import DataLoader, IterableDataset

from train_manager.data.iteration import parts_of_data
from train_manager.data.randomness import preserved_random_state, random_state, set_random_state
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError, TrainManagerError


def stateful(data: Any) -> Any:
    """Return what knows the place in a pass: the data, or the stream that a loader reads in this process; or None."""
    if has_state(data):
        return data
    is_stream = isinstance(data, DataLoader) and isinstance(data.dataset, IterableDataset) and not data.num_workers
    return data.dataset if is_stream and has_state(data.dataset) else None


def tells_its_ends(data: Any) -> bool:
    """Return whether the state of data is wanted also between two passes; that of a stream is its place in a pass."""
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
    parts = [part for loader in loaders_in(data) for part in parts_of_data(loader)]
    found = [getattr(part, "generator", None) for part in parts]
    return [*{id(one): one for one in found if isinstance(one, Generator)}.values()]


def beginning_of(data: Any) -> dict[str, Any] | None:
    """Return what the order of a pass is drawn from, to be asked right before it begins; None if it is not a loader.

    A loader without workers draws again as its first batch is asked for. If that is later, what it draws from then
    belongs to it under the key "first".
    """
    if not isinstance(data, DataLoader) or stateful(data) is not None:
        return None
    return {"random": random_state(), **_drawn_from(data), "datasets": []}


def kept_of(data: Any) -> dict[str, Any]:
    """Return what loaders keep from pass to pass: generators, datasets with a state, and whether workers run."""
    return {**_drawn_from(data), "datasets": [dataset.state_dict() for dataset in _datasets_asked_by_number(data)]}


def put_back(data: Any, kept: Mapping[str, Any]) -> None:
    """Restore what ``kept_of`` returned."""
    for loader, had_workers in zip(loaders_in(data), kept["has_workers"], strict=False):
        if had_workers and loader.persistent_workers and loader._iterator is None:
            with preserved_random_state():  # the seed of the workers was drawn in an earlier pass, and is not again
                iter(loader)
    with told_as_position():
        for generator, state in zip(generators_of(data), kept["generators"], strict=False):
            generator.set_state(state)
        for dataset, state in zip(_datasets_asked_by_number(data), kept["datasets"], strict=False):
            dataset.load_state_dict(state)


def read_past(
    data: Iterable[Any], skipped: int, beginning: Mapping[str, Any] | None, kept: Mapping[str, Any] | None
) -> Iterator[Any]:
    """Return a pass without its first batches; reading these leaves the random states as they are.

    Args:
        data: what is read.
        skipped: how many batches are left out.
        beginning: what ``beginning_of`` returned before these were given; None if it is unknown.
        kept: what ``kept_of`` returned after these were given.
    """
    with preserved_random_state():  # that of after these batches was restored already
        if kept is not None:
            put_back(data, kept)
        if beginning is not None:
            _put_back_beginning(data, beginning)
        batches = iter(data)
        if beginning is not None and "first" in beginning:
            _put_back_beginning(data, beginning["first"])
        for _ in islice(batches, skipped):
            pass
        if kept is not None and skipped:  # which has moved the datasets
            put_back(data, {**kept, "generators": []})
    return batches


def _drawn_from(data: object) -> dict[str, Any]:
    return {
        "generators": [generator.get_state() for generator in generators_of(data)],
        "has_workers": [loader._iterator is not None for loader in loaders_in(data)],
    }


def _put_back_beginning(data: object, state: Mapping[str, Any]) -> None:
    with told_as_position():
        put_back(data, state)
        set_random_state(state["random"])


@contextmanager
def told_as_position() -> Iterator[None]:
    """Let an error about a saved state say that it is one."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TrainManagerError):
            raise
        what = f"the position in the data cannot be restored ({type(error).__name__}: {error!s:.200})"
        raise CheckpointError(what, name="train_data", cure="take another checkpoint") from error


def _datasets_asked_by_number(data: object) -> list[Any]:
    datasets = [loader.dataset for loader in loaders_in(data)]
    return [one for one in datasets if has_state(one) and not isinstance(one, IterableDataset)]
