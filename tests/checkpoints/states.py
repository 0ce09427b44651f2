"""States of a training, small and of all kinds, and how to compare them."""

from __future__ import annotations

import math
import random
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor


def small_state(seed: int = 0) -> dict[str, Any]:
    """A state with a model, an optimizer and more, of about ten kB."""
    generator = torch.Generator().manual_seed(seed)
    weights = {name: torch.randn(8, 8, generator=generator) for name in ("first.weight", "second.weight")}
    moments = {n: {"step": torch.tensor(3.0), "exp_avg": weight * 0.1} for n, weight in enumerate(weights.values())}
    groups = [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}]
    return {
        "model": weights,
        "optimizers": {"main": {"state": moments, "param_groups": groups}},
        "random": {"python": random.Random(seed).getstate(), "torch": torch.get_rng_state()},
        "counters": {"step_num": seed, "best": math.inf},
    }


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal bit for bit, types included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return (one.dtype, one.shape, bits(one)) == (other.dtype, other.shape, bits(other))
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict | OrderedDict | Counter):
        return len(one) == len(other) and all(
            same(a, b) and same(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)  # nan equals nan, -0.0 is not 0.0
    return bool(one == other)


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor's numbers."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()
