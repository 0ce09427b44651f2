"""What is tried on a training, how it is timed, and that the training after it is the one without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import train_manager.extensions
from tests.support.equal_states import assert_same
from tests.support.training import weights
from tests.trials.test_preserve import noisy, nothing, trained
from tests.trials.test_tricks import Rows, X, Y, images
from train_manager import Extension, InMemory, InputError, TrainManager, tune
from train_manager.errors import StageError
from train_manager.extensions import EMA, Compile, HardExamples, MixedPrecision
from train_manager.testing import tiny_manager
from train_manager.trials.tricks import CHANNELS_LAST, FUSED, KINDS, PINNED, Trick, _of_extension, _workers
from train_manager.trials.tune import Clocked, largest_difference, noise_in, promising, tune_script
from train_manager.trials.tune_report import WARM_UP, Tried

COMPILE = getattr(train_manager.extensions, "Compile", None)  # an installation may lack it
NAN = float("nan")
ROUNDS = "train_manager.trials.tune.ROUNDS"


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests short: one round, and no extension that compiles."""
    monkeypatch.setattr(ROUNDS, 1)
    monkeypatch.setattr(train_manager.extensions, "Compile", None, raising=False)


def clock_of(tm: TrainManager, **factors: float) -> Callable[[], float]:
    """A clock on which the steps of a training are as fast as what is in place in it says."""
    now = 0.0

    def seconds() -> float:
        nonlocal now
        in_place = {
            "fused": tm.optimizer.param_groups[0].get("fused"),
            "bf16": "mixed_precision" in tm.extensions,
            "in_memory": isinstance(getattr(tm.train_data, "data", None), InMemory),
        }
        step = 1.0
        for name, factor in factors.items():
            step *= factor if in_place[name] else 1
        now += step
        return now

    return seconds


def tensors() -> TrainManager:
    return tiny_manager(train_data=DataLoader(TensorDataset(X, Y), batch_size=8))


def test_tricks_that_are_left_out_are_not_tried() -> None:
    report = tune(tensors(), steps=1, quiet=True, without=["bf16", "InMemory"])

    assert names(report.tried)[:2] == ["as it is", "fused"]
    assert {"bf16", "InMemory", "workers"}.isdisjoint(one.kind for tried in report.tried for one in tried.tricks)


def test_every_trick_has_a_kind_by_which_it_is_left_out() -> None:
    ones = [FUSED, CHANNELS_LAST, PINNED, _workers(2), _of_extension(MixedPrecision), _of_extension(Compile)]

    assert [one.kind for one in ones] == ["fused", "channels_last", "pinned", "workers", "bf16", "Compile"]
    assert {one.kind for one in ones} | {"InMemory"} == set(KINDS)


def names(tried: list[Tried]) -> list[str]:
    return [one.name for one in tried]


# ---- the training after it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "before"),
    [("loader", 7), *(pytest.param(*one, marks=pytest.mark.whole) for one in [("memory", 0), ("seeded", 4)])],
)
def test_a_training_after_it_is_to_the_bit_the_training_without_it(kind: str, before: int) -> None:
    found = []
    for tries in (nothing, lambda tm: tune(tm, steps=1, quiet=True)):
        found.append(trained(noisy(kind, EMA(0.9)), before, tries))

    assert_same(found[0], found[1])


@pytest.mark.whole
@pytest.mark.skipif(COMPILE is None, reason="there is no extension Compile")
def test_it_is_with_what_compiles_too_which_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train_manager.extensions, "Compile", COMPILE)
    found = []
    for tries in (nothing, lambda tm: tune(tm, steps=30, quiet=True)):
        tm = tiny_manager(epochs=2, optimizer=torch.optim.AdamW)
        tm.train_steps(2)
        tries(tm)
        tm.train()
        found.append(weights(tm.model))

    assert torch.equal(*found)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("before", [0, pytest.param(2, marks=pytest.mark.whole)])
def test_weights_that_were_laid_out_otherwise_are_laid_out_as_before(before: int) -> None:
    found = []
    for tries in (nothing, lambda tm: tune(tm, steps=1, quiet=True)):
        tm = images(epochs=2)
        tm.train_steps(before)
        tries(tm)
        strides = [one.stride() for one in tm.model.parameters()]
        tm.train()
        found.append((weights(tm.model).tolist(), strides))

    assert found[0] == found[1]


