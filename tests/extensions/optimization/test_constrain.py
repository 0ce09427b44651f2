from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import Constrain
from train_manager.model.constraints import max_norm, non_negative, row_norms, unit_norm
from train_manager.testing import tiny_manager


def norms(tm: TrainManager, name: str) -> Tensor:
    return row_norms(tm.model.get_parameter(name)).detach()


class AfterEachStep(Extension):
    def __init__(self) -> None:
        self.norms: list[float] = []

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        self.norms.append(norms(train_manager, "0.weight").max().item())


def test_other_weights_are_not_changed() -> None:
    tm = tiny_manager(Constrain(non_negative, "0"), epochs=2)
    tm.train()
    assert (tm.model.get_parameter("0.weight") >= 0).all()
    assert (tm.model.get_parameter("2.weight") < 0).any()
    assert (tm.model.get_parameter("0.bias") < 0).any()


def test_another_parameter_can_be_named() -> None:
    tm = tiny_manager(Constrain(non_negative, "0", parameter="bias"))
    tm.train()
    assert (tm.model.get_parameter("0.bias") >= 0).all()
    assert (tm.model.get_parameter("0.weight") < 0).any()


def test_a_pattern_leaves_out_modules_without_such_a_parameter() -> None:
    tm = tiny_manager(Constrain(unit_norm, "*"))
    tm.train()
    assert torch.allclose(norms(tm, "0.weight"), torch.ones(()))
    assert torch.allclose(norms(tm, "2.weight"), torch.ones(()))


def test_a_second_constraint_of_one_weight_is_refused_before_the_first_step() -> None:
    tm = tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "*"))
    with pytest.raises(InputError) as error:
        tm.train()
    assert str(error.value).partition("\n  in hook")[0] == (
        "two Constrain extensions, of non_negative and max_norm, have the weight '0.weight'\n"
        "  give a weight one constraint: write a function that applies both in order"
    )
    assert tm.step_num == 0


def test_two_constraints_of_different_parameters_of_one_module_are_allowed() -> None:
    tiny_manager(Constrain(unit_norm, "0"), Constrain(non_negative, "0", parameter="bias")).train()


def test_added_to_an_open_run_it_constrains_from_the_next_step() -> None:
    tm = tiny_manager()
    with tm.run():
        tm.add_extension(Constrain(max_norm, "0", limit=0.1))
        tm.train()
    assert norms(tm, "0.weight").max() < 0.1 + 1e-6


def test_a_module_without_the_parameter_is_refused() -> None:
    with pytest.raises(InputError, match="Constrain finds no parameter 'weight' in '1'\n  name modules"):
        tiny_manager(Constrain(max_norm, "0", "1")).train()


@pytest.mark.parametrize(("made", "text"), [(torch.zeros(3), r"the shape \(3,\)"), (None, "a NoneType")])
def test_a_function_that_does_not_keep_the_shape_is_refused(made: Any, text: str) -> None:
    def wrong(weight: Tensor) -> Any:
        return made

    with pytest.raises(InputError, match=rf"wrong must keep the shape \(8, 2\) of '0.weight', but returned {text}"):
        tiny_manager(Constrain(wrong, "0")).train()


def test_fn_must_be_a_function() -> None:
    with pytest.raises(InputError) as error:
        Constrain("max_norm", "0")  # type: ignore[arg-type]
    assert str(error.value) == (
        "fn must be a function of a weight, but is 'max_norm'\n  give a function: Constrain(max_norm, \"fc\")"
    )


def test_a_weight_that_modules_share_is_constrained_once_in_each_step() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    weight = model.get_parameter("0.weight")
    for name in "12":
        model.get_submodule(name).weight = weight
    shapes: list[tuple[int, ...]] = []

    def halved(weight: Tensor) -> Tensor:
        shapes.append(tuple(weight.shape))
        return weight / 2

    before = weight.detach().clone()
    constrain = Constrain(halved, "*", "2", model[1])
    tiny_manager(constrain, model=model, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0)).train()
    assert shapes == [(2, 2)] * 3
    assert weight.equal(before / 8)
    assert list(constrain.parameters_of(model)) == ["0.weight"]


def test_two_constraints_of_a_weight_that_modules_share_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.get_submodule("1").weight = model.get_parameter("0.weight")
    with pytest.raises(InputError, match=r"two Constrain extensions.*have the weight '0.weight'"):
        tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "*"), model=model).train()


# ---- the model that is trained now -----------------------------------------------------------------------------------


