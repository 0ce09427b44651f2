"""The random states of Python, numpy and torch: seed, preserve and restore them; the seeds of examples."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

_64_BITS: Final = (1 << 64) - 1
_32_BITS: Final = (1 << 32) - 1


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
    # As each library gives it: the form of `random_state`, which checkpoints hold, takes twice the time.
    of_python, of_numpy, of_torch, of_gpus = random.getstate(), np.random.get_state(), torch.get_rng_state(), _of_gpus()
    try:
        yield
    finally:
        random.setstate(of_python)
        _set_numpy(of_numpy)
        torch.set_rng_state(of_torch)
        _set_gpus(of_gpus)


def random_state() -> dict[str, Any]:
    """Return the random states: of Python, numpy, torch, and of each GPU if this process uses GPUs."""
    version, numbers, gauss = random.getstate()
    return {
        "python": (version, np.array(numbers, dtype=np.int64), gauss),  # 625 numbers are slow to write as JSON
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": _of_gpus(),
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what ``random_state`` returned; states of GPUs that this machine lacks are left out."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers.tolist()), gauss))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    _set_gpus(state["cuda"])


def _set_numpy(state: Any) -> None:
    """Restore what ``np.random.get_state`` returned: a tuple, or a dict of a generator that the program has set."""
    if isinstance(state, tuple):
        # numpy reads the 624 numbers one by one: of its own array that takes 55 us, of a list 4 us and 15 for the list.
        kind, numbers, *rest = state
        state = (kind, numbers.tolist(), *rest)
    np.random.set_state(state)


def _of_gpus() -> list[Tensor]:
    # Reading the states of GPUs would initialise CUDA in a process that does not use it.
    used_cuda = torch.cuda.is_initialized() and torch.cuda.is_available()
    return torch.cuda.get_rng_state_all() if used_cuda else []


def _set_gpus(states: Sequence[Tensor]) -> None:
    if states and torch.cuda.is_available():
        for device, of_device in enumerate(states[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(of_device, device)


def mix_bits(number: int) -> int:
    """Return 64 bits that all depend on all bits of a number: one step of SplitMix64.

    Steele, Lea and Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014. It takes 0.4 us;
    ``np.random.SeedSequence`` takes 6.
    """
    # The constants are those of the paper; the mask keeps Python's integers at 64 bits.
    number = (number + 0x9E3779B97F4A7C15) & _64_BITS
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return number ^ (number >> 31)


def example_seed(seed: int, epoch: int, row: int) -> int:
    """Return the seed of an example in an epoch, 64 bits.

    >>> example_seed(0, 0, 1) == example_seed(0, 0, 1), example_seed(0, 0, 1) == example_seed(0, 1, 0)
    (True, False)
    """
    return mix_bits(epoch_seed(seed, epoch) + row)


@lru_cache
def epoch_seed(seed: int, epoch: int) -> int:
    """Return the number that the seeds of an epoch's examples are made of."""
    return mix_bits(mix_bits(seed) + epoch)


def seed_rank(rank: int) -> None:
    """Seed a process that has the random states of rank 0, else all would draw the same masks of dropout."""
    if rank:
        seed_all(mix_bits(int(torch.randint(2**62, ())) + rank) >> 1)


def set_random_states(seed: int) -> None:
    """Seed python, numpy and torch with 64 bits."""
    # numpy and torch use 32 bits of a seed and the same kind of generator (Mersenne Twister): with the same half of the
    # bits both would draw the same numbers. torch.manual_seed would visit all devices, which takes 70 times as long.
    random.seed(seed)
    np.random.seed(seed & _32_BITS)
    torch.default_generator.manual_seed(seed >> 32)


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put the random states back after the ``with`` block; in a worker process leave them."""
    # A worker only fetches examples, each of which is seeded anew.
    if get_worker_info() is not None:
        yield
        return
    states = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        _set_numpy(states[1])
        torch.default_generator.set_state(states[2])
