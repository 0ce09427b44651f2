"""A training that is killed and resumes from its state comes to what an uninterrupted one does, to the bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.extensions.optimization.gan import gan_manager
from tests.support.resuming import (
    END,
    Kill,
    KilledError,
    Resume,
    assert_resumes,
    differences,
    resumed,
    round_trip,
    states_of,
)
from tests.support.rotation import in_turn, part_of
from tests.support.training import At, weights
from train_manager import (
    Extension,
    InMemory,
    SkipStage,
    TrainManager,
    at_most,
    every,
    exponentially,
    once,
    periodically,
    provides,
    scheduled,
)
from train_manager.core.schedule import Schedule
from train_manager.extensions import (
    Avg,
    EarlyStopping,
    FreezeModules,
    Log,
    LossCurves,
    MixedPrecision,
    ProgressBar,
    WarmUp,
)
from train_manager.testing import tiny_manager


def net() -> nn.Module:
    """Return a model with buffers and random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def manager(*extensions: Extension, **options: Any) -> TrainManager:
    return tiny_manager(*extensions, **{"model": net(), "seed": 0, "epochs": 3, **options})


def examples() -> tuple[Tensor, Tensor]:
    inputs = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs.sum(dim=1) > 1).long()


def shuffled() -> InMemory:
    return InMemory(*examples(), batch_size=16, shuffle=True, seed=3)


def adam(parameters: Any) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=0.01)


class Rises(Extension):
    """Let the loss rise after the first epoch."""

    def pre_train_step_batch(self, train_manager: TrainManager) -> None:
        for group in train_manager.optimizer.param_groups:
            group["lr"] = 0.1 if train_manager.step_num < 3 else -1.0


# ---- stops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["post_train_backward", "post_train_step_batch", "post_save_checkpoint"])
def test_killed_between_a_stop_and_the_end_of_its_epoch_it_stops_there_too(hook: str) -> None:
    def make() -> TrainManager:
        stop = At(hook, lambda train_manager, step_num: step_num == 4 and train_manager.stop("enough", at="epoch"))
        return manager(stop, train_data=shuffled())

    assert_resumes(make, TrainManager.train, (3, 4, 5) if hook != "post_train_backward" else (3, 4))


def test_a_stop_of_a_phase_ends_the_same_phase_of_the_resumed_program() -> None:
    def make() -> TrainManager:
        stop = At(
            "post_train_step_batch",
            lambda train_manager, step_num: step_num == 1 and train_manager.stop("on", at="epoch"),
        )
        return manager(stop)

    def train(tm: TrainManager) -> None:
        with tm.run():
            with tm.phase("head", optimizer=adam, epochs=2):
                tm.train()
            tm.train()

    assert_resumes(make, train, part_of((1, 2, 4), 3, 1))


@pytest.mark.parametrize("at", ["step", "epoch"])
def test_a_program_that_is_started_again_after_a_stop_trains_on(at: str) -> None:
    stop = At("post_train_step_batch", lambda train_manager, step_num: step_num == 4 and train_manager.stop("x", at=at))
    ended = states_of(manager(stop), TrainManager.train)[END]

    tm = manager(Resume(ended))
    tm.train()

    assert (tm.epoch_num, tm.stop_reason) == (3, None)


# ---- phases ----------------------------------------------------------------------------------------------------------


def around_a_phase(tm: TrainManager) -> None:
    with tm.phase("outer"):
        tm.train_steps(1)
        with tm.phase("inner"):
            tm.train_steps(2)
        tm.train_steps(2)


def test_killed_in_a_phase_the_next_call_around_it_is_one_of_its_own() -> None:
    seen: list[Any] = []

    def make() -> TrainManager:
        note = Extension.of(post_train=lambda start_step, avg_number: seen.append((start_step, avg_number)))
        number = Extension.of(post_train_step_batch=provides("number")(lambda step_num: step_num))
        return manager(number, Avg("number", over="train"), note)

    resumed(make, around_a_phase, 2)
    assert seen[-1] == (3, 4.5)


# ---- schedules -------------------------------------------------------------------------------------------------------


