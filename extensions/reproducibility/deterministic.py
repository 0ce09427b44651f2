"""Repeatable runs, to the bit: torch uses operations that always give the same result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from train_manager.core.extension import Extension
from train_manager.rebuilding.recorded import recorded

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # the environment variable that cuBLAS reads at its first use


@recorded
class Deterministic(Extension):
    """Let torch use deterministic operations only, while a run is open.

    >>> import torch
    >>> from train_manager.testing import tiny_manager
    >>> first, second = (tiny_manager(Deterministic(), seed=0, epochs=2) for _ in range(2))
    >>> result = first.train(), second.train()
    >>> first.model[0].weight.equal(second.model[0].weight)
    True
    >>> torch.are_deterministic_algorithms_enabled()
    False

    An operation without a deterministic form is an error, or with ``warn_only`` a warning.

    Random numbers are set by the manager's ``seed``: it seeds python, numpy and torch. A ``DataLoader`` draws the order
    of its examples and the seeds of its workers (for python, numpy and torch) from torch's random state, so it needs no
    ``generator`` and no ``worker_init_fn``. For any other library that draws numbers in a worker, give
    ``worker_init_fn=lambda worker: library.seed(torch.initial_seed() % 2**32)``. The seed is set when the first run
    opens, which is after the model was made: call ``torch.manual_seed`` before you make it, or override
    ``initialize_params``.

    On CUDA, cuDNN stops searching for its fastest operation, and cuBLAS gets a fixed workspace:
    ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` in the environment, unless it is set already. cuBLAS reads the variable at its
    first use, so set it yourself when the program starts if the program uses the GPU before the run. Results repeat on
    the same machine with the same versions of all libraries, and may differ on others.

    *Runs at:* around ``run``. When it ends, also by an error, all settings are restored.

    *Asks for:* nothing.

    *Leaves behind:* nothing.

    Args:
        warn_only: warn if an operation has no deterministic form.
    """

    def __init__(self, *, warn_only: bool = False) -> None:
        self.warn_only = warn_only

    def around_run(self) -> Iterator[None]:
        with deterministic(warn_only=self.warn_only):
            yield


@contextmanager
def deterministic(*, warn_only: bool = False) -> Iterator[None]:
    """Set torch's deterministic mode for a ``with`` block, and restore all settings on any exit."""
    mode = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    workspace = os.environ.get(CUBLAS)
    try:
        # torch refuses matrix products on CUDA in this mode unless the workspace of cuBLAS is fixed.
        os.environ.setdefault(CUBLAS, ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        # benchmark would time several algorithms and take the fastest, which may differ from run to run.
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        yield
    finally:
        torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        # setdefault has changed the variable only if it was not set.
        if workspace is None:
            os.environ.pop(CUBLAS, None)
