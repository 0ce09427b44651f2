"""The rows of GoMLX's train package (G).

Levels of tooling, hooks and their names, counters, data, several heads, metrics, gradients that are accumulated,
losses that are not finite, reserved names.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import train_manager.core.dispatch
import train_manager.loop.step
from tests.support.training import weights
from train_manager import (
    Endless,
    Extensible,
    Extension,
    Fixtures,
    InMemory,
    InputError,
    NonFiniteLoss,
    TrainManager,
    at_most,
    every,
    exponentially,
    fixture,
    modifies,
    periodically,
    provides,
    scheduled,
)
from train_manager.core.schedule import Schedule
from train_manager.errors import CheckError, FixtureExists, HookError
from train_manager.extensions import Accumulate, Metrics, NonFiniteFinder, ProgressBar
from train_manager.loop.losses import WeightedLosses
from train_manager.reporting.pace import MOST, Pace
from train_manager.testing import tiny_manager


@pytest.mark.parametrize(
    ("tool", "steps"),
    [
        (lambda tm: tm.train_on_batch(batch_of(4)), 1),
        (lambda tm: tm.train_steps(2), 2),
        (lambda tm: tm.train_epoch(), 3),
        (lambda tm: tm.train(), 6),
    ],
    ids=["one step", "some steps", "an epoch", "the loop"],
)
def test_g01_there_are_tools_from_one_step_up_to_the_full_loop(
    tool: Callable[[TrainManager], object], steps: int
) -> None:
    """A loop to start from, for one of your own, is ``examples/side_by_side``; its tests are in tests/examples."""
    tm = tiny_manager(epochs=2)
    tool(tm)

    assert (tm.step_num, tm.update_num) == (steps, steps)


class StepsRun(Extension):
    """At which steps its hook runs."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def post_train_step_batch(self, step_num: int) -> None:
        self.at.append(step_num)


def steps_run(schedule: Schedule, steps: int) -> list[int]:
    """The steps, of so many, at which a hook runs."""
    watcher = scheduled(StepsRun(), "post_train_step_batch", schedule)
    tiny_manager(watcher, train_data=tiny_manager().train_data, steps_per_epoch=steps, eval_data=None).train()
    return watcher.at


def test_g10_every_n_steps_is_not_at_the_last_step_except_by_coincidence() -> None:
    assert steps_run(every(3), 10) == [3, 6, 9]
    assert steps_run(every(3), 9) == [3, 6, 9]


def test_g11_at_most_n_times_is_split_evenly_and_always_at_the_very_last_step() -> None:
    assert steps_run(at_most(5), 100) == [20, 40, 60, 80, 100]
    assert steps_run(at_most(5), 3) == [1, 2, 3]


def test_g12_with_an_unknown_end_it_is_uneven_and_may_be_more_than_n() -> None:
    class UnknownLength:
        def __iter__(self) -> Iterator[Any]:
            return iter([*(tiny_manager().train_data or ())] * 4)

    watcher = scheduled(StepsRun(), "post_train_step_batch", at_most(3))
    tiny_manager(watcher, train_data=UnknownLength(), epochs=1).train()
    assert watcher.at == [1, 2, 4, 12]


def test_g13_in_a_second_run_it_is_evenly_again() -> None:
    watcher = scheduled(StepsRun(), "post_train_step_batch", at_most(3))
    tm = tiny_manager(watcher)
    tm.train_epochs(2)
    tm.train_epochs(3)
    assert watcher.at == [2, 4, 6, 9, 12, 15]


def test_g14_exponentially_from_100_by_1_2_is_100_220_364_and_the_end_is_once() -> None:
    assert steps_run(exponentially(100, 1.2), 400) == [100, 220, 364]
    assert steps_run(exponentially(100, 1.2, at_end=True), 370) == [100, 220, 364, 370]
    assert steps_run(exponentially(100, 1.2, at_end=True), 364) == [100, 220, 364]


def test_g15_periodically_counts_after_the_hooks_own_run_and_leaves_out_pauses() -> None:
    now = 0.0

    def clock() -> float:
        return now

    class Slow(StepsRun):
        def pre_train_step_batch(self) -> None:
            nonlocal now
            now += 1

        @periodically(4, clock=clock)
        def post_train_step_batch(self, step_num: int) -> None:
            nonlocal now
            now += 100
            super().post_train_step_batch(step_num)

    slow = Slow()
    tm = tiny_manager(slow)
    tm.train_epochs(3)
    now += 1000
    tm.train_epochs(2)
    assert slow.at == [4, 8, 12]


