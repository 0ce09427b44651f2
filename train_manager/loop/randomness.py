"""The random states that training depends on: python's, numpy's and torch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed python's, numpy's and torch's global random states, those of all devices included."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes 32 bits
    torch.manual_seed(seed)


@contextmanager
def preserved_random_state() -> Iterator[None]:
    """Leave the random states as they were found, also after an error.

    Evaluation runs in this: even an unshuffled pass over a DataLoader draws a number from torch's.
    """
    python, numpy_state, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
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
