"""Self-supervised tasks, computed by hand, and the part of a model that they train."""

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
from train_manager.learner.objectives import contrast
from train_manager.learner.tasks import Encoder, Masked, SimCLR
from train_manager.learner.transforms import Augment


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


# ---- the encoder ----


TWO_INPUTS = {
    "inputs": {"left": [4], "right": [2]},
    "module": {
        "one": {"from": "left", "use": "Linear", "out_features": 5},
        "other": {"from": "right", "use": "Linear", "out_features": 3},
        "both": {"from": ["one", "other"], "use": "Concatenate"},
        "head": {"from": "both", "use": "Linear", "out_features": 2},
    },
}


def test_it_has_the_modules_that_lead_to_its_own_and_no_copies() -> None:
    model: Any = load_model(network())
    encoder = Encoder(model, "trunk")

    assert list(encoder.parts) == ["trunk"]
    assert encoder.parts["trunk"] is model.trunk
    assert list(Encoder(model, "head").parts) == ["trunk", "head"]


def test_of_two_inputs_all_values_are_counted() -> None:
    encoder = Encoder(load_model(TWO_INPUTS), "both")

    assert (encoder.width, encoder.values) == (8, 6)
    assert encoder({"left": torch.zeros(3, 4), "right": torch.zeros(3, 2)}).shape == (3, 8)


def test_of_two_inputs_a_module_may_need_one() -> None:
    assert list(Encoder(load_model(TWO_INPUTS), "one").parts) == ["one"]


def test_to_make_it_moves_neither_statistics_nor_modes_nor_random_state() -> None:
    model: Any = load_model(network())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    Encoder(model, "trunk")

    assert all(before[name].equal(tensor) for name, tensor in model.state_dict().items())
    assert (model.trunk.training, torch.get_rng_state().equal(state)) == (True, True)