def test_g15_periodically_may_run_at_the_end_too() -> None:
    watcher = scheduled(StepsRun(), "post_train_step_batch", periodically(60, at_end=True, clock=lambda: 0.0))
    tiny_manager(watcher, epochs=2).train()
    assert watcher.at == [6]


class Loop(Extensible):
    """Three steps."""

    def run(self) -> int:
        with self.staged("run", {"dataset": "digits"}):
            for number in range(3):
                with self.staged("step", {"number": number}):
                    self.fixtures["loss"] = 1.0 / (number + 1)
        return number


def test_g16_the_lowest_priority_runs_first_and_ties_in_order_of_registration() -> None:
    log: list[str] = []

    class Named(Extension):
        def __init__(self, name: str, rank: int = 0) -> None:
            self.name = name
            self.priority = rank

        def pre_run(self) -> None:
            log.append(self.name)

    Loop([Named("a", 7), Named("b"), Named("c", -3), Named("d"), Named("e", -100)]).run()
    assert log == ["e", "c", "b", "d", "a"]


def test_g17_every_hook_has_a_name_that_errors_use() -> None:
    class Broken(Extension):
        def post_step(self, loss: float) -> None:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as error:
        Loop({"my_hook": Broken()}).run()
    assert error.value.__notes__ == ["in hook Broken.post_step of extension 'my_hook', at stage run > step"]


def test_g18_hooks_run_on_start_on_every_step_and_on_end() -> None:
    log: list[object] = []
    hooks = Extension.of(
        pre_run=lambda dataset: log.append(dataset),
        post_step=lambda loss: log.append(loss),
        post_run=lambda dataset: log.append(f"end of {dataset}"),
    )
    assert Loop([hooks]).run() == 2
    assert log == ["digits", 1.0, 1 / 2, 1 / 3, "end of digits"]


def test_g19_steps_continue_where_the_last_call_left_off() -> None:
    once, twice = tiny_manager(), tiny_manager()
    once.train_steps(10)
    twice.train_steps(5)
    twice.train_steps(5)

    assert (twice.step_num, twice.epoch_num) == (10, 3)
    assert weights(once.model).equal(weights(twice.model))


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(size, 2), torch.zeros(size, dtype=torch.long)


