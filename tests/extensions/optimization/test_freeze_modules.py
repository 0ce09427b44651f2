from __future__ import annotations

import contextlib
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.ctrl_c import CtrlC
from tests.support.rotation import stride
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


class ByHand:
    """The hand-written loop that a training must equal, from its seed on."""

    def __init__(self, model: nn.Module | None = None) -> None:
        torch.manual_seed(1)
        self.model = branched() if model is None else model
        torch.manual_seed(1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def train(self, epochs: int, *frozen: str, off: bool = False) -> None:
        modules = [self.model.get_submodule(name) for name in frozen]
        for parameter in (parameter for module in modules for parameter in module.parameters()):
            parameter.requires_grad_(False)
        for inputs, targets in epochs * list(tiny_manager().train_data or ()):
            self.model.train()
            for inner in (inner for module in modules for inner in module.modules()):
                if off or isinstance(inner, nn.BatchNorm1d):
                    inner.eval()
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(inputs), targets).backward()
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.requires_grad_(True)

    def assert_same(self, model: nn.Module) -> None:
        for name, value in self.model.state_dict().items():
            assert value.equal(model.state_dict()[name]), name


def test_a_frozen_part_stays_the_same_to_the_bit_with_its_statistics() -> None:
    tm = frozen_manager(epochs=3)
    trunk, head = state(tm, "trunk"), state(tm, "head")
    tm.train()
    assert same(trunk, state(tm, "trunk"))
    for name, before in head.items():
        assert not before.equal(state(tm, "head")[name]), name


