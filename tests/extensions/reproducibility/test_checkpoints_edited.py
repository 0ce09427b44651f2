"""What becomes of a training whose program was edited between two starts: it is exact, told of, or refused."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
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

from tests.support.checkpointing import Fails, interrupted, path_of
from tests.support.training import At, make_batches, weights
from train_manager import Extension, InMemory, InputError, Interleaved, SeededDataLoader, TrainManager, every
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.errors import CheckpointError
from train_manager.extensions import (
    EMA,
    Accumulate,
    Checkpoints,
    ClipGradients,
    Constrain,
    EarlyStopping,
    FreezeModules,
    LRSchedule,
    MixedPrecision,
    TestTimeTraining,
)
from train_manager.model.constraints import max_norm
from train_manager.testing import tiny_manager

DIFFERS = "this program is not the one that wrote the checkpoint; for each difference, one of the two is used:"
MISFITS = "the checkpoint does not fit this training:"


class Branches(nn.Module):
    """Two layers of one shape, which may be defined in another order."""

    a: nn.Linear
    b: nn.Linear

    def __init__(self, *order: str) -> None:
        super().__init__()
        for name in order:
            torch.manual_seed(ord(name))
            setattr(self, name, nn.Linear(2, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.b(torch.tanh(self.a(inputs)))
        return output


class Counting(nn.Linear):
    """A layer with a number that its state does not have."""

    calls = 0

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input)


def calls_of(model: nn.Module) -> int:
    return sum(one.calls for one in model.modules() if isinstance(one, Counting))


def trained(train_dir: Path, *extensions: Any, epochs: int = 1, **options: Any) -> TrainManager[Any]:
    """Train, and resume from what is there."""
    tm = tiny_manager(Checkpoints(resume=True), *extensions, train_dir=train_dir, epochs=epochs, **options)
    tm.train()
    return tm


def list_differences(train_dir: Path, *extensions: Any, epochs: int = 2, **options: Any) -> list[str]:
    """Resume, and return what is told of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(train_dir, *extensions, epochs=epochs, **options)
    texts = [str(one.message) for one in caught]
    assert all(text.startswith(DIFFERS) for text in texts), texts
    return [line for text in texts for line in text.splitlines()[1:]]


def refused(train_dir: Path, *extensions: Any, epochs: int = 2, **options: Any) -> list[str]:
    """Resume, and return why that is refused."""
    with pytest.raises(CheckpointError) as caught:
        trained(train_dir, *extensions, epochs=epochs, **options)
    lines = str(caught.value).splitlines()
    assert lines[0] == MISFITS
    return [line for line in lines if line.startswith("  - ")]


def adamw(**options: Any) -> Callable[[Any], Any]:
    return lambda parameters: AdamW(parameters, **options)


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


def test_as_long_as_the_program_says_another_rate_each_start_tells_it(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=adamw(lr=0.1))

    assert list_differences(tmp_path, optimizer=adamw(lr=0.2)) == list_differences(
        tmp_path, optimizer=adamw(lr=0.2), epochs=3
    )
    assert list_differences(tmp_path, optimizer=adamw(lr=0.1), epochs=4) == []


def test_edited_betas_are_those_of_the_checkpoint_and_told(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=adamw(betas=(0.9, 0.99)))

    assert list_differences(tmp_path, optimizer=adamw(betas=(0.8, 0.99))) == [
        "  - betas of optimizer 'optimizer': program (0.8, 0.99), checkpoint (0.9, 0.99), used (0.9, 0.99)"
    ]


def test_an_option_of_one_of_several_groups_is_told_with_those_of_the_others(tmp_path: Path) -> None:
    def groups(rate: float) -> Callable[[Any], Any]:
        return lambda ps: SGD([{"params": ps[:2]}, {"params": ps[2:], "lr": rate}], lr=0.1)

    trained(tmp_path, optimizer=groups(0.2))
    assert list_differences(tmp_path, optimizer=groups(0.3)) == [
        "  - lr of optimizer 'optimizer': program (0.1, 0.3), checkpoint (0.1, 0.2), used (0.1, 0.2)"
    ]


def test_another_class_of_optimizer_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=AdamW)

    assert refused(tmp_path, optimizer=Adam) == ["  - optimizer 'optimizer' is Adam here, but AdamW in the checkpoint"]


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


