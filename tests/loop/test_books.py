"""Books: what an extension measures over an epoch or a phase lives as long as that."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, SkipBatch, TrainManager, report_loss
from train_manager.extensions import Avg, LossCurves, Metrics
from train_manager.loop.books import Book
from train_manager.telling.errors import InputError


class Numbers(list[float]):
    """The numbers of the batches that were measured."""

    def state_dict(self) -> list[float]:
        return list(self)

    def load_state_dict(self, state: list[float]) -> None:
        self[:] = state


class Measure(Extension):
    """Keep the number of each batch, and tell those of an epoch as it ends."""

    def __init__(self, per: str = "epoch") -> None:
        self.book = Book(Numbers, per=per)
        self.epochs: list[list[float]] = []

    def post_train_step_batch(self, inputs: Tensor, train_manager: TrainManager | None = None) -> None:
        self.book.of(train_manager).append(inputs.mean().item())

    def post_train_step_epoch(self, train_manager: TrainManager | None = None) -> None:
        self.epochs.append(list(self.book.of(train_manager)))

    def state_dict(self) -> dict[str, Any]:
        return {"book": self.book.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.book.load_state_dict(state["book"])


def batches(*numbers: float) -> list[tuple[Tensor, Tensor]]:
    return [(torch.full((2, 1), float(number)), torch.zeros(2, 1)) for number in numbers]


def manager(*extensions: Extension, data: Any = None, **options: Any) -> TrainManager:
    def value(prediction: Tensor, targets: Tensor) -> Tensor:  # the number of the batch, whatever the weights
        return prediction.mean()

    model = Number()
    return TrainManager(
        model=model,
        loss=value,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        train_data=batches(1, 2, 3, 4) if data is None else data,
        extensions=list(extensions),
        **options,
    )


class Number(nn.Module):
    """Return the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.zero


