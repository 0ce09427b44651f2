"""Other toolkits, one file each; a file is used where what it imports is installed.

A file has ``stage(count)``, one hook point with so many subscribers, and ``train(model, batches, count)``, one pass of
the training that ``benchmarks/mlp.py`` describes, with so many subscribers that watch. pluggy trains nothing, and
accelerate has no hook points.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from functools import cache
from types import ModuleType
from typing import Final

PEERS: Final = {  # as it is called -> as it is installed
    "pluggy": "pluggy",
    "torchtnt": "torchtnt",
    "Keras": "keras",
    "Ignite": "pytorch-ignite",
    "Lightning": "lightning",
    "transformers": "transformers",
    "accelerate": "accelerate",
}


@cache
def found() -> tuple[dict[str, ModuleType], list[str]]:
    """The files of the peers that can be used, and for each other peer a line that says why not."""
    usable: dict[str, ModuleType] = {}
    skipped: list[str] = []
    for name, package in PEERS.items():
        try:
            importlib.metadata.version(package)
            module = importlib.import_module(f"benchmarks.peers.with_{name.lower()}")
            if hasattr(module, "stage"):
                module.stage(1).run(1)
            usable[name] = module
        except importlib.metadata.PackageNotFoundError:
            skipped.append(f"skipped: {name} is not installed")
        except Exception as error:
            skipped.append(not_running(name, error))
    return usable, skipped


def with_hook_points() -> tuple[dict[str, ModuleType], list[str]]:
    """Those of ``found`` that have a ``stage``."""
    usable, skipped = found()
    return {name: module for name, module in usable.items() if hasattr(module, "stage")}, skipped


def not_running(name: str, error: Exception) -> str:
    """The line for a toolkit that is installed, but fails."""
    return f"skipped: {name} does not run here ({type(error).__name__}: {error})"


def versions() -> list[str]:
    """Name and version of each peer that is installed."""
    usable, _ = found()
    return [f"{name} {importlib.metadata.version(PEERS[name])}" for name in usable]