@pytest.mark.parametrize("is_extension", [False, True], ids=["the argument", "the extension"])
def test_an_edited_schedule_is_that_of_the_checkpoint_and_told(tmp_path: Path, is_extension: bool) -> None:
    label = "the scheduler of LRSchedule (CosineAnnealingLR)" if is_extension else "lr_schedule of 'optimizer'"

    def scheduled(epochs: int) -> dict[str, Any]:
        make = partial(CosineAnnealingLR, T_max=epochs)
        return {"extensions": [Checkpoints(resume=True), LRSchedule(make)]} if is_extension else {"lr_schedule": make}

    trained(tmp_path, **scheduled(10))
    lines = [line for line in list_differences(tmp_path, **scheduled(20)) if "make" not in line]
    assert lines == [f"  - T_max of {label}: program 20, checkpoint 10, used 10"]


@pytest.mark.parametrize("is_extension", [False, True], ids=["the argument", "the extension"])
def test_another_class_of_schedule_is_refused(tmp_path: Path, is_extension: bool) -> None:
    def scheduled(make: Any) -> dict[str, Any]:
        return {"extensions": [Checkpoints(resume=True), LRSchedule(make)]} if is_extension else {"lr_schedule": make}

    trained(tmp_path, **scheduled(lambda one: StepLR(one, 2)))
    label = "the scheduler of LRSchedule (LambdaLR)" if is_extension else "lr_schedule of 'optimizer'"
    assert refused(tmp_path, **scheduled(lambda one: LambdaLR(one, lambda epoch: 1.0))) == [
        f"  - {label} is LambdaLR here, but StepLR in the checkpoint"
    ]


@pytest.mark.parametrize("is_extension", [False, True], ids=["the argument", "the extension"])
def test_a_schedule_whose_total_is_used_up_is_refused_at_the_load(tmp_path: Path, is_extension: bool) -> None:
    def scheduled(epochs: int) -> dict[str, Any]:
        steps = 3 * epochs if is_extension else epochs
        make = lambda one: OneCycleLR(one, max_lr=0.1, total_steps=steps)  # noqa: E731
        extension = LRSchedule(make, per="step")
        return {"extensions": [Checkpoints(resume=True), extension]} if is_extension else {"lr_schedule": make}

    trained(tmp_path, **scheduled(2), epochs=2)
    label = "the scheduler of LRSchedule (OneCycleLR)" if is_extension else "lr_schedule of 'optimizer'"
    total = 6 if is_extension else 2
    assert refused(tmp_path, **scheduled(4), epochs=4) == [
        f"  - {label} has used up all of its {total} steps in the checkpoint, and there is more to train"
    ]


@pytest.mark.filterwarnings("ignore:lr_schedule steps once per epoch")
@pytest.mark.parametrize("total", [2, 4])
@pytest.mark.parametrize("is_extension", [False, True], ids=["the argument", "the extension"])
def test_a_schedule_with_too_few_steps_for_raised_epochs_is_refused_at_the_load(
    tmp_path: Path, is_extension: bool, total: int
) -> None:
    def scheduled(total: int) -> dict[str, Any]:
        make = lambda one: OneCycleLR(one, max_lr=0.1, total_steps=3 * total if is_extension else total)  # noqa: E731
        extension = LRSchedule(make, per="step")
        return {"extensions": [Checkpoints(resume=True), extension]} if is_extension else {"lr_schedule": make}

    trained(tmp_path, **scheduled(2))
    label = "the scheduler of LRSchedule (OneCycleLR)" if is_extension else "lr_schedule of 'optimizer'"
    left = (
        "3 of its 6 steps left in the checkpoint, and 9"
        if is_extension
        else "1 of its 2 steps left in the checkpoint, and 3"
    )
    assert refused(tmp_path, **scheduled(total), epochs=4) == [f"  - {label} has {left} are to be trained"]


