"""The tricks that may make the steps of a training faster: which of them suit it, and how each is put in place."""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from train_manager.core.extension import Extension
from train_manager.data.batch import tensors_in
from train_manager.data.in_memory import InMemory
from train_manager.data.seeded_loader import SeededDataLoader
from train_manager.extensions.optimization.mixed_precision import MixedPrecision
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError, did_you_mean, near

WORKERS: Final = (0, 2, 4, 8)
"""The numbers of workers that are tried, up to the number of processors."""
KINDS: Final = ("fused", "channels_last", "bf16", "Compile", "InMemory", "workers", "pinned")
"""The tricks by name, of which some may be left out."""
IMAGES: Final = 4  # the dimensions of a batch of images, and of the weights of their convolutions


@final
@dataclass(frozen=True)
class Trick:
    """A change to a training that may make its steps faster.

    Attributes:
        name: its name in the table.
        lines: the code that does the same below ``tm = TrainManager(...)``.
        imports: the imports of these lines.
        apply: puts it in place in a manager that is being tried.
        extension: makes the extension that it consists of.
        reads: what it changes of how batches are read, of which a training can have one; empty if it changes how a
            batch is computed.
        note: what the differences do not show.
    """

    name: str
    lines: tuple[str, ...]
    imports: tuple[str, ...] = ()
    apply: Callable[[TrainManager], object] = lambda train_manager: None
    extension: Callable[[], Extension] | None = None
    reads: str = ""
    note: str = ""

    @property
    def kind(self) -> str:
        """The name without the number of workers: one of ``KINDS``."""
        return self.name.split()[-1]


def require_kinds(given: str | Iterable[str]) -> frozenset[str]:
    """Return the kinds of tricks that are left out.

    >>> require_kinds(["Compile", "bf61"])
    Traceback (most recent call last):
    train_manager.errors.InputError: there is no trick 'bf61'
      did you mean 'bf16'?

    Raises:
        InputError: there is no such kind.
    """
    kinds = frozenset([given] if isinstance(given, str) else given)
    for one in sorted(kinds.difference(KINDS), key=repr):
        cure = did_you_mean(near(str(one), KINDS, cutoff=0.5)) or f"the tricks are: {', '.join(KINDS)}"
        raise InputError(f"there is no trick {one!r}", name="without", cure=cure)
    return kinds


def tricks_for(train_manager: TrainManager, batch: Any) -> Iterator[Trick]:
    """Yield the tricks that suit a training and that it does not use yet.

    Args:
        train_manager: the manager of the training.
        batch: one of its batches.
    """
    tm, data = train_manager, train_manager.train_data
    groups = [group for one in tm.optimizers.values() for group in one.param_groups]
    if all("fused" in group and not group["fused"] for group in groups):
        yield FUSED
    of_model = tm.model.parameters() if isinstance(tm.model, nn.Module) else ()
    if any(one.dim() == IMAGES for one in tensors_in(batch)) and any(one.dim() == IMAGES for one in of_model):
        yield CHANNELS_LAST
    yield from (_of_extension(one) for one in _extensions(tm))
    memory = _in_memory(data)
    if memory is not None:
        yield memory
    elif isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):  # workers would repeat it
        yield from map(_workers, _numbers_of_workers(data))
        if tm.device is not None and tm.device.type == "cuda" and not data.pin_memory:
            yield PINNED


# ---- how a batch is computed -----------------------------------------------------------------------------------------


def _fuse(train_manager: TrainManager) -> None:
    for optimizer in train_manager.optimizers.values():
        for group in optimizer.param_groups:
            group.update(fused=True, foreach=False)
        if optimizer.state:
            optimizer.load_state_dict(optimizer.state_dict())  # moves the counts of steps to where fused needs them


def _lay_out_channels_last(train_manager: TrainManager) -> None:
    train_manager.model.to(memory_format=torch.channels_last)
    for optimizer in train_manager.optimizers.values():
        _lay_out_state(optimizer)


