"""The article's names, and its script as it is printed but for the names of its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import optim

from tests.learner.files import dataset, network, options, right
from train_manager import jumpml
from train_manager.learner.learner import Learner


@pytest.mark.filterwarnings("ignore:the code of this run is not recorded")
def test_the_script_of_the_article_runs(tmp_path: Path) -> None:
    datasetFile, modelFile, learnerOptions = dataset(), network(), options(tmp_path / "run")  # noqa: N806
    learning_rate, numEpochs, evalMetrics = 0.1, 2, [right]  # noqa: N806
    deploymentConfig = {"folder": str(tmp_path / "out")}  # noqa: N806

    dataloader = jumpml.createDataloader(datasetFile)
    model = jumpml.loadModel(modelFile)
    optimizer = optim.SGD(model.parameters(), lr=learning_rate, momentum=0.5)
    learner = jumpml.createLearner(dataloader, model, optimizer, learnerOptions)
    learner.ssLearn()
    for _epochs in range(numEpochs):
        learner.trainEpoch()
    evalResults = jumpml.evalModel(dataloader, model, evalMetrics)  # noqa: N806
    jumpml.deployModel(evalResults, model, deploymentConfig)

    assert (learner.tm.epoch_num, learner.tm.step_num) == (2, 18)
    assert (tmp_path / "out" / "report.md").exists()


def test_its_learner_is_the_learner_with_two_more_names() -> None:
    own = {name for name in vars(jumpml.Learner) if not name.startswith("_")}

    assert own == {"ssLearn", "trainEpoch"}
    assert issubclass(jumpml.Learner, Learner)
