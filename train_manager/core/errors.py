"""The errors, under the name by which programs import them; they lie in ``train_manager.telling.errors``."""

from __future__ import annotations

from train_manager.telling.errors import (
    ArgumentError,
    CheckError,
    CheckpointError,
    ExtensionNotFound,
    FixtureExists,
    FixtureNotFound,
    HookError,
    InputError,
    NonFiniteLoss,
    NoStageOpen,
    OrderError,
    StageError,
    TrainManagerError,
)

__all__ = [
    "ArgumentError",
    "CheckError",
    "CheckpointError",
    "ExtensionNotFound",
    "FixtureExists",
    "FixtureNotFound",
    "HookError",
    "InputError",
    "NoStageOpen",
    "NonFiniteLoss",
    "OrderError",
    "StageError",
    "TrainManagerError",
]
