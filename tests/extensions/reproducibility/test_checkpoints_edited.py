"""What becomes of a training whose program was edited between two starts: it is exact, told of, or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from tests.extensions.reproducibility.edited_programs import (
    Branches,
    adamw,
    list_differences,
    refused,
    trained,
)
from tests.support.checkpointing import interrupted
from tests.support.rotation import in_turn
from tests.support.training import weights
from train_manager import InMemory, Interleaved, SeededDataLoader, every
from train_manager.errors import CheckpointError
from train_manager.extensions import (
    Accumulate,
    Checkpoints,
    LRSchedule,
)
from train_manager.testing import tiny_manager

# ---- optimizers ------------------------------------------------------------------------------------------------------


def test_another_class_is_refused_also_after_the_epochs_were_raised_twice(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    trained(tmp_path, epochs=2)

    assert refused(tmp_path, epochs=3, optimizer=adamw(lr=0.1)) == [
        "  - optimizer 'optimizer' is AdamW here, but SGD in the checkpoint"
    ]


def test_another_schedule_is_refused_also_after_the_epochs_were_raised_twice(tmp_path: Path) -> None:
    for epochs in (1, 2):
        trained(tmp_path, LRSchedule(lambda optimizer: CosineAnnealingLR(optimizer, T_max=3)), epochs=epochs)

    assert refused(tmp_path, LRSchedule(lambda optimizer: StepLR(optimizer, 2)), epochs=3) == [
        "  - the scheduler of LRSchedule (StepLR) is StepLR here, but CosineAnnealingLR in the checkpoint"
    ]


def test_another_class_is_refused_in_a_program_of_other_calls(tmp_path: Path) -> None:
    def run(*steps: int, **options: Any) -> None:
        tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path, **options)
        for number in steps:
            tm.train_steps(number)

    run(2, 3)
    with pytest.raises(CheckpointError, match="optimizer 'optimizer' is AdamW here, but SGD in the checkpoint"):
        run(7, optimizer=adamw(lr=0.1))
    with pytest.warns(RuntimeWarning, match="extension 'accumulate': program Accumulate, checkpoint none"):
        run(7, extensions={"checkpoints": Checkpoints(resume=True), "accumulate": Accumulate(2)})


def test_an_edited_rate_is_that_of_the_checkpoint_and_told(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=adamw(lr=0.1))

    assert list_differences(tmp_path, optimizer=adamw(lr=0.2)) == [
        "  - lr of optimizer 'optimizer': program 0.2, checkpoint 0.1, used 0.1"
    ]


def test_so_is_one_that_is_edited_after_the_optimizer_was_made(tmp_path: Path) -> None:
    def program(rate: float, epochs: int) -> None:
        tm = tiny_manager(Checkpoints(resume=True), epochs=epochs, train_dir=tmp_path)
        tm.optimizer.param_groups[0]["lr"] = rate
        tm.train()

    program(0.1, epochs=1)
    with pytest.warns(RuntimeWarning, match="lr of optimizer 'optimizer': program 0.2, checkpoint 0.1, used 0.1"):
        program(0.2, epochs=2)


def test_an_option_of_one_of_several_groups_is_told_with_those_of_the_others(tmp_path: Path) -> None:
    def groups(rate: float) -> Callable[[Any], Any]:
        return lambda ps: SGD([{"params": ps[:2]}, {"params": ps[2:], "lr": rate}], lr=0.1)

    trained(tmp_path, optimizer=groups(0.2))
    assert list_differences(tmp_path, optimizer=groups(0.3)) == [
        "  - lr of optimizer 'optimizer': program (0.1, 0.3), checkpoint (0.1, 0.2), used (0.1, 0.2)"
    ]


def test_not_strict_another_class_of_optimizer_begins_anew(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=AdamW)
    tm = tiny_manager(Checkpoints(resume=True, strict=False), optimizer=Adam, train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="optimizer 'optimizer' is Adam here, but AdamW in the checkpoint"):
        tm.eval()
    assert not tm.optimizer.state


def test_equal_layers_in_another_order_keep_their_moments(tmp_path: Path) -> None:
    def training(folder: str, *orders: str) -> Tensor:
        for epochs, order in enumerate(orders, 1):
            tm = trained(tmp_path / folder, model=Branches(*order), optimizer=Adam, epochs=epochs)
        return weights(tm.model.a)

    assert training("edited", "ab", "ba", "ab").equal(training("same", "ab", "ab", "ab"))


@pytest.mark.filterwarnings("ignore:2 parameters have a gradient and are in no optimizer")
def test_a_parameter_that_another_one_has_replaced_in_the_optimizer_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, model=Branches("a", "b"), optimizer=lambda ps: SGD(ps[:2], momentum=0.9))
    assert refused(tmp_path, model=Branches("a", "b"), optimizer=lambda ps: SGD(ps[2:], momentum=0.9)) == [
        "  - optimizer 'optimizer' trains b.weight, b.bias here, but a.weight, a.bias in the checkpoint"
    ]


# ---- schedules -------------------------------------------------------------------------------------------------------


either_way = pytest.mark.parametrize("is_extension", [False, True], ids=["the argument", "the extension"])


def scheduled(make: Any, is_extension: bool, per: str = "epoch") -> dict[str, Any]:
    """Return what gives a training its schedule."""
    if is_extension:
        return {"extensions": [Checkpoints(resume=True), LRSchedule(make, per=per)]}
    return {"lr_schedule": make}


def label_of(name: str, is_extension: bool) -> str:
    return f"the scheduler of LRSchedule ({name})" if is_extension else "lr_schedule of 'optimizer'"


@either_way
def test_an_edited_schedule_is_that_of_the_checkpoint_and_told(tmp_path: Path, is_extension: bool) -> None:
    before, edited = (scheduled(partial(CosineAnnealingLR, T_max=epochs), is_extension) for epochs in (10, 20))
    trained(tmp_path, **before)

    label = label_of("CosineAnnealingLR", is_extension)
    lines = [line for line in list_differences(tmp_path, **edited) if "make" not in line]
    assert lines == [f"  - T_max of {label}: program 20, checkpoint 10, used 10"]


@either_way
def test_another_class_of_schedule_is_refused(tmp_path: Path, is_extension: bool) -> None:
    trained(tmp_path, **scheduled(lambda one: StepLR(one, 2), is_extension))

    assert refused(tmp_path, **scheduled(lambda one: LambdaLR(one, lambda epoch: 1.0), is_extension)) == [
        f"  - {label_of('LambdaLR', is_extension)} is LambdaLR here, but StepLR in the checkpoint"
    ]


def one_cycle(epochs: int, is_extension: bool) -> dict[str, Any]:
    """Return a schedule for so many epochs: with the extension, of three steps each."""
    steps = 3 * epochs if is_extension else epochs
    return scheduled(lambda one: OneCycleLR(one, max_lr=0.1, total_steps=steps), is_extension, per="step")


@either_way
def test_a_schedule_whose_total_is_used_up_is_refused_at_the_load(tmp_path: Path, is_extension: bool) -> None:
    trained(tmp_path, **one_cycle(2, is_extension), epochs=2)

    label, total = label_of("OneCycleLR", is_extension), 6 if is_extension else 2
    assert refused(tmp_path, **one_cycle(4, is_extension), epochs=4) == [
        f"  - {label} has used up all of its {total} steps in the checkpoint, and there is more to train"
    ]


@pytest.mark.filterwarnings("ignore:lr_schedule steps once per epoch")
@pytest.mark.parametrize("total", [2, 4])
@either_way
def test_a_schedule_with_too_few_steps_for_raised_epochs_is_refused_at_the_load(
    tmp_path: Path, is_extension: bool, total: int
) -> None:
    trained(tmp_path, **one_cycle(2, is_extension))

    label, (left, of, more) = label_of("OneCycleLR", is_extension), (3, 6, 9) if is_extension else (1, 2, 3)
    assert refused(tmp_path, **one_cycle(total, is_extension), epochs=4) == [
        f"  - {label} has {left} of its {of} steps left in the checkpoint, and {more} are to be trained"
    ]


def test_an_edited_peak_that_a_schedule_keeps_in_its_optimizer_is_told(tmp_path: Path) -> None:
    def with_peak(peak: float) -> LRSchedule:
        return LRSchedule(partial(OneCycleLR, max_lr=peak, total_steps=9, cycle_momentum=False), per="step")

    trained(tmp_path, with_peak(0.1))
    told = f"  - max_lr of {label_of('OneCycleLR', True)}: program 0.2, checkpoint 0.1, used 0.1"
    assert told in list_differences(tmp_path, with_peak(0.2))


def test_another_class_inside_of_a_schedule_is_refused(tmp_path: Path) -> None:
    def followed_by(last: Any) -> Callable[[Any], Any]:
        return lambda one: SequentialLR(one, [LinearLR(one), last(one)], milestones=[2])

    trained(tmp_path, lr_schedule=followed_by(lambda one: StepLR(one, 2)))
    assert refused(tmp_path, lr_schedule=followed_by(lambda one: ExponentialLR(one, 0.5))) == [
        "  - lr_schedule of 'optimizer' is SequentialLR(LinearLR, ExponentialLR) here, "
        "but SequentialLR(LinearLR, StepLR) in the checkpoint"
    ]


@either_way
def test_not_strict_the_schedule_of_an_optimizer_that_begins_anew_does_so_too(
    tmp_path: Path, is_extension: bool
) -> None:
    def halving() -> dict[str, Any]:
        return scheduled(lambda one: StepLR(one, 1, gamma=0.5), is_extension)

    trained(tmp_path, **halving(), optimizer=adamw(lr=0.1))
    given = halving()
    given["extensions"] = [Checkpoints(resume=True, strict=False), *given.get("extensions", [])[1:]]
    tm = tiny_manager(**given, optimizer=partial(SGD, lr=1.0), train_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match="optimizer 'optimizer' is SGD here, but AdamW in the checkpoint"):
        tm.eval()
    assert tm.learning_rates["optimizer"] == (1.0,)


# ---- programs of several calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        ((0.1, 0.2, 2), []),
        ((0.3, 0.2, 2), []),  # of a call that is over
        ((0.1, 0.3, 2), ["  - lr of optimizer 'optimizer': program 0.3, checkpoint 0.2, used 0.2"]),
        ((0.1, None, 4), ["  - lr of optimizer 'optimizer': program 0.1, checkpoint 0.2, used 0.2"]),
        ((0.1, 0.3, 4), []),  # which is not of the checkpoint any more
    ],
    ids=["as it was", "of a call that is over", "of the call that continues", "another call", "of another call"],
)
def test_what_a_program_sets_between_its_calls_is_compared_at_the_place_of_the_checkpoint(
    tmp_path: Path, edited: tuple[float, float | None, int], expected: list[str]
) -> None:
    def program(first: float, second: float | None, steps: int) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tm = tiny_manager(Checkpoints(resume=True), optimizer=adamw(lr=first), train_dir=tmp_path)
            tm.train_steps(2)
            if second is not None:
                tm.optimizer = AdamW(tm.model.parameters(), lr=second)
            tm.train_steps(steps)
        texts = [str(one.message) for one in caught if "program" in str(one.message)]
        return [line for text in texts for line in text.splitlines()[1:]]

    program(0.1, 0.2, 2)
    assert program(*edited) == expected


def test_within_a_window_equal_layers_in_another_order_keep_their_gradients(tmp_path: Path) -> None:
    interrupted(tmp_path / "edited", 1, Checkpoints(every(1)), Accumulate(3), model=Branches("a", "b"))
    edited = trained(tmp_path / "edited", Accumulate(3), model=Branches("b", "a"))
    whole = trained(tmp_path / "whole", Accumulate(3), model=Branches("a", "b"))
    assert weights(edited.model.a).equal(weights(whole.model.a))


# ---- other data ------------------------------------------------------------------------------------------------------


def rows_of(seed: int, count: int = 12) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return torch.rand(count, 2, generator=chance), torch.randint(0, 2, (count,), generator=chance)


DATA: dict[str, Callable[..., Any]] = {
    "in memory": lambda *given: InMemory(*rows_of(*given), batch_size=4, seed=0),
    "a loader of a dataset": lambda *given: DataLoader(TensorDataset(*rows_of(*given)), batch_size=4, shuffle=True),
    "a seeded loader": lambda *given: SeededDataLoader(TensorDataset(*rows_of(*given)), batch_size=4, seed=0),
    "sets in turns": lambda *given: Interleaved({"a": InMemory(*rows_of(*given), batch_size=4, seed=0)}),
    "a dataset of datasets": lambda *given: DataLoader(ConcatDataset([TensorDataset(*rows_of(*given))]), batch_size=4),
    "batches": lambda *given: list(zip(*(part.split(4) for part in rows_of(*given)), strict=True)),
}
OTHER_ROWS = "has other rows than in the program that wrote step-0000000000"


@pytest.mark.parametrize(("data", "steps"), in_turn(DATA, [3, 2]))  # between epochs, and within one
def test_other_examples_of_the_same_number_are_told(tmp_path: Path, data: str, steps: int) -> None:
    tiny_manager(Checkpoints(), train_data=DATA[data](1), train_dir=tmp_path).train_steps(steps)
    tm = tiny_manager(Checkpoints(resume=True), train_data=DATA[data](2), train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match=OTHER_ROWS):
        tm.eval()
    assert tm.step_num == steps


@pytest.mark.parametrize("data", DATA)
def test_of_the_same_examples_and_of_another_number_between_epochs_nothing_is_told(tmp_path: Path, data: str) -> None:
    for given in ((1,), (1,), (2, 20)):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            tiny_manager(Checkpoints(resume=True), train_data=DATA[data](*given), train_dir=tmp_path).train_epoch()


def test_data_of_a_phase_are_not_taken_for_others(tmp_path: Path) -> None:
    for epochs in (1, 2):
        tm = tiny_manager(Checkpoints(resume=True), train_data=DATA["in memory"](1), train_dir=tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            tm.train()
            with tm.phase("fine-tuning", train_data=DATA["in memory"](2), epochs=epochs):
                tm.train()
    assert tm.step_num == 9
