"""Make docs/pictures/gallery: the pictures that extensions draw, of small trainings that are the same each time.

pip install -e ".[examples]"
python docs/pictures/make_gallery.py
"""

from __future__ import annotations

import math
import re
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from unittest import mock

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from train_manager import Extension, InMemory, TrainManager
from train_manager.extensions import (
    ActivationStatistics,
    ConfusionMatrix,
    GradientNorms,
    Live,
    LossCurves,
    Metrics,
    PredictionGallery,
    Throughput,
    UpdateRatios,
    WeightHistograms,
)
from train_manager.extensions.visualization import live

GALLERY = Path(__file__).parent / "gallery"
DIGITS = [str(number) for number in range(10)]
FEW, MANY = 3, 40  # layers
COLORS = "svg { color: #222 } @media (prefers-color-scheme: dark) { svg { color: #ddd } }\n"


def main() -> None:
    GALLERY.mkdir(exist_ok=True)
    for name, text in pictures():
        (GALLERY / f"{name}.svg").write_text(text, encoding="utf-8")


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each picture."""
    few = {"gradient_norms": GradientNorms(), "update_ratios": UpdateRatios()}
    few |= {"confusion_matrix": ConfusionMatrix(DIGITS), "prediction_gallery": PredictionGallery(DIGITS, 8, 8)}
    in_notebook, shown = Live(interval=0), Shown()
    vars(in_notebook)["_output"] = shown
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.object(live, "is_notebook", return_value=True):
            trained(FEW, [*few.values(), in_notebook, Metrics(accuracy=accuracy), LossCurves()], folder)
        yield "loss_curves", Path(folder, "plots", "loss_curves.svg").read_text(encoding="utf-8")
    yield "live", shown.picture.replace("<style>", f"<style>{COLORS}", 1)  # a notebook has colors of its own
    many = {"weight_histograms": WeightHistograms(every=20), "activation_statistics": ActivationStatistics()}
    many |= {"gradient_norms_of_many_layers": GradientNorms()}
    trained(MANY, [*many.values()])
    for name, extension in {**few, **many, "throughput": measured_by_hand()}.items():
        for number, text in enumerate(files_in(extension._repr_html_()), start=1):
            yield name if number == 1 else f"{name}_{number}", text


def trained(layers: int, extensions: list[Extension], folder: str | None = None) -> None:
    """Train a network of so many layers to read digits."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)
    torch.manual_seed(0)
    inner = [part for _ in range(layers - 2) for part in (nn.Linear(32, 32), nn.ReLU())]
    TrainManager(
        model=nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), *inner, nn.Linear(32, 10)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.003),
        train_data=InMemory(x[:1200], y[:1200], batch_size=64, shuffle=True),
        eval_data={"valid": InMemory(x[1200:], y[1200:], batch_size=300)},
        seed=0,
        epochs=12,
        extensions=extensions,
        train_dir=folder,
    ).train()


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def measured_by_hand() -> Throughput:
    """Return a Throughput that was told of steps, since those of a machine are never the same."""
    moments = (0.004 * step + 0.01 * math.sin(step / 9) for step in count())
    throughput = Throughput(seconds=0.05, clock=lambda: next(moments))
    for step in range(1, 300):
        throughput.post_train_step_batch(64, step, model=None, data_seconds=0.0006 + 0.0003 * math.cos(step / 20))
    return throughput


class Shown:
    """In place of the output below a cell."""

    picture = ""

    def show(self, text: str, html: str) -> None:
        self.picture = html


def files_in(html: str) -> list[str]:
    """Return the SVG files in what a notebook shows."""
    return [b64decode(found).decode() for found in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", html)]


if __name__ == "__main__":
    main()
