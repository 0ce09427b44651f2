"""What the files and train.py name: the data, a metric, and the numbers of the training."""
# ruff: noqa: N816  # the names of the article

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from train_manager import recorded

torch.manual_seed(0)  # of the weights with which the model begins
learning_rate = 0.2
numEpochs = 60
deploymentConfig = {"folder": "deployed", "exports": ["low_rank"]}


@recorded  # so that a file may name it
def digits() -> dict[str, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    return {"image": torch.tensor(pixels).float().view(-1, 1, 8, 8), "label": torch.tensor(labels)}


def accuracy(prediction: Tensor, truth: Tensor) -> Tensor:
    return (prediction.argmax(dim=1) == truth).float()


evalMetrics = [accuracy]