def number(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.mean()


def test_an_epoch_that_steps_leave_open_continues_with_its_value() -> None:
    measure = Measure()
    tm = manager(measure, epochs=2)
    with tm.run():
        tm.train_steps(3)
        tm.train_steps(1)
        tm.train_epochs(1)
    assert measure.epochs[-2:] == [[1, 2, 3, 4], [1, 2, 3, 4]]


def test_a_phase_between_two_parts_of_an_epoch_has_a_value_of_its_own() -> None:
    measure = Measure()
    tm = manager(measure)
    with tm.run():
        tm.train_steps(2)
        with tm.phase("other", train_data=batches(100, 200), epochs=1):
            tm.train()
        tm.train_steps(2)
        tm.train_epochs(1)
    assert measure.epochs == [[1, 2], [100, 200], [1, 2, 3, 4], [1, 2, 3, 4]]


def test_an_epoch_that_an_error_drops_takes_its_value_along() -> None:
    measure, fails = Measure(), [True]

    class Fail(Extension):
        def pre_train_step_batch(self, batch_num: int) -> None:
            if batch_num == 3 and fails.pop():
                raise OSError("the disk is full")

    fails.insert(0, False)
    tm = manager(measure, Fail())
    with pytest.raises(OSError, match="the disk is full"):
        tm.train()
    fails[:] = [False] * 10
    tm.train()
    assert measure.epochs[-1] == [1, 2, 3, 4]


def test_an_epoch_whose_first_batch_is_skipped_has_nothing_of_the_epoch_before() -> None:
    class SkipFirst(Extension):
        def pre_train_step_batch(self, batch_num: int) -> None:
            if batch_num == 1:
                raise SkipBatch

    measure = Measure()
    manager(measure, SkipFirst(), epochs=2).train()
    assert measure.epochs == [[2, 3, 4], [2, 3, 4]]


def test_batches_of_a_loop_of_ones_own_leave_an_open_epoch_alone() -> None:
    measure = Measure()
    tm = manager(measure)
    with tm.run():
        tm.train_steps(2)
        for batch in batches(100, 200):
            tm.train_on_batch(batch)
        tm.train_steps(2)
        tm.train_epochs(1)
    assert measure.epochs[1] == [1, 2, 3, 4]


def test_an_own_epoch_has_the_batches_since_the_last_end() -> None:
    measure = Measure()
    tm = manager(measure)
    with tm.run():
        for number in (1, 2, 3):
            tm.train_on_batch(batches(number)[0])
        tm.end_epoch()
        tm.train_on_batch(batches(7)[0])
        tm.end_epoch()
    assert measure.epochs == [[1, 2, 3], [7]]


def test_an_own_epoch_continues_after_a_phase() -> None:
    measure = Measure()
    tm = manager(measure)
    with tm.run():
        tm.train_on_batch(batches(1)[0])
        with tm.phase("other", epochs=1, train_data=batches(100)):
            tm.train()
        tm.train_on_batch(batches(2)[0])
        tm.end_epoch()
    assert measure.epochs == [[100], [1, 2]]


def test_a_value_per_phase_is_that_of_the_phase_alone() -> None:
    measure = Measure(per="phase")
    tm = manager(measure)
    with tm.run():
        tm.train()
        for number in (10, 20):
            with tm.phase("other", train_data=batches(number), epochs=1):
                tm.train()
        tm.train_epochs(1)
    assert measure.epochs == [[1, 2, 3, 4], [10], [20], [1, 2, 3, 4, 1, 2, 3, 4]]


def test_a_value_per_manager_has_its_phases_too() -> None:
    measure = Measure(per="manager")
    tm = manager(measure)
    with tm.run():
        tm.train()
        with tm.phase("other", train_data=batches(10), epochs=1):
            tm.train()
    assert measure.epochs[-1] == [1, 2, 3, 4, 10]


def test_two_managers_have_values_of_their_own() -> None:
    measure = Measure(per="manager")
    manager(measure).train()
    manager(measure, data=batches(5)).train()
    assert measure.epochs == [[1, 2, 3, 4], [5]]


def test_a_shared_extension_has_a_value_for_each_manager_in_its_checkpoints() -> None:
    class Shared(Measure):
        shared = True

    measure = Shared(per="phase")
    one, two = manager(measure), manager(measure, data=batches(5))
    with one.run(), two.run():
        one.train()
        two.train()
    state = one.state_dict()
    assert state["extensions"]["shared"] == {"book": {"": [1, 2, 3, 4]}}
    other = manager(Shared(per="phase"))
    other.load_state_dict(state)
    other.train_epochs(1)
    assert other["shared"].epochs == [[1, 2, 3, 4, 1, 2, 3, 4]]


def test_hooks_called_by_hand_have_one_value() -> None:
    measure = Measure()
    measure.post_train_step_batch(inputs=torch.ones(2))
    measure.post_train_step_batch(inputs=torch.zeros(2))
    measure.post_train_step_epoch()
    assert measure.epochs == [[1, 0]]


def test_a_value_that_is_not_saved_begins_anew_after_a_resume() -> None:
    first, second = Measure(), Measure()
    first.book, second.book = (Book(list, saved=False) for _ in range(2))  # type: ignore[assignment]  # no state_dict
    (tm := manager(first)).train_steps(2)
    resumed = manager(second)
    resumed.load_state_dict(tm.state_dict())
    resumed.train()

    assert second.epochs == [[3.0, 4.0]]


def test_an_open_epoch_around_a_phase_resumes_from_a_checkpoint_of_the_phase() -> None:
    saved: list[dict[str, Any]] = []

    class Save(Extension):
        def post_save_checkpoint(self, train_manager: TrainManager) -> None:
            saved.append(copy.deepcopy(train_manager.state_dict()))

        def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
            if step_num == 3:
                train_manager.save_soon()

    class Load(Extension):
        def pre_load_checkpoint(self, train_manager: TrainManager) -> None:
            train_manager.load_state_dict(saved[0])

    def program(*extensions: Extension) -> None:
        tm = manager(*extensions)
        with tm.run():
            tm.train_steps(2)
            with tm.phase("other", train_data=batches(100, 200, 300), epochs=1):
                tm.train()
            tm.train_steps(2)
            tm.train_epochs(1)

    whole, rest = Measure(), Measure()
    program(whole, Save())
    program(rest, Load())
    assert len(saved) == 1
    assert rest.epochs == whole.epochs[1:]  # the epoch's first part was before the checkpoint


def test_an_own_epoch_resumes_from_a_checkpoint() -> None:
    tm = manager(Measure())
    with tm.run():
        for number in (1, 2):
            tm.train_on_batch(batches(number)[0])
    measure = Measure()
    other = manager(measure)
    other.load_state_dict(tm.state_dict())
    with other.run():
        other.train_on_batch(batches(6)[0])
        other.end_epoch()
    assert measure.epochs == [[1, 2, 6]]
    assert other.history.epochs[-1]["loss"] == 3


def test_a_state_without_an_epoch_that_is_open_here_begins_it_anew() -> None:
    before = manager(Measure())
    before.train()
    state = before.state_dict()
    tm = manager(Measure())
    tm.train_steps(2)
    tm.load_state_dict(state)
    tm.train_epochs(1)
    assert tm["measure"].epochs[-1] == [1, 2, 3, 4]


def test_a_copied_manager_continues_with_copied_values() -> None:
    measure = Measure(per="phase")
    tm = manager(measure)
    tm.loss = number  # a function of this module, which can be copied by name
    tm.train()
    other = copy.deepcopy(tm)
    other.train_epochs(1)
    tm.train_epochs(1)
    assert other["measure"].epochs[-1] == [1, 2, 3, 4] * 2
    assert measure.epochs[-1] == [1, 2, 3, 4] * 2


def test_a_lifetime_must_be_one_of_three() -> None:
    with pytest.raises(InputError) as caught:
        Book(Numbers, per="run")
    assert str(caught.value) == "per must be 'epoch', 'phase' or 'manager', but is 'run'"


# ---- extensions that measure over an epoch ---------------------------------------------------------------------------


def mean_of_inputs(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.mean()


def test_metrics_of_an_open_epoch_leave_out_those_of_a_phase() -> None:
    tm = manager(Metrics(mean_of_inputs), data=batches(1, 1, 1, 1))
    with tm.run():
        tm.train_steps(2)
        with tm.phase("other", train_data=batches(100, 200), epochs=1):
            tm.train()
        tm.train_steps(2)
        tm.train_epochs(1)
    assert [row["mean_of_inputs"] for row in tm.history.epochs] == [150, 1, 1]


def test_the_mean_over_an_open_epoch_leaves_out_a_phase() -> None:
    means: list[float] = []
    show = Extension.of(post_train_step_epoch=lambda avg_loss: means.append(avg_loss.item()))
    tm = manager(Avg("loss"), show, data=batches(1, 1, 1, 1))
    with tm.run():
        tm.train_steps(2)
        with tm.phase("other", train_data=batches(100, 200), epochs=1):
            tm.train()
        tm.train_steps(2)
    assert means == [1, 150, 1]


def train_with_others_between(tm: TrainManager) -> None:
    """Train an epoch of two batches, with own batches before and in it, and a phase in it."""
    tm.train_on_batch(batches(45)[0])
    tm.train_steps(1)
    tm.train_on_batch(batches(29)[0])
    with tm.phase("other", train_data=batches(100, 200), epochs=1):
        tm.train()
    tm.train_steps(1)


def curves_of(tm: TrainManager) -> LossCurves:
    curves: LossCurves = tm["loss_curves"]
    return curves


def test_the_curve_by_epoch_leaves_out_a_phase_and_batches_of_a_loop_of_ones_own(tmp_path: Path) -> None:
    tm = manager(LossCurves(), data=batches(1, 1), train_dir=tmp_path)
    with tm.run():
        train_with_others_between(tm)
    assert curves_of(tm).training["epoch"].y == [150, 1]


def test_the_curve_of_a_part_by_epoch_leaves_them_out_too(tmp_path: Path) -> None:
    def with_part(prediction: Tensor, targets: Tensor) -> Tensor:
        report_loss(prediction.detach().mean(), "part")
        return prediction.mean()

    tm = manager(LossCurves(), data=batches(1, 1), train_dir=tmp_path)
    tm.loss = with_part
    with tm.run():
        train_with_others_between(tm)
        tm.train_on_batch(batches(7)[0])
        tm.end_epoch()
    assert curves_of(tm).parts.curves["part"]["epoch"].y == [150, 1, 7]
    assert curves_of(tm).parts.curves["part"]["batch"].y == [45, 1, 29, 100, 200, 1, 7]


def test_a_part_of_an_open_epoch_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    def with_part(prediction: Tensor, targets: Tensor) -> Tensor:
        report_loss(prediction.detach().mean(), "part")
        return prediction.mean()

    tm = manager(LossCurves(), train_dir=tmp_path / "one")
    tm.loss = with_part
    tm.train_steps(3)
    other = manager(LossCurves(), train_dir=tmp_path / "other")
    other.loss = with_part
    other.load_state_dict(tm.state_dict())
    other.train()
    assert curves_of(other).parts.curves["part"]["epoch"].y == [2.5]


def test_a_mean_without_a_batch_is_nan() -> None:
    class SkipAll(Extension):
        def pre_train_step_batch(self) -> None:
            raise SkipBatch

    means: list[float] = []
    manager(Avg("loss"), SkipAll(), Extension.of(post_train_step_epoch=lambda avg_loss: means.append(avg_loss))).train()
    assert [math.isnan(mean) for mean in means] == [True]


def test_the_mean_of_an_epoch_that_a_checkpoint_leaves_nothing_of_is_there_too() -> None:
    class Save(Extension):
        def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
            if step_num == 2:
                train_manager.save_soon()

        def post_save_checkpoint(self, train_manager: TrainManager) -> None:
            saved.append(copy.deepcopy(train_manager.state_dict()))

    def program(*extensions: Extension) -> list[float]:
        means: list[float] = []
        show = Extension.of(post_train_step_epoch=lambda avg_loss: means.append(avg_loss.item()))
        manager(Avg("loss"), show, *extensions).train_steps(2)
        return means

    saved: list[dict[str, Any]] = []
    assert program(Save()) == [1.5]
    load = Extension.of(pre_load_checkpoint=lambda train_manager: train_manager.load_state_dict(saved[0]))
    assert program(load) == [1.5]


def test_a_value_that_is_begun_anew_within_an_epoch_has_the_batches_since() -> None:
    class Anew(Measure):
        def pre_train_step_batch(self, batch_num: int, train_manager: TrainManager) -> None:
            if batch_num == 3:
                self.book.begin(train_manager)

    measure = Anew()
    manager(measure).train()
    assert measure.epochs == [[3, 4]]