class Notes(Extension):
    """Note the steps at which it has run; time passes within batches only."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def pre_train_step_batch(self) -> None:
        CLOCK[0] += 1

    def post_train_step_epoch(self, step_num: int) -> None:
        self.notes.append(("epoch", step_num))

    def post_train_step_batch(self, step_num: int) -> None:
        self.notes.append(("step", step_num))

    def post_train(self, step_num: int) -> None:
        self.notes.append(("train", step_num))


CLOCK = [0.0]

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "every": lambda: every(2),
    "every of another stage": lambda: every(3, of="train_optimizer_step"),
    "at most": lambda: at_most(4),
    "exponentially": lambda: exponentially(1, 1.3, at_end=True),
    "periodically": lambda: periodically(5, at_end=True, clock=lambda: CLOCK[0]),
    "once": lambda: once,
}


@pytest.mark.parametrize(
    ("name", "hook"), in_turn(SCHEDULES, ["post_train_step_batch", "post_train_step_epoch", "post_train"])
)
def test_a_scheduled_hook_runs_at_the_same_steps(name: str, hook: str) -> None:
    def trained(notes: list[Any], after: int | None) -> list[Any]:
        def make() -> TrainManager:
            one = Notes(notes)
            for other in ("post_train_step_batch", "post_train_step_epoch", "post_train"):
                scheduled(one, other, SCHEDULES[name]() if other == hook else every(1000))
            return manager(one)

        if after is None:
            make().train()
        else:
            resumed(make, TrainManager.train, after)
        return notes

    whole = trained([], None)
    for after in part_of((1, 5), 2, 1):
        assert trained([], after) == whole


# ---- what a user sees ------------------------------------------------------------------------------------------------


def test_the_figure_of_the_losses_is_that_of_an_uninterrupted_training(tmp_path: Path) -> None:
    def make(name: str) -> TrainManager:
        return manager(LossCurves(), train_data=shuffled(), train_dir=tmp_path / name)

    make("whole").train()
    resumed(lambda: make("resumed"), TrainManager.train, 4)
    files = [tmp_path / name / "plots" / "loss_curves.svg" for name in ("whole", "resumed")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_bar_of_an_epoch_begins_where_the_epoch_continues() -> None:
    terminal = io.StringIO()

    def make() -> TrainManager:
        terminal.truncate(0)
        bar = ProgressBar(force=True, interval=0, file=terminal)
        return manager(bar, epochs=1)

    resumed(make, TrainManager.train, 2)
    assert "2/3" in terminal.getvalue()
    assert "1/3" not in terminal.getvalue()


def test_the_lines_of_epochs_continue_with_the_best_so_far() -> None:
    def lines(after: int | None) -> list[str]:
        file = io.StringIO()

        def make() -> TrainManager:
            return manager(Log(file=file), train_data=shuffled(), optimizer=adam)

        if after is None:
            make().train()
        else:
            resumed(make, TrainManager.train, after)
        return [line.split()[0] + line[-4:] for line in file.getvalue().splitlines() if line[:1].isdigit()]

    assert lines(after=4) == lines(after=None)


# ---- what is restored outside of epochs ------------------------------------------------------------------------------


def test_modules_that_are_no_longer_frozen_are_trained_by_batches_of_ones_own() -> None:
    tm = manager(FreezeModules("0", until=1), epochs=1)
    tm.train()
    other = manager(FreezeModules("0", until=1), Resume(round_trip(tm.state_dict())))
    before = other.model[0].weight.clone()
    other.train_on_batch((torch.ones(4, 2), torch.tensor([0, 1, 0, 1])))
    assert not before.equal(other.model[0].weight)


def test_a_gradient_of_before_the_kill_is_scaled_down_in_a_step_without_a_backward() -> None:
    class StepsLate(TrainManager):
        def train_batch(self, batch_num: int) -> None:
            if batch_num % 2:
                self.backward(self.forward())
            else:
                self.forward()
                self.step()

    def make() -> TrainManager:
        tiny = tiny_manager()
        tm = StepsLate(
            model=net(),
            loss=tiny.loss,
            optimizer=sgd,
            seed=0,
            train_data=[*(tiny.train_data or []), *(tiny.train_data or [])],
        )
        tm.add_extension(MixedPrecision(torch.float16))
        return tm

    def sgd(parameters: Any) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr=0.5)

    assert_resumes(make, TrainManager.train, (1,))


def test_a_skipped_step_right_after_the_kill_does_not_warm_up() -> None:
    class SkipsAFourth(Extension):
        def pre_train_optimizer_step(self, step_num: int, optimizer_name: str) -> None:
            if step_num == 3 and optimizer_name == "critic":
                raise SkipStage

    assert_resumes(lambda: gan_manager(WarmUp(steps=9, optimizer="critic"), SkipsAFourth()), TrainManager.train, (3,))


@pytest.mark.filterwarnings("ignore:a learning rate is below 0")
def test_the_best_weights_are_put_back_if_the_resumed_program_only_evaluates() -> None:
    tm = manager(EarlyStopping(restore_best=True, patience=50), Rises())
    state = states_of(tm, TrainManager.train)[9]
    other = manager(EarlyStopping(restore_best=True, patience=50), Resume(state))
    other.eval()
    assert differences(dict(tm.model.state_dict()), dict(other.model.state_dict())) == []


def test_a_hook_of_the_run_counts_the_run_that_resumes_once() -> None:
    class Ends(Extension):
        ran = 0

        @every(2)
        def post_run(self) -> None:
            self.ran += 1

    tm = manager(first := Ends())
    tm.train_epochs(1)
    tm.add_extension(kill := Kill(4), "kill")
    with pytest.raises(KilledError):
        tm.train_epochs(1)
    manager(second := Ends(), Resume(kill.states[4])).train_epochs(1)
    assert (first.ran, second.ran) == (0, 1)


def test_another_call_than_the_one_that_was_killed_is_counted() -> None:
    class Ends(Extension):
        ran: list[int]

        def __init__(self) -> None:
            self.ran = []

        @every(2)
        def post_train(self, step_num: int) -> None:
            self.ran.append(step_num)

    state = states_of(manager(Ends()), TrainManager.train, 2)[2]
    other = manager(ends := Ends(), Resume(state))
    other.train_steps(3)
    assert ends.ran == [5]


def test_the_model_of_a_phase_that_was_completed_before_the_kill_is_as_it_was() -> None:
    def train(tm: TrainManager, model: nn.Module) -> None:
        with tm.run():
            with tm.phase("teacher", model=model, optimizer=adam, epochs=2):
                tm.train()
            tm.train()

    first, second = net(), net()
    state = states_of(manager(), partial(train, model=first), after=12)[12]
    tm = manager()
    tm.add_extension(Resume(state), "resume")
    train(tm, second)

    assert weights(second).equal(weights(first))
