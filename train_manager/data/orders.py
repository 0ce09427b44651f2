"""The settings that decide which batches a pass gives: they must be the same in a training that resumes."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader

from train_manager.data.read_again import generators_of, loaders_in, stateful
from train_manager.data.readable import length_of, objects_in
from train_manager.data.seeded_dataset import SeededDataset, draws_nothing
from train_manager.telling.source_locations import users_level

WEIGHTS: Final = "weights of the sampler"
SEED: Final = "seed"  # of data that know their position, whose saved state has the seed too
WORKERS: Final = "num_workers"  # the order of the batches does not depend on it
ONLY_WARNED: Final = (SEED, WORKERS)  # differences of which `warn_of_other_draws` warns; all others are refused


def order_of(data: Any) -> dict[str, Any]:
    """Return the settings that decide which batches a pass gives, as far as they are known.

    >>> order_of([1, 2, 3])
    {'position': 'counted off', 'batches': 3}
    """
    if stateful(data) is None:
        found: dict[str, Any] = {"position": "counted off", "batches": length_of(data)}
        return found | _of_loader(data) if isinstance(data, DataLoader) else found
    found = {"position": "its own", SEED: getattr(data, "seed", None)}
    for number, loader in enumerate(loaders_in(data), 1):  # of Interleaved and the like
        found |= {f"{name} of loader {number}": value for name, value in _of_loader(loader).items() if name != WORKERS}
    return found


def other_order(data: Any, saved: Mapping[str, Any]) -> list[str]:
    """Return a text for each setting of ``order_of`` that was different when it was saved."""
    here = order_of(data)
    # Data that know their position have other settings than data that are counted off: comparing them would list all.
    names = ["position"] if here["position"] != saved["position"] else [*{**here, **saved}]
    return [
        f"{name} = {here.get(name)} here, but {saved.get(name)} in the checkpoint"
        for name in names
        if here.get(name) != saved.get(name) and name not in ONLY_WARNED
    ]


def draws(dataset: object) -> bool:
    """Return whether fetching an example may draw a random number whose state is that of the process."""
    return not draws_nothing(dataset) and not isinstance(dataset, SeededDataset)


def warn_of_other_draws(data: Any, order: Mapping[str, Any], kept: Mapping[str, Any], *, is_within: bool) -> None:
    """Warn if the draws of the data will differ from those of the training that was saved."""
    here, found = order_of(data), []
    if order.get(WEIGHTS) != here.get(WEIGHTS):
        found.append("its sampler has other weights than in the checkpoint, and those here are used")
    seed, saved_seed = here.get(SEED), order.get(SEED)
    # At the end of an epoch the new seed is used.
    if is_within and None not in (seed, saved_seed) and seed != saved_seed:
        found.append(f"its seed is {seed} here, but {saved_seed} in the checkpoint; the latter is used")
    workers, before = (one.get(WORKERS, 0) for one in (here, order))
    if workers != before and draws(getattr(data, "dataset", None)):
        found.append(f"num_workers is {workers} here, but {before} in the checkpoint; so its dataset draws otherwise")
    for generator, state in zip(generators_of(data), kept["generators"], strict=False):
        saved = Generator(generator.device)  # only to ask the saved state for its seed
        saved.set_state(state)
        if saved.initial_seed() != generator.initial_seed():
            seeds = f"{generator.initial_seed()} here, but {saved.initial_seed()} in the checkpoint"
            found.append(f"the seed of its generator is {seeds}; the latter is used")
    if found:
        text = f"train_data ({type(data).__name__}): {'; '.join(found)}"
        warnings.warn(text, RuntimeWarning, stacklevel=users_level())


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