def test_a_schedule_with_fewer_steps_than_epochs_resumes_in_a_program_that_a_hook_ends(tmp_path: Path) -> None:
    def program(*extensions: Extension) -> TrainManager:
        make = lambda one: OneCycleLR(one, max_lr=0.1, total_steps=2)  # noqa: E731
        ends = Extension.of(
            post_train_step_epoch=lambda train_manager: train_manager.epoch_num < 2 or train_manager.stop("done")
        )
        tm = tiny_manager(
            Checkpoints(save_at="epoch", resume=True), ends, *extensions, lr_schedule=make, epochs=9, train_dir=tmp_path
        )
        tm.train()
        return tm

    with pytest.raises(ZeroDivisionError):
        program(Fails(4))
    assert program().step_num == 6


def test_an_edited_peak_that_a_schedule_keeps_in_its_optimizer_is_told(tmp_path: Path) -> None:
    def scheduled(peak: float) -> LRSchedule:
        make = partial(OneCycleLR, max_lr=peak, total_steps=9, cycle_momentum=False)
        return LRSchedule(make, per="step")

    trained(tmp_path, scheduled(0.1))
    label = "the scheduler of LRSchedule (OneCycleLR)"
    assert f"  - max_lr of {label}: program 0.2, checkpoint 0.1, used 0.1" in list_differences(tmp_path, scheduled(0.2))


def test_another_class_inside_of_a_schedule_is_refused(tmp_path: Path) -> None:
    def scheduled(last: Any) -> Callable[[Any], Any]:
        return lambda one: SequentialLR(one, [LinearLR(one), last(one)], milestones=[2])

    trained(tmp_path, lr_schedule=scheduled(lambda one: StepLR(one, 2)))
    assert refused(tmp_path, lr_schedule=scheduled(lambda one: ExponentialLR(one, 0.5))) == [
        "  - lr_schedule of 'optimizer' is SequentialLR(LinearLR, ExponentialLR) here, "
        "but SequentialLR(LinearLR, StepLR) in the checkpoint"
    ]


@pytest.mark.parametrize("is_extension", [False, True], ids=["the argument", "the extension"])
def test_not_strict_the_schedule_of_an_optimizer_that_begins_anew_does_so_too(
    tmp_path: Path, is_extension: bool
) -> None:
    def halving(one: Any) -> Any:
        return StepLR(one, 1, gamma=0.5)

    given: dict[str, Any] = {} if is_extension else {"lr_schedule": halving}
    more = [LRSchedule(halving)] if is_extension else []
    trained(tmp_path, *more, optimizer=adamw(lr=0.1), **given)
    more = [LRSchedule(halving)] if is_extension else []
    tm = tiny_manager(
        Checkpoints(resume=True, strict=False), *more, optimizer=partial(SGD, lr=1.0), train_dir=tmp_path, **given
    )
    with pytest.warns(RuntimeWarning, match="optimizer 'optimizer' is SGD here, but AdamW in the checkpoint"):
        tm.eval()
    assert tm.learning_rates["optimizer"] == (1.0,)


def test_if_nothing_is_left_to_train_a_schedule_that_is_used_up_is_loaded(tmp_path: Path) -> None:
    make = lambda one: OneCycleLR(one, max_lr=0.1, total_steps=2)  # noqa: E731
    trained(tmp_path, lr_schedule=make, epochs=2)
    tm = tiny_manager(Checkpoints(resume=True), lr_schedule=make, epochs=2, train_dir=tmp_path)
    tm.eval()

    assert tm.lr_schedule.last_epoch == 2


# ---- the model -------------------------------------------------------------------------------------------------------


def test_a_new_head_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=AdamW)

    assert refused(tmp_path, model=nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), optimizer=AdamW) == [
        "  - model: 2.weight is 3x8 here, but 2x8 in the checkpoint",
        "  - model: 2.bias is 3 here, but 2 in the checkpoint",
    ]


def test_with_a_new_head_what_fits_of_the_moments_is_kept(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=AdamW)
    first = read_checkpoint(path_of(tmp_path, 3), ["optimizers"])["optimizers"]["optimizer"]["state"]
    head = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    tm = tiny_manager(
        Checkpoints(resume=True, strict=False), model=head, optimizer=AdamW, epochs=2, train_dir=tmp_path, eval_at=()
    )
    with pytest.warns(RuntimeWarning, match="2.weight is 3x8 here, but 2x8 in the checkpoint"):
        tm.eval()
    assert tm.optimizer is not None
    kept: Any = copy.deepcopy([tm.optimizer.state.get(one) for one in tm.model.parameters()])
    tm.train()

    assert [None if one is None else one["exp_avg"].shape for one in kept] == [(8, 2), (8,), None, None]
    assert torch.equal(kept[0]["exp_avg"], first[0]["exp_avg"])