def test_the_folder_of_the_training_and_its_output_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talkative = Extension.of(post_train_step_batch=lambda train_dir: print((train_dir / "note").write_text("here")))
    tune(tiny_manager(talkative, train_dir=tmp_path / "run"), steps=1, quiet=True)

    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


# ---- what is tried ---------------------------------------------------------------------------------------------------


def test_tricks_are_tried_alone_and_those_that_help_together() -> None:
    tm = tensors()
    report = tune(tm, steps=1, quiet=True, clock=clock_of(tm, fused=0.5, bf16=1.5, in_memory=0.5))

    assert names(report.tried) == ["as it is", "fused", "bf16", "InMemory", "fused, InMemory"]
    assert [one.ratio for one in report.tried] == pytest.approx([1, 0.5, 1.5, 0.5, 0.25])
    assert (report.best.name, report.seconds, report.compared) == ("fused, InMemory", 1.0, 3)


def test_losses_and_weights_are_compared_with_those_of_the_training_as_it_is() -> None:
    as_it_is, _, bf16 = tune(tiny_manager(), steps=1, quiet=True).tried[:3]

    assert (as_it_is.loss, as_it_is.weights) == (0, 0)
    assert 0 < bf16.weights < bf16.loss * 100 < 1


def test_a_trick_that_fails_is_told_with_its_error_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compile(Extension):
        def pre_train_step_batch(self) -> None:
            raise RuntimeError("no compiler is there")

    monkeypatch.setattr(train_manager.extensions, "Compile", Compile)
    tm = tiny_manager()
    report = tune(tm, steps=1, quiet=True, clock=clock_of(tm, fused=0.5))

    assert [(one.name, one.failed) for one in report.tried if one.failed] == [
        ("Compile", "RuntimeError: no compiler is there")
    ]
    assert (report.best.name, [*tm.extensions]) == ("fused", [])


def test_hooks_find_the_numbers_of_the_examples_as_in_the_training() -> None:
    tm = tiny_manager(HardExamples(), train_data=InMemory(X, Y, batch_size=8))

    assert {one.failed for one in tune(tm, steps=1, quiet=True).tried} == {""}


def test_an_extension_that_cannot_be_copied_is_left_out_and_told() -> None:
    class Holds(Extension):
        def __init__(self) -> None:
            self.steps = (number for number in range(9))

        def pre_train_step_batch(self) -> None:
            next(self.steps)

    notes = tune(tiny_manager(Holds()), steps=1, quiet=True).notes

    assert notes[0].startswith(
        "extension 'holds' was left out: it cannot be copied (TypeError: cannot pickle 'generator'"
    )


def test_each_trial_is_told_on_the_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    tune(tiny_manager(MixedPrecision()), steps=1)

    assert capsys.readouterr().err.splitlines() == ["tune: as it is", "tune: fused", "tune: round 1 of 1"]


@pytest.mark.whole
def test_batches_of_workers_are_timed() -> None:
    tm = tiny_manager(train_data=DataLoader(Rows(), batch_size=8))
    report = tune(tm, steps=1, quiet=True)

    assert {one.failed for one in report.tried} == {""}
    assert tm.train_data.num_workers == 0  # type: ignore[union-attr]


def test_combinations_that_promise_most_come_first_with_one_number_of_workers() -> None:
    def alone(name: str, ratio: float, reads: str = "") -> Tried:
        return Tried((Trick(name, (), reads=reads),), ratio)

    singles = [alone("fused", 0.9), alone("bf16", 0.5), alone("2", 0.8, "workers"), alone("4", 0.7, "workers")]
    found = [Tried(one).name for one in promising(singles, 3)]

    assert found == ["fused, bf16, 4", "bf16, 4", "fused, bf16"]
    assert promising(singles[:1], 3) == []


# ---- how it is measured ----------------------------------------------------------------------------------------------


