"""The values in which two states differ, to the bit, by their paths."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from train_manager.files.json_values import display_keys

TIMES: Final = ("seconds", "elapsed", "call")  # keys whose values differ between any two runs
SHOWN: Final = 60  # characters of a value in a text

Path = tuple[Any, ...]
Names = tuple[str, str]  # the names of the two states in the texts


def differences(one: Any, other: Any, names: Names, *, skip: Collection[str] = TIMES) -> Iterator[str]:
    """Yield each value that differs, by its path.

    >>> straight, resumed = {"total": 3.5, "mean": torch.tensor([1.0, 2.0])}, {"total": 3.5, "mean": torch.ones(2)}
    >>> list(differences(straight, resumed, ("straight", "resumed")))
    ['mean: 1 of 2 values differ, by 1 at most']

    Args:
        names: the names of the two states in the texts.
        skip: keys of dicts that are not compared.
    """
    yield from _differences(one, other, (), names, skip)


def _differences(one: Any, other: Any, path: Path, names: Names, skip: Collection[str]) -> Iterator[str]:
    if type(one) is not type(other):
        yield f"{display_keys(path)}: {_describe(one)} in the {names[0]}, {_describe(other)} in the {names[1]}"
    elif isinstance(one, Mapping):
        yield from _of_mappings(one, other, path, names, skip)
    elif isinstance(one, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, (*path, number), names, skip)
    elif isinstance(one, Tensor | np.ndarray):
        yield from _of_arrays(one, other, path, names)
    elif one != other and not (one != one and other != other):  # `x != x` holds for nan: two of them count as equal
        yield f"{display_keys(path)}: {_describe(one)} in the {names[0]}, {_describe(other)} in the {names[1]}"


def _of_mappings(
    one: Mapping[Any, Any], other: Mapping[Any, Any], path: Path, names: Names, skip: Collection[str]
) -> Iterator[str]:
    for key in [*one, *(key for key in other if key not in one)]:
        if key in skip:
            continue
        if key not in one or key not in other:
            yield f"{display_keys((*path, key))}: missing in the {names[0] if key not in one else names[1]}"
        else:
            yield from _differences(one[key], other[key], (*path, key), names, skip)


def _of_arrays(one: Any, other: Any, path: Path, names: Names) -> Iterator[str]:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        yield f"{display_keys(path)}: {_describe(one)} in the {names[0]}, {_describe(other)} in the {names[1]}"
        return
    # Compared as bytes: == takes 0.0 and -0.0 for equal, and nan for different.
    differ = (_bits(one) != _bits(other)).any(axis=1)
    if differ.any():
        text = f"{display_keys(path)}: {differ.sum()} of {differ.size} values differ"
        yield text + _largest(one, other)


def _bits(values: Any) -> np.ndarray[Any, Any]:
    """Return the bytes of each number in a row of its own."""
    if isinstance(values, Tensor):
        flat = values.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().reshape(flat.numel(), -1) if flat.numel() else np.zeros((0, 1))
    return np.frombuffer(values.tobytes(), np.uint8).reshape(values.size, -1) if values.size else np.zeros((0, 1))


def _largest(one: Any, other: Any) -> str:
    if isinstance(one, np.ndarray):
        if one.dtype.kind not in "iuf":
            return ""
        one, other = torch.from_numpy(one.astype(float)), torch.from_numpy(other.astype(float))
    if one.is_complex():
        return ""
    distance = (one.detach().cpu().double() - other.detach().cpu().double()).abs()
    # The distance from nan or infinity is not a number, so it has no largest.
    known = distance[~distance.isnan()]
    return f", by {known.max().item():.3g} at most" if known.numel() else ", all of them nan in one of the two"


def _describe(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{'x'.join(map(str, value.shape)) or 'a scalar'} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, list | tuple | Mapping):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
