"""Self-supervised tasks, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.learner.files import learner_of, network, options
from train_manager import recorded
from train_manager.learner import Task, load_model
from train_manager.learner.augment import Augment
from train_manager.learner.contrast import contrast
from train_manager.learner.encoder import Encoder
from train_manager.learner.tasks import Masked, SimCLR


@recorded
class Smallness(Task):
    """Learn to give small values: a task of a program's own."""

    def forward(self, inputs: Any) -> Tensor:
        """Return the mean of the squares."""
        loss: Tensor = self.encoder(self.view(inputs)).square().mean()
        return loss


def encoder() -> Encoder:
    return Encoder(load_model(network()).eval(), "trunk")


def test_contrast_is_the_loss_of_the_own_partner_among_all_in_both_directions() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(5, 3), torch.randn(5, 3)
    similar = [[float(F.cosine_similarity(a, b, dim=0)) / 0.2 for b in other] for a in one]
    losses = [
        -math.log(math.exp(row[i]) / sum(map(math.exp, row)))
        for rows in (similar, list(map(list, zip(*similar, strict=True))))
        for i, row in enumerate(rows)
    ]

    assert float(contrast(one, other, 0.2)) == pytest.approx(sum(losses) / 10, rel=1e-5)


def test_contrast_does_not_ask_which_of_the_two_is_first() -> None:
    one, other = torch.randn(2, 6, 4)

    assert contrast(one, other).allclose(contrast(other, one))


def test_simclr_compares_two_views_of_each_example() -> None:
    task = SimCLR(encoder(), Augment([{"use": "noise", "std": 0.1}], ["point"]), temperature=0.3, features=5)
    points = torch.randn(8, 4)
    torch.manual_seed(0)
    loss = task(points)
    torch.manual_seed(0)
    one, other = (task.head(task.encoder(points + 0.1 * torch.randn(8, 4))) for _ in range(2))

    assert (one.shape, loss.equal(contrast(one, other, 0.3))) == ((8, 5), True)


def test_masked_takes_the_error_at_the_hidden_values_alone() -> None:
    task = Masked(encoder(), None, share=0.25)
    points = torch.randn(50, 4)
    torch.manual_seed(0)
    loss = task(points)
    torch.manual_seed(0)
    hidden = torch.rand(50, 4) < 0.25
    filled = task.head(task.encoder(points * ~hidden))

    assert float(loss.detach()) == pytest.approx(float((filled - points)[hidden].detach().square().mean()), rel=1e-5)
    assert 0.15 < float(hidden.float().mean()) < 0.35


def test_a_batch_without_a_hidden_value_has_no_error() -> None:
    assert Masked(encoder(), None, share=0.0)(torch.randn(3, 4)).item() == 0.0


def test_a_task_of_a_program_is_trained_by_its_name() -> None:
    phase = {"use": "Smallness", "at": "trunk", "epochs": 3, "optimizer": {"use": "SGD", "lr": 0.5}}
    learner = learner_of(given=options(self_supervised=[phase]))
    model: Any = learner.tm.model
    points = torch.randn(100, 4)
    before = float(model.trunk(points).detach().square().mean())
    learner.ss_learn()

    assert float(model.trunk(points).detach().square().mean()) < 0.5 * before
