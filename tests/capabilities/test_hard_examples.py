"""Row J15: planted mislabelled examples head the list of the hard examples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from train_manager import InMemory, TrainManager
from train_manager.demo import digits
from train_manager.extensions import HardExamples


@pytest.mark.parametrize("seed", [0, 1])
def test_j15_at_least_95_percent_of_swapped_labels_are_in_the_hardest_10_percent(seed: int) -> None:
    """After 5 epochs over the digits of the demo, with 5 % of the labels swapped."""
    images, _, labels, _ = digits()
    count = len(labels)
    generator = torch.Generator().manual_seed(seed)
    swapped = torch.randperm(count, generator=generator)[: round(0.05 * count)]
    given = labels.clone()
    given[swapped] = (labels[swapped] + torch.randint(1, 10, swapped.shape, generator=generator)) % 10

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Dropout()]
        model = nn.Sequential(*layers, nn.Linear(256, 10))
    tm = TrainManager(
        model=model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=5e-3),
        train_data=InMemory(images, given, batch_size=64, shuffle=True),
        epochs=5,
        seed=seed,
        extensions=[HardExamples()],
    )
    tm.train()

    hardest = {one.number for one in tm["hard_examples"].hardest(count // 10)}
    assert len(hardest.intersection(swapped.tolist())) >= 0.95 * len(swapped)
