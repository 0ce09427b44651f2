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
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR, MultiStepLR, OneCycleLR

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
    Endless,
    Extension,
    InMemory,
    Interleaved,
    Objective,
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
    EMA,
    SAM,
    Accumulate,
    Avg,
    ClipGradients,
    EarlyStopping,
    FreezeModules,
    Log,
    LossCurves,
    LRSchedule,
    Metrics,
    MixedPrecision,
    NonFiniteFinder,
    ProgressBar,
    WarmUp,
)
from train_manager.testing import tiny_manager


class Classify(Objective):
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"accuracy": (prediction.argmax(dim=1) == targets).float().mean()}


class Learned(nn.Module):
    """A loss with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction * self.scale, targets) + self.scale.square()


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


def interleaved() -> Interleaved:
    inputs, targets = examples()
    sets = {name: InMemory(inputs, targets, batch_size=8, shuffle=True, seed=seed) for seed, name in enumerate("ab")}
    return Interleaved(sets, ratios={"a": 2, "b": 1}, seed=1)


def lbfgs(parameters: Any) -> torch.optim.LBFGS:
    return torch.optim.LBFGS(parameters, lr=0.1, max_iter=3)


def adam(parameters: Any) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=0.01)


def per_step(optimizer: Any) -> Any:
    return OneCycleLR(optimizer, 0.5, total_steps=40)


def plateau(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)


class Rises(Extension):
    """Let the loss rise after the first epoch."""

    def pre_train_step_batch(self, train_manager: TrainManager) -> None:
        for group in train_manager.optimizer.param_groups:
            group["lr"] = 0.1 if train_manager.step_num < 3 else -1.0


def usual() -> list[Extension]:
    """Return extensions as a training has them together."""
    return [
        EMA(0.9, warm_up=True, use_buffers=True),
        Accumulate(2),
        ClipGradients(0.1),
        LRSchedule(per_step, per="step"),
        WarmUp(steps=5),
        EarlyStopping(patience=100, restore_best=True),
        Metrics(right=lambda prediction, targets: prediction.argmax(dim=1) == targets, file=io.StringIO()),
        Log(file=io.StringIO()),
        NonFiniteFinder(4, explain=False),
        Avg("loss"),
    ]


TRAININGS: dict[str, Callable[[], TrainManager]] = {
    "plain": lambda: manager(),
    "shuffled data": lambda: manager(train_data=shuffled()),
    "interleaved data": lambda: manager(train_data=interleaved()),
    "epochs cut by steps": lambda: manager(train_data=shuffled(), steps_per_epoch=4),
    "epochs cut by steps of endless data": lambda: manager(train_data=Endless(shuffled()), steps_per_epoch=4),
    "epochs cut by steps of an endless list": lambda: manager(
        train_data=Endless(tiny_manager().train_data or []), steps_per_epoch=4
    ),
    "data without a length": lambda: manager(Accumulate(2), train_data=Unsized()),
    "adam and its schedule": lambda: manager(optimizer=adam, lr_schedule=lambda opt: MultiStepLR(opt, [1, 2])),
    "lbfgs": lambda: manager(optimizer=lbfgs, model=tiny_manager().model),
    "an objective": lambda: manager(loss=Classify()),
    "a loss with weights": lambda: manager(loss=Learned()),
    "the usual extensions": lambda: manager(*usual(), train_data=shuffled()),
    "float16 and a window": lambda: manager(MixedPrecision(torch.float16), Accumulate(2)),
    "sam": lambda: manager(SAM()),
    "two schedules of one optimizer": lambda: manager(
        LRSchedule(plateau, monitor="valid/loss", count_start=True),
        lr_schedule=lambda opt: ExponentialLR(opt, 0.9),
        eval_at="start",
    ),
    "a gan": lambda: gan_manager(
        Accumulate(2),
        EMA(0.9, optimizer="generator"),
        ClipGradients(0.1, optimizer="critic"),
        LRSchedule(lambda opt: ExponentialLR(opt, 0.9), per="step", optimizer="critic"),
        WarmUp(steps=4, optimizer="generator"),
        epochs=2,
    ),
    "a gan in float16": lambda: gan_manager(MixedPrecision(torch.float16), Accumulate(2), epochs=2),
    "frozen for an epoch": lambda: manager(FreezeModules("0", "1", until=1)),
    "evaluated by schedules": lambda: manager(eval_at=("start", every(2), "epoch", "end")),
    "evaluated at most": lambda: manager(eval_at=(at_most(3), exponentially(1, 1.5, at_end=True))),
}


class Unsized:
    """Batches whose number nobody knows."""

    def set_epoch(self, epoch: int) -> None:
        pass

    def __iter__(self) -> Any:
        inputs, targets = examples()
        return zip(inputs.split(8), targets.split(8), strict=True)


@pytest.mark.filterwarnings("ignore:the loss .Learned. has 1 parameters")
@pytest.mark.parametrize(("name", "after"), in_turn(TRAININGS, (2, 4)))
def test_killed_within_an_epoch_it_comes_to_the_same(name: str, after: int) -> None:
    assert_resumes(TRAININGS[name], TrainManager.train, [after])


def test_killed_in_train_steps_it_comes_to_the_same() -> None:
    def train(tm: TrainManager) -> None:
        tm.train_steps(7)  # ends within an epoch

    assert_resumes(lambda: manager(*usual(), train_data=shuffled()), train, (1, 4))


def test_killed_after_the_last_step_the_epoch_that_it_left_is_in_the_history() -> None:
    def train(tm: TrainManager) -> None:
        tm.train_steps(7)

    assert_resumes(manager, train, (7,))


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

    assert_resumes(make, train, (1, 2, 4))


@pytest.mark.parametrize("at", ["step", "epoch"])
def test_a_program_that_is_started_again_after_a_stop_trains_on(at: str) -> None:
    stop = At("post_train_step_batch", lambda train_manager, step_num: step_num == 4 and train_manager.stop("x", at=at))
    ended = states_of(manager(stop), TrainManager.train)[END]

    tm = manager(Resume(ended))
    tm.train()

    assert (tm.epoch_num, tm.stop_reason) == (3, None)


# ---- phases ----------------------------------------------------------------------------------------------------------


def with_phases(tm: TrainManager) -> None:
    """Train a head with an optimizer of its own, another model, and then the whole."""
    with tm.run():
        with tm.phase("head", optimizer=adam, epochs=2):
            tm.train()
        with tm.phase("teacher", model=net(), optimizer=adam, epochs=2):
            tm.train()
        tm.train()


def test_killed_in_a_phase_or_after_it_it_comes_to_the_same() -> None:
    def make() -> TrainManager:
        return manager(EMA(0.9), LRSchedule(per_step, per="step"), Avg("loss"), WarmUp(steps=4), train_data=shuffled())

    assert_resumes(make, with_phases, part_of((2, 5, 8, 11, 13, 16), 3))


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
    for after in (1, 5):
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


@pytest.mark.filterwarnings("ignore:a learning rate is below 0")
def test_the_best_weights_are_put_back_if_the_best_was_before_the_kill() -> None:
    def make() -> TrainManager:
        return manager(EarlyStopping(patience=50, restore_best=True), Rises())

    assert_resumes(make, TrainManager.train, (5,))


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
