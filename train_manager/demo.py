"""A demo that trains a small network on handwritten digits: ``python -m train_manager.demo``.

If the demo is killed or interrupted, ``RESUME=1 python -m train_manager.demo`` resumes from its newest checkpoint, and
ends with the same weights.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from train_manager import Extension, SeededDataLoader, TrainManager
from train_manager.extensions import Checkpoints, ConfusionMatrix, GradientNorms, Metrics, Report, default_extensions


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    """Return for each example whether the most likely digit is the right one; the metric is their mean."""
    return prediction.argmax(dim=1) == targets


def digits() -> list[Tensor]:
    """Return 1,797 digits of 8x8 pixels: images to train on, held-out images, and the labels of both."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise SystemExit(f'{error}. The demo needs an extra: pip install "train-manager[demo]"') from None
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype("float32") / 16
    return [*map(torch.from_numpy, train_test_split(images, labels, test_size=450, random_state=0, stratify=labels))]


def convolution(channels: int, wider: int) -> nn.Module:
    """Return a layer that halves the image."""
    return nn.Sequential(nn.Conv2d(channels, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2))


def new_folder(start: str = "runs/digits") -> Path:
    """Make and return ``runs/digits-1``, or the next free number, so that two demos at once have two folders."""
    for folder in (Path(f"{start}-{number}") for number in itertools.count(1)):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


def newest_folder(start: str = "runs/digits") -> Path:
    """Return the folder ``runs/digits-n`` with the largest number; a new one if there is none."""
    found = [path for path in Path().glob(f"{start}-*") if path.name.rpartition("-")[2].isdecimal()]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2])) if found else new_folder(start)


class Beginning(Extension):
    """Remember the step of the checkpoint that the training resumes from."""

    step: int | None = None  # None if the training has begun anew

    def post_load_checkpoint(self, checkpoint_loaded: Path | bool, train_manager: TrainManager) -> None:
        """Read the step where the checkpoint has been loaded."""
        if checkpoint_loaded:
            self.step = train_manager.step_num


def main() -> None:
    """Train, print a line for each epoch, then the accuracy and where the files are."""
    images, held_out_images, labels, held_out_labels = digits()
    torch.set_num_threads(1)  # more threads do not help a small network, and are far slower on a busy machine
    torch.manual_seed(0)  # for the initial weights, the dropout and the order of the digits
    layers = [convolution(1, 32), convolution(32, 64), convolution(64, 128)]
    tm = TrainManager(
        model=nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(128, 10)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
        lr_schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12),
        epochs=12,
        train_data=SeededDataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, seed=0),
        eval_data={"held out": [(held_out_images, held_out_labels)]},
        extensions=[
            default_extensions(),
            Checkpoints(resume=True),  # a new folder has no checkpoint, so the training begins anew
            Metrics(accuracy),
            GradientNorms(),
            ConfusionMatrix(),
            Report(),
            beginning := Beginning(),
        ],
        train_dir=newest_folder() if os.environ.get("RESUME") else new_folder(),
    )
    warnings.filterwarnings("ignore", r"train\(\) has nothing to do")  # the demo says it in its own words
    try:
        result = tm.train()
    except KeyboardInterrupt:
        print("resume with: make demo RESUME=1")
        raise SystemExit(130) from None  # as a shell reports a program that SIGINT has ended
    if not result.steps:
        print("finished already; press Ctrl-C during make demo to see a resume")
        return
    print(f"\naccuracy  {tm.eval()['held out']['accuracy']:.2%} of the {len(held_out_labels)} held-out digits")
    print(f"training  {tm.epoch_num} epochs, {tm.step_num} batches")
    if beginning.step is not None:
        print(f"resumed   from step {beginning.step}, that of the last checkpoint")
    print(f"curves    {tm.train_dir}/plots/loss_curves.svg")
    print(f"report    {tm.train_dir}/report.html, to be opened in a browser")
    print(f"program   {__file__}, to be read and changed")


if __name__ == "__main__":
    main()