def test_momentum_from_before_does_not_change_a_frozen_part() -> None:
    tm = tiny_manager(model=branched(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    tm.train_epochs(1)
    trunk = state(tm, "trunk")
    tm.add_extension(FreezeModules("trunk"))
    tm.train_epochs(1)
    assert same(trunk, state(tm, "trunk"))


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


def test_added_to_an_open_run_it_freezes_the_next_training() -> None:
    tm = tiny_manager(model=branched())
    trunk = state(tm, "trunk")
    with tm.run():
        tm.add_extension(FreezeModules("trunk"))
        tm.train()
    assert same(trunk, state(tm, "trunk"))
    assert all(parameter.requires_grad for parameter in tm.model.parameters())


def test_removed_after_an_evaluation_the_rest_equals_a_hand_written_loop_without_it_to_the_bit() -> None:
    def remove(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 3:
            train_manager.remove_extension("freeze_modules")

    tm = frozen_manager(Extension.of(post_eval=remove), epochs=2)
    torch.manual_seed(1)
    tm.train()

    by_hand = ByHand()
    by_hand.train(1, "trunk")
    by_hand.train(1)
    by_hand.assert_same(tm.model)


def test_removed_in_a_phase_it_does_not_freeze_again_as_the_phase_ends() -> None:
    tm = frozen_manager()
    with tm.run():
        with tm.phase("other"):
            tm.remove_extension("freeze_modules")
        assert not_trainable(tm) == []


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

    for at_point in count(1, stride(4)):
        tm = frozen_manager(Extension.of(post_train_step_batch=fail))
        tm.model.get_parameter("trunk.0.bias").requires_grad_(False)
        with contextlib.suppress(ValueError), CtrlC(at_point, inside="_unfreeze") as ctrl_c:
            tm.train()
        assert not_trainable(tm) == ["trunk.0.bias"]
        if not ctrl_c.has_come:
            break
    assert at_point > 4  # at least one for each parameter


def test_ctrl_c_while_it_freezes_leaves_nothing_frozen() -> None:
    for at_point in count(1, stride(4)):
        tm = frozen_manager()
        with CtrlC(at_point, inside="_freeze") as ctrl_c:
            tm.train()
        assert not_trainable(tm) == []
        if not ctrl_c.has_come:
            break
    assert at_point > 4


# ---- dropout -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", ["on", "off"])
def test_with_and_without_dropout_it_equals_a_hand_written_loop_to_the_bit(dropout: str) -> None:
    tm = tiny_manager(FreezeModules("trunk", dropout=dropout), model=branched(), epochs=2)
    torch.manual_seed(1)
    tm.train()
    by_hand = ByHand()
    by_hand.train(2, "trunk", off=dropout == "off")
    by_hand.assert_same(tm.model)


def test_without_dropout_all_modes_are_as_before_after_the_run() -> None:
    tm = tiny_manager(FreezeModules("trunk", dropout="off"), model=branched())
    tm.model.get_submodule("trunk.2").eval()
    tm.train()
    assert [name for name, module in tm.model.named_modules() if not module.training] == ["trunk.2"]


@pytest.mark.parametrize("dropout", ["of", False, None])
def test_another_value_of_dropout_is_refused(dropout: Any) -> None:
    with pytest.raises(InputError) as error:
        FreezeModules("trunk", dropout=dropout)
    assert str(error.value) == f"dropout must be 'on' or 'off', but is {dropout!r}"


# ---- a layer that grows ----------------------------------------------------------------------------------------------


def grow(tm: TrainManager, *, tells_first: bool = False) -> dict[str, Tensor]:
    """Replace the whole trunk, and return the state of the new one."""
    old, new = tm.model.get_submodule("trunk"), branched().get_submodule("trunk")
    replaced = dict(zip(old.parameters(), new.parameters(), strict=True))
    if tells_first:
        tm.replace_parameters(replaced)
    tm.model.trunk = new
    if not tells_first:
        tm.replace_parameters(replaced)
    return state(tm, "trunk")


@pytest.mark.parametrize("tells_first", [False, True])
def test_what_takes_the_place_of_frozen_parameters_is_frozen(tells_first: bool) -> None:
    tm = frozen_manager()
    with tm.run():
        tm.train_epochs(1)
        grown = grow(tm, tells_first=tells_first)
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)
        assert same(grown, state(tm, "trunk"))
        tm.train_epochs(1)
    assert same(grown, state(tm, "trunk"))
    assert not_trainable(tm) == []


def test_a_module_that_was_replaced_by_hand_is_frozen_from_the_next_epoch_on() -> None:
    tm = frozen_manager()
    with tm.run():
        tm.model.trunk = branched().get_submodule("trunk")
        tm.optimizer = torch.optim.SGD(tm.model.parameters(), lr=0.5)
        before = state(tm, "trunk")
        tm.train_epochs(1)
    assert same(before, state(tm, "trunk"))


# ---- phases ----------------------------------------------------------------------------------------------------------


def other_model() -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential()
    model.trunk = nn.Linear(2, 4)
    model.head = nn.Linear(4, 2)
    return model


def test_in_a_phase_with_a_model_of_its_own_that_one_is_frozen_and_then_the_one_around_it() -> None:
    tm, other = frozen_manager(epochs=2), other_model()
    trunk, others = state(tm, "trunk"), [parameter.clone() for parameter in other.parameters()]
    with tm.run():
        with tm.phase("other", model=other):
            tm.train_epochs(1)
            assert not_trainable(tm) == ["trunk.weight", "trunk.bias"]
        assert not_trainable(tm) == ["trunk.0.weight", "trunk.0.bias", "trunk.1.weight", "trunk.1.bias"]
        tm.train()
    changed = [not one.equal(before) for one, before in zip(other.parameters(), others, strict=True)]
    assert changed == [False, False, True, True]
    assert same(trunk, state(tm, "trunk"))
    assert all(parameter.requires_grad for parameter in (*tm.model.parameters(), *other.parameters()))


def test_a_module_that_was_given_itself_is_frozen_in_any_model_that_has_it() -> None:
    model = branched()
    head = model.get_submodule("head")
    tm = tiny_manager(FreezeModules(head), model=model)
    before = state(tm, "head")
    with tm.run(), tm.phase("other", model=nn.Sequential(nn.Linear(2, 4), head)):
        tm.train_epochs(1)
    assert same(before, state(tm, "head"))


def test_what_the_model_of_a_phase_lacks_is_told_once_and_the_rest_is_frozen() -> None:
    tm = tiny_manager(FreezeModules("head", "trunk.1"), model=branched())

    def train_in_phases() -> None:
        for _ in range(2):
            with tm.phase("other", model=other_model()):
                tm.train_epochs(1)
                assert not_trainable(tm) == ["head.weight", "head.bias"]

    with tm.run(), pytest.warns(UserWarning, match="FreezeModules") as told:
        train_in_phases()
    what = "FreezeModules finds no module 'trunk.1' in the model (Sequential)"
    assert [str(warning.message) for warning in told] == [f"{what}, and leaves it out while this model is trained"]
    assert told[0].filename == __file__


def test_in_a_phase_whose_model_trains_itself_it_rests_and_says_so() -> None:
    class Own:
        def train_step(self, batch: Any) -> Tensor:
            return torch.tensor(1.0)

    tm = frozen_manager()
    trunk = state(tm, "trunk")
    what = "FreezeModules works on a torch.nn.Module, but the model is a Own, which trains itself, and leaves it out"

    def train_in_phases() -> None:
        with tm.phase("own", model=Own(), optimizer=None, eval_data=None):
            tm.train_epochs(1)
            with tm.phase("inner", without=["freeze_modules"]):
                pass

    with tm.run():
        with pytest.warns(UserWarning, match=what):
            train_in_phases()
        tm.train_epochs(1)
    assert same(trunk, state(tm, "trunk"))


def test_until_counts_the_epochs_of_the_training_and_of_each_phase_by_themselves() -> None:
    seen: list[tuple[str | None, int, bool]] = []

    def look(train_manager: TrainManager, phase_name: str | None, epoch_num: int, batch_num: int) -> None:
        if batch_num == 1:
            seen.append((phase_name, epoch_num, not_trainable(train_manager) == []))

    tm = frozen_manager(Extension.of(post_train_step_batch=look), until=2)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("inner"):
            tm.train_epochs(4)
        assert len(not_trainable(tm)) == 4
        tm.train_epochs(2)
        with tm.phase("last"):
            assert len(not_trainable(tm)) == 4
            tm.train_epochs(1)
        assert not_trainable(tm) == []
    inner = [("inner", 0, False), ("inner", 1, False), ("inner", 2, True), ("inner", 3, True)]
    assert seen == [(None, 0, False), *inner, (None, 1, False), (None, 2, True), ("last", 0, False)]


# ---- pauses ----------------------------------------------------------------------------------------------------------


def test_while_it_pauses_all_is_trained_as_in_a_hand_written_loop_to_the_bit() -> None:
    tm = frozen_manager()
    torch.manual_seed(1)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("all", without=["freeze_modules"]):
            tm.train_epochs(2)
        tm.train_epochs(1)
    by_hand = ByHand()
    by_hand.train(1, "trunk")
    by_hand.train(2)
    by_hand.train(1, "trunk")
    by_hand.assert_same(tm.model)


def test_a_pause_within_a_phase_with_a_model_of_its_own_freezes_that_one_again() -> None:
    tm, other = frozen_manager(), other_model()
    trunk = state(tm, "trunk")
    with tm.run():
        with tm.phase("other", model=other):
            with tm.phase("all of it", without=["freeze_modules"]):
                assert not_trainable(tm) == []
            assert not_trainable(tm) == ["trunk.weight", "trunk.bias"]
        tm.train_epochs(1)
        assert len(not_trainable(tm)) == 4
    assert same(trunk, state(tm, "trunk"))
    assert all(parameter.requires_grad for parameter in (*tm.model.parameters(), *other.parameters()))


# ---- two of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("trunk", "trunk.0"), ("trunk.0", "trunk")])
def test_what_two_of_them_freeze_stays_frozen_until_both_let_go(names: tuple[str, str]) -> None:
    freeze = [FreezeModules(name, until=1 if name == "trunk" else None) for name in names]
    tm = tiny_manager(*freeze, model=branched(), epochs=2)
    torch.manual_seed(1)
    tm.train()
    by_hand = ByHand()
    by_hand.train(1, "trunk")
    by_hand.train(1, "trunk.0")
    by_hand.assert_same(tm.model)
    assert not_trainable(tm) == []
