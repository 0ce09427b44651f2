"""The global random states of Python, numpy and torch: seed, preserve and restore them together."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed the global random states of Python, numpy and torch, including those of all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes 32 bits
    torch.manual_seed(seed)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the random states when the ``with`` block ends, also after an error."""
    # Needed even around an evaluation without any random operation: a DataLoader that does not shuffle draws a number
    # from torch for each pass.
    state = random_state()
    try:
        yield
    finally:
        set_random_state(state)


def random_state() -> dict[str, Any]:
    """Return the random states: of Python, numpy, torch, and of each GPU if this process uses GPUs."""
    # Reading the states of GPUs would initialise CUDA in a process that does not use it.
    used_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    version, numbers, gauss = random.getstate()
    return {
        "python": (version, np.array(numbers, dtype=np.int64), gauss),  # 625 numbers are slow to write as JSON
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if used_cuda else [],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what ``random_state`` returned; states of GPUs that this machine lacks are left out."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        for device, of_device in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(of_device, device)
