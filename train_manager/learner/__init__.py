"""A learner from files: data, model and options are described, and all mistakes are reported with their lines.

Its files in reading order; each imports only those above it:

    places       the line of each key of a TOML text
    reading      the tree of a file or of a dict
    description  a tree with its places, and mistakes that are reported at once
    showing      values of a file, as messages show them
    keys         the keys of a table, and the form of each value
    argument_types  whether a value of a file fits a parameter
    words        what an entry `use = "word"` names
    transforms   functions of a column that a file may name
    layers       modules that join what several others give, for files
    splits       the rows of a dataset, split with the same shares of each label
    contrast     whether two results of an example are found among those of others
    column_batches  batches of the rows of columns
    features     what is made of the inputs once, before the training
    augment      how the inputs of each training batch are changed
    lessons      how a teacher chooses the dataset of each batch
    dataset      one dataset of a file
    data         the batches of all datasets of a file
    nodes        the modules of a file, and which of them feed which
    shapes       the shapes of what modules give, before memory is taken
    objectives   losses at modules, or between two of them
    model        the model of a file
    encoder      the part of a model that leads to one module
    tasks        what a module can learn from inputs without labels
    exports      what a deployment exports
    fits         whether data fit a model
    options      the options of a learner
    learner      the training, in the four stages of its life
    evaluation_result  the predictions of an evaluation, with what they were compared to
    evaluation   metrics of predictions and truth
    report_card  the report of a deployment
    deployment   a folder with a trained model in several forms, and a report
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train_manager.learner.data import create_dataloader as create_dataloader
    from train_manager.learner.deployment import deploy_model as deploy_model
    from train_manager.learner.evaluation import eval_model as eval_model
    from train_manager.learner.learner import Learner as Learner
    from train_manager.learner.learner import create_learner as create_learner
    from train_manager.learner.model import load_model as load_model
    from train_manager.learner.tasks import Task as Task
else:
    _FILES = {
        "create_dataloader": "data",
        "load_model": "model",
        "create_learner": "learner",
        "Learner": "learner",
        "Task": "tasks",
        "eval_model": "evaluation",
        "deploy_model": "deployment",
    }
    # What checkpoints name.
    _RECORDED = {
        **dict.fromkeys(("divide", "noise", "shift", "Standardize"), "transforms"),
        **dict.fromkeys(("Concatenate", "Sum"), "layers"),
        **dict.fromkeys(("SimCLR", "Masked", "loss_of_task"), "tasks"),
        "contrast": "contrast",
        "Augment": "augment",
        "Objectives": "objectives",
        "FileModel": "model",
        "Encoder": "encoder",
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