def test_with_a_new_head_the_best_weights_of_the_old_one_are_not_put_back(tmp_path: Path) -> None:
    trained(tmp_path, EarlyStopping(restore_best=True))
    head = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    tm = tiny_manager(
        Checkpoints(resume=True, strict=False),
        EarlyStopping(restore_best=True),
        model=head,
        epochs=2,
        train_dir=tmp_path,
    )
    with pytest.warns(RuntimeWarning, match="2.weight is 3x8 here, but 2x8 in the checkpoint"):
        tm.train()
    assert tm.step_num == 6


def test_with_a_new_head_its_average_begins_anew(tmp_path: Path) -> None:
    trained(tmp_path, EMA())
    head: Any = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    tm = tiny_manager(Checkpoints(resume=True, strict=False), ema := EMA(), model=head, train_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match="2.weight is 3x8 here, but 2x8 in the checkpoint"):
        tm.eval()

    assert ema.average["2.weight"].equal(head[2].weight)
    assert not ema.average["0.weight"].equal(head[0].weight)


def test_parameters_that_are_frozen_by_an_edit_get_the_gradients_of_the_checkpoint_and_that_is_told(
    tmp_path: Path,
) -> None:
    def frozen() -> nn.Module:
        model = Branches("a", "b")
        model.a.requires_grad_(False)
        return model

    trained(tmp_path, model=Branches("a", "b"))
    assert list_differences(tmp_path, model=frozen()) == [
        "  - requires_grad of model a.weight, a.bias: program False, checkpoint True, used True"
    ]


def test_what_an_extension_of_this_program_freezes_stays_frozen(tmp_path: Path) -> None:
    trained(tmp_path, model=Branches("a", "b"))
    model = Branches("a", "b")
    assert list_differences(tmp_path, FreezeModules("a"), model=model) == [
        "  - extension 'freeze_modules': program FreezeModules, checkpoint none, used FreezeModules"
    ]
    assert weights(model.a).equal(weights(read_into(Branches("a", "b"), path_of(tmp_path, 3)).a))


def test_so_does_what_an_own_hook_freezes_as_the_run_opens(tmp_path: Path) -> None:
    trained(tmp_path, model=Branches("a", "b"))
    model = Branches("a", "b")
    freeze = At("pre_run", lambda train_manager: train_manager.model.a.requires_grad_(False))

    assert list_differences(tmp_path, freeze, model=model) == [
        "  - requires_grad of model a.weight, a.bias: program False, checkpoint True, used False"
    ]
    assert weights(model.a).equal(weights(read_into(Branches("a", "b"), path_of(tmp_path, 3)).a))


def test_what_an_extension_had_frozen_is_trained_without_it(tmp_path: Path) -> None:
    trained(tmp_path, FreezeModules("a"), model=Branches("a", "b"))
    model = Branches("a", "b")
    assert list_differences(tmp_path, model=model) == [
        "  - extension 'freeze_modules': program none, checkpoint FreezeModules, used none"
    ]
    assert not weights(model.a).equal(weights(Branches("a", "b").a))


class Halfway(Extension):
    """Freezes a layer after a step, and sets its norm to eval mode."""

    def post_train_step_batch(self, train_manager: TrainManager[Any], step_num: int) -> None:
        if step_num == 1:
            train_manager.model[0].requires_grad_(False)
            train_manager.model[1].eval()


def test_what_a_hook_has_frozen_and_set_to_eval_mode_is_so_after_a_resume(tmp_path: Path) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    cut, whole = model(), tiny_manager(Halfway(), model=model(), epochs=2)
    interrupted(tmp_path, 2, Checkpoints(every(1)), Halfway(), model=model(), epochs=2)
    trained(tmp_path, Halfway(), model=cut, epochs=2)
    whole.train()

    assert weights(cut).equal(weights(whole.model))


