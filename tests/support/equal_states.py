"""Two states of a training, compared to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def assert_same(one: Any, other: Any, place: str = "") -> None:
    """Compare values at any depth; the place of the first difference is told."""
    assert type(one) is type(other), place
    if isinstance(one, Tensor):
        assert torch.equal(one, other), place
    elif isinstance(one, np.ndarray):
        assert one.tobytes() == other.tobytes(), place
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key, value in one.items():
            assert_same(value, other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for number, (value, another) in enumerate(zip(one, other, strict=True)):
            assert_same(value, another, f"{place}.{number}")
    else:
        assert one == other, place


def same(one: Any, other: Any) -> bool:
    """Return whether values are equal to the bit, also inside dicts and lists; nan equals nan."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))
