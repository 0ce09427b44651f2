"""The inputs and targets of a batch, whatever its type; whether batches keep their structure; data in a few words."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sized
from typing import Any, NamedTuple, TypedDict, final

import torch
from torch import Tensor

from train_manager.telling.errors import InputError
from train_manager.telling.showing import cut

FIXTURES_OF_A_BATCH = frozenset(
    {
        "batch",
        "batch_num",
        "datasource_name",
        "end_step",
        "epoch_num",
        "example_index",
        "extensible",
        "fixtures",
        "global_batch_size",
        "inputs",
        "last_batch",
        "loss",
        "loss_parts",
        "losses",
        "model",
        "prediction",
        "samples_seen",
        "stage",
        "start_step",
        "step_num",
        "targets",
        "train_dir",
        "train_manager",
        "true_batch_size",
        "update_begins",
        "update_ends",
        "update_num",
    }
)
"""The fixtures that a loss or a metric can name; without those whose names none takes by mistake for something else."""


class FromSource(NamedTuple):
    """A batch and the name of the set of data that it comes from; the loop unpacks it."""

    datasource_name: str
    batch: Any


def without_source(batch: Any) -> Any:
    """Return the batch itself, if it carries the name of its set."""
    return batch.batch if type(batch) is FromSource else batch


class Unpacked(TypedDict, total=False):
    """The inputs and the targets of a batch."""

    inputs: Any
    targets: Any


def unpack(batch: Any) -> Unpacked:
    """Return the ``inputs`` and the ``targets`` of a batch.

    A list or tuple of two has both, and so does a dict with these keys. Any other batch is ``inputs`` as a whole.

    >>> unpack((1, 2)), unpack({"inputs": 1}), unpack({"pixels": 1})
    ({'inputs': 1, 'targets': 2}, {'inputs': 1}, {'inputs': {'pixels': 1}})
    """
    # This runs in each step, where `list | tuple` would build a new type object.
    if isinstance(batch, (list, tuple)) and len(batch) == 2:
        return {"inputs": batch[0], "targets": batch[1]}
    if isinstance(batch, Mapping) and "inputs" in batch:
        return (
            {"inputs": batch["inputs"], "targets": batch["targets"]}
            if "targets" in batch
            else {"inputs": batch["inputs"]}
        )
    # A dict with other keys, such as the batch of a tokenizer, is the inputs as a whole.
    return {"inputs": batch}


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested dicts, lists and tuples, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)


def map_batch(batch: Any, of_leaf: Callable[[Any], Any], is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Return a batch with a function applied to everything in it that is not a dict, a list or a tuple.

    >>> map_batch({"x": [1, 2], "y": (3,)}, lambda number: 10 * number)
    {'x': [10, 20], 'y': (30,)}

    Args:
        batch: the batch; containers in it become new ones of the same type.
        of_leaf: returns the new value.
        is_leaf: returns whether a list or a tuple is given to ``of_leaf`` as a whole.
    """
    if isinstance(batch, MutableMapping):
        mapped = copy.copy(batch)  # not type(batch)(...): a subclass of dict may take other arguments
        mapped.update({key: map_batch(value, of_leaf, is_leaf) for key, value in batch.items()})
        return mapped
    if isinstance(batch, Mapping):
        return {key: map_batch(value, of_leaf, is_leaf) for key, value in batch.items()}
    # A PackedSequence is a tuple, but one thing: it has a method `to`, as a graph of PyTorch Geometric.
    if not isinstance(batch, list | tuple) or hasattr(batch, "to") or (is_leaf is not None and is_leaf(batch)):
        return of_leaf(batch)
    entries = [map_batch(value, of_leaf, is_leaf) for value in batch]
    return type(batch)(*entries) if hasattr(batch, "_fields") else type(batch)(entries)


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with all its tensors on ``device``, without waiting for the copies.

    A copy to a GPU overlaps with computation only if the batch is in pinned memory: ``DataLoader(...,
    pin_memory=True)``. ``InMemory(..., device="cuda")`` needs no copies at all.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device, non_blocking=True)
        return value.to(device) if callable(getattr(value, "to", None)) else value

    return map_batch(batch, moved)


