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
    from train_manager.extensions.accumulate import Accumulate
    from train_manager.extensions.cutmix import CutMix
    from train_manager.extensions.loss_curves import LossCurves
    from train_manager.extensions.mixed_precision import MixedPrecision
    from train_manager.extensions.mixup import Mixup
    from train_manager.extensions.progress_bar import ProgressBar
    from train_manager.extensions.sam import SAM
else:
    _LAZY = {
        "Accumulate": "train_manager.extensions.accumulate",
        "CutMix": "train_manager.extensions.cutmix",
        "LossCurves": "train_manager.extensions.loss_curves",
        "MixedPrecision": "train_manager.extensions.mixed_precision",
        "Mixup": "train_manager.extensions.mixup",
        "ProgressBar": "train_manager.extensions.progress_bar",
        "SAM": "train_manager.extensions.sam",
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
    from train_manager.extensions.loss_curves import LossCurves
    from train_manager.extensions.progress_bar import ProgressBar

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
    "SAM",
    "Accumulate",
    "CutMix",
    "LossCurves",
    "MixedPrecision",
    "Mixup",
    "ProgressBar",
    "default_extensions",
]
