"""One extension per file, imported as ``train_manager.extensions``. Here they are only listed.

Each is imported when it is first asked for, so that one that needs an extra can be missing without harm.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from train_manager.core.extension import Extension

if TYPE_CHECKING:
    from train_manager.extensions.augmentation.cutmix import CutMix
    from train_manager.extensions.augmentation.mixup import Mixup
    from train_manager.extensions.debugging.stop_on_non_finite import StopOnNonFinite
    from train_manager.extensions.evaluation.early_stopping import EarlyStopping
    from train_manager.extensions.evaluation.eval_totals import EvalTotals
    from train_manager.extensions.evaluation.metrics import Metrics
    from train_manager.extensions.logging.avg import Avg
    from train_manager.extensions.logging.progress_bar import ProgressBar
    from train_manager.extensions.optimization.accumulate import Accumulate
    from train_manager.extensions.optimization.clip_gradients import ClipGradients
    from train_manager.extensions.optimization.constrain import Constrain
    from train_manager.extensions.optimization.ema import EMA
    from train_manager.extensions.optimization.freeze_modules import FreezeModules
    from train_manager.extensions.optimization.lr_schedule import LRSchedule
    from train_manager.extensions.optimization.mixed_precision import MixedPrecision
    from train_manager.extensions.optimization.sam import SAM
    from train_manager.extensions.optimization.warm_up import WarmUp
    from train_manager.extensions.reproducibility.deterministic import Deterministic
    from train_manager.extensions.visualization.loss_curves import LossCurves
else:
    _LAZY = {
        "Accumulate": "train_manager.extensions.optimization.accumulate",
        "Avg": "train_manager.extensions.logging.avg",
        "ClipGradients": "train_manager.extensions.optimization.clip_gradients",
        "Constrain": "train_manager.extensions.optimization.constrain",
        "CutMix": "train_manager.extensions.augmentation.cutmix",
        "Deterministic": "train_manager.extensions.reproducibility.deterministic",
        "EarlyStopping": "train_manager.extensions.evaluation.early_stopping",
        "EMA": "train_manager.extensions.optimization.ema",
        "EvalTotals": "train_manager.extensions.evaluation.eval_totals",
        "FreezeModules": "train_manager.extensions.optimization.freeze_modules",
        "LossCurves": "train_manager.extensions.visualization.loss_curves",
        "LRSchedule": "train_manager.extensions.optimization.lr_schedule",
        "Metrics": "train_manager.extensions.evaluation.metrics",
        "MixedPrecision": "train_manager.extensions.optimization.mixed_precision",
        "Mixup": "train_manager.extensions.augmentation.mixup",
        "ProgressBar": "train_manager.extensions.logging.progress_bar",
        "SAM": "train_manager.extensions.optimization.sam",
        "StopOnNonFinite": "train_manager.extensions.debugging.stop_on_non_finite",
        "WarmUp": "train_manager.extensions.optimization.warm_up",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)


def default_extensions(*, files: bool = True) -> dict[str, Extension]:
    """The usual set, in a new dict: take some out, or put others in, as you like.

    What cannot be made because an extra is not installed is left out, with a warning that names the extra.

    >>> list(default_extensions())
    ['progress_bar', 'loss_curves']

    A TrainManager without a ``train_dir`` has no place for files, and refuses extensions that write some:

    >>> list(default_extensions(files=False))
    ['progress_bar']

    Args:
        files: with those that write into ``train_dir``.
    """
    from train_manager.extensions.logging.progress_bar import ProgressBar
    from train_manager.extensions.visualization.loss_curves import LossCurves

    makers: dict[str, Callable[[], Extension]] = {"progress_bar": ProgressBar}
    if files:
        makers["loss_curves"] = LossCurves
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except ImportError as error:
            warnings.warn(f"left out of the default extensions: {name!r}. {error}", stacklevel=2)
    return found


__all__ = [
    "EMA",
    "SAM",
    "Accumulate",
    "Avg",
    "ClipGradients",
    "Constrain",
    "CutMix",
    "Deterministic",
    "EarlyStopping",
    "EvalTotals",
    "FreezeModules",
    "LRSchedule",
    "LossCurves",
    "Metrics",
    "MixedPrecision",
    "Mixup",
    "ProgressBar",
    "StopOnNonFinite",
    "WarmUp",
    "default_extensions",
]