def test_a_program_that_freezes_between_its_calls_is_not_told_of_a_difference(tmp_path: Path) -> None:
    def program(calls: int) -> Tensor:
        tm = tiny_manager(Checkpoints(resume=True), model=Branches("a", "b"), train_dir=tmp_path)
        tm.model.a.requires_grad_(False)
        tm.train_steps(2)
        tm.model.a.requires_grad_(True)
        for _ in range(calls):
            tm.train_steps(2)
        return weights(tm.model.a)

    assert not program(1).equal(program(2))


def read_into(model: Any, path: Path) -> Any:
    model.load_state_dict(read_checkpoint(path, ["model"])["model"])
    return model


def test_another_precision_of_the_weights_is_that_of_the_program_and_told(tmp_path: Path) -> None:
    trained(tmp_path, model=Branches("a", "b"))
    batches = [(inputs.double(), targets) for inputs, targets in make_batches(3)]
    lines = list_differences(
        tmp_path, model=Branches("a", "b").double(), train_data=batches, eval_data={"valid": batches}
    )

    assert lines == [
        "  - dtype of model a.weight, a.bias, b.weight, b.bias: program float64, checkpoint float32, used float64"
    ]


@pytest.mark.whole  # torch.compile is imported for seconds
@pytest.mark.parametrize("is_compiled", [False, True], ids=["compiled into plain", "plain into compiled"])
def test_compiled_and_plain_models_load_into_each_other(tmp_path: Path, is_compiled: bool) -> None:
    def model(compiled: bool) -> Any:
        made = Branches("a", "b")
        return torch.compile(made, backend="eager") if compiled else made

    first = trained(tmp_path, EMA(decay=0.5), model=model(not is_compiled), optimizer=AdamW)
    whole = trained(tmp_path / "whole", EMA(decay=0.5), model=model(False), optimizer=AdamW, epochs=2)
    assert first.step_num == 3
    tm = trained(tmp_path, ema := EMA(decay=0.5), model=model(is_compiled), optimizer=AdamW, epochs=2)

    assert weights(tm.model).equal(weights(whole.model))
    average = whole.extensions["ema"].average
    assert all(torch.equal(one, average[name.replace("_orig_mod.", "")]) for name, one in ema.average.items())


