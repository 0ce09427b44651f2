"""A learner from files: data, model and options are described, and all mistakes are reported with their lines.

Its files in reading order; each imports only those above it:

    description   a file or a dict, with its lines, and mistakes that are reported at once
    entries       the keys of a table, and what an entry `use = "word"` names
    transforms    functions of a column that a file may name, and the augmentation of batches by them
    dataset_file  what a data file says: datasets, features and a curriculum
    datasets      the columns of the datasets of a file, the rows of their parts, and their batches
    objectives    losses at modules, or between two of them
    shapes        the shapes of what layers give, before memory is taken
    model         the modules of a file, which of them feed which, and the model of them
    tasks         what a module can learn from inputs without labels
    fits          whether data fit a model
    evaluation    metrics of predictions and truth
    deployment    a folder with a trained model in several forms, and a report
    options       the options of a learner
    learner       the training, in the four stages of its life
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train_manager.learner.datasets import create_dataloader as create_dataloader
    from train_manager.learner.deployment import deploy_model as deploy_model
    from train_manager.learner.evaluation import eval_model as eval_model
    from train_manager.learner.learner import Learner as Learner
    from train_manager.learner.learner import create_learner as create_learner
    from train_manager.learner.model import load_model as load_model
    from train_manager.learner.tasks import Task as Task
else:
    _FILES = {
        "create_dataloader": "datasets",
        "load_model": "model",
        "create_learner": "learner",
        "Learner": "learner",
        "Task": "tasks",
        "eval_model": "evaluation",
        "deploy_model": "deployment",
    }
    # What checkpoints name.
    _RECORDED = {
        **dict.fromkeys(("divide", "noise", "shift", "Standardize", "Augment"), "transforms"),
        **dict.fromkeys(("Objectives", "contrast"), "objectives"),
        **dict.fromkeys(("Concatenate", "Sum", "FileModel"), "model"),
        **dict.fromkeys(("SimCLR", "Masked", "Encoder", "loss_of_task"), "tasks"),
    }
    __all__ = list(_FILES)

    def import_one(name: str) -> None:
        """Import a class or a function that a checkpoint names; do nothing with any other name."""
        if name in _RECORDED:
            importlib.import_module(f"{__name__}.{_RECORDED[name]}")

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)

    # Without this, dir() and tab completion would list only the names that were read already.
    def __dir__() -> list[str]:
        return sorted(__all__)
