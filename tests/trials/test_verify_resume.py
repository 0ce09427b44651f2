from __future__ import annotations

import math
import os
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import StepLR
from torch.optim.swa_utils import AveragedModel

from tests.support.refusals import refusal
from train_manager import Extension, InputError, TrainManager, modifies
from train_manager.extensions import EMA, Checkpoints, LRSchedule, MetricStore
from train_manager.testing import tiny_manager
from train_manager.tools import verify_resume
from train_manager.trials.verify_resume import differences


class GrowingLoss(Extension):
    """Scales the loss by all losses so far, which its state forgets."""

    def __init__(self) -> None:
        self.total = 0.0

    @modifies("loss")
    def post_train_loss_forward(self, loss: Tensor) -> Tensor:
        self.total += loss.item()
        return loss * self.total


class RememberedLoss(GrowingLoss):
    """Does the same, and forgets nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: Any) -> None:
        self.total = state["total"]


def exact() -> TrainManager:
    return tiny_manager(EMA(), RememberedLoss(), epochs=2, seed=0)


def forgetful() -> TrainManager:
    return tiny_manager(GrowingLoss(), epochs=2)


def unseeded() -> TrainManager:
    tm = tiny_manager(epochs=2)
    with torch.no_grad():
        tm.model[0].weight.fill_(int.from_bytes(os.urandom(4)) / 2**32)
    return tm


class OwnOrder:
    """Draws the order of each pass from a generator that is in no state."""

    def __init__(self) -> None:
        self.chance = random.Random(0)

    def __iter__(self) -> Iterator[Any]:
        inputs = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
        batches = [*zip(inputs.split(8), (inputs.sum(dim=1) > 1).long().split(8), strict=True)]
        yield from self.chance.sample(batches, len(batches))


def test_a_training_whose_state_is_whole_resumes_exactly_and_nothing_stays_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    report = verify_resume(exact)

    assert report.identical, str(report)
    assert report.at == (4,)  # without a step, the middle of an epoch: they end at the steps 3 and 6
    assert str(report) == "identical: killed after step 4 and resumed, the training comes to the same, to the bit"
    assert list(tmp_path.iterdir()) == []


def test_a_training_is_killed_several_times_with_steps_that_are_done_again() -> None:
    report = verify_resume(exact, at=[4, 2], lose=1)

    assert report.identical, str(report)
    assert report.at == (2, 4)


@pytest.mark.whole
def test_a_training_may_be_killed_at_its_end() -> None:
    report = verify_resume(exact, at=6)

    assert report.identical, str(report)


def test_checkpoints_of_the_training_itself_are_used() -> None:
    def make() -> TrainManager:
        return tiny_manager(Checkpoints(keep=1, resume=False, in_background=True), epochs=2)

    report = verify_resume(make, at=4)

    assert report.identical, str(report)


@pytest.mark.whole
def test_a_training_that_resumes_from_another_one_begins_there_each_time(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=1, train_dir=tmp_path / "first").train()
    begin = tmp_path / "first" / "checkpoints" / "step-000000000003"

    report = verify_resume(lambda: tiny_manager(Checkpoints(resume=True, at=begin), epochs=2), at=5)

    assert report.identical, str(report)


def test_what_an_extension_forgets_is_named() -> None:
    report = verify_resume(forgetful, at=4)

    assert not report.identical
    assert report.differences[0].startswith("model > 0.weight: ")
    (cause,) = report.causes
    told = r"after step 4, the state_dict of extension 'growing_loss' did not bring back total: \d\.\d+ in the "
    assert re.fullmatch(told + r"killed run, 0\.0 in the resumed run", cause)


def test_a_training_that_differs_from_run_to_run_is_told_apart_from_a_resume_that_fails() -> None:
    report = verify_resume(unseeded, at=4)

    assert not report.identical
    (cause,) = report.causes
    told = (
        "the training is not deterministic: two straight runs differ too. Does it lack a seed? (model > 0.weight: 16 of"
    )
    assert cause.startswith(told)


def test_data_that_do_not_resume_where_they_were_are_named_and_no_extension_is_accused() -> None:
    def make() -> TrainManager:
        schedule = LRSchedule(lambda optimizer: StepLR(optimizer, 1), per="step")
        return tiny_manager(MetricStore(), schedule, epochs=2, seed=0, train_data=OwnOrder())

    report = verify_resume(make, at=7)

    assert not report.identical
    (cause,) = report.causes
    assert cause.startswith(
        "after step 7, the training data do not resume where they were: the next batch is another one. "
        "SeededDataLoader resumes (batch > 0: "
    )


class Averages(Extension):
    """Holds an average of the weights."""

    def __init__(self) -> None:
        self.average: AveragedModel | None = None

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        if self.average is None:
            self.average = AveragedModel(train_manager.model)
        self.average.update_parameters(train_manager.model)


class NewEachEpoch(Extension):
    """Trains a number of its own, from the same beginning in each epoch."""

    def pre_train_step_epoch(self, train_manager: TrainManager) -> None:
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.Adam([self.scale])

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        (self.scale * loss.detach()).backward()
        self.optimizer.step()


@pytest.mark.parametrize("at", [4, pytest.param(3, marks=pytest.mark.whole)], ids=["within an epoch", "between epochs"])
def test_what_an_extension_makes_anew_in_each_epoch_resumes_exactly(at: int) -> None:
    report = verify_resume(lambda: tiny_manager(NewEachEpoch(), epochs=2), at=at)

    assert report.identical, str(report)


class ForgetsTheAverage(Averages):
    """Writes a state of its own, without the average."""

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.whole
def test_a_module_that_an_extension_holds_comes_back() -> None:
    report = verify_resume(lambda: tiny_manager(Averages(), epochs=2), at=4)

    assert report.identical, str(report)


def test_a_module_that_a_state_dict_of_an_extension_leaves_out_is_named() -> None:
    report = verify_resume(lambda: tiny_manager(ForgetsTheAverage(), epochs=2), at=4)

    assert report.differences[0].startswith(
        "left_out_by_state_dict > forgets_the_average > average > n_averaged: 1 of 1 values differ"
    )
    assert report.causes == (
        "after step 4, the state_dict of extension 'forgets_the_average' did not bring back average: "
        "a OrderedDict of 5 in the killed run, None in the resumed run",
    )


def secretive() -> TrainManager:
    total = [0.0]

    def post_train_loss_forward(loss: Tensor) -> Tensor:
        total[0] += loss.item()
        return loss * total[0]

    tm = tiny_manager(epochs=2)
    tm.add_extension(post_train_loss_forward=modifies("loss")(post_train_loss_forward))
    return tm


def test_differences_without_a_cause_that_was_found_are_named_with_what_was_looked_at() -> None:
    report = verify_resume(secretive, at=4)

    (cause,) = report.causes
    assert cause == (
        "none was found for model > 0.weight, extensions > checkpoints > best, history > epochs > 1 > loss: the next "
        "batch and all attributes of the manager and its extensions came back; left are workers of the data, "
        "generators, globals and files of its own"
    )


def test_a_step_after_the_end_of_the_training_is_refused() -> None:
    assert (
        refusal(lambda: verify_resume(exact, at=[2, 7]))
        == "the training ends after 6 steps, before step 7\n  give a step from 1 to 6"
    )


def test_the_end_of_the_output_of_a_training_that_fails_is_shown() -> None:
    def make() -> TrainManager:
        raise ValueError("no data today")

    with pytest.raises(InputError) as failed:
        verify_resume(make)

    text = str(failed.value)
    assert text.startswith("the training failed in the run 'straight' (exit code 1); its output ended with:\n")
    assert text.endswith("    ValueError: no data today")


def make_beside_another() -> TrainManager:
    return tiny_manager(epochs=2, train_data=tiny_manager().train_data)


@pytest.mark.whole
def test_a_manager_that_is_made_and_trains_nothing_is_no_difference() -> None:
    assert verify_resume(make_beside_another, at=4).identical


# ---- two values ------------------------------------------------------------------------------------------------------


NAMES = ("straight run", "resumed run")

DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "a number": ({"a": {"b": 1.5}}, {"a": {"b": 2.5}}, "a > b: 1.5 in the straight run, 2.5 in the resumed run"),
    "a type": ({"a": 1}, {"a": 1.0}, "a: 1 in the straight run, 1.0 in the resumed run"),
    "a name less": ({"a": {"b": 1}}, {"a": {}}, "a > b: missing in the resumed run"),
    "a name more": ({}, {"a": 1}, "a: missing in the straight run"),
    "a length": ([1, 2], [1], "the state: a list of 2 in the straight run, a list of 1 in the resumed run"),
    "a place": ({"a": (1, 2)}, {"a": (1, 3)}, "a > 1: 2 in the straight run, 3 in the resumed run"),
    "a shape": (
        torch.ones(2, 3),
        torch.ones(3),
        "the state: 2x3 of float32 in the straight run, 3 of float32 in the resumed run",
    ),
    "a dtype": (
        torch.ones(()),
        torch.ones((), dtype=torch.float64),
        "the state: a scalar of float32 in the straight run, a scalar of float64 in the resumed run",
    ),
    "values": (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), "the state: 1 of 2 values differ, by 0.5 at most"),
    "an array": (np.array([1, 2]), np.array([4, 2]), "the state: 1 of 2 values differ, by 3 at most"),
    "the sign of zero": (torch.tensor([0.0]), torch.tensor([-0.0]), "the state: 1 of 1 values differ, by 0 at most"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_difference_is_told_by_its_path_and_how(case: str) -> None:
    one, other, told = DIFFERENT[case]

    assert list(differences(one, other, NAMES)) == [told]


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        torch.tensor([math.nan, 1.0]),
        torch.empty(0),
        torch.tensor(3, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        np.array([], dtype=np.uint32),
        {"a": [None, "text", b"bytes", (True,)]},
    ],
    ids=str,
)
def test_equal_values_have_no_differences(value: Any) -> None:
    assert list(differences({"a": value}, {"a": value}, NAMES)) == []


def test_times_are_not_compared() -> None:
    assert list(differences({"seconds": 1.0}, {"seconds": 2.0}, NAMES)) == []