def _lay_out_state(optimizer: Optimizer) -> None:
    """Lay out what an optimizer that has stepped keeps of each weight as the weight is, which fused needs."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


FUSED: Final = Trick(
    "fused",
    (
        "for optimizer in tm.optimizers.values():  # or where it is made: fused=True",
        "    for group in optimizer.param_groups:",
        "        group.update(fused=True, foreach=False)",
    ),
    apply=_fuse,
)
CHANNELS_LAST: Final = Trick(
    "channels_last",
    ("tm.model.to(memory_format=torch.channels_last)",),
    ("import torch",),
    apply=_lay_out_channels_last,
)


def _extensions(train_manager: TrainManager) -> list[type[Extension]]:
    """Return the extensions that a training lacks."""
    # Looked up by name: an installation may lack it.
    compiles = getattr(importlib.import_module("train_manager.extensions"), "Compile", None)
    known = [MixedPrecision, *([] if compiles is None else [compiles])]
    return [one for one in known if not any(isinstance(there, one) for there in train_manager.extensions.values())]


def _of_extension(extension: type[Extension]) -> Trick:
    name = extension.__name__
    imports = f"from train_manager.extensions import {name}"
    shown = "bf16" if extension is MixedPrecision else name
    return Trick(shown, (f"tm.add_extension({name}())",), (imports,), extension=extension)


# ---- how batches are read --------------------------------------------------------------------------------------------


def _in_memory(data: Any) -> Trick | None:
    """Return the trick to cut batches out of the tensors of a loader; None if the loader does more than that."""
    dataset: Any = getattr(data, "dataset", None)
    options: dict[str, Any] = {}
    if isinstance(data, SeededDataLoader):
        # InMemory of this seed has the same order; a SeededDataset has the attributes of the dataset in it.
        dataset, options = dataset.dataset, {"seed": data.seed}
    if type(dataset) is not TensorDataset or len(dataset.tensors) < 2 or not _is_plain(data):
        return None
    shuffles = not isinstance(data.sampler, SequentialSampler) and getattr(data, "shuffle", True)
    options |= {"batch_size": data.batch_size, "shuffle": shuffles, "drop_last": data.drop_last}
    given = ", ".join(f"{name}={value}" for name, value in options.items() if value)

    def apply(train_manager: TrainManager) -> None:
        train_manager.train_data = InMemory(*dataset.tensors, device=train_manager.device, **options)

    return Trick(
        "InMemory",
        (
            "tm.train_data = InMemory(",
            "    *tm.train_data.dataset.tensors,",
            f"    {given}, device=tm.device",
            ")",
        ),
        ("from train_manager import InMemory",),
        apply=apply,
        reads="source",
        note="InMemory shuffles in an order of its own" if shuffles and "seed" not in options else "",
    )


def _is_plain(loader: Any) -> bool:
    """Return whether a loader gives the rows of its dataset as they are, in their order or shuffled."""
    if loader.batch_size is None or loader.collate_fn is not default_collate:
        return False
    if isinstance(loader, SeededDataLoader):
        return True
    sampler = loader.sampler
    draws_all = (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(loader.dataset)
    )
    return type(loader.batch_sampler) is BatchSampler and (draws_all or type(sampler) is SequentialSampler)


def _numbers_of_workers(loader: DataLoader[Any]) -> Sequence[int]:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [number for number in WORKERS if number <= processors and number != loader.num_workers]


def _workers(number: int) -> Trick:
    def apply(train_manager: TrainManager) -> None:
        loader: Any = train_manager.train_data
        options: dict[str, Any] = {"num_workers": number}
        if not number:
            options |= {"persistent_workers": False, "prefetch_factor": None}
        elif loader.prefetch_factor is None:
            options["prefetch_factor"] = 2  # torch's default
        train_manager.train_data = _with_options(loader, options)

    line = f"# where the DataLoader is made: DataLoader(..., num_workers={number})"
    return Trick(f"{number} workers", (line,), apply=apply, reads="workers")


def _pin(train_manager: TrainManager) -> None:
    train_manager.train_data = _with_options(train_manager.train_data, {"pin_memory": True})


def _with_options(loader: Any, options: dict[str, Any]) -> Any:
    made = copy.copy(loader)
    # Without the iterator the copy starts workers of its own. DataLoader refuses that some attributes are set.
    vars(made).update({**options, "_iterator": None})
    return made


PINNED: Final = Trick(
    "pinned", ("# where the DataLoader is made: DataLoader(..., pin_memory=True)",), apply=_pin, reads="pinning"
)
