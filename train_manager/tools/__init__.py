"""Tools that examine a training from outside: its layers, its learning rate, its faults, and its resumption.

Its files in reading order; each imports only those above it:

    summary            a table of a model's layers
    extras             optional packages, without what they print
    factorize          layers of low rank
    quantize           Linear layers with weights of 8 bits
    export_onnx        models as ONNX files, and these files called
    preserve           leave a training as it was found
    lr_finder          the learning rate range test
    trial_steps        steps of a training that are put back, and their fixtures
    diagnosing         faults of a training, found before it trains
    few_batches        the first two batches and the last
    held_graphs        tensors that somebody keeps with their graphs
    scratch            a folder for a run that is only tried, and the bytes that it writes
    raised             an error as a finding
    rehearsing         all of a long training in a short one
    comparing          the values in which two states differ
    driven             a training that is watched, and killed after a given step
    processes          each driven training in a process of its own
    killed_runs        the runs of one training: to the end, killed, resumed
    resume_report      whether these runs end in the same state, and the causes of differences
    verify_resume      a training that is killed and resumed, compared with one that is not
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Type checkers read the first branch, Python the second.
if TYPE_CHECKING:
    from train_manager.tools.diagnosing import diagnose as diagnose
    from train_manager.tools.rehearsing import rehearse as rehearse
else:
    _FILES = {"diagnose": "diagnosing", "rehearse": "rehearsing"}

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
