"""``end_epoch`` in a loop of the program's own: what happens once per epoch happens there too."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

from train_manager import Extension, SkipStage, TrainManager, every, modifies
from train_manager.extensions import Checkpoints, FreezeModules, LossCurves, LRSchedule, ProgressBar, WarmUp
from train_manager.telling.errors import InputError, NonFiniteLoss, StageError
from train_manager.testing import tiny_manager


def halving(optimizer: Any) -> StepLR:
    return StepLR(optimizer, 1, gamma=0.5)


def own_epochs(tm: TrainManager, n: int = 1) -> None:
    """Train epochs in a loop of one's own."""
    with tm.run():
        for _ in range(n):
            for batch in tm.train_data or ():
                tm.train_on_batch(batch)
            tm.end_epoch()


def test_the_weights_are_those_of_epochs_of_the_loop() -> None:
    one, other = (tiny_manager(epochs=3, lr_schedule=halving) for _ in range(2))
    one.train()
    own_epochs(other, 3)
    assert all(map(torch.equal, one.model.state_dict().values(), other.model.state_dict().values()))


def test_the_rows_of_the_history_are_those_of_epochs_of_the_loop() -> None:
    one, other = (tiny_manager(epochs=2) for _ in range(2))
    one.train()
    own_epochs(other, 2)
    own, of_loop = ([{**row, "seconds": 0} for row in tm.history.epochs] for tm in (other, one))
    assert own == of_loop


def test_the_seconds_of_an_own_epoch_are_those_since_its_first_batch() -> None:
    tm = tiny_manager()
    own_epochs(tm, 1)
    assert tm.history.epochs[0]["seconds"] > 0


def test_hooks_of_the_epoch_run_as_it_ends() -> None:
    seen: list[Any] = []

    class See(Extension):
        def pre_train_step_epoch(self, epoch_num: int, batches_done: int) -> None:
            seen.append(("pre", epoch_num, batches_done))

        def post_train_step_epoch(self, epoch_num: int, train_result: dict[str, float]) -> None:
            seen.append(("post", epoch_num, list(train_result)))

    own_epochs(tiny_manager(See()), 2)
    assert seen == [("pre", 0, 3), ("post", 1, ["loss"]), ("pre", 1, 3), ("post", 2, ["loss"])]


@pytest.mark.parametrize("warms_up", [False, True])
def test_schedules_by_epoch_step(warms_up: bool) -> None:
    extensions = [LRSchedule(halving), *([WarmUp(epochs=2, start=0.5)] if warms_up else [])]
    factors: list[Any] = []
    note = Extension.of(post_train_step_batch=lambda learning_rates: factors.append(learning_rates[0]))
    own_epochs(tiny_manager(*extensions, note), 3)
    assert factors[::3] == ([0.25, 0.1875, 0.125] if warms_up else [0.5, 0.25, 0.125])


def test_nothing_is_evaluated() -> None:
    tm = tiny_manager()
    own_epochs(tm, 2)
    assert tm.history.evaluations == []


def test_the_numbers_of_the_batches_begin_anew() -> None:
    numbers: list[int] = []
    own_epochs(tiny_manager(Extension.of(post_train_step_batch=lambda batch_num: numbers.append(batch_num))), 2)
    assert numbers == [1, 2, 3, 1, 2, 3]


def test_they_go_on_after_a_resume_within_the_epoch(tmp_path: Path) -> None:
    numbers: list[int] = []
    notes = {"post_train_step_batch": lambda batch_num: numbers.append(batch_num)}
    for batches in (2, 1):  # the first program ends within the epoch
        tm = tiny_manager(Checkpoints(every(1), resume=True), Extension.of(**notes), train_dir=tmp_path)
        with tm.run():
            for batch in [*(tm.train_data or ())][:batches]:
                tm.train_on_batch(batch)
    assert numbers == [1, 2, 3]


def test_in_a_hook_of_a_batch_it_ends_the_epoch_after_that_step() -> None:
    class EndAfterTwo(Extension):
        def pre_train_step_batch(self, batch_num: int, train_manager: TrainManager) -> None:
            if batch_num == 2:
                train_manager.end_epoch()

    tm = tiny_manager(EndAfterTwo())
    with tm.run():
        for batch in [*(tm.train_data or ()), *(tm.train_data or ())]:
            tm.train_on_batch(batch)
    assert [(row["epoch"], row["step"]) for row in tm.history.epochs] == [(1, 2), (2, 4), (3, 6)]


