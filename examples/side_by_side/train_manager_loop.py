"""The same training with Train Manager."""

import torch
from digits import EPOCHS, LARGEST_NORM, LEARNING_RATE, PATIENCE, Loader, loaders, network, report
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import Extension, TrainManager


class Clip(Extension):
    def post_train_backward(self, train_manager: TrainManager) -> None:
        nn.utils.clip_grad_norm_(train_manager.model.parameters(), LARGEST_NORM)


class Accuracy(Extension):
    def pre_eval(self) -> None:
        self.right = self.examples = 0.0

    def post_eval_step_batch(self, prediction: Tensor, targets: Tensor) -> None:
        self.right += (prediction.argmax(dim=1) == targets).sum().item()
        self.examples += len(targets)

    def post_eval(self, eval_results: dict[str, dict[str, float]], epoch_num: int) -> None:
        if epoch_num > 0:
            report(epoch_num, eval_results["valid"]["loss"], self.right / self.examples)


class Patience(Extension):
    best, waited = float("inf"), 0

    def post_eval(self, eval_results: dict[str, dict[str, float]], train_manager: TrainManager) -> None:
        loss = eval_results["valid"]["loss"]
        self.best, self.waited = (loss, 0) if loss < self.best else (self.best, self.waited + 1)
        if self.waited == PATIENCE:
            train_manager.stop("the validation loss falls no more")


def train(model: nn.Module, train_data: Loader, valid_data: Loader) -> None:
    tm = TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=LEARNING_RATE),
        train_data=train_data,
        eval_data={"valid": valid_data},
        epochs=EPOCHS,
        extensions=[Clip(), Accuracy(), Patience()],
    )
    tm.train()


if __name__ == "__main__":
    train(network(), *loaders())
