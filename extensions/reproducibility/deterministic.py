"""The same run, twice, to the bit: torch is held to operations that always give the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from train_manager.core.extension import Extension

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


class Deterministic(Extension):
    """Lets torch use deterministic operations only, for as long as the run is open.

    >>> import torch
    >>> from train_manager.testing import tiny_manager
    >>> first, second = (tiny_manager(Deterministic(), seed=0, epochs=2) for _ in range(2))
    >>> result = first.train(), second.train()
    >>> first.model[0].weight.equal(second.model[0].weight)
    True
    >>> torch.are_deterministic_algorithms_enabled()
    False

    An operation that has no deterministic form is an error, or with ``warn_only`` a warning. What is random is the
    business of the manager's ``seed``: it seeds python, numpy and torch, and from torch's random state a ``DataLoader``
    draws the order of its examples and the seeds of its workers (python's, numpy's and torch's in each), so these
    need no ``generator`` and no ``worker_init_fn``. Another library that draws numbers in a worker needs one:
    ``worker_init_fn=lambda worker: library.seed(torch.initial_seed() % 2**32)``. The model is made before the first run
    opens, and so before that seed: call ``torch.manual_seed`` above it, or override ``initialize_params``.

    On CUDA, cuDNN does not try out which operation is quickest, and cuBLAS gets a workspace of its own
    (``CUBLAS_WORKSPACE_CONFIG=:4096:8`` in the environment, where it is not set), which it reads at its first use: if
    something has been computed on the GPU before, set it yourself when the program starts. Results are the same on the
    same machine with the same versions; nobody promises more.

    *Runs at:* around ``run``; afterwards, also after an error, all settings are what they were.

    *Asks for:* nothing.

    *Leaves behind:* nothing.

    Args:
        warn_only: warn where an operation has no deterministic form.
    """

    def __init__(self, *, warn_only: bool = False) -> None:
        self.warn_only = warn_only

    def around_run(self) -> Iterator[None]:
        with deterministic(warn_only=self.warn_only):
            yield


@contextmanager
def deterministic(*, warn_only: bool = False) -> Iterator[None]:
    """Torch's deterministic mode for a ``with`` block; all settings are restored on any exit."""
    mode = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    workspace = os.environ.get(CUBLAS)
    try:
        os.environ.setdefault(CUBLAS, ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        yield
    finally:
        torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        if workspace is None:
            os.environ.pop(CUBLAS, None)
