from __future__ import annotations

import contextlib
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.ctrl_c import CtrlC
from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import FreezeModules
from train_manager.testing import tiny_manager


def branched() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.trunk = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.1))
    model.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    return model


def state(tm: TrainManager, part: str) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in tm.model.get_submodule(part).state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(one[name].equal(other[name]) for name in one)


def frozen_manager(*others: Extension, **options: Any) -> TrainManager:
    freeze = FreezeModules("trunk", until=options.pop("until", None))
    return tiny_manager(freeze, *others, model=branched(), **options)


def not_trainable(tm: TrainManager) -> list[str]:
    return [name for name, parameter in tm.model.named_parameters() if not parameter.requires_grad]


def test_a_frozen_part_stays_the_same_to_the_bit_with_its_statistics() -> None:
    tm = frozen_manager(epochs=3)
    trunk, head = state(tm, "trunk"), state(tm, "head")
    tm.train()
    assert same(trunk, state(tm, "trunk"))
    for name, before in head.items():
        assert not before.equal(state(tm, "head")[name]), name


def test_weight_decay_and_momentum_do_not_change_a_frozen_part() -> None:
    tm = frozen_manager(optimizer=lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5), epochs=2)
    trunk = state(tm, "trunk")
    tm.train()
    assert same(trunk, state(tm, "trunk"))


