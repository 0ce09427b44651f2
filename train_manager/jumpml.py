"""The learner under the names of the article that it comes from.

RSP 2020, "Design of a high-level PyTorch ML library". Its example runs as it is printed there, but for the names of its
files and the line ``from train_manager import jumpml``. All else is in ``train_manager.learner``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from train_manager import learner
from train_manager.learner.datasets import Datasets, create_dataloader
from train_manager.learner.deployment import deploy_model
from train_manager.learner.evaluation import eval_model
from train_manager.learner.model import FileModel, load_model

createDataloader = create_dataloader  # noqa: N816  # the names of the article
loadModel = load_model  # noqa: N816
evalModel = eval_model  # noqa: N816
deployModel = deploy_model  # noqa: N816


class Learner(learner.Learner):
    """A learner with the method names of the article."""

    ssLearn = learner.Learner.ss_learn  # noqa: N815
    trainEpoch = learner.Learner.train_epoch  # noqa: N815


def createLearner(  # noqa: N802
    dataloader: Datasets,
    model: FileModel,
    optimizer: Optimizer,
    learnerOptions: str | Path | Mapping[str, Any] | None = None,  # noqa: N803
) -> Learner:
    """Make a learner, as ``create_learner`` does."""
    return Learner.of(dataloader, model, optimizer, learnerOptions)
