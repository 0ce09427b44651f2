"""The extensions: one per file, in a folder for each purpose, all imported from ``train_manager.extensions``.

An extension is imported when its name is first read, so this module needs neither torch nor the extra of any extension.

    optimization     how gradients and weights are treated
    augmentation     batches that are changed before they are trained on
    data             which data are trained on next
    evaluation       measurements of an evaluation, and decisions that follow from them
    logging          lines, bars and files of metrics that a run shows while it is open
    visualization    pictures of a training
    debugging        checks that find mistakes in a training
    distribution     a training on several processes and GPUs
    reproducibility  records and settings that make a training repeatable
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from train_manager.core.extension import Extension

# Type checkers read the first branch, Python the second. `X as X` is the form of a public import in a typed package.
if TYPE_CHECKING:
    __all__: list[str]
    from train_manager.extensions.augmentation.cutmix import CutMix as CutMix
    from train_manager.extensions.augmentation.mixup import Mixup as Mixup
    from train_manager.extensions.data.curriculum import Curriculum as Curriculum
    from train_manager.extensions.debugging.batch_leak_check import BatchLeakCheck as BatchLeakCheck
    from train_manager.extensions.debugging.non_finite_finder import NonFiniteFinder as NonFiniteFinder
    from train_manager.extensions.debugging.profile import Profile as Profile
    from train_manager.extensions.distribution.distributed import Distributed as Distributed
    from train_manager.extensions.evaluation.attribution import Attribution as Attribution
    from train_manager.extensions.evaluation.early_stopping import EarlyStopping as EarlyStopping
    from train_manager.extensions.evaluation.eval_totals import EvalTotals as EvalTotals
    from train_manager.extensions.evaluation.hard_examples import HardExamples as HardExamples
    from train_manager.extensions.evaluation.metrics import Metrics as Metrics
    from train_manager.extensions.evaluation.out_of_distribution import OutOfDistribution as OutOfDistribution
    from train_manager.extensions.evaluation.test_time_training import TestTimeTraining as TestTimeTraining
    from train_manager.extensions.logging.avg import Avg as Avg
    from train_manager.extensions.logging.log import Log as Log
    from train_manager.extensions.logging.metric_store import MetricStore as MetricStore
    from train_manager.extensions.logging.mlflow import MLflow as MLflow
    from train_manager.extensions.logging.progress_bar import ProgressBar as ProgressBar
    from train_manager.extensions.logging.tensorboard import TensorBoard as TensorBoard
    from train_manager.extensions.logging.wandb import WandB as WandB
    from train_manager.extensions.optimization.accumulate import Accumulate as Accumulate
    from train_manager.extensions.optimization.clip_gradients import ClipGradients as ClipGradients
    from train_manager.extensions.optimization.combine_gradients import CombineGradients as CombineGradients
    from train_manager.extensions.optimization.compile import Compile as Compile
    from train_manager.extensions.optimization.constrain import Constrain as Constrain
    from train_manager.extensions.optimization.distil import Distil as Distil
    from train_manager.extensions.optimization.ema import EMA as EMA
    from train_manager.extensions.optimization.ewc import EWC as EWC
    from train_manager.extensions.optimization.freeze_modules import FreezeModules as FreezeModules
    from train_manager.extensions.optimization.lr_schedule import LRSchedule as LRSchedule
    from train_manager.extensions.optimization.mixed_precision import MixedPrecision as MixedPrecision
    from train_manager.extensions.optimization.sam import SAM as SAM
    from train_manager.extensions.optimization.warm_up import WarmUp as WarmUp
    from train_manager.extensions.reproducibility.checkpoints import Checkpoints as Checkpoints
    from train_manager.extensions.reproducibility.code_record import CodeRecord as CodeRecord
    from train_manager.extensions.reproducibility.deterministic import Deterministic as Deterministic
    from train_manager.extensions.reproducibility.run_record import RunRecord as RunRecord
    from train_manager.extensions.reproducibility.time_limit import TimeLimit as TimeLimit
    from train_manager.extensions.visualization.activation_statistics import (
        ActivationStatistics as ActivationStatistics,
    )
    from train_manager.extensions.visualization.confusion_matrix import ConfusionMatrix as ConfusionMatrix
    from train_manager.extensions.visualization.gradient_norms import GradientNorms as GradientNorms
    from train_manager.extensions.visualization.live import Live as Live
    from train_manager.extensions.visualization.loss_curves import LossCurves as LossCurves
    from train_manager.extensions.visualization.prediction_gallery import PredictionGallery as PredictionGallery
    from train_manager.extensions.visualization.report import Report as Report
    from train_manager.extensions.visualization.throughput import Throughput as Throughput
    from train_manager.extensions.visualization.update_ratios import UpdateRatios as UpdateRatios
    from train_manager.extensions.visualization.weight_histograms import WeightHistograms as WeightHistograms
else:
    _FILES = {
        "Accumulate": "optimization.accumulate",
        "ClipGradients": "optimization.clip_gradients",
        "CombineGradients": "optimization.combine_gradients",
        "Compile": "optimization.compile",
        "Constrain": "optimization.constrain",
        "Distil": "optimization.distil",
        "EMA": "optimization.ema",
        "EWC": "optimization.ewc",
        "FreezeModules": "optimization.freeze_modules",
        "LRSchedule": "optimization.lr_schedule",
        "MixedPrecision": "optimization.mixed_precision",
        "SAM": "optimization.sam",
        "WarmUp": "optimization.warm_up",
        "CutMix": "augmentation.cutmix",
        "Mixup": "augmentation.mixup",
        "Curriculum": "data.curriculum",
        "EarlyStopping": "evaluation.early_stopping",
        "EvalTotals": "evaluation.eval_totals",
        "HardExamples": "evaluation.hard_examples",
        "Metrics": "evaluation.metrics",
        "OutOfDistribution": "evaluation.out_of_distribution",
        "TestTimeTraining": "evaluation.test_time_training",
        "Attribution": "evaluation.attribution",
        "Avg": "logging.avg",
        "Log": "logging.log",
        "MetricStore": "logging.metric_store",
        "MLflow": "logging.mlflow",
        "ProgressBar": "logging.progress_bar",
        "TensorBoard": "logging.tensorboard",
        "WandB": "logging.wandb",
        "Live": "visualization.live",
        "LossCurves": "visualization.loss_curves",
        "GradientNorms": "visualization.gradient_norms",
        "UpdateRatios": "visualization.update_ratios",
        "ActivationStatistics": "visualization.activation_statistics",
        "WeightHistograms": "visualization.weight_histograms",
        "ConfusionMatrix": "visualization.confusion_matrix",
        "PredictionGallery": "visualization.prediction_gallery",
        "Throughput": "visualization.throughput",
        "Report": "visualization.report",
        "BatchLeakCheck": "debugging.batch_leak_check",
        "NonFiniteFinder": "debugging.non_finite_finder",
        "Profile": "debugging.profile",
        "Distributed": "distribution.distributed",
        "Checkpoints": "reproducibility.checkpoints",
        "CodeRecord": "reproducibility.code_record",
        "Deterministic": "reproducibility.deterministic",
        "RunRecord": "reproducibility.run_record",
        "TimeLimit": "reproducibility.time_limit",
    }
    __all__ = [*_FILES, "default_extensions"]

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # `from train_manager.extensions import Log` comes here (PEP 562), so only log.py and its imports are loaded.
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)

    def import_one(name: str) -> None:
        """Import a shipped extension by the name of its class; do nothing with any other name."""
        if name in _FILES:
            # A checkpoint names the classes of its extensions, which
            # may not be imported yet in the process that reads it.
            __getattr__(name)

    def names() -> tuple[str, ...]:
        """Return the names of the shipped extensions; none is imported."""
        return tuple(_FILES)

    # Without this, dir() and tab completion would list only the extensions that were read already.
    def __dir__() -> list[str]:
        return sorted(__all__)


def default_extensions(*, files: bool = True) -> dict[str, Extension]:
    """Return the usual extensions in a new dict, from which some may be removed and to which others may be added.

    >>> list(default_extensions())
    ['progress_bar', 'log', 'loss_curves', 'checkpoints', 'code_record', 'run_record', 'metric_store']

    To add one: ``extensions=[default_extensions(), MyExtension()]``. A TrainManager without a ``train_dir`` refuses
    extensions that write files:

    >>> list(default_extensions(files=False))
    ['progress_bar', 'log']

    ``checkpoints`` refuses a ``train_dir`` that has some. The same script resumes from there if it is made with

    >>> from train_manager.extensions import Checkpoints
    >>> extensions = [default_extensions(), Checkpoints(resume=True)]

    An extension of your own takes the name and place of the one here that has its class: ``Log(every=100)`` that of
    ``log``.

    Args:
        files: whether to include the extensions that write into ``train_dir``.
    """
    from train_manager.extensions.logging.log import Log
    from train_manager.extensions.logging.metric_store import MetricStore
    from train_manager.extensions.logging.progress_bar import ProgressBar
    from train_manager.extensions.reproducibility.checkpoints import Checkpoints
    from train_manager.extensions.reproducibility.code_record import CodeRecord
    from train_manager.extensions.reproducibility.run_record import RunRecord
    from train_manager.extensions.visualization.loss_curves import LossCurves

    found: dict[str, Extension] = {"progress_bar": ProgressBar(), "log": Log()}
    if files:
        found |= {"loss_curves": LossCurves(), "checkpoints": Checkpoints()}
        found |= {"code_record": CodeRecord(), "run_record": RunRecord(), "metric_store": MetricStore()}
    return found