class Dataset:
    """What a dataset is there: batches, and a way back to the start. Its name is its key in ``eval_data``."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(2):
            self.log.append("batch")
            yield batch_of(4)

    def reset(self) -> None:
        self.log.append("reset")


def test_g20_epochs_continue_where_the_last_call_left_off_and_data_is_reset_after_each_also_the_last() -> None:
    data, once = Dataset(), tiny_manager(train_data=Dataset())
    tm = tiny_manager(train_data=data)
    tm.train_epochs(2)
    assert data.log == ["batch", "batch", "reset"] * 2
    tm.train_epochs(1)
    once.train_epochs(3)

    assert (tm.epoch_num, data.log.count("reset")) == (3, 3)
    assert weights(tm.model).equal(weights(once.model))


def test_g21_a_hook_reads_the_epoch_and_the_steps_at_its_start_now_and_at_the_end() -> None:
    """Nobody knows how many batches ``Dataset`` has, until it has been walked once."""
    seen: list[tuple[int, int, int, int | None]] = []

    def note(epoch_num: int, start_step: int, step_num: int, end_step: int | None) -> None:
        seen.append((epoch_num, start_step, step_num, end_step))

    tm = tiny_manager(Extension.of(pre_train_step_epoch=note), train_data=Dataset())
    tm.train_epochs(3)
    tm.train_epochs(1)

    assert seen == [(0, 0, 0, None), (1, 0, 2, 6), (2, 0, 4, 6), (3, 6, 6, None)]


def test_g23_nobody_knows_how_long_a_step_takes_before_the_first() -> None:
    """It is nan, not a millisecond: a number that nobody has measured would be taken for one."""
    assert math.isnan(tiny_manager().median_step_seconds)


def test_g23_the_median_of_the_step_times_leaves_out_the_time_of_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0  # of a clock that continues in hooks alone
    for module in (train_manager.loop.step, train_manager.core.dispatch):
        monkeypatch.setattr(module, "perf_counter", lambda: now)

    def work() -> None:
        nonlocal now
        now += 0.05

    tm = tiny_manager(Extension.of(pre_train_backward=work, post_train_step_batch=work))
    tm.train()

    assert tm.median_step_seconds == 0


class Norm(Extension):
    @provides("weight_norm", stage="train_step_batch")
    def post_train_optimizer_step(self, train_manager: TrainManager) -> Tensor:
        weight: Tensor = train_manager.model.get_parameter("0.weight")
        norm: Tensor = torch.linalg.vector_norm(weight.detach())
        return norm


def test_g24_what_one_extension_finds_out_another_reads_as_a_fixture() -> None:
    """A fixture has a name, a stage that it lives in and one that writes it, where a shared dict has none of these."""
    norms: list[float] = []
    tiny_manager(
        Extension.of(post_train_step_batch=lambda weight_norm: norms.append(weight_norm.item())), Norm()
    ).train()

    assert len(norms) == 3
    assert norms[0] != norms[2]


@pytest.mark.parametrize("name", ["progress", "median_step_seconds", "extensions"])
def test_g25_what_a_manager_tells_cannot_be_written(name: str) -> None:
    with pytest.raises((AttributeError, HookError)):
        setattr(tiny_manager(), name, None)


def test_g25_a_hook_cannot_move_a_counter() -> None:
    """The attributes of the manager can be set, for that is how a checkpoint brings them; hooks get the fixtures."""

    class Strict(TrainManager):
        strict = True

    def move(fixtures: Fixtures) -> None:
        fixtures["step_num"] = 100

    def move_by_the_open_door(fixtures: Fixtures) -> None:
        fixtures.modify("step_num", 100)

    with pytest.raises(FixtureExists, match="defines 'step_num', which stage 'run' has defined already"):
        tiny_manager(Extension.of(post_train_step_batch=move)).train()
    tm = tiny_manager()
    strict = Strict(
        model=tm.model,
        optimizer=tm.optimizer,
        loss=tm.loss,
        train_data=tm.train_data,
        extensions=[Extension.of(post_train_step_batch=move_by_the_open_door)],
    )
    with pytest.raises(CheckError, match="writes 'step_num' without declaring it, which `strict` refuses"):
        strict.train()


def test_g26_an_error_inside_the_model_comes_out_and_says_at_which_stage() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        tiny_manager(model=nn.Linear(3, 2), eval_data=None).train()

    path = "run > train > train_step_epoch > train_step_batch > train_model_forward"
    assert caught.value.__notes__[0] == f"at stage {path}"
    assert caught.value.__notes__[1].endswith("a layer for 3 features is given 2: nn.Linear(2, ...)")


def test_g27_a_dataset_is_reset_after_every_epoch_also_the_last() -> None:
    data = Dataset()
    tiny_manager(train_data=data, epochs=2).train()

    assert data.log == ["batch", "batch", "reset", "batch", "batch", "reset"]


def test_g28_the_end_of_the_data_ends_the_epoch_and_any_other_error_comes_out() -> None:
    class Breaks(Dataset):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield batch_of(4)
            raise OSError("the disk is gone")

    ends, breaks = tiny_manager(train_data=Dataset()), tiny_manager(train_data=Breaks())
    ends.train()
    with pytest.raises(OSError, match="the disk is gone"):
        breaks.train()

    assert ends.step_num == 2


def test_g29_data_without_an_end_is_trained_on_by_steps_and_refused_by_epochs() -> None:
    tm = tiny_manager(train_data=Endless([batch_of(4), batch_of(2)]))
    tm.train_steps(5)
    assert tm.step_num == 5
    with pytest.raises(InputError, match=r"train_data \(Endless\) has no end"):
        tm.train_epochs(1)


def test_g30_the_parts_of_a_batch_must_not_change_in_a_run() -> None:
    """No graph is built for a batch; so this is the whole of what a new kind of batch could break."""
    x, y = batch_of(4)
    with pytest.raises(InputError) as caught:
        tiny_manager(train_data=[(x, y), (x, y, y)]).train()

    assert str(caught.value) == (
        "train_data gave a batch of another structure in step 2\n"
        "  first  {'inputs': tensor, 'targets': tensor}\n"
        "  now    {'inputs': [tensor, ...]}\n"
        "  this batch is not a pair: give each as (inputs, targets)"
    )


def test_g31_shapes_may_vary() -> None:
    tm = tiny_manager(train_data=[batch_of(4), batch_of(2), batch_of(7)])
    tm.train()

    assert tm.step_num == 3


def test_g32_several_inputs_labels_and_predictions_with_a_loss_for_each_head() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind, self.size = nn.Linear(2, 2), nn.Linear(3, 1)

        def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"kind": self.kind(inputs["left"]), "size": self.size(inputs["right"]).squeeze(1)}

    generator = torch.Generator().manual_seed(0)
    inputs = {"left": torch.rand(16, 2, generator=generator), "right": torch.rand(16, 3, generator=generator)}
    targets = {"kind": (inputs["left"][:, 0] > 0.5).long(), "size": inputs["right"][:, 1]}
    loss = WeightedLosses({"kind": F.cross_entropy, "size": (F.mse_loss, 0.3)})
    tm = tiny_manager(model=Heads(), loss=loss, train_data=[(inputs, targets)] * 20, eval_data=None, epochs=10)
    before = {name: part.detach().clone() for name, part in tm.model.named_parameters()}
    first = loss(tm.model(inputs), targets).item()
    tm.train()
    assert loss(tm.model(inputs), targets).item() < 0.7 * first
    assert all(not part.equal(before[name]) for name, part in tm.model.named_parameters())


def test_g33_there_may_be_no_labels() -> None:
    def smoothness(prediction: Tensor) -> Tensor:
        return prediction.diff(dim=1).abs().mean()

    tm = tiny_manager(loss=smoothness, train_data=InMemory(torch.rand(8, 2), batch_size=4), eval_data=None)
    tm.train()

    assert tm.step_num == 2


def test_g34_there_may_be_no_metrics() -> None:
    tm = tiny_manager(Metrics(train={}, eval={}))
    tm.train()

    assert list(tm.eval()["valid"]) == ["loss"]


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction.argmax(dim=1) == targets).float().mean()


def test_g35_training_shows_the_loss_then_its_moving_average_then_the_users_metrics() -> None:
    seen: list[list[str]] = []
    watch = Extension.of(post_train_step_batch=lambda metrics: seen.append(list(metrics)))
    tiny_manager(Metrics(accuracy=accuracy), watch).train()

    assert seen == [["loss", "moving_loss", "accuracy"]] * 3


def test_g36_an_evaluation_gives_the_mean_loss_then_the_users_metrics_over_each_example_once() -> None:
    """The last batch is shorter than the others."""
    inputs, targets = torch.rand(7, 2), torch.tensor([0, 1, 0, 1, 1, 1, 0])
    data = InMemory(inputs, targets, batch_size=4)
    tm = tiny_manager(Metrics(accuracy=accuracy), eval_data={"test": data})
    result = tm.eval()["test"]

    with torch.no_grad():
        prediction = tm.model(inputs)
    by_hand = {"loss": F.cross_entropy(prediction, targets).item(), "accuracy": accuracy(prediction, targets).item()}
    assert list(result) == list(by_hand)
    assert result == pytest.approx(by_hand)


def test_g37_data_is_reset_before_it_is_evaluated() -> None:
    data = Dataset()
    tiny_manager(eval_data=data).eval()

    assert data.log == ["reset", "batch", "batch"]


def test_g38_one_batch_is_evaluated_alone() -> None:
    tm = tiny_manager(Metrics(accuracy=accuracy))
    data: Any = tm.train_data
    inputs, targets = data[0]
    result = tm.eval_on_batch(data[0])

    with torch.no_grad():
        prediction = tm.model(inputs)
    by_hand = {"loss": F.cross_entropy(prediction, targets).item(), "accuracy": accuracy(prediction, targets).item()}
    assert result == pytest.approx(by_hand)
    assert (tm.step_num, tm.epoch_num) == (0, 0)


def test_g39_the_metrics_of_the_training_can_be_reset() -> None:
    metrics = Metrics(accuracy=accuracy)
    tiny_manager(metrics).train()
    assert list(metrics.training) == ["loss", "moving_loss", "accuracy"]
    metrics.reset()

    assert metrics.training == {}


def test_g41_weights_that_are_put_into_the_model_before_the_training_are_trained() -> None:
    """The variables are the model's, and are swapped as torch does it: ``load_state_dict``, at any time."""
    trained, other, plain = tiny_manager(), tiny_manager(), tiny_manager()
    trained.train()
    plain.train_epochs(2)
    assert isinstance(other.model, nn.Module)
    other.model.load_state_dict(trained.model.state_dict())
    other.train_epochs(1)

    assert weights(other.model).equal(weights(plain.model))


