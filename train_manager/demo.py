"""Train a small network on handwritten digits, as an example of the library: ``python -m train_manager.demo``."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from train_manager import Extension, TrainManager
from train_manager.extensions import default_extensions


class Accuracy(Extension):
    """The share of right answers in an evaluation. The parameters of the hook name what it wants to see."""

    def post_eval_step_batch(self, prediction: Tensor, targets: Tensor) -> None:
        self.value = (prediction.argmax(dim=1) == targets).float().mean().item()  # held out is one batch


def digits() -> list[Tensor]:
    """1,797 digits of 8x8 pixels, as images to train on, images held out, and the labels of both."""
    try:
        import matplotlib  # noqa: F401  # for the curves: better missed now than after the training
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise SystemExit(f'{error}. The demo needs an extra: pip install "train-manager[demo]"') from None
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype("float32") / 16
    return [*map(torch.from_numpy, train_test_split(images, labels, test_size=450, random_state=0, stratify=labels))]


def convolution(channels: int, wider: int) -> nn.Module:
    """A layer that halves the image."""
    return nn.Sequential(nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2))


def new_folder(start: str = "runs/digits") -> Path:
    """``runs/digits-1``, or the next number that is free; made here, so that two demos at once get two."""
    for folder in (Path(f"{start}-{number}") for number in itertools.count(1)):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def main() -> None:
    """Train, and say what was reached and where everything lies."""
    started = time.perf_counter()
    images, held_out_images, labels, held_out_labels = digits()
    torch.set_num_threads(1)  # for so small a network more are no faster, and far slower on a machine that is busy
    torch.manual_seed(0)  # for the first weights, the dropout and the order of the digits
    layers = [convolution(1, 32), convolution(32, 64), convolution(64, 128)]
    tm = TrainManager(
        model=nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(128, 10)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        lr_schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12),
        epochs=12,
        train_data=DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True),
        eval_data={"held out": [(held_out_images, held_out_labels)]},
        extensions={**default_extensions(), "accuracy": (accuracy := Accuracy())},
        train_dir=new_folder(),
    )
    tm.train()
    print(f"accuracy  {accuracy.value:.2%} of the {len(held_out_labels)} digits that were held out")
    print(f"loss      {tm.eval()['held out']['loss']:.4f} on them")
    print(f"training  {tm.epoch_num} epochs, {tm.step_num} batches, {time.perf_counter() - started:.1f} seconds in all")
    print(f"curves    {tm.train_dir}/plots/loss_curves.png and .svg")
    print(f"program   {__file__}, to be read and changed")


if __name__ == "__main__":
    main()