@pytest.mark.whole
@pytest.mark.parametrize("is_compiled", [False, True], ids=["compiled into plain", "plain into compiled"])
def test_extensions_that_name_modules_resume_in_a_compiled_or_plain_model_as_if_it_were_the_other(
    tmp_path: Path, is_compiled: bool
) -> None:
    def model(compiled: bool) -> Any:
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), Counting(4, 2))
        return torch.compile(made, backend="eager") if compiled else made

    def program(folder: Path, compiled: bool, epochs: int) -> TrainManager:
        named = FreezeModules("1"), Constrain(max_norm, "0", limit=0.5), TestTimeTraining(modules=["1"])
        return trained(folder, *named, model=model(compiled), epochs=epochs)

    whole = program(tmp_path / "whole", False, 2)
    program(tmp_path / "resumed", not is_compiled, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = program(tmp_path / "resumed", is_compiled, 2)

    assert weights(resumed.model).equal(weights(whole.model))
    assert calls_of(resumed.model) == calls_of(whole.model) > 0


def test_a_number_of_a_compiled_model_comes_back_in_the_plain_one(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", model=Counting(2, 2), epochs=2)
    trained(tmp_path, model=torch.compile(Counting(2, 2), backend="eager"))
    resumed = trained(tmp_path, model=Counting(2, 2), epochs=2)

    assert calls_of(resumed.model) == calls_of(whole.model) > 0


# ---- extensions, and the rest ----------------------------------------------------------------------------------------


def test_another_argument_of_an_extension_is_that_of_the_program_and_told(tmp_path: Path) -> None:
    trained(tmp_path, EMA(decay=0.9))

    assert list_differences(tmp_path, EMA(decay=0.5)) == [
        "  - decay of extension 'ema': program 0.5, checkpoint 0.9, used 0.5"
    ]


def test_an_extension_that_is_added_begins_here_and_is_told(tmp_path: Path) -> None:
    trained(tmp_path)

    assert list_differences(tmp_path, EMA(decay=0.5)) == ["  - extension 'ema': program EMA, checkpoint none, used EMA"]


def test_an_extension_without_a_state_that_is_removed_is_told(tmp_path: Path) -> None:
    trained(tmp_path, ClipGradients(1.0))

    assert list_differences(tmp_path) == [
        "  - extension 'clip_gradients': program none, checkpoint ClipGradients, used none"
    ]


def test_one_with_a_state_that_is_removed_or_renamed_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, EMA())
    lost = ["  - the checkpoint has a state of extension 'ema', which the training lacks"]

    assert refused(tmp_path) == lost
    assert refused(tmp_path, {"average": EMA()}) == lost


def test_a_state_is_not_poured_into_an_extension_of_another_class(tmp_path: Path) -> None:
    trained(tmp_path, {"one": EMA()})

    assert refused(tmp_path, {"one": EarlyStopping()}) == [
        "  - extension 'one' is EarlyStopping here, but EMA in the checkpoint"
    ]
    one: Any = {"one": EarlyStopping()}
    tm = tiny_manager(Checkpoints(resume=True, strict=False), one, train_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match="extension 'one' is EarlyStopping here, but EMA in the checkpoint"):
        tm.eval()


def test_another_seed_is_told(tmp_path: Path) -> None:
    trained(tmp_path, seed=0)

    assert list_differences(tmp_path, seed=1) == [
        "  - seed: program 1, checkpoint 0, used the random states of the checkpoint"
    ]


def test_another_precision_of_the_training_is_that_of_the_program_and_told(tmp_path: Path) -> None:
    trained(tmp_path, MixedPrecision(torch.float16))

    dtypes = "program torch.bfloat16, checkpoint torch.float16, used torch.bfloat16"
    assert list_differences(tmp_path, MixedPrecision(torch.bfloat16)) == [
        f"  - dtype of extension 'mixed_precision': {dtypes}"
    ]


def loader(batch_size: int = 4, examples: int = 20, num_workers: int = 0) -> SeededDataLoader:
    inputs = torch.rand(examples, 2, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, (inputs.sum(dim=1) > 1).long())
    return SeededDataLoader(data, batch_size=batch_size, shuffle=True, seed=0, num_workers=num_workers)


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (
            {"batch_size": 5},
            "SeededDataLoader has batch_size=5, but its state was saved within an epoch with batch_size=4",
        ),
        ({"examples": 28}, "SeededDataLoader has 28 examples, but its state was saved with 20"),
    ],
    ids=["another batch size", "another dataset"],
)
def test_within_an_epoch_other_data_are_refused(tmp_path: Path, edited: dict[str, int], expected: str) -> None:
    interrupted(tmp_path, 2, Checkpoints(every(1)), train_data=loader())

    with pytest.raises(InputError, match=expected):
        trained(tmp_path, train_data=loader(**edited))


@pytest.mark.parametrize("edited", [{"batch_size": 5}, {"examples": 28}], ids=["another batch size", "another dataset"])
def test_after_an_epoch_other_data_are_those_of_the_program(tmp_path: Path, edited: dict[str, int]) -> None:
    trained(tmp_path, train_data=loader())

    assert trained(tmp_path, train_data=(data := loader(**edited)), epochs=2).step_num == 5 + len(data)


@pytest.mark.filterwarnings("ignore:train_data .SeededDataLoader.. num_workers")
def test_another_number_of_workers_is_exact(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, Checkpoints(every(1)), train_data=loader())
    resumed = trained(tmp_path, train_data=loader(num_workers=2))

    assert weights(resumed.model).equal(weights(trained(tmp_path / "whole", train_data=loader()).model))


def test_fewer_epochs_train_nothing_and_that_is_told(tmp_path: Path) -> None:
    trained(tmp_path, epochs=2)

    with pytest.warns(UserWarning, match="nothing to do: 2 of 1 epochs are done"):
        trained(tmp_path, epochs=1)


def test_the_program_as_it_was_is_told_of_nothing(tmp_path: Path) -> None:
    given: dict[str, Any] = {"optimizer": adamw(lr=0.1), "lr_schedule": lambda one: StepLR(one, 2), "seed": 0}
    trained(tmp_path, EMA(decay=0.5), EarlyStopping("valid/loss"), **given)

    assert list_differences(tmp_path, EMA(decay=0.5), EarlyStopping("valid/loss"), **given) == []


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


@pytest.mark.parametrize("steps", [3, 2], ids=["between epochs", "within an epoch"])
@pytest.mark.parametrize("data", DATA)
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
