"""The tools for tests: a manager that is always the same, and an extension that records."""

from __future__ import annotations

import torch
from torch import nn

from train_manager import Extensible
from train_manager.testing import Recorder, tiny_manager


class Worker(Extensible):
    def work(self) -> None:
        with self.staged("outer", {"size": 1}):
            with self.staged("inner"):
                self.fixtures["found"] = 2


def test_a_tiny_manager_learns() -> None:
    tm = tiny_manager(epochs=10)
    before = tm.eval()["valid"]["loss"]
    tm.train()

    assert tm.eval()["valid"]["loss"] < before


def test_two_tiny_managers_train_alike() -> None:
    first, second = tiny_manager(epochs=2), tiny_manager(epochs=2)
    first.train()
    torch.rand(1)
    second.train()

    assert torch.equal(nn.utils.parameters_to_vector(first.model.parameters()), _weights(second.model))


def test_a_tiny_manager_does_not_change_the_random_state() -> None:
    before = torch.get_rng_state()
    tiny_manager()

    assert torch.equal(torch.get_rng_state(), before)


def test_an_option_replaces_the_tiny_one() -> None:
    assert tiny_manager(eval_data=None).eval_data == {}


def test_an_epoch_has_three_batches_the_last_of_them_smaller() -> None:
    train_data = tiny_manager().train_data
    assert train_data is not None

    assert [len(inputs) for inputs, _ in train_data] == [16, 16, 8]


def test_a_recorder_lists_stages_in_the_order_they_opened() -> None:
    recorder = Recorder()
    Worker([recorder]).work()

    assert recorder.stages == ["outer", "inner"]


def test_a_recorder_lists_hooks_in_the_order_they_ran() -> None:
    recorder = Recorder()
    Worker([recorder]).work()

    assert recorder.hooks == ["pre_outer", "pre_inner", "post_inner", "post_outer"]


def test_a_recorder_lists_the_fixtures_that_each_stage_owned() -> None:
    recorder = Recorder()
    Worker([recorder]).work()

    assert recorder.born == {("outer",): {"size"}, ("outer", "inner"): {"found"}}


def test_a_recorder_does_not_change_the_training() -> None:
    bare, watched = tiny_manager(), tiny_manager(Recorder())
    bare.train()
    watched.train()

    assert torch.equal(_weights(bare.model), _weights(watched.model))


def _weights(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters())