@pytest.mark.parametrize("in_hook", [False, True])
def test_a_checkpoint_that_is_asked_for_as_the_epoch_ends_is_saved_there(tmp_path: Path, in_hook: bool) -> None:
    tm = tiny_manager(Checkpoints(save_at="epoch"), train_dir=tmp_path)
    if in_hook:
        tm.add_extension(
            pre_train_step_batch=lambda train_manager, batch_num: batch_num < 3 or train_manager.end_epoch()
        )
    with tm.run():
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)
        tm.end_epoch()  # void after a hook has ended it
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000000003"]
    other = tiny_manager(Checkpoints(save_at="epoch", resume=True), train_dir=tmp_path)
    with other.run():
        assert (other.epoch_num, other.step_num) == (1, 3)


def test_bars_of_an_own_epoch_leave_nothing() -> None:
    bar = io.StringIO()
    own_epochs(tiny_manager(ProgressBar(force=True, interval=0, file=bar)), 2)
    assert bar.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""


def test_without_a_batch_since_the_last_end_it_is_void() -> None:
    tm = tiny_manager()
    with tm.run():
        tm.end_epoch()
        tm.train_epoch()
        tm.end_epoch()
    tm.end_epoch()
    assert tm.epoch_num == 1


def test_while_an_epoch_of_the_loop_is_open_it_is_void() -> None:
    tm = tiny_manager()
    batch = next(iter(tm.train_data or ()))
    with tm.run():
        tm.train_steps(2)
        tm.train_on_batch(batch)
        tm.end_epoch()
        assert tm.epoch_num == 0
        tm.train_steps(1)
    assert tm.epoch_num == 1


def test_in_a_stage_of_the_program_it_ends_the_epoch() -> None:
    tm = tiny_manager()
    with tm.run(), tm.staged("lesson"):
        tm.train_on_batch(next(iter(tm.train_data or ())))
        tm.end_epoch()
    assert tm.epoch_num == 1


