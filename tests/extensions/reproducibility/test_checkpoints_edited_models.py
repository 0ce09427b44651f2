"""A program whose model or extensions are edited before it resumes."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import (
    StepLR,
)
from torch.utils.data import TensorDataset

from tests.extensions.reproducibility.edited_programs import (
    Branches,
    Counting,
    adamw,
    calls_of,
    list_differences,
    refused,
    trained,
)
from tests.support.checkpointing import interrupted, path_of
from tests.support.training import At, make_batches, weights
from train_manager import Extension, InputError, SeededDataLoader, TrainManager, every
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.extensions import (
    EMA,
    Checkpoints,
    ClipGradients,
    Constrain,
    EarlyStopping,
    FreezeModules,
    MixedPrecision,
    TestTimeTraining,
)
from train_manager.model.constraints import max_norm
from train_manager.testing import tiny_manager

# ---- the model -------------------------------------------------------------------------------------------------------


def with_a_new_head() -> Any:
    """The tiny model, of one class more."""
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_new_head_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=AdamW)

    assert refused(tmp_path, model=with_a_new_head(), optimizer=AdamW) == [
        "  - model: 2.weight is 3x8 here, but 2x8 in the checkpoint",
        "  - model: 2.bias is 3 here, but 2 in the checkpoint",
    ]


def test_with_a_new_head_what_fits_of_the_moments_is_kept(tmp_path: Path) -> None:
    trained(tmp_path, optimizer=AdamW)
    first = read_checkpoint(path_of(tmp_path, 3), ["optimizers"])["optimizers"]["optimizer"]["state"]
    tm = tiny_manager(
        Checkpoints(resume=True, strict=False),
        model=with_a_new_head(),
        optimizer=AdamW,
        epochs=2,
        train_dir=tmp_path,
        eval_at=(),
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
    tm = tiny_manager(
        Checkpoints(resume=True, strict=False),
        EarlyStopping(restore_best=True),
        model=with_a_new_head(),
        epochs=2,
        train_dir=tmp_path,
    )
    with pytest.warns(RuntimeWarning, match="2.weight is 3x8 here, but 2x8 in the checkpoint"):
        tm.train()
    assert tm.step_num == 6


def test_with_a_new_head_its_average_begins_anew(tmp_path: Path) -> None:
    trained(tmp_path, EMA())
    head = with_a_new_head()
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
