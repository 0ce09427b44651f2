"""The global random states of Python, numpy and torch: seed them together, and preserve them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed the global random states of Python, numpy and torch, including those of all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes 32 bits
    torch.manual_seed(seed)


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Restore the random states when the block ends, also after an error.

    Evaluation uses it: even a DataLoader that does not shuffle draws a number from torch for each pass.
    """
    python, numpy_state, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    # Reading the states of GPUs would initialise CUDA in a process that does not use it.
    used_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    cuda = torch.cuda.get_rng_state_all() if used_cuda else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
        torch.set_rng_state(cpu)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