@final
class SameStructure:
    """Refuse a batch whose structure differs from that of the first batch; shapes may differ.

    >>> x = torch.zeros(8, 3)
    >>> same = SameStructure("train_data")
    >>> same.check({"inputs": x, "targets": x}, step=1)
    >>> same.check({"inputs": x[:5], "targets": x}, step=2)
    >>> same.check({"inputs": x}, step=3)
    Traceback (most recent call last):
    train_manager.errors.InputError: train_data gave a batch of another structure in step 3
      first  {'inputs': tensor, 'targets': tensor}
      now    {'inputs': tensor}
      this batch is not a pair: give each as (inputs, targets)

    Args:
        name: the name of the data in error texts.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: str | None = None  # the structure of the first batch
        self._flat: tuple[Any, ...] | None = None  # keys and types of a batch that has passed and has tensors only

    def check(self, batch: Unpacked, step: int) -> None:
        """Compare a batch with the first one.

        Raises:
            InputError: the structure is a different one.
        """
        types = (*batch, *map(type, batch.values()))
        # Nearly every batch of a training returns here: describing a batch takes longer.
        if types == self._flat:
            return
        structure = structure_of(batch)
        if self._first is None:
            self._first = structure
        if structure != self._first:
            has_lost_targets = "'targets'" in self._first and "targets" not in batch
            raise InputError(
                f"{self._name} gave a batch of another structure in step {step}\n"
                f"  first  {self._first:.300}\n  now    {structure:.300}",
                name="batch",
                cure="this batch is not a pair: give each as (inputs, targets)"
                if has_lost_targets
                else "the parts and keys of batches must stay the same in a run; shapes may differ",
            )
        if all(isinstance(entry, Tensor) for entry in batch.values()):
            self._flat = types


@final
class Structures(dict[str, SameStructure]):
    """The check of each set of data, by its name; made on first use.

    >>> Structures()["train_data"].check({"inputs": 1, "targets": 2}, step=1)
    """

    def __missing__(self, name: str) -> SameStructure:
        check = self[name] = SameStructure(name)
        return check


def structure_of(batch: Unpacked) -> str:
    """Describe what inputs and targets are made of: a tensor, so many tensors, the keys of a dict, a list.

    >>> x = torch.zeros(2)
    >>> structure_of({"inputs": [x, x], "targets": {"y": x, "text": ["a", "b"]}})
    "{'inputs': (tensor, tensor), 'targets': {'text', 'y'}}"

    The length of a list of examples is left out, because it varies: of a list of anything but tensors, and where inputs
    and targets are lists alike.

    >>> structure_of({"inputs": [x, x], "targets": [{"boxes": x}, {"boxes": x}]})
    "{'inputs': [tensor, ...], 'targets': [...]}"
    """
    lists_examples = all(isinstance(entry, list | tuple) for entry in batch.values())
    return "{" + ", ".join(f"{name!r}: {_entry(batch[name], lists_examples)}" for name in sorted(batch)) + "}"  # type: ignore[literal-required]


def _entry(entry: Any, lists_examples: bool) -> str:
    if isinstance(entry, Tensor):
        return "tensor"
    if isinstance(entry, Mapping):
        return "{" + ", ".join(sorted(map(repr, entry))) + "}"
    if not isinstance(entry, list | tuple):
        return "None" if entry is None else "..."
    if not (entry and isinstance(entry[0], Tensor)):
        return "[...]"
    return "[tensor, ...]" if lists_examples else f"({', '.join(['tensor'] * len(entry))})"


def batches_text(data: Iterable[Any]) -> str:
    """Return the class of the data, and how many batches it has; of data of this library its own ``repr``.

    >>> batches_text([1, 2, 3]), batches_text(iter([1]))
    ('list(3 batches)', 'list_iterator')
    """
    kind = type(data)
    # InMemory, Interleaved and the like describe themselves, with the sets in them.
    if kind.__module__.startswith("train_manager."):
        return cut(repr(data))
    try:
        length = len(data) if isinstance(data, Sized) else None
    except Exception:  # a DataLoader of an IterableDataset has a len() that raises
        length = None
    if length is None:
        return kind.__name__
    size = getattr(data, "batch_size", None)
    return f"{kind.__name__}({count_text(length, size if isinstance(size, int) else None)})"


def count_text(batches: int, size: int | None) -> str:
    """Return ``23 batches of 64``."""
    of = "" if size is None else f" of {size:,}"
    return f"{batches:,} batch{'' if batches == 1 else 'es'}{of}"


def sets_text(sets: Mapping[str, Iterable[Any]]) -> str:
    """Return ``{'valid': list(3 batches)}``."""
    return cut(f"{{{', '.join(f'{name!r}: {batches_text(data)}' for name, data in sets.items())}}}")
