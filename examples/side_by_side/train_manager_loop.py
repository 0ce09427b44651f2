"""The same training with Train Manager."""

import torch
from digits import EPOCHS, LARGEST_NORM, LEARNING_RATE, PATIENCE, Loader, loaders, network, report
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import Extension, TrainManager
from train_manager.extensions import ClipGradients, EarlyStopping, Metrics


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction.argmax(dim=1) == targets).float().mean()


class Report(Extension):
    def post_eval(self, eval_results: dict[str, dict[str, float]], epoch_num: int) -> None:
        if epoch_num > 0:
            report(epoch_num, **eval_results["valid"])


def train(model: nn.Module, train_data: Loader, valid_data: Loader) -> None:
    tm = TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=LEARNING_RATE),
        train_data=train_data,
        eval_data={"valid": valid_data},
        epochs=EPOCHS,
        extensions=[
            ClipGradients(LARGEST_NORM),
            Metrics(accuracy=accuracy),
            EarlyStopping("valid/loss", patience=PATIENCE),
            Report(),
        ],
    )
    tm.train()


if __name__ == "__main__":
    train(network(), *loaders())
