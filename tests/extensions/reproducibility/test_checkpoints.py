"""When checkpoints are saved, which stay, and where a training goes on; what they hold is in tests/test_resuming.py."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.training import At, shuffled, weights
from train_manager import (
    CheckpointError,
    Extension,
    InputError,
    NonFiniteLoss,
    OrderError,
    SeededDataLoader,
    TrainManager,
    every,
    periodically,
)
from train_manager.core.fixtures import Fixtures
from train_manager.extensions import Checkpoints, EarlyStopping
from train_manager.records.checkpoint import read_checkpoint
from train_manager.records.checkpoint_names import step_of
from train_manager.records.verification import verify
from train_manager.testing import tiny_manager


def steps_in(train_dir: Path) -> list[int]:
    """Return the steps of the checkpoints, oldest first; an epoch of the tiny manager has 3."""
    return sorted(step_of(path) for path in (train_dir / "checkpoints").glob("step-*"))


def path_of(train_dir: Path, step: int) -> Path:
    return train_dir / "checkpoints" / f"step-{step:012}"


def losses(*values: float) -> Extension:
    """Return an extension that gives the evaluations of a training these losses, in turn."""
    left = list(values)
    return At("post_eval_step_epoch", lambda eval_result: eval_result.update(loss=left.pop(0)))


class Fails(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def pre_train_step_batch(self, step_num: int) -> None:
        if step_num == self.step:
            raise ZeroDivisionError("as planned")


def interrupted(train_dir: Path, step: int, *extensions: Extension, **options: Any) -> None:
    """Train until a hook fails after so many steps."""
    with pytest.raises(ZeroDivisionError):
        tiny_manager(*extensions, Fails(step), train_dir=train_dir, **options).train()


# ---- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("save_at", "steps"),
    [
        (("epoch", "end"), [3, 6, 9]),
        ("epoch", [3, 6, 9]),
        ("end", [9]),
        (every(2), [2, 4, 6, 8]),
        ((every(4), "end"), [4, 8, 9]),
        (periodically(1e-9), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ((), []),
    ],
)
def test_checkpoints_are_saved_when_they_are_asked_for(tmp_path: Path, save_at: Any, steps: list[int]) -> None:
    tiny_manager(Checkpoints(save_at, keep=None), epochs=3, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == steps


def test_at_the_end_of_the_data_the_epoch_is_completed_before_it_is_saved(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(3)), train_dir=tmp_path)
    tm.train()

    assert read_checkpoint(path_of(tmp_path, 3))["epoch_num"] == 1


def test_a_stopped_training_is_saved_where_it_stops(tmp_path: Path) -> None:
    stop = At("post_train_step_batch", lambda train_manager, step_num: step_num == 4 and train_manager.stop("enough"))
    tiny_manager(Checkpoints("end"), stop, epochs=3, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [4]


def test_train_steps_ends_with_a_checkpoint_within_the_epoch(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train_steps(2)

    assert steps_in(tmp_path) == [2]


def test_a_training_that_fails_is_not_saved_as_its_end(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, Checkpoints())

    assert steps_in(tmp_path) == []


def test_a_loop_of_your_own_saves_between_its_batches(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(2)), train_dir=tmp_path)
    with tm.run():
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)

    assert steps_in(tmp_path) == [2]


def test_any_hook_may_ask_for_one(tmp_path: Path) -> None:
    ask = At("post_train_step_batch", lambda train_manager, step_num: step_num == 2 and train_manager.save_soon())
    tiny_manager(Checkpoints(()), ask, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [2]


def test_a_hook_finds_the_path_of_what_was_saved(tmp_path: Path) -> None:
    seen: list[Path] = []
    note = At("post_save_checkpoint", lambda checkpoint_saved: seen.append(checkpoint_saved))
    tiny_manager(Checkpoints(), note, train_dir=tmp_path).train()

    assert seen == [path_of(tmp_path, 3)]


def test_a_loss_that_is_not_finite_is_an_error_before_it_is_saved(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(1)), train_dir=tmp_path)
    tm.loss = lambda prediction, targets: (
        nn.functional.cross_entropy(prediction, targets) * (float("nan") if tm.step_num == 1 else 1.0)
    )

    with pytest.raises(NonFiniteLoss):
        tm.train()
    assert steps_in(tmp_path) == [1]


# ---- which stay ------------------------------------------------------------------------------------------------------


def test_the_newest_stay_and_the_best(tmp_path: Path) -> None:
    measured = losses(0.9, 0.5, 0.1, 0.3, 0.4, 0.2)
    tiny_manager(Checkpoints(keep=2), measured, epochs=5, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [6, 12, 15]


def test_the_best_of_a_monitored_metric_stays(tmp_path: Path) -> None:
    accuracies = [0.1, 0.7, 0.2, 0.3]
    measure = At("post_eval_step_epoch", lambda eval_result: eval_result.update(accuracy=accuracies.pop(0)))
    tiny_manager(Checkpoints(keep=1, monitor="valid/accuracy"), measure, epochs=3, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3, 9]


def test_save_at_best_saves_only_what_is_better_than_all_before(tmp_path: Path) -> None:
    measured = losses(0.1, 0.5, 0.6, 0.4, 0.4)
    tiny_manager(Checkpoints("best", keep=None), measured, epochs=4, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3, 9]


def test_without_an_evaluation_there_is_no_best_and_that_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="save_at has 'best', but there is no eval_data"):
        tiny_manager(Checkpoints(save_at="best"), eval_data=None, train_dir=tmp_path).train()
    assert not (tmp_path / "checkpoints").exists()


def test_nan_is_never_the_best(tmp_path: Path) -> None:
    measured = losses(0.1, float("nan"), 0.6)
    tiny_manager(Checkpoints("best", keep=None), measured, epochs=2, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [6]


def test_a_resumed_training_remembers_the_best(tmp_path: Path) -> None:
    tiny_manager(Checkpoints("best"), losses(0.1, 0.2), train_dir=tmp_path).train()
    tiny_manager(Checkpoints("best", resume=True), losses(0.3), epochs=2, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3]


def test_the_manifest_tells_the_metrics(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), losses(0.9, 0.25), train_dir=tmp_path).train()
    manifest = verify(path_of(tmp_path, 3))

    assert (manifest["metrics"], manifest["monitored"], manifest["mode"]) == ({"valid": {"loss": 0.25}}, 0.25, "min")


# ---- where it goes on ------------------------------------------------------------------------------------------------


def test_a_folder_with_checkpoints_is_refused(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    folder = tmp_path / "checkpoints"

    with pytest.raises(CheckpointError) as caught:
        tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    assert str(caught.value).splitlines()[:2] == [
        f"{folder} has step-000000000003, which this training would not go on from",
        '  Checkpoints(resume=True) goes on from the last one, resume="fresh" moves the folder aside; or give another '
        "train_dir",
    ]


def test_it_is_refused_each_time(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    tm = tiny_manager(Checkpoints(), train_dir=tmp_path)

    for _ in range(2):
        with pytest.raises(CheckpointError, match="which this training would not go on from"):
            tm.train()
    assert tm.step_num == 0


def test_resume_begins_anew_where_there_is_nothing(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
    tm.train()

    assert tm.step_num == 3


def test_a_further_call_of_the_same_training_loads_nothing(tmp_path: Path) -> None:
    seen: list[Any] = []
    note = At("post_load_checkpoint", lambda checkpoint_loaded: seen.append(checkpoint_loaded))
    tm = tiny_manager(Checkpoints(), note, train_dir=tmp_path)
    tm.train()
    tm.epochs = 2
    tm.train()

    assert (seen, tm.step_num) == ([False, False], 6)


def test_calls_of_train_epoch_are_not_counted(tmp_path: Path) -> None:
    def program() -> int:
        tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
        tm.train_epoch()
        tm.train_epoch()
        return tm.epoch_num

    assert (program(), program()) == (2, 4)


def test_a_loop_of_epochs_goes_on_at_the_epoch_that_the_run_has_loaded(tmp_path: Path) -> None:
    def program(epochs: int) -> int:
        tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
        with tm.run():
            for _ in range(tm.epoch_num, epochs):
                tm.train_epoch()
        return tm.epoch_num

    assert (program(2), program(3)) == (2, 3)


def test_a_program_that_has_nothing_left_to_train_saves_nothing(tmp_path: Path) -> None:
    def program() -> None:
        tm = tiny_manager(Checkpoints(resume=True), epochs=2, train_dir=tmp_path)
        tm.train()
        with tm.phase("fine-tuning", epochs=1):
            tm.train()

    program()
    with pytest.warns(UserWarning, match="has nothing to do"):
        program()
    assert steps_in(tmp_path) == [3, 6, 9]


@pytest.mark.filterwarnings("ignore:.* has nothing to do")
def test_a_call_that_trains_nothing_saves_nothing(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), epochs=1, train_dir=tmp_path)
    tm.train()
    tm.train()
    resumed = tiny_manager(Checkpoints(resume=True), epochs=1, train_dir=tmp_path)
    resumed.eval()
    resumed.train()
    assert steps_in(tmp_path) == [3]


def test_killed_twice_in_a_phase_it_goes_on_in_the_phase(tmp_path: Path) -> None:
    def program(train_dir: Path, *others: Extension) -> TrainManager:
        checkpoints = Checkpoints(save_at=(every(2), "end"), resume=True)
        tm = tiny_manager(checkpoints, *others, epochs=1, train_dir=train_dir)
        tm.train()
        with tm.phase("fine-tuning", epochs=2):
            tm.train()
        return tm

    for step in (7, 6):  # the second time before anything is saved in the phase
        with pytest.raises(ZeroDivisionError):
            program(tmp_path / "killed", Fails(step))
    killed, whole = program(tmp_path / "killed"), program(tmp_path / "whole")
    assert killed.step_num == whole.step_num == 9
    assert torch.equal(weights(killed.model), weights(whole.model))


def test_a_hook_finds_the_path_of_what_was_loaded(tmp_path: Path) -> None:
    seen: list[Any] = []
    interrupted(tmp_path, 2, Checkpoints(every(1)))
    note = At("post_load_checkpoint", lambda checkpoint_loaded, train_manager: seen.append(checkpoint_loaded))
    tiny_manager(Checkpoints(resume=True), note, train_dir=tmp_path).train()

    assert seen == [path_of(tmp_path, 2)]


def test_a_hook_finds_the_counts_of_what_was_loaded(tmp_path: Path) -> None:
    seen: list[int] = []
    interrupted(tmp_path, 2, Checkpoints(every(1)))
    note = At("post_load_checkpoint", lambda step_num: seen.append(step_num))
    tiny_manager(Checkpoints(resume=True), note, train_dir=tmp_path).train()

    assert seen == [2]


def test_fresh_moves_the_folder_aside(tmp_path: Path) -> None:
    train_dir = tmp_path / "run"
    tiny_manager(Checkpoints(), train_dir=train_dir).train()
    tiny_manager(Checkpoints(resume="fresh"), epochs=2, train_dir=train_dir).train()

    assert (steps_in(tmp_path / "run-before-1"), steps_in(train_dir)) == ([3], [3, 6])


@pytest.mark.parametrize(("at", "step"), [("last", 6), ("best", 3), (3, 3), ("step-000000000003", 3)])
def test_a_training_goes_on_at_the_checkpoint_that_is_named(tmp_path: Path, at: Any, step: int) -> None:
    tiny_manager(Checkpoints(), losses(0.9, 0.1, 0.2), epochs=2, train_dir=tmp_path).train()
    tm = tiny_manager(Checkpoints(resume=True, at=at), train_dir=tmp_path)
    tm.eval()

    assert tm.step_num == step


@pytest.mark.parametrize("at", ["frist", "elsewhere/checkpoints/step-000000000006", Path("elsewhere")])
def test_a_path_that_is_not_there_is_an_error_also_if_the_training_has_checkpoints(tmp_path: Path, at: Any) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()

    with pytest.raises(CheckpointError, match=f"has no checkpoint '{at}'\n  there are checkpoints of the steps 3"):
        tiny_manager(Checkpoints(resume=True, at=at), train_dir=tmp_path).train()


def test_a_step_that_was_not_saved_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path).train()

    with pytest.raises(CheckpointError, match="has no checkpoint of step 4\n  there are checkpoints of the steps 3, 6"):
        tiny_manager(Checkpoints(resume=True, at=4), train_dir=tmp_path).train()


def test_later_checkpoints_are_set_aside_as_a_training_goes_on_before_them(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=3, train_dir=tmp_path).train()
    tiny_manager(Checkpoints(resume=True, at=3), epochs=2, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3, 6]
    assert {path.name for path in (tmp_path / "checkpoints" / "superseded").iterdir()} == {
        "step-000000000006",
        "step-000000000009",
    }


def test_an_evaluation_sets_nothing_aside(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=3, train_dir=tmp_path).train()
    tiny_manager(Checkpoints(resume=True, at=3), train_dir=tmp_path).eval()

    assert steps_in(tmp_path) == [3, 6, 9]


def test_a_new_training_begins_from_the_path_of_another(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path / "old").train()
    start = Checkpoints(resume=True, at=path_of(tmp_path / "old", 3))
    tiny_manager(start, epochs=2, train_dir=tmp_path / "new").train()

    assert (steps_in(tmp_path / "old"), steps_in(tmp_path / "new")) == ([3], [6])


def test_the_other_one_may_be_named_by_its_train_dir(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path / "old").train()
    tm = tiny_manager(Checkpoints(resume=True, at=tmp_path / "old"), train_dir=tmp_path / "new")
    tm.eval()

    assert tm.step_num == 6


@pytest.mark.parametrize("prefix", ["_orig_mod.", "model."])
def test_weights_of_a_model_that_was_wrapped_are_loaded(tmp_path: Path, prefix: str) -> None:
    first, other = tiny_manager(), tiny_manager()
    first.train()
    torch.save({prefix + name: value for name, value in first.model.state_dict().items()}, tmp_path / "weights.pt")
    other.load_weights(tmp_path / "weights.pt")

    assert weights(other.model).equal(weights(first.model))


def test_a_training_that_began_from_another_goes_on_from_its_own(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    tiny_manager(Checkpoints(), train_dir=old).train()
    for epochs in (2, 3):
        tm = tiny_manager(Checkpoints(resume=True, at=path_of(old, 3)), epochs=epochs, train_dir=new)
        result = tm.train()

    assert (result.steps, steps_in(new)) == (3, [6, 9])


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path).train()
    damaged = path_of(tmp_path, 6) / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    tm = tiny_manager(Checkpoints(resume=True), epochs=1, train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="step-000000000006 is damaged.*step-000000000003 is used instead") as told:
        tm.eval()
    assert (tm.step_num, told[0].filename) == (3, __file__)


def test_a_damaged_checkpoint_that_is_asked_for_is_an_error(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path).train()
    (path_of(tmp_path, 6) / "state.json").unlink()

    with pytest.raises(CheckpointError, match=r"step-000000000006 is damaged: state\.json is missing"):
        tiny_manager(Checkpoints(resume=True, at=6), train_dir=tmp_path).train()


def test_a_training_with_other_threads_is_told_that_bits_may_differ(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.warns(RuntimeWarning, match=rf"threads of torch {threads} \(here {threads + 1}\)"):
            tiny_manager(Checkpoints(resume=True), train_dir=tmp_path).eval()
    finally:
        torch.set_num_threads(threads)


# ---- what fits -------------------------------------------------------------------------------------------------------


def test_another_model_is_refused_with_all_that_differs_and_nothing_is_changed(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    other = nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 2), nn.Linear(2, 2))
    tm = tiny_manager(Checkpoints(resume=True), model=other, train_dir=tmp_path)
    before = weights(other)

    with pytest.raises(CheckpointError) as caught:
        tm.train()
    assert str(caught.value).splitlines()[:7] == [
        "the checkpoint does not fit this training:",
        "  - model: the checkpoint lacks 3.weight, 3.bias",
        "  - model: 0.weight is 9x2 here, but 8x2 in the checkpoint",
        "  - model: 0.bias is 9 here, but 8 in the checkpoint",
        "  - model: 2.weight is 2x9 here, but 2x8 in the checkpoint",
        "  - optimizer 'optimizer' has groups of [6] parameters here, but of [4] in the checkpoint",
        "  give the training what the checkpoint was written with; strict=False loads the rest",
    ]
    assert weights(other).equal(before)


def test_not_strict_loads_what_fits_and_says_what_does_not(tmp_path: Path) -> None:
    first = tiny_manager(Checkpoints(), train_dir=tmp_path)
    first.train()
    other = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    tm = tiny_manager(Checkpoints(resume=True, strict=False), model=other, train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="fits this training in part"):
        tm.eval()
    assert weights(other[0]).equal(weights(first.model[0]))


def test_variables_that_are_left_out_are_left_as_they_are(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(exclude="0.*"), train_dir=tmp_path).train()
    assert set(read_checkpoint(path_of(tmp_path, 3), ["model"])["model"]) == {"2.weight", "2.bias"}

    tm = tiny_manager(Checkpoints(resume=True, exclude="0.*"), train_dir=tmp_path)
    before = tm.model[0].weight.clone()
    tm.eval()
    assert torch.equal(tm.model[0].weight, before)


def test_a_pattern_that_leaves_nothing_out_is_told(tmp_path: Path) -> None:
    told = "exclude has 'backbone.*', which matches nothing in the model: its state has 0.weight, 0.bias, 2.weight"
    with pytest.warns(UserWarning, match=re.escape(told)):
        tiny_manager(Checkpoints(exclude=("backbone.*", "0.*")), train_dir=tmp_path).train()


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def state_dict(self) -> dict[str, int]:
        return {"n": self.n}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.n = state["n"]


class Provides(Extension):
    def __init__(self) -> None:
        self.counter = Counter()

    def pre_run(self, fixtures: Fixtures) -> None:
        fixtures.update({"counter": self.counter, "level": 0})

    def post_train_step_batch(self, fixtures: Fixtures, level: int) -> None:
        self.counter.n += 1
        fixtures.modify("level", level + 2)


def test_named_fixtures_are_saved_and_restored(tmp_path: Path) -> None:
    names = ("counter", "level")
    tiny_manager(Checkpoints(fixtures=names), Provides(), train_dir=tmp_path).train()
    provides, seen = Provides(), []
    look = At("post_load_checkpoint", lambda level: seen.append(level))
    tiny_manager(Checkpoints(fixtures=names, resume=True), provides, look, train_dir=tmp_path).eval()

    assert (provides.counter.n, seen) == (3, [6])


def test_a_fixture_that_is_not_alive_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the fixture 'nobody' must be saved, but is not alive"):
        tiny_manager(Checkpoints(fixtures="nobody"), train_dir=tmp_path).train()


class KeepsALock(Extension):
    def state_dict(self) -> dict[str, Any]:
        return {"inner": {"lock": object()}}


def test_a_state_that_is_not_plain_is_refused_as_it_is_saved_and_named(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), KeepsALock(), train_dir=tmp_path)

    with pytest.raises(CheckpointError, match="extensions > keeps_a_lock > inner > lock is an object of type object"):
        tm.train()
    assert steps_in(tmp_path) == []


# ---- in the background -----------------------------------------------------------------------------------------------


def test_what_is_written_in_the_background_is_of_its_own_step(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(every(1), keep=None), epochs=2, train_dir=tmp_path / "at once").train()
    tiny_manager(Checkpoints(every(1), keep=None, in_background=True), epochs=2, train_dir=tmp_path / "later").train()

    for step in range(1, 7):
        one, other = (read_checkpoint(path_of(tmp_path / name, step), ["model"]) for name in ("at once", "later"))
        assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


def test_an_error_in_the_background_ends_the_run(tmp_path: Path) -> None:
    def spoil(train_dir: Path, step_num: int) -> None:
        if step_num == 1:
            (train_dir / "checkpoints").write_text("in the way")

    tm = tiny_manager(Checkpoints(every(2), in_background=True), At("post_train_step_batch", spoil), train_dir=tmp_path)

    with pytest.raises(CheckpointError, match="checkpoints"):
        tm.train()


# ---- mistakes --------------------------------------------------------------------------------------------------------


def made(**arguments: Any) -> Callable[[], Checkpoints]:
    return lambda: Checkpoints(**arguments)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (made(save_at="epochs"), "save_at takes 'epoch', 'end', 'best' and one schedule, but has 'epochs'"),
        (made(save_at=100), "save_at takes 'epoch', 'end', 'best' and one schedule, but has 100"),
        (made(save_at=(every(2), every(3))), "save_at takes one schedule, but has several"),
        (made(resume="yes"), "resume must be True, False or 'fresh', but is 'yes'"),
        (made(at="best"), "at='best' says where to go on, but resume is False"),
        (made(keep=0), "keep must be a whole number of at least 1, but is 0"),
        (made(monitor="loss"), "monitor must name a set of eval_data and a metric, but is 'loss'"),
    ],
)
def test_an_invalid_argument_is_an_error(make: Callable[[], Checkpoints], told: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).splitlines()[0] == told


@pytest.mark.parametrize(
    ("make", "cure"),
    [
        (made(save_at=100), "save_at=every(100) saves after each 100 steps"),
        (made(resume="runs/a"), "Checkpoints(resume=True, at='runs/a')"),
        (made(resume=Path("runs/a")), "Checkpoints(resume=True, at='runs/a')"),
        (made(resume="auto"), "Checkpoints(resume=True) goes on"),
        (made(keep="all"), "keep=None keeps all"),
    ],
)
def test_its_cure_is_the_argument_that_was_meant(make: Callable[[], Checkpoints], cure: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.cure == cure


def test_two_of_them_in_one_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OrderError) as caught:
        tiny_manager(Checkpoints(), Checkpoints("best"), train_dir=tmp_path)
    assert caught.value.cure == (
        'leave one out; in a dict, one replaces the other by its name: {..., "checkpoints": Checkpoints(...)}'
    )


def test_without_a_train_dir_it_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="Checkpoints"):
        tiny_manager(Checkpoints()).train()


def test_a_loader_that_shuffles_unseen_is_told_of_as_the_run_opens(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), train_data=shuffled(), train_dir=tmp_path)

    with pytest.warns(UserWarning, match="from a checkpoint within an epoch, the epoch begins anew; SeededDataLoader"):
        tm.train()


def test_a_seeded_loader_is_not(tmp_path: Path) -> None:
    x, y = torch.rand(8, 2), torch.zeros(8, dtype=torch.long)
    data = SeededDataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    tiny_manager(Checkpoints(), train_data=data, train_dir=tmp_path).train()


def test_of_an_iterable_without_a_state_the_batches_that_were_given_are_read_again_and_left_out(tmp_path: Path) -> None:
    class Stream:
        given = 0

        def __iter__(self) -> Iterator[Any]:
            for batch in tiny_manager().train_data or ():
                self.given += 1
                yield batch

    interrupted(tmp_path, 2, Checkpoints(every(2)), train_data=Stream())  # of 3 batches
    tm = tiny_manager(Checkpoints(resume=True), train_data=(stream := Stream()), train_dir=tmp_path)

    with pytest.warns(
        RuntimeWarning, match=r"\(Stream\) does not tell its position, so its first 2 batches are read ag"
    ):
        tm.train()
    assert (tm.step_num, stream.given) == (3, 3)


@pytest.mark.filterwarnings("ignore:train_data .DataLoader. shuffles")
def test_within_an_epoch_of_such_a_loader_the_epoch_begins_anew(tmp_path: Path) -> None:
    interrupted(tmp_path, 4, Checkpoints(every(2)), train_data=shuffled())  # of 5 batches
    tm = tiny_manager(Checkpoints(resume=True), train_data=shuffled(), train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="its 4 batches are not counted off"):
        tm.train()
    assert (tm.step_num, tm.epoch_num) == (4 + 5, 1)


@pytest.mark.skipif(os.name != "posix", reason="folders are locked with flock")
def test_a_second_training_in_the_same_folder_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    def train_another() -> None:
        tiny_manager(Checkpoints(resume=True), train_dir=tmp_path).train()

    first = tiny_manager(Checkpoints(), At("post_train_step_batch", train_another), train_dir=tmp_path)
    with pytest.raises(CheckpointError, match="is being written by another run of this process"):
        first.train()


def test_the_folder_is_free_again_as_the_run_ends(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, Checkpoints(every(1)))
    tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
    tm.train()

    assert tm.step_num == 3


def test_the_best_epoch_is_what_its_checkpoint_has(tmp_path: Path) -> None:
    """A22: the weights of the best epoch, by the file and by early stopping."""
    stopping = EarlyStopping(patience=2, restore_best=True)
    tm = tiny_manager(Checkpoints(), stopping, losses(0.9, 0.5, 0.1, 0.3, 0.4), epochs=9, train_dir=tmp_path)
    tm.train()
    best = tiny_manager(train_dir=None)
    best.load_weights(tmp_path, at="best")

    assert weights(best.model).equal(weights(tm.model))


def test_after_an_earlier_state_was_loaded_new_checkpoints_stay_and_later_ones_are_moved(
    tmp_path: Path,
) -> None:
    tm = tiny_manager(Checkpoints(keep=1), epochs=1, train_dir=tmp_path)
    tm.train()
    early = copy.deepcopy(tm.state_dict())
    tm.train_epochs(2)
    tm.load_state_dict(early)
    tm.train_epochs(1)

    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000000000006", "superseded"]
    assert [path.name for path in (tmp_path / "checkpoints" / "superseded").iterdir()] == ["step-000000000009"]


def test_a_further_run_in_another_working_directory_writes_where_the_first_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    tm = tiny_manager(Checkpoints(), epochs=1, train_dir="run")
    tm.train()
    monkeypatch.chdir("elsewhere")
    tm.train_epochs(1)

    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-000000000003", "step-000000000006"]


def test_something_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    tm = tiny_manager(Checkpoints(), train_dir=tmp_path)

    with pytest.raises(
        CheckpointError, match="checkpoints is to hold checkpoints, but is not a folder\n  move it away"
    ):
        tm.train()


def test_a_model_whose_shapes_are_not_known_yet_takes_those_of_the_checkpoint(tmp_path: Path) -> None:
    def lazy() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2))

    tiny_manager(Checkpoints(), model=lazy(), seed=0, epochs=1, train_dir=tmp_path).train()
    resumed, whole = lazy(), lazy()
    tiny_manager(Checkpoints(resume=True), model=resumed, seed=0, epochs=2, train_dir=tmp_path).train()
    tiny_manager(model=whole, seed=0, epochs=2).train()

    assert weights(whole).equal(weights(resumed))