def test_the_clock_is_read_before_each_of_two_batches_is() -> None:
    read: list[str] = []

    class Data:
        def __iter__(self) -> Iterator[str]:
            for name in ("first", "second"):
                read.append(name)
                yield name

    def clock() -> float:
        read.append("clock")
        return len(read)

    clocked = Clocked(Data(), clock, (1, 3))
    given = list(islice(clocked, 4))

    assert read == ["first", "clock", "second", "first", "clock", "second"]
    assert (given, clocked.times) == (["first", "second", "first", "second"], [2, 5])


def test_the_steps_of_the_warm_up_are_not_timed() -> None:
    tm, steps = tiny_manager(MixedPrecision()), list[int]()

    def clock() -> float:
        steps.append(tm.step_num)
        return len(steps)

    report = tune(tm, steps=4, quiet=True, clock=clock)

    assert steps == [WARM_UP, WARM_UP + 4] * 2
    assert report.seconds == 1 / 4


def test_rounds_that_differ_although_they_do_the_same_are_told() -> None:
    assert [*noise_in([0.010, 0.011, 0.012])] == [
        "as it is, a step took 10 to 12 ms: the machine is busy, and small gains are noise"
    ]
    assert [*noise_in([0.010, 0.0105])] == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [([1.0, 2.5], 0.5), ([1.0, 2.0], 0.0), ([torch.nan, 2.0], torch.nan), ([1.0, torch.nan], torch.nan)],
)
def test_the_largest_difference_is_nan_if_one_is(other: list[float], expected: float) -> None:
    found = largest_difference([torch.tensor(1.0), torch.tensor([2.0])], map(torch.tensor, other))

    assert found == pytest.approx(expected, nan_ok=True)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "steps", "message"),
    [
        ({"optimizer": None}, 1, "there is no optimizer to tune"),
        ({"train_data": None}, 1, "there is no train_data to tune on"),
        ({"train_data": iter([(X, Y)])}, 1, "train_data is a list_iterator, which can be read once"),
        ({}, 0, "steps must be a whole number of at least 1, but is 0"),
    ],
)
def test_a_training_that_cannot_be_tried_is_refused(options: dict[str, Any], steps: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tune(tiny_manager(**options), steps=steps, quiet=True)


def test_a_training_that_ends_within_the_timed_steps_is_refused() -> None:
    stops = Extension.of(post_train_step_batch=lambda train_manager: train_manager.stop("enough"))

    with pytest.raises(InputError, match="a hook has ended the training within 6 steps, so they cannot be timed"):
        tune(tiny_manager(stops), steps=1, quiet=True)


def test_it_is_refused_in_a_run() -> None:
    tm = tiny_manager()
    with tm.run(), pytest.raises(StageError, match="tune cannot be called while a run is open"):
        tune(tm, quiet=True)


def test_an_error_of_the_training_as_it_is_travels() -> None:
    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(tiny_manager(loss=loss), quiet=True)


# ---- a script --------------------------------------------------------------------------------------------------------

WITHOUT_DATA = "tm.train_data = None\ntry: tm.run()\nexcept Exception: pass"
OF_SCRIPTS = "from train_manager.testing import tiny_manager\ntm = tiny_manager()\n"


@pytest.mark.parametrize("trains", ["tm.eval(); tm.train()", "with tm.run(): tm.train_on_batch(tm.train_data[0])"])
def test_a_script_is_run_up_to_its_first_training(tmp_path: Path, trains: str) -> None:
    (tmp_path / "train.py").write_text(f"{OF_SCRIPTS}try:\n    {trains}\nexcept Exception: pass\nraise ValueError")

    assert tune_script(tmp_path / "train.py", steps=1, quiet=True).tried[0].ratio == 1
    assert tiny_manager().train().steps == 3  # the next TrainManager trains


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{OF_SCRIPTS}tm.eval()", "train.py has ended, and no TrainManager in it has trained"),
        ("1 / 0", r"train.py fails: ZeroDivisionError: division by zero, .*train.py:1 in <module>"),
        (
            f"{OF_SCRIPTS}tm.train_data = None\ntry: tm.run()\nexcept Exception: pass",
            "there is no train_data to tune on",
        ),
        (None, "there is no script .*train.py"),
    ],
)
def test_a_script_that_cannot_be_tuned_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "train.py").write_text(text)
    with pytest.raises(InputError, match=message):
        tune_script(tmp_path / "train.py", steps=1, quiet=True)