def test_momentum_from_before_does_not_change_a_frozen_part() -> None:
    tm = tiny_manager(model=branched(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    tm.train_epochs(1)
    trunk = state(tm, "trunk")
    tm.add_extension(FreezeModules("trunk"))
    tm.train_epochs(1)
    assert same(trunk, state(tm, "trunk"))


def test_dropout_in_a_frozen_part_stays_in_train_mode() -> None:
    modes: list[list[bool]] = []

    class Modes(Extension):
        def pre_train_model_forward(self, train_manager: TrainManager) -> None:
            modes.append([module.training for module in train_manager.model.get_submodule("trunk").children()])

    frozen_manager(Modes()).train()
    assert modes == [[True, False, True]] * 3


def test_frozen_modules_stay_in_eval_mode_after_model_train() -> None:
    class Meddles(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            train_manager.model.train()

    tm = frozen_manager(Meddles(), epochs=2)
    trunk = state(tm, "trunk")
    tm.train()
    assert same(trunk, state(tm, "trunk"))


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_run_everything_is_trainable_again(fails: bool) -> None:
    class Fails(Extension):
        def post_train_backward(self, step_num: int) -> None:
            if fails and step_num == 1:
                raise ValueError("on purpose")

    tm = frozen_manager(Fails())
    tm.model.get_parameter("trunk.0.bias").requires_grad_(False)
    if fails:
        with pytest.raises(ValueError, match="on purpose"):
            tm.train()
    else:
        tm.train()
    assert not_trainable(tm) == ["trunk.0.bias"]
    assert all(module.training for module in tm.model.modules())


def test_it_unfreezes_when_until_is_reached() -> None:
    tm = frozen_manager(until=2, epochs=3)
    states: list[dict[str, Tensor]] = [state(tm, "trunk")]
    tm.add_extension(post_train_step_epoch=lambda: states.append(state(tm, "trunk")))
    tm.train()
    assert same(states[0], states[2])
    for name, before in states[2].items():
        assert not before.equal(states[3][name]), name


def test_until_counts_the_epochs_of_all_trainings() -> None:
    tm = frozen_manager(until=1)
    trunk = state(tm, "trunk")
    tm.train_epochs(1)
    assert same(trunk, state(tm, "trunk"))
    tm.train_epochs(1)
    assert not same(trunk, state(tm, "trunk"))


def test_after_until_a_training_begins_with_nothing_frozen() -> None:
    required_grad: list[bool] = []
    tm = frozen_manager(until=1)
    tm.train_epochs(1)
    tm.add_extension(pre_train=lambda: required_grad.extend(p.requires_grad for p in tm.model.parameters()))
    tm.train_epochs(1)
    assert required_grad
    assert all(required_grad)


def test_until_counts_the_epochs_of_trainings_in_one_run() -> None:
    tm = frozen_manager(until=1)
    trunk = state(tm, "trunk")
    with tm.run():
        tm.train_epochs(1)
        assert same(trunk, state(tm, "trunk"))
        tm.train_epochs(1)
    assert not same(trunk, state(tm, "trunk"))


def test_added_to_an_open_run_it_freezes_the_next_training() -> None:
    tm = tiny_manager(model=branched())
    trunk = state(tm, "trunk")
    with tm.run():
        tm.add_extension(FreezeModules("trunk"))
        tm.train()
    assert same(trunk, state(tm, "trunk"))
    assert all(parameter.requires_grad for parameter in tm.model.parameters())


def test_after_removal_it_does_not_freeze() -> None:
    tm = frozen_manager()
    tm.train_epochs(1)
    tm.remove_extension("freeze_modules")
    trunk = state(tm, "trunk")
    tm.train_epochs(1)
    assert not same(trunk, state(tm, "trunk"))


def test_removed_in_the_middle_of_a_run_it_unfreezes_at_the_end() -> None:
    tm = frozen_manager()
    with tm.run():
        tm.remove_extension("freeze_modules")
        tm.train()
    assert all(parameter.requires_grad for parameter in tm.model.parameters())


def test_a_module_itself_can_be_given() -> None:
    model = branched()
    tm = tiny_manager(FreezeModules(model.get_submodule("head.1")), model=model)
    before = state(tm, "head.1")
    tm.train()
    assert same(before, state(tm, "head.1"))


def test_a_misspelt_module_is_refused_before_the_first_step_with_the_nearest_name() -> None:
    tm = tiny_manager(FreezeModules("trunc"), model=branched())
    with pytest.raises(InputError) as error:
        tm.train()
    assert str(error.value) == (
        "FreezeModules finds no module 'trunc' in the model (Sequential)\n  did you mean 'trunk'?"
    )
    assert tm.step_num == 0


@pytest.mark.parametrize("until", [0, 1.5, "2"])
def test_an_invalid_until_is_refused(until: Any) -> None:
    with pytest.raises(InputError) as error:
        FreezeModules("trunk", until=until)
    assert str(error.value) == f"until must be a whole number of at least 1, but is {until!r}"


@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_anywhere_in_the_clean_up_leaves_a_model_that_the_end_of_the_run_unfreezes(fails: bool) -> None:
    def fail() -> None:
        if fails:
            raise ValueError("on purpose")

    for at_point in count(1):
        tm = frozen_manager(Extension.of(post_train_step_batch=fail))
        tm.model.get_parameter("trunk.0.bias").requires_grad_(False)
        with contextlib.suppress(ValueError), CtrlC(at_point, inside="_unfreeze") as ctrl_c:
            tm.train()
        assert not_trainable(tm) == ["trunk.0.bias"]
        if not ctrl_c.has_come:
            break
    assert at_point > 4  # at least one for each parameter


def test_what_ctrl_c_has_left_frozen_is_not_taken_for_what_was_before() -> None:
    """Added to an open run, it freezes around each training, and the end of the run does not restore what is left."""
    for at_point in range(2, 6):
        tm = tiny_manager(model=branched())
        with CtrlC(at_point, inside="_unfreeze") as ctrl_c, tm.run():
            tm.add_extension(FreezeModules("trunk"))
            tm.train()
        assert ctrl_c.has_come
        tm.train_epochs(1)
        assert not_trainable(tm) == []


def test_between_two_trainings_of_one_run_the_modules_stay_frozen() -> None:
    tm = frozen_manager()
    with tm.run():
        tm.train_epochs(1)
        assert not_trainable(tm) == ["trunk.0.weight", "trunk.0.bias", "trunk.1.weight", "trunk.1.bias"]
    assert not_trainable(tm) == []


def test_ctrl_c_while_it_freezes_leaves_nothing_frozen() -> None:
    for at_point in count(1):
        tm = frozen_manager()
        with CtrlC(at_point, inside="_freeze") as ctrl_c:
            tm.train()
        assert not_trainable(tm) == []
        if not ctrl_c.has_come:
            break
    assert at_point > 4
