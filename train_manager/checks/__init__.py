"""Checks that find faults of a model or its training: each is a function, and none is an extension.

Its files in reading order; each imports only those above it:

    batch_leaves      a batch taken apart into its leaves, and put together again
    contents          the contents of objects, put back in place
    seen              what a look at open stages and weights has seen, to find what changes
    leak_batch        the examples of a batch, and changes of half of them
    leak_runs         a run of a model that starts from the same state each time
    leak_judge        whether anything of the kept examples has changed with the others
    leak_module       the module that lets examples leak into each other
    batch_leak        the check of a model: check_batch_leak
    loss_leak         the check of a loss: check_loss_leak
    replay            where nan and infinities come from: the batch of a run, repeated
    parameters        parameters that a training leaves out, and layers in the wrong mode
    overfit           whether one batch can be learned: check_overfit
    first_loss        whether the first loss is that of a model that knows nothing: check_initial_loss
    inputs            faults of the data: their numbers, their labels, rows that are in two sets
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Type checkers read the first branch, Python the second.
if TYPE_CHECKING:
    from train_manager.checks.batch_leak import check_batch_leak as check_batch_leak
    from train_manager.checks.loss_leak import check_loss_leak as check_loss_leak
    from train_manager.checks.parameters import check_parameters as check_parameters
else:
    _FILES = {"check_batch_leak": "batch_leak", "check_loss_leak": "loss_leak", "check_parameters": "parameters"}

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
