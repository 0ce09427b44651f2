"""Scans of handwritten digits: trained with accuracy, early stopping, a schedule and clipping; tested; one is read."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from train_manager import InMemory, TrainManager
from train_manager.extensions import ClipGradients, EarlyStopping, Metrics


def accuracy(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return prediction.argmax(dim=1) == targets


pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
train, valid, test = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split([1197, 300, 300])
torch.manual_seed(0)
tm = TrainManager(
    model=nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    loss=nn.functional.cross_entropy,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    lr_schedule=lambda optimizer: CosineAnnealingLR(optimizer, T_max=30),
    epochs=30,
    train_data=InMemory(x[train], y[train], batch_size=64, shuffle=True),
    eval_data={"valid": InMemory(x[valid], y[valid], batch_size=300)},
    extensions=[Metrics(accuracy=accuracy), EarlyStopping("valid/loss", patience=3), ClipGradients(1.0)],
)
result = tm.train()
print(tm.history.to_pandas().round(3))
print(result.stopped or "all epochs are done")
print("test set:", tm.eval({"test": InMemory(x[test], y[test], batch_size=300)})["test"])
print("reads a", tm.predict(x[test][:1]).argmax().item(), "which is a", y[test][0].item())
