"""Names for fixtures, to annotate hooks with; an editor then completes inside of the hook.

>>> from train_manager import Extension
>>> from train_manager.types import Loss, StepNum
>>> class Watch(Extension):
...     def post_train_step_batch(self, loss: Loss, step_num: StepNum) -> None:
...         if loss.isnan():
...             print("not a number at step", step_num)

They are plain aliases: an annotation changes nothing of what a hook gets. Where your own model takes or returns
something else than tensors, annotate with what it is. ``FIXTURES`` says of each fixture how it is annotated and what it
means; importing this module needs neither torch nor numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    # `X as X` exports a name, so that a program may import it from here.
    from pathlib import Path as Path
    from typing import TypeAlias

    from torch import Tensor, device
    from torch.nn import Module
    from torch.optim import Optimizer as Optimizer

    from train_manager.core.extensible import Extensible as Extensible
    from train_manager.core.fixtures import Fixtures as Fixtures
    from train_manager.core.store import Scope as Scope
    from train_manager.loop.batch_losses import BatchLosses as BatchLosses
    from train_manager.loop.losses import Losses as Losses
    from train_manager.manager import TrainManager as TrainManager
    from train_manager.reporting.results import EvalResult as EvalResult
    from train_manager.runs.store.writer import MetricWriter as MetricWriter

    Batch: TypeAlias = Any
    """What the data gives for one step: a pair, a dict, a tensor, ..."""
    BatchNum: TypeAlias = int
    """The number of the batch in its epoch, from 1."""
    BatchSize: TypeAlias = int
    """The number of examples in a batch."""
    Device: TypeAlias = device
    """Where a model and its batches are."""
    EpochNum: TypeAlias = int
    """Epochs completed."""
    Inputs: TypeAlias = Tensor
    """What the model is called with."""
    Loss: TypeAlias = Tensor
    """A scalar on the device of the model."""
    Model: TypeAlias = Module
    """What the loop calls: the model, or its compiled or wrapped form."""
    Prediction: TypeAlias = Tensor
    """What the model returned for a batch."""
    Predictions: TypeAlias = Tensor
    """What the model returned for all batches of ``tm.predict``, joined."""
    SamplesSeen: TypeAlias = int
    """Examples trained on."""
    StepNum: TypeAlias = int
    """Batches trained on."""
    Targets: TypeAlias = Tensor
    """What the prediction is compared with."""
    UpdateNum: TypeAlias = int
    """Steps of optimizers."""

ALIASES: Final = {
    "Batch": "typing.Any",
    "BatchLosses": "train_manager.loop.batch_losses.BatchLosses",
    "BatchNum": "builtins.int",
    "BatchSize": "builtins.int",
    "Device": "torch.device",
    "EpochNum": "builtins.int",
    "EvalResult": "train_manager.reporting.results.EvalResult",
    "Extensible": "train_manager.core.extensible.Extensible",
    "Fixtures": "train_manager.core.fixtures.Fixtures",
    "Inputs": "torch.Tensor",
    "Loss": "torch.Tensor",
    "Losses": "train_manager.loop.losses.Losses",
    "MetricWriter": "train_manager.runs.store.writer.MetricWriter",
    "Model": "torch.nn.Module",
    "Optimizer": "torch.optim.Optimizer",
    "Path": "pathlib.Path",
    "Prediction": "torch.Tensor",
    "Predictions": "torch.Tensor",
    "SamplesSeen": "builtins.int",
    "Scope": "train_manager.core.store.Scope",
    "StepNum": "builtins.int",
    "Targets": "torch.Tensor",
    "TrainManager": "train_manager.manager.TrainManager",
    "UpdateNum": "builtins.int",
}
"""The names of this module, and what each stands for; imported when it is first read."""


class FixtureType(NamedTuple):
    """How a fixture is annotated, with names of this module and of Python, and what it means."""

    annotation: str
    meaning: str


FIXTURES: Final = {
    # Of run.
    "model": FixtureType("Model", "the model that the loop calls, compiled or wrapped if so set"),
    "phase_name": FixtureType("str | None", "the name of the phase; None outside of `tm.phase(...)`"),
    "epoch_num": FixtureType("EpochNum", "epochs completed; at `post_train_step_epoch` with the present one"),
    "step_num": FixtureType("StepNum", "batches trained on; at `post_train_step_batch` with the present one"),
    "update_num": FixtureType(
        "UpdateNum", "optimizer steps done, of all optimizers; at `post_train_optimizer_step` with the present one"
    ),
    "samples_seen": FixtureType("SamplesSeen", "examples trained on; a tensor if the batch sizes are tensors"),
    "start_step": FixtureType("int", "`step_num` as the training call began"),
    "end_step": FixtureType("int | None", "the `step_num` at the end of the training call; None while unknown"),
    "standalone_eval": FixtureType("bool", "whether the run is a call of `tm.eval()`, and not a training"),
    "batch_losses": FixtureType("BatchLosses", "hands the losses of all batches to its readers"),
    "train_dir": FixtureType("Path", "the folder for the files of extensions; only if the manager has one"),
    "device": FixtureType("Device", "the device of the batches; only if the manager has one"),
    "writer": FixtureType("MetricWriter", "writes metrics of your own; only with the extension `MetricStore`"),
    # Of load_checkpoint.
    "checkpoint_loaded": FixtureType("Path | bool", "the checkpoint that a hook has loaded; False if there is none"),
    # Of save_checkpoint.
    "checkpoint_saved": FixtureType("Path | bool", "the checkpoint that a hook has saved; False if none has"),
    # Of train_step_epoch.
    "batches_done": FixtureType("int", "batches of this epoch given before it opens: 0 unless it continues"),
    # Of a batch.
    "batch": FixtureType("Batch", "the batch of the data, on the device"),
    "batch_num": FixtureType("BatchNum", "the number of the batch in its epoch, from 1"),
    "datasource_name": FixtureType("str", "the name of the data set"),
    "update_begins": FixtureType("bool", "whether this batch is the first of the optimizer's step"),
    "update_ends": FixtureType("bool", "whether the optimizer steps after this batch"),
    "losses": FixtureType("Losses", "the loss terms by name, with their graphs: detach what outlives the batch"),
    "loss_parts": FixtureType("dict[str, Loss]", "the same as they are in the loss, with their weights"),
    "last_batch": FixtureType("bool", "whether the batch is the last of its epoch; looks one batch ahead"),
    "data_seconds": FixtureType("float", "the seconds of waiting for the batch; measured only if a hook asks"),
    "example_index": FixtureType("Any", "the index of each example, if the data has one"),
    "inputs": FixtureType("Inputs", "the inputs of the model"),
    "targets": FixtureType("Targets", "the targets of the loss"),
    "true_batch_size": FixtureType("BatchSize", "the number of examples in the batch"),
    "global_batch_size": FixtureType("BatchSize", "the number of examples, summed over all processes"),
    "prediction": FixtureType("Prediction", "the output of the model"),
    "loss": FixtureType("Loss", "the loss of the batch, a scalar on its device"),
    "backward_loss": FixtureType("Loss", "the loss whose `backward()` is called"),
    "optimizer": FixtureType("Optimizer", "the optimizer that gets gradients, or steps"),
    "optimizer_name": FixtureType("str", "the name of the optimizer; a single one is called 'optimizer'"),
    # Of train_step_epoch, eval and predict.
    "train_result": FixtureType("EvalResult", "the means of the metrics over the epoch"),
    "eval_result": FixtureType("EvalResult", "the metrics of one evaluation set"),
    "eval_results": FixtureType("dict[str, EvalResult]", "the metrics of all sets, by name"),
    "predictions": FixtureType("Predictions", "all predictions, joined; a list if they cannot be joined"),
    # Always there.
    "fixtures": FixtureType("Fixtures", "a mapping of all live fixtures"),
    "stage": FixtureType("Scope", "the stage: its name, path and depth"),
    "train_manager": FixtureType("TrainManager", "the manager"),
    "extensible": FixtureType("Extensible", "the object that opens the stages: the manager"),
    # In post hooks that are marked with @always; None if the stage has not failed.
    "exc_type": FixtureType("type[BaseException] | None", "the class of the error that ended the stage"),
    "exc_value": FixtureType("BaseException | None", "the error that ended the stage"),
    "traceback": FixtureType("TracebackType | None", "the traceback of the error"),
}
"""Every fixture of the loop."""

__all__ = [*ALIASES, "ALIASES", "FIXTURES", "FixtureType"]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in ALIASES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, found = ALIASES[name].rpartition(".")
        return getattr(importlib.import_module(module), found)

    def __dir__() -> list[str]:
        return sorted(__all__)
