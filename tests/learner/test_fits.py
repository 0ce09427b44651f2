"""Whether data fit a model is found with a few examples, before the training."""

from __future__ import annotations

import torch
from torch import optim

from tests.learner.files import dataset, network
from tests.support.refusals import refusal
from train_manager.learner import create_dataloader, create_learner, load_model

MIXES = [{"use": "Linear", "out_features": 6}, {"use": "BatchNorm1d"}, {"use": "Softmax", "dim": 0}]


def test_a_layer_that_mixes_the_examples_of_a_batch_is_named() -> None:
    description = network()
    description["module"]["trunk"]["layers"] = MIXES
    model = load_model(description)
    assert refusal(
        lambda: create_learner(create_dataloader(dataset()), model, optim.SGD(model.parameters(), lr=0.1))
    ) == (
        "the dict has a mistake\n"
        "  the dict  module.trunk.layers[2] mixes the examples of a batch: what the model returns for example 1 "
        "depends on other examples\n"
        "            a module must treat each example by itself"
    )


def test_trying_examples_changes_no_weight_statistic_or_random_number() -> None:
    model = load_model(network())
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    create_learner(create_dataloader(dataset()), model, optim.SGD(model.parameters(), lr=0.1))

    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert torch.get_rng_state().equal(state)
