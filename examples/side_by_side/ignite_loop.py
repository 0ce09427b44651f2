"""The same training with PyTorch-Ignite."""

import torch
from digits import EPOCHS, LARGEST_NORM, LEARNING_RATE, PATIENCE, Loader, loaders, network, report
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, Loss
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor]


def train(model: nn.Module, train_data: Loader, valid_data: Loader) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    def train_step(engine: Engine, batch: Batch) -> float:
        model.train()
        inputs, targets = batch
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    trainer = Engine(train_step)
    evaluator = create_supervised_evaluator(model, metrics={"loss": Loss(F.cross_entropy), "accuracy": Accuracy()})

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate() -> None:
        metrics = evaluator.run(valid_data).metrics
        report(trainer.state.epoch, metrics["loss"], metrics["accuracy"])

    stopping = EarlyStopping(PATIENCE, lambda engine: -engine.state.metrics["loss"], trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopping)
    trainer.run(train_data, max_epochs=EPOCHS)


if __name__ == "__main__":
    train(network(), *loaders())