def grow(tm: TrainManager, *, tells_first: bool = False) -> None:
    """Replace the first layer and the last by wider ones."""
    old, new = tm.model, nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 2))
    replaced = dict(zip(old.parameters(), new.parameters(), strict=True))
    if tells_first:
        tm.replace_parameters(replaced)
    old[0], old[2] = new[0], new[2]
    if not tells_first:
        tm.replace_parameters(replaced)


@pytest.mark.parametrize("tells_first", [False, True])
def test_a_layer_that_grows_within_an_epoch_is_constrained_from_the_next_step_on(tells_first: bool) -> None:
    def grow_once(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 1:
            grow(train_manager, tells_first=tells_first)

    seen = AfterEachStep()
    tm = tiny_manager(Extension.of(pre_train_step_batch=grow_once), seen, Constrain(max_norm, "0", limit=0.3))
    tm.train()
    assert len(norms(tm, "0.weight")) == 9
    assert max(seen.norms) < 0.3 + 1e-6


def test_a_module_that_was_replaced_by_hand_is_constrained_from_the_next_epoch_on() -> None:
    tm = tiny_manager(Constrain(max_norm, "0", limit=0.3))
    with tm.run():
        tm.model[0] = nn.Linear(2, 8)
        tm.optimizer = torch.optim.SGD(tm.model.parameters(), lr=0.5)
        tm.train_epochs(1)
    assert norms(tm, "0.weight").max() < 0.3 + 1e-6


def test_in_a_phase_with_a_model_of_its_own_that_one_is_constrained_as_in_a_hand_written_loop_to_the_bit() -> None:
    def model() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))

    tm, other = tiny_manager(Constrain(max_norm, "0", limit=0.3)), model()
    before = tm.model.get_parameter("0.weight").detach().clone()
    with tm.run(), tm.phase("other", model=other):
        tm.train_epochs(2)
    assert tm.model.get_parameter("0.weight").equal(before)

    by_hand = model()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.5)
    for inputs, targets in 2 * list(tm.train_data or ()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(by_hand(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            weight = by_hand.get_parameter("0.weight")
            weight.copy_(max_norm(weight, limit=0.3))
    assert all(one.equal(two) for one, two in zip(other.parameters(), by_hand.parameters(), strict=True))


def test_after_a_phase_the_model_around_it_is_constrained_also_in_a_batch_of_no_epoch() -> None:
    tm = tiny_manager(Constrain(max_norm, "0", limit=0.1))
    with tm.run():
        with tm.phase("other", model=nn.Sequential(nn.Linear(2, 2))):
            tm.train_epochs(1)
        tm.train_on_batch(next(iter(tm.train_data or ())))
    assert norms(tm, "0.weight").max() < 0.1 + 1e-6


def test_a_module_that_was_given_itself_is_constrained_in_any_model_that_has_it() -> None:
    tm = tiny_manager()
    layer = tm.model[0]
    tm.add_extension(Constrain(max_norm, layer, limit=0.1))
    with tm.run(), tm.phase("other", model=nn.Sequential(nn.Linear(2, 2), layer)):
        tm.train_epochs(1)
    assert norms(tm, "0.weight").max() < 0.1 + 1e-6


def test_what_the_model_of_a_phase_lacks_is_told_once_and_the_rest_is_constrained() -> None:
    other = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU())
    tm = tiny_manager(Constrain(unit_norm, "0", "2"))

    def train_in_phases() -> None:
        for _ in range(2):
            with tm.phase("other", model=other):
                tm.train_epochs(2)

    with tm.run(), pytest.warns(UserWarning, match="Constrain") as told:
        train_in_phases()
    what = "Constrain finds no parameter 'weight' in '2', and leaves it out while this model is trained"
    assert [str(warning.message) for warning in told] == [what]
    assert torch.allclose(row_norms(other.get_parameter("0.weight")), torch.ones(()))


def test_a_constraint_of_a_phase_may_take_the_place_of_one_that_pauses_in_it() -> None:
    tm = tiny_manager(Constrain(max_norm, "0", limit=0.1))
    with tm.run():
        with tm.phase("other", without=["constrain"], extensions={"other": Constrain(unit_norm, "0")}):
            tm.train_epochs(1)
        assert torch.allclose(norms(tm, "0.weight"), torch.ones(()))
        tm.train_epochs(1)
    assert norms(tm, "0.weight").max() < 0.1 + 1e-6


def test_two_constraints_that_meet_in_the_model_of_a_phase_are_refused_before_its_first_step() -> None:
    shared = nn.Linear(2, 2)
    tm = tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "2"))
    with tm.run(), tm.phase("other", model=nn.Sequential(shared, nn.ReLU(), shared)):
        with pytest.raises(InputError, match=r"two Constrain extensions.*have the weight '0.weight'"):
            tm.train_epochs(1)
    assert tm.step_num == 0