class Counting:
    """Any object with this method is trained."""

    def __init__(self) -> None:
        self.seen = 0

    def train_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        self.seen += len(batch[0])
        return torch.tensor(1 / self.seen)


def test_g43_an_object_with_a_training_step_is_trained_by_the_loop() -> None:
    counting, losses = Counting(), list[float]()
    note = Extension.of(post_train_step_batch=lambda loss: losses.append(loss.item()))
    tm = TrainManager(model=counting, train_data=[batch_of(4), batch_of(2)], epochs=2, extensions=[note])
    tm.train()

    assert (counting.seen, tm.samples_seen, tm.step_num) == (12, 12, 4)
    assert losses == pytest.approx([1 / 4, 1 / 6, 1 / 10, 1 / 12])


def test_g44_the_progress_line_has_the_median_time_of_a_step() -> None:
    text = io.StringIO()
    tiny_manager(ProgressBar(force=True, interval=0, file=text)).train()

    assert re.search(r"loss=0\.\d+, \d[\d.e+]* ms/step", text.getvalue())


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss(label_smoothing=0.1), F.multi_margin_loss])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_g44_losses_and_optimizers_are_those_of_torch(loss: Any, optimizer: Any) -> None:
    """So none are offered here; metrics are functions, or objects of torchmetrics."""
    tm = tiny_manager(loss=loss, optimizer=lambda parameters: optimizer(parameters, lr=0.01), epochs=3)
    before = tm.eval()["valid"]["loss"]
    tm.train()

    assert tm.eval()["valid"]["loss"] < before


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_g45_a_loss_that_is_not_finite_ends_the_training_after_the_hooks_of_its_step(value: float) -> None:
    """Gradients that are accumulated have a test of their own."""
    seen: list[int] = []

    class Breaks(Extension):
        @modifies("loss")
        def post_train_loss_forward(self, loss: Tensor, step_num: int) -> Tensor:
            return loss * value if step_num == 1 else loss

    tm = tiny_manager(NonFiniteFinder(explain=False, check_every=1), Breaks())
    tm.add_extension(post_train_step_batch=lambda step_num: seen.append(step_num))
    with pytest.raises(NonFiniteLoss, match="in step 2"):
        tm.train()
    assert seen == [1, 2]


