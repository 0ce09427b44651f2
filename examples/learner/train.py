# ruff: noqa: B007, N816  # the names of the article
import torch.optim as optim
from digits import deploymentConfig, evalMetrics, learning_rate, numEpochs

from train_manager import jumpml

dataloader = jumpml.createDataloader("data.toml")
model = jumpml.loadModel("model.toml")
optimizer = optim.SGD(model.parameters(), lr=learning_rate, momentum=0.5)
learner = jumpml.createLearner(dataloader, model, optimizer, "learner.toml")

learner.ssLearn()

for epochs in range(numEpochs):
    learner.trainEpoch()

evalResults = jumpml.evalModel(dataloader, model, evalMetrics)
jumpml.deployModel(evalResults, model, deploymentConfig)