def test_in_a_loss_that_is_evaluated_it_is_void() -> None:
    def loss(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if "eval" in tm.fixtures.path:
            tm.end_epoch()
        return torch.nn.functional.cross_entropy(prediction, targets)

    tm = tiny_manager(loss=loss)
    with tm.run():
        tm.train_on_batch(next(iter(tm.train_data or ())))
        tm.eval()
    assert tm.epoch_num == 0


def test_in_a_hook_that_is_in_no_epoch_and_no_batch_it_is_void() -> None:
    tm = tiny_manager(Extension.of(pre_phase=lambda train_manager: train_manager.end_epoch()))
    tm.add_extension(pre_run=lambda train_manager: train_manager.end_epoch())
    batch = next(iter(tm.train_data or ()))
    for _ in range(2):
        with tm.run():
            tm.train_on_batch(batch)
            with tm.phase("empty"):
                pass
    assert tm.epoch_num == 0


def test_a_metric_that_is_called_like_a_place_is_refused() -> None:
    class Step(Extension):
        @modifies("train_result")
        def post_train_step_epoch(self, train_result: dict[str, float]) -> dict[str, float]:
            return {**train_result, "step": 1.0}

    with pytest.raises(InputError, match="in the history 'step' tells where"):
        own_epochs(tiny_manager(Step()))


def test_without_a_run_around_the_loop_it_is_refused() -> None:
    tm = tiny_manager()
    tm.train_on_batch(next(iter(tm.train_data or ())))
    with pytest.raises(StageError) as caught:
        tm.end_epoch()
    assert str(caught.value) == (
        "end_epoch() was called between two batches, but no run is open\n  open stages  none\n  hold a run open around "
        "your loop: with tm.run():"
    )


def test_batches_of_runs_before_are_in_the_epoch_too() -> None:
    tm = tiny_manager()
    first, *rest = tm.train_data or ()
    with tm.run():
        tm.train_on_batch(first)
    with tm.run():
        for batch in rest:
            tm.train_on_batch(batch)
        tm.end_epoch()
    other = tiny_manager()
    other.train()
    assert tm.history.epochs[0]["loss"] == other.history.epochs[0]["loss"]


def test_an_error_drops_the_epoch() -> None:
    tm = tiny_manager()
    first, second, _third = tm.train_data or ()
    with pytest.raises(ZeroDivisionError), tm.run():
        tm.train_on_batch(first)
        1 / 0  # noqa: B018
    with tm.run():
        loss = tm.train_on_batch(second)
        tm.end_epoch()
    assert loss is not None
    assert tm.history.epochs[0]["loss"] == pytest.approx(loss.item())


def test_a_loss_that_is_not_finite_is_an_error_as_the_epoch_ends() -> None:
    tm = tiny_manager(loss=lambda prediction, targets: prediction.sum() * float("nan"))
    with pytest.raises(NonFiniteLoss, match="the loss was nan in step 1, epoch 1"):
        own_epochs(tm)


def test_that_error_drops_the_epoch_also_where_the_program_continues() -> None:
    factors = iter([float("nan"), 1.0])
    tm = tiny_manager(loss=lambda prediction, targets: prediction.sum() * next(factors))
    first = next(iter(tm.train_data or ()))
    before = copy.deepcopy(tm.model.state_dict())
    with tm.run():
        tm.train_on_batch(first)
        with pytest.raises(NonFiniteLoss):
            tm.end_epoch()
        tm.model.load_state_dict(before)
        loss = tm.train_on_batch(first)
        tm.end_epoch()
    assert [row["loss"] for row in tm.history.epochs] == [pytest.approx(loss)]


def test_a_skipped_epoch_is_not_ended() -> None:
    class Skip(Extension):
        def pre_train_step_epoch(self) -> None:
            raise SkipStage

    tm = tiny_manager(Skip())
    own_epochs(tm)
    assert tm.epoch_num == 0


def test_loss_curves_have_a_point_for_each_own_epoch(tmp_path: Path) -> None:
    curves = LossCurves()
    tm = tiny_manager(curves, train_dir=tmp_path)
    own_epochs(tm, 2)
    assert curves.training["epoch"].x == [1, 2]
    assert curves.training["epoch"].y == [row["loss"] for row in tm.history.epochs]


# ---- a loop that ends no epoch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extension", "options", "names"),
    [
        (LRSchedule(halving), {}, "'lr_schedule'"),
        (WarmUp(epochs=2), {}, "'warm_up'"),
        (FreezeModules("0", until=2), {}, "'freeze_modules'"),
        (WarmUp(epochs=2), {"lr_schedule": halving}, "'lr_schedule' and 'warm_up'"),
    ],
)
def test_a_run_without_an_end_of_an_epoch_warns_of_schedules_that_stand_still(
    extension: Extension, options: dict[str, Any], names: str
) -> None:
    tm = tiny_manager(extension, **options)
    with pytest.warns(UserWarning, match="the run ends after 3 batches") as caught:
        own_batches(tm)
    assert [str(warning.message) for warning in caught] == [
        "the run ends after 3 batches of train_on_batch and no epoch, so what counts epochs has stood still: "
        f"{names} (call tm.end_epoch() where an epoch of yours ends)"
    ]


def test_an_extension_that_pauses_does_not_warn() -> None:
    tm = tiny_manager(LRSchedule(halving))
    with warnings.catch_warnings(), tm.run():
        warnings.simplefilter("error")
        with tm.phase("head", without=["lr_schedule"]):
            own_batches(tm)


def test_that_is_told_once_from_the_second_batch_on() -> None:
    tm = tiny_manager(lr_schedule=halving)
    batch = next(iter(tm.train_data or ()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm.train_on_batch(batch)
    with pytest.warns(UserWarning, match="stood still"):
        tm.train_on_batch(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm.train_on_batch(batch)


@pytest.mark.parametrize("extension", [LRSchedule(halving, per="step"), WarmUp(steps=2), FreezeModules("0")])
def test_extensions_that_count_no_epochs_do_not_warn(extension: Extension) -> None:
    tm = tiny_manager(extension)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own_batches(tm)


@pytest.mark.parametrize("extension", [WarmUp(epochs=1), FreezeModules("0", until=1)])
def test_extensions_whose_epochs_are_over_do_not_warn(extension: Extension) -> None:
    tm = tiny_manager(extension)
    own_epochs(tm)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own_batches(tm)


def test_a_run_with_an_epoch_and_batches_after_it_does_not_warn() -> None:
    tm = tiny_manager(lr_schedule=halving)
    with warnings.catch_warnings(), tm.run():
        warnings.simplefilter("error")
        own_epochs_inside(tm)


def own_batches(tm: TrainManager) -> None:
    with tm.run():
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)


def own_epochs_inside(tm: TrainManager) -> None:
    for batch in tm.train_data or ():
        tm.train_on_batch(batch)
    tm.end_epoch()
    for batch in tm.train_data or ():
        tm.train_on_batch(batch)
