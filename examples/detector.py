"""A detector that finds bright squares, called as torchvision's detectors are: with lists of images and of targets.

    python examples/detector.py

The images have different sizes, so a batch is a list of them, and the targets are a list of dicts. In train mode the
model returns a dict of losses, whose sum is trained; in eval mode it returns a dict of boxes and scores for each image,
which a metric compares with the targets: the evaluation has no loss. A detector of torchvision takes the place of
``Detector`` as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader

from train_manager import TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 6
STRIDE = 4  # pixels from cell to cell

Example = tuple[Tensor, dict[str, Tensor]]  # an image, and its boxes: left, top, right and bottom
Batch = tuple[list[Tensor], list[dict[str, Tensor]]]


class Detector(nn.Module):
    """Each cell of an image says whether it is in the middle of a square, and how far away the four sides are."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.Conv2d(16, 32, 5, stride=2, padding=2)
        self.cells = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(32, 5, 3, padding=1))

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        outputs = [self.cells(image.unsqueeze(0)).squeeze(0) for image in images]
        if not self.training:
            return [detections(output) for output in outputs]
        assert targets is not None, "in train mode it needs targets"
        found = [losses(output, target["boxes"]) for output, target in zip(outputs, targets, strict=True)]
        return {name: torch.stack([one[name] for one in found]).mean() for name in ("objectness", "box")}


def centres(output: Tensor) -> Tensor:
    """Return the middle of each cell, x and y, in the shape (2, rows, columns)."""
    rows, columns = (STRIDE * (torch.arange(size) + 0.5) for size in output.shape[1:])
    return torch.stack(torch.meshgrid(columns, rows, indexing="xy"))


def losses(output: Tensor, boxes: Tensor) -> dict[str, Tensor]:
    """Return the losses of an image: which cells are in the middle of a square, and how far its sides are from them."""
    at = centres(output)
    distances = torch.stack([(at - box.view(2, 2, 1, 1)).abs().flatten(0, 1) for box in boxes])  # to the four sides
    is_middle = ((distances[:, :2] - distances[:, 2:]).abs() < 2 * STRIDE).all(dim=1)
    which = is_middle.any(dim=0)
    wanted = (distances * is_middle.unsqueeze(1)).sum(dim=0)[:, which] / 10
    objectness = F.binary_cross_entropy_with_logits(output[0], which.float())
    return {"objectness": objectness, "box": F.l1_loss(output[1:, which], wanted)}


def detections(output: Tensor) -> dict[str, Tensor]:
    """Return the boxes of an image, of the cells with a higher score than the cells around them."""
    scores = output[0].sigmoid()
    around = F.max_pool2d(scores.unsqueeze(0), 3, stride=1, padding=1).squeeze(0)
    which = (scores == around) & (scores > 0.3)
    left_top, right_bottom = (10 * output[1:, which]).split(2)
    middle = centres(output)[:, which]
    return {"boxes": torch.cat([middle - left_top, middle + right_bottom]).T, "scores": scores[which]}


def image(generator: torch.Generator) -> Example:
    """Return an image of noise with a bright square."""

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    height, width, side = draw(24, 41), draw(24, 41), draw(8, 13)
    left, top = draw(0, width - side), draw(0, height - side)
    pixels = torch.rand(3, height, width, generator=generator)
    pixels[:, top : top + side, left : left + side] += 1
    return pixels, {"boxes": torch.tensor([[left, top, left + side, top + side]], dtype=torch.float32)}


def lists(examples: Iterable[Example]) -> Batch:
    images, targets = zip(*examples, strict=True)
    return [*images], [*targets]


def squares() -> tuple[DataLoader[Example], list[Batch]]:
    """Return images to train on, in a new random order each epoch, and batches to test with."""
    generator = torch.Generator().manual_seed(0)
    train, test = ([image(generator) for _ in range(n)] for n in (96, 32))
    loader: Any = DataLoader(train, batch_size=8, shuffle=True, collate_fn=lists)  # type: ignore[arg-type]
    return loader, [lists(test[:16]), lists(test[16:])]


def found(prediction: list[dict[str, Tensor]], targets: list[dict[str, Tensor]]) -> Tensor:
    """Return the share of squares that more than half of a box covers, with as little outside (IoU above 0.5)."""
    best = [overlap(one["boxes"], target["boxes"]) for one, target in zip(prediction, targets, strict=True)]
    return (torch.cat(best) > 0.5).float().mean()


def overlap(boxes: Tensor, squares: Tensor) -> Tensor:
    """Return for each square its largest IoU with a box."""
    low = torch.maximum(boxes[:, None, :2], squares[:, :2])
    high = torch.minimum(boxes[:, None, 2:], squares[:, 2:])
    common = (high - low).clamp(min=0).prod(dim=2)
    areas = [(one[:, 2:] - one[:, :2]).prod(dim=1) for one in (boxes, squares)]
    shares = common / (areas[0].unsqueeze(1) + areas[1] - common)
    return torch.cat([shares, torch.zeros(1, len(squares))]).amax(dim=0)


class Detection(TrainManager):
    def train_model_forward(self, model: Any, inputs: Any, targets: Any) -> Any:
        return model(inputs, targets)


def manager() -> TrainManager:
    train, test = squares()
    return Detection(
        model=Detector(),
        optimizer=lambda parameters: Adam(parameters, lr=0.01),
        lr_schedule=lambda optimizer: StepLR(optimizer, step_size=5, gamma=0.3),
        train_data=train,
        eval_data={"test": test},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[
            Log(every=6, counts=("epoch", "batch"), show=("loss", "losses"), rate=None),
            Metrics(eval={"found": found}),
        ],
    )


def main() -> None:
    """Train, and print how many of the squares are found."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"found {result.metrics['test']['found']:.1%} of the squares")


if __name__ == "__main__":
    main()
