"""What a batch is made of, whatever its shapes; and the check that this stays the same in a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from torch import Tensor

from train_manager.core.errors import InputError


@final
class SameStructure:
    """Refuses a batch that is made of other parts than the first one; shapes may differ.

    >>> import torch
    >>> x = torch.zeros(8, 3)
    >>> same = SameStructure("train_data")
    >>> same.check({"inputs": x, "targets": x}, step=1)
    >>> same.check({"inputs": x[:5], "targets": x}, step=2)
    >>> same.check({"inputs": x}, step=3)
    Traceback (most recent call last):
    train_manager.InputError: train_data gave a batch of another structure in step 3
      first  {'inputs': tensor, 'targets': tensor}
      now    {'inputs': tensor}
      the parts and keys of batches must stay the same in a run; shapes may differ

    It looks at the types of the parts, never at values, and at what lies deeper only where there is something.

    Args:
        name: what messages call the data.

    Attributes:
        is_pair: batches are inputs and targets, both plain tensors, so that who sees two of these need not call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: str | None = None
        self._flat: tuple[Any, ...] | None = None  # types of the parts of a batch that has passed and is not nested
        self.is_pair = False

    def check(self, batch: Any, step: int) -> None:
        """Compare with the first batch; the first is remembered.

        Raises:
            InputError: it is made of other parts.
        """
        types = (*batch, *map(type, batch.values())) if type(batch) is dict else types_of_parts(batch)
        if types == self._flat:
            return
        structure = structure_of(batch)
        if self._first is None:
            self._first = structure
        if structure != self._first:
            raise InputError(
                f"{self._name} gave a batch of another structure in step {step}\n"
                f"  first  {self._first:.300}\n  now    {structure:.300}",
                name="batch",
                cure="the parts and keys of batches must stay the same in a run; shapes may differ",
            )
        if all(issubclass(part, Tensor) for part in types if isinstance(part, type)):
            self._flat = types
            self.is_pair = types == ("inputs", "targets", Tensor, Tensor)


@final
class Structures(dict[str, SameStructure]):
    """A check for each set of data, by its name, made when it is first asked for.

    >>> Structures()["train_data"].check((1, 2), step=1)
    """

    def __missing__(self, name: str) -> SameStructure:
        made = self[name] = SameStructure(name)
        return made


def types_of_parts(batch: Any) -> tuple[Any, ...]:
    """Keys and types of a batch, one level deep."""
    if isinstance(batch, dict):
        return (*batch, *map(type, batch.values()))
    if isinstance(batch, (list, tuple)):  # in the path of every step
        return tuple(map(type, batch))
    return (type(batch),)


def structure_of(value: Any) -> str:
    """What a value is made of, in the words that an error shows.

    >>> import torch
    >>> x = torch.zeros(2)
    >>> structure_of(([x, x], {"y": x, "text": ["a", "b"]})), structure_of(None)
    ("((tensor, tensor), {'text': [...], 'y': tensor})", 'None')

    How long a list of examples is says nothing, and is left out. For one is taken: a list whose entries are alike and
    no tensors, and lists of one length beside which there is nothing else.

    >>> structure_of([(x, x), (x, x)]), structure_of({"pictures": [x, x], "boxes": [x, x]})
    ('[[tensor, ...], ...]', "{'boxes': [tensor, ...], 'pictures': [tensor, ...]}")
    """
    if isinstance(value, Tensor):
        return "tensor"
    if isinstance(value, Mapping):
        as_columns = are_columns(value.values())
        parts = {str(key): f"{key!r}: {part_of(value[key], as_columns)}" for key in value}
        return "{" + ", ".join(parts[key] for key in sorted(parts)) + "}"
    if isinstance(value, list | tuple):
        return sequence_of(value)
    return "None" if value is None else "..."


def sequence_of(value: list[Any] | tuple[Any, ...]) -> str:
    """What a list or tuple is made of; both count as the same, for loaders make one of the other."""
    as_columns = are_columns(value)
    parts = [part_of(part, as_columns) for part in value]
    if len(set(parts)) == 1 and not isinstance(value[0], Tensor):
        return "[...]" if parts[0] == "..." else f"[{parts[0]}, ...]"
    return f"({', '.join(parts)})"


def part_of(value: Any, is_column: bool) -> str:
    """What one part of a batch is made of; of a column of examples its length is left out."""
    examples = {structure_of(example) for example in value} if is_column else set()
    if len(examples) != 1:
        return structure_of(value)
    example = examples.pop()
    return "[...]" if example == "..." else f"[{example}, ...]"


def are_columns(parts: Any) -> bool:
    """Whether all parts are lists of one length: one entry per example."""
    return all(isinstance(part, list | tuple) for part in parts) and len({len(part) for part in parts}) == 1