def test_g45_training_goes_up_to_a_total_of_steps() -> None:
    """A total is what is left to do: no method of its own is needed for the difference."""
    tm = tiny_manager(Accumulate(2))
    tm.train_epochs(1)
    result = tm.train_steps(8 - tm.step_num)

    assert (tm.step_num, result.steps, tm.update_num) == (8, 5, 5)


def test_g46_a_bar_that_nobody_looks_at_is_drawn_a_thousand_times_and_then_every_three_seconds() -> None:
    file, steps = io.StringIO(), 0.0

    def seconds() -> float:
        return steps / 64

    class Clock(Extension):
        def pre_train_step_batch(self, step_num: int) -> None:
            nonlocal steps
            steps = step_num

    bar = ProgressBar(show=["loss", "step_num"], force=True, interval=0, file=file)
    vars(bar)["_unwatched"] = Pace(clock=seconds, most=MOST // 10)
    tiny_manager(bar, Clock(), epochs=1, eval_data=None, train_data=[batch_of(4)] * 600).train()

    drawn = list(dict.fromkeys(map(int, re.findall(r"step_num=(\d+)", file.getvalue()))))
    assert drawn[:3] == [1, 2, 3]
    assert drawn[90:] == [*range(91, 99), 290, 482]
    assert MOST == 1000


@pytest.mark.parametrize("name", ["fixtures", "stage", "extensible", "exc_type", "exc_value", "traceback"])
def test_g49_a_fixture_with_a_reserved_name_is_refused(name: str) -> None:
    loop = Loop()
    with pytest.raises(FixtureExists, match=f"writes '{name}', which is always there and cannot be written"):
        with loop.staged("run", {name: 1}):
            pass
    with loop.staged("run"):
        with pytest.raises(FixtureExists):
            loop.fixtures.modify(name, 1)


def test_g49_a_fixture_on_demand_with_a_reserved_name_is_refused() -> None:
    class Wrong(Extension):
        @fixture("run")
        def stage(self) -> int:
            return 1

    with pytest.raises(HookError, match=r"Wrong.stage provides 'stage', which is always there"):
        Loop([Wrong()])
