"""Train Manager: training code whose plots, logs and checks stay outside of it.

The core (stages, fixtures, hooks, extensions) is here at once and needs the standard library only. What needs
torch is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from train_manager._version import __version__
from train_manager.core.errors import (
    CheckError,
    ExtensionNotFound,
    FixtureExists,
    FixtureNotFound,
    HookError,
    NoStageOpen,
    OrderError,
    StageError,
    TrainManagerError,
)
from train_manager.core.extensible import Extensible, staged
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.marks import always, fixture, modifies, priority, provides
from train_manager.core.skip import Skip, SkipStage
from train_manager.schedules import at_most, every, exponentially, once, periodically, scheduled, when

if TYPE_CHECKING:
    from train_manager.endless import Endless
    from train_manager.errors import InputError, NonFiniteLoss
    from train_manager.in_memory import InMemory
    from train_manager.interleaved import Interleaved
    from train_manager.losses import WeightedLosses, add_loss, report_loss
    from train_manager.manager import TrainManager
    from train_manager.objective import Objective
    from train_manager.result import TrainResult
    from train_manager.rows import Rows
    from train_manager.skip import SkipBatch
else:
    _LAZY = {
        "Endless": "train_manager.endless",
        "InMemory": "train_manager.in_memory",
        "InputError": "train_manager.errors",
        "Interleaved": "train_manager.interleaved",
        "NonFiniteLoss": "train_manager.errors",
        "Rows": "train_manager.rows",
        "SkipBatch": "train_manager.skip",
        "TrainManager": "train_manager.manager",
        "Objective": "train_manager.objective",
        "WeightedLosses": "train_manager.losses",
        "add_loss": "train_manager.losses",
        "report_loss": "train_manager.losses",
        "TrainResult": "train_manager.result",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)


__all__ = [
    "CheckError",
    "Endless",
    "Extensible",
    "Extension",
    "ExtensionNotFound",
    "FixtureExists",
    "FixtureNotFound",
    "Fixtures",
    "HookError",
    "InMemory",
    "InputError",
    "Interleaved",
    "NoStageOpen",
    "NonFiniteLoss",
    "Objective",
    "OrderError",
    "Rows",
    "Skip",
    "SkipBatch",
    "SkipStage",
    "StageError",
    "TrainManager",
    "TrainManagerError",
    "TrainResult",
    "WeightedLosses",
    "__version__",
    "add_loss",
    "always",
    "at_most",
    "every",
    "exponentially",
    "fixture",
    "modifies",
    "once",
    "periodically",
    "priority",
    "provides",
    "report_loss",
    "scheduled",
    "staged",
    "when",
]
