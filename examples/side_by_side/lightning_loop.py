"""The same training with Lightning."""

import lightning
import torch
from digits import EPOCHS, LARGEST_NORM, LEARNING_RATE, PATIENCE, Loader, loaders, network, report
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor]


class Classifier(lightning.LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE)

    def training_step(self, batch: Batch) -> Tensor:
        inputs, targets = batch
        return F.cross_entropy(self.model(inputs), targets)

    def validation_step(self, batch: Batch) -> None:
        inputs, targets = batch
        prediction = self.model(inputs)
        self.log("valid_loss", F.cross_entropy(prediction, targets))
        self.log("accuracy", (prediction.argmax(dim=1) == targets).float().mean())

    def on_train_epoch_end(self) -> None:
        metrics = self.trainer.callback_metrics
        report(self.current_epoch + 1, metrics["valid_loss"].item(), metrics["accuracy"].item())


def train(model: nn.Module, train_data: Loader, valid_data: Loader) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        gradient_clip_val=LARGEST_NORM,
        callbacks=[EarlyStopping("valid_loss", mode="min", patience=PATIENCE)],
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(model), train_data, valid_data)


if __name__ == "__main__":
    train(network(), *loaders())
