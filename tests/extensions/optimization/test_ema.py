from __future__ import annotations

import copy
import gc
import pickle
import warnings
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.extensions.optimization.gan import gan_manager
from tests.support.checkpointing import path_of
from tests.support.ctrl_c import CtrlC
from tests.support.fork_server import ForkServer
from tests.support.rotation import stride
from train_manager import Extension, InputError, SkipStage, TrainManager
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.core.hooks import read_hooks
from train_manager.extensions import EMA, Checkpoints, Constrain
from train_manager.extensions.optimization.ema import Average, decay_after
from train_manager.model.constraints import non_negative
from train_manager.testing import tiny_manager


def weights(tm: TrainManager) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in tm.model.parameters()]


def averages(ema: EMA) -> list[Tensor]:
    return list(ema.average.values())


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(a.equal(b) for a, b in zip(one, other, strict=True))


class Weights(Extension):
    """Record the weights after each step, and in each evaluation."""

    def __init__(self) -> None:
        self.trained: list[list[Tensor]] = []
        self.evaluated: list[list[Tensor]] = []

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        self.trained.append(weights(train_manager))

    def pre_eval_step_batch(self, train_manager: TrainManager) -> None:
        self.evaluated.append(weights(train_manager))


def test_a_model_has_an_average_from_its_first_step_on() -> None:
    tm = tiny_manager(ema := EMA())
    assert not ema.has_average_of(tm.model)
    tm.train_steps(1)

    assert (ema.has_average_of(tm.model), ema.has_average_of(copy.deepcopy(tm.model))) == (True, False)


def test_the_average_follows_the_formula() -> None:
    ema, seen = EMA(decay=0.9), Weights()
    tiny_manager(ema, seen, epochs=3).train()
    average = seen.trained[0]
    for trained in seen.trained[1:]:
        average = [0.9 * old + 0.1 * new for old, new in zip(average, trained, strict=True)]
    for one, other in zip(averages(ema), average, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_decay_of_zero_is_the_trained_weights_themselves() -> None:
    ema = EMA(decay=0)
    tm = tiny_manager(ema)
    tm.train()
    assert same(averages(ema), weights(tm))


def test_the_training_is_the_same_to_the_bit_with_and_without_it() -> None:
    averaged, plain = tiny_manager(EMA(0.5), epochs=3), tiny_manager(epochs=3)
    averaged.train()
    plain.train()
    assert same(weights(averaged), weights(plain))


def test_the_evaluation_uses_the_averaged_weights() -> None:
    ema, seen = EMA(0.9), Weights()
    tm = tiny_manager(ema, seen)
    tm.train()
    assert same(seen.evaluated[-1], averages(ema))
    assert not same(seen.evaluated[-1], weights(tm))


def test_before_the_first_step_the_evaluation_uses_the_models_weights() -> None:
    assert tiny_manager(EMA(0.9)).eval() == tiny_manager().eval()


def test_an_evaluation_that_is_a_run_of_its_own_uses_the_average() -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema)
    tm.train()
    found = tm.eval()
    tm.remove_extension("ema")
    assert found != tm.eval()
    with ema.applied(tm.model):
        assert found == tm.eval()


@pytest.mark.parametrize("stage", ["eval_step_batch", "eval_loss_forward", "eval"])
def test_an_error_in_the_evaluation_restores_the_trained_weights(stage: str) -> None:
    class Fails(Extension):
        def __init__(self) -> None:
            setattr(self, f"post_{stage}", self.fail)

        def fail(self, epoch_num: int) -> None:
            if epoch_num == 1:
                raise ValueError("on purpose")

    seen = Weights()
    tm = tiny_manager(EMA(0.9), seen, Fails())
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    assert same(weights(tm), seen.trained[-1])


def test_a_skipped_step_is_not_averaged() -> None:
    class EverySecond(Extension):
        def pre_train_optimizer_step(self, step_num: int) -> None:
            if step_num % 2:
                raise SkipStage

    ema = EMA(0.9)
    tm = tiny_manager(ema, EverySecond(), epochs=2)
    tm.train()
    assert ema.state_dict()["updates"] == tm.update_num == 3


@pytest.mark.parametrize("reverse", [False, True])
def test_weights_are_averaged_after_a_constraint(reverse: bool) -> None:
    ema, constraint = EMA(decay=0), Constrain(non_negative, "0")
    tm = tiny_manager(*((ema, constraint) if reverse else (constraint, ema)))
    tm.train()
    assert same(averages(ema), weights(tm))
    assert (averages(ema)[0] >= 0).all()


def test_buffers_are_those_of_the_training_and_with_use_buffers_averaged() -> None:
    def trained(use_buffers: bool) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        ema = EMA(0.9, use_buffers=use_buffers)
        tm = tiny_manager(ema, model=nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
        tm.train()
        return ema.average["0.running_mean"], tm.model.get_buffer("0.running_mean")

    copied, of_training = trained(use_buffers=False)
    assert copied.equal(of_training)
    averaged, of_training = trained(use_buffers=True)
    assert not averaged.equal(of_training)


def test_averaged_buffers_are_evaluated_and_the_trained_buffers_restored() -> None:
    seen: list[Tensor] = []
    ema = EMA(0.9, use_buffers=True)
    tm = tiny_manager(ema, model=nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
    mean = tm.model.get_buffer("0.running_mean")
    tm.add_extension(pre_eval_step_batch=lambda: seen.append(mean.clone()))
    tm.train()
    assert seen[-1].equal(ema.average["0.running_mean"])
    assert not seen[-1].equal(mean)


def test_a_backward_pass_after_an_evaluation_still_works() -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema)
    tm.train()
    loss = tm.model(torch.ones(1, 2)).sum()
    tm.eval()
    loss.backward()


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.second.weight = self.first.weight

        def forward(self, inputs: Tensor) -> Any:
            return self.second(self.first(inputs))

    ema = EMA(0.9)
    tm = tiny_manager(ema, model=Tied())
    tm.train()
    assert ema.average["first.weight"] is ema.average["second.weight"]
    assert list(ema.state_dict()["average"]) == ["first.weight", "first.bias", "second.bias"]
    tm.model.load_state_dict(ema.average)
    assert tm.model.get_parameter("first.weight") is tm.model.get_parameter("second.weight")


def test_two_trainings_of_one_epoch_equal_one_of_two() -> None:
    once, twice = EMA(0.9), EMA(0.9)
    tiny_manager(once, epochs=2).train()
    tm = tiny_manager(twice)
    tm.train_epochs(1)
    tm.train_epochs(1)
    assert same(averages(once), averages(twice))


@pytest.mark.parametrize("load_late", [False, True])
def test_a_training_continues_from_its_state(load_late: bool) -> None:
    whole, first, second = EMA(0.9), EMA(0.9), EMA(0.9)
    tiny_manager(whole, epochs=2).train()
    tm = tiny_manager(first)
    tm.train_epochs(1)
    state = first.state_dict()
    tm.train_epochs(1)  # does not change the state from above
    resumed = tiny_manager(second)
    if load_late:  # after there is an average
        resumed.train_epochs(1)
        for average in averages(second):
            average.zero_()
        second.load_state_dict(state)
    else:
        resumed.remove_extension("ema")
        resumed.train_epochs(1)
        resumed.add_extension(second)
        second.load_state_dict(state)
        assert second.state_dict()["updates"] == 3
    resumed.train_epochs(1)
    assert same(averages(second), averages(whole))
    assert second.state_dict()["updates"] == 6


def test_a_loaded_average_is_evaluated_before_the_first_step() -> None:
    first, ema = EMA(0.9), EMA(0.9)
    tm = tiny_manager(first)
    tm.train()
    found = tm.eval()
    state = first.state_dict()
    tm.remove_extension("ema")
    tm.add_extension(ema)
    ema.load_state_dict(state)
    assert tm.eval() == found


def test_the_state_from_before_the_first_step_resets_it() -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema)
    state = ema.state_dict()
    assert state == {"updates": 0, "average": {}, "name": "", "others": {}}
    tm.train()
    ema.load_state_dict(state)
    assert ema.average == {}
    assert ema.state_dict() == state


@pytest.mark.filterwarnings("ignore:train.* has nothing to do")
def test_a_resume_with_nothing_left_to_train_has_the_average(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        tm = tiny_manager(ema := EMA(0.9), Checkpoints(resume=True), train_dir=tmp_path, eval_data=None)
        tm.train()
        found.append(ema.average)

    assert list(found[1]) == list(found[0]) != []
    assert same(list(found[1].values()), list(found[0].values()))


@pytest.mark.filterwarnings("ignore:train.* has nothing to do")
def test_a_resume_after_a_phase_has_the_average_of_its_model(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        tm = tiny_manager(ema := EMA(0.9), Checkpoints(resume=True), train_dir=tmp_path, eval_data=None)
        other = tiny_manager(model=nn.Linear(2, 2))
        with tm.run(), tm.phase("second", model=other.model, optimizer=other.optimizer):
            tm.train()
        found.append(ema.average)

    assert list(found[1]) == ["weight", "bias"]
    assert same(list(found[1].values()), list(found[0].values()))


def test_after_a_resume_the_average_of_a_model_that_is_gone_is_in_no_checkpoint(tmp_path: Path) -> None:
    def program(ema: EMA, epochs: int, *, keeps: bool) -> None:
        kept = []  # the model of the phase is alive as the first program saves its checkpoint, and not after that
        tm = tiny_manager(ema, Checkpoints(save_at="epoch", resume=True), epochs=epochs, train_dir=tmp_path)
        with tm.run():
            with tm.phase("first", model=(model := nn.Linear(2, 2)), epochs=1):
                tm.train()
            kept += [model] if keeps else []
            del model
            tm.train()

    program(EMA(0.9), 1, keeps=True)
    assert [*read_checkpoint(path_of(tmp_path, 6))["extensions"]["ema"]["others"]] == ["phase 1"]
    program(resumed := EMA(0.9), 2, keeps=False)
    assert resumed.state_dict()["others"] == {}


def test_its_state_can_be_loaded_without_running_code(tmp_path: Any) -> None:
    ema = EMA(0.9)
    tiny_manager(ema).train()
    torch.save(ema.state_dict(), tmp_path / "ema.pt")
    assert torch.load(tmp_path / "ema.pt", weights_only=True)["updates"] == 3


def test_another_model_starts_another_average() -> None:
    ema = EMA(0.9)
    tiny_manager(ema).train()
    tiny_manager(ema).train()
    assert ema.state_dict()["updates"] == 3


def test_a_warm_up_begins_with_a_small_decay() -> None:
    assert [decay_after(updates, 0.9) for updates in (0, 8, 1000)] == [0.1, 0.5, 0.9]
    ema, seen = EMA(0.999, warm_up=True), Weights()
    tiny_manager(ema, seen).train()
    average = seen.trained[0]
    for updates, trained in enumerate(seen.trained[1:], start=1):
        decay = decay_after(updates, 0.999)
        average = [decay * old + (1 - decay) * new for old, new in zip(average, trained, strict=True)]
    for one, other in zip(averages(ema), average, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("decay", [-0.1, 1, 2.0, "0.9"])
def test_a_decay_out_of_range_is_refused(decay: Any) -> None:
    with pytest.raises(InputError) as error:
        EMA(decay)
    assert str(error.value) == f"decay must be a number of at least 0 and below 1, but is {decay!r}"


@pytest.mark.parametrize("use_buffers", [False, True])
def test_the_average_is_that_of_torchs_averaged_model_to_the_bit(use_buffers: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    torchs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    note = Extension.of(post_train_step_batch=lambda: torchs.update_parameters(model))
    ema = EMA(0.9, use_buffers=use_buffers)
    tiny_manager(ema, note, model=model, epochs=4).train()
    expected = torchs.module.state_dict()
    assert list(ema.average) == list(expected)
    assert same(averages(ema), list(expected.values()))


def test_the_average_can_be_loaded_into_another_model() -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema, model=nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
    tm.train()
    other = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    other.load_state_dict(ema.average)
    with ema.applied(tm.model):
        assert same(list(other.state_dict().values()), list(tm.model.state_dict().values()))


def test_a_model_that_cannot_be_copied_is_averaged() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    vars(model)["kept"] = model.get_parameter("0.weight") * 2  # a tensor with a graph, which has no deepcopy
    ema = EMA(0.9)
    tiny_manager(ema, model=model).train()
    assert ema.state_dict()["updates"] == 3


# ---- models that change ----------------------------------------------------------------------------------------------


def grow(model: nn.Module) -> dict[nn.Parameter, nn.Parameter]:
    """Give the first layer of the tiny model two units more, and return its new parameters by its old ones."""
    first, last = model.get_submodule("0"), model.get_submodule("2")
    replaced = {}
    for layer, name, shape in ((first, "weight", (10, 2)), (first, "bias", (10,)), (last, "weight", (2, 10))):
        old = layer.get_parameter(name)
        grown = torch.full(shape, 0.125)
        grown[tuple(map(slice, old.shape))] = old.detach()
        replaced[old] = nn.Parameter(grown)
        setattr(layer, name, replaced[old])
    return replaced


def assert_has_grown(ema: EMA, before: dict[str, Tensor]) -> None:
    after = ema.state_dict()["average"]
    assert [tuple(tensor.shape) for tensor in after.values()] == [(10, 2), (10,), (2, 10), (2,)]
    for name, tensor in before.items():
        common = tuple(map(slice, tensor.shape))
        assert after[name][common].equal(tensor)
        after[name][common] = 0.125
        assert bool((after[name] == 0.125).all())


@pytest.mark.filterwarnings("ignore:1 parameter has a gradient and is in no optimizer")
def test_if_a_layer_grows_the_average_continues_with_what_it_has() -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    tm.train()
    before = ema.state_dict()["average"]
    tm.optimizer = torch.optim.SGD([*grow(tm.model).values()], lr=0.0)
    tm.eval()
    tm.train_epochs(1)
    assert_has_grown(ema, before)
    assert ema.state_dict()["updates"] == 6


@pytest.mark.parametrize("told_before", [False, True])
def test_it_is_told_of_replaced_parameters_before_or_after_they_are_in_the_model(told_before: bool) -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema)
    tm.train()
    before = ema.state_dict()["average"]
    replaced = grow(tm.model)
    if told_before:
        for name, old in zip(("0.weight", "0.bias", "2.weight"), replaced, strict=True):
            setattr(tm.model.get_submodule(name[0]), name[2:], old)
    ema.replace_parameters(replaced)
    assert_has_grown(ema, before)


def test_a_new_layer_is_its_own_average_at_first() -> None:
    ema = EMA(0.9)
    tm = tiny_manager(ema)
    tm.train()
    tm.model.append(nn.Linear(2, 2))
    tm.train_epochs(1)
    assert ema.average["3.weight"].equal(tm.model.get_parameter("3.weight"))


def test_a_model_that_is_swapped_and_swapped_back_keeps_its_average() -> None:
    swapped, whole = EMA(0.9), EMA(0.9)
    tiny_manager(whole, epochs=2).train()
    tm, other = tiny_manager(swapped), tiny_manager(EMA(0.9))
    tm.train_epochs(1)
    model, optimizer = tm.model, tm.optimizer
    tm.model, tm.optimizer = other.model, other.optimizer
    tm.train_epochs(1)
    assert swapped.state_dict()["updates"] == 3
    tm.model, tm.optimizer = model, optimizer
    tm.train_epochs(1)
    assert swapped.state_dict()["updates"] == 6
    assert same(averages(swapped), averages(whole))


def test_of_all_models_it_keeps_only_the_last_alive() -> None:
    ema = EMA(0.9)
    models = [nn.Linear(2, 2) for _ in range(2)]
    for model in models:
        tiny_manager(ema, model=model).train()
    seen = list(map(ref, models))
    del model, models
    gc.collect()
    assert seen[0]() is None
    assert list(ema.average) == ["weight", "bias"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tm: pickle.loads(pickle.dumps(tm))])
@pytest.mark.parametrize("begin", ["step", "model"])
def test_a_copied_manager_continues_with_an_average_of_its_own(copied: Any, begin: Any) -> None:
    tm = tiny_manager(EMA(0.9, begin=begin))
    tm.train_epochs(1)
    before = ema_of(tm).state_dict()["average"]
    other = copied(tm)
    other.train_epochs(1)
    assert same(list(ema_of(tm).state_dict()["average"].values()), list(before.values()))
    tm.train_epochs(1)
    assert same(averages(ema_of(tm)), averages(ema_of(other)))
    assert ema_of(other).state_dict()["updates"] == 6


def ema_of(tm: TrainManager) -> EMA:
    ema = tm["ema"]
    assert isinstance(ema, EMA)
    return ema


# ---- one of several optimizers ---------------------------------------------------------------------------------------


def test_with_the_name_of_an_optimizer_only_its_parameters_are_averaged_after_its_steps() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizers = {name: torch.optim.SGD(part.parameters()) for name, part in zip("gd", model, strict=True)}
    tm: Any = SimpleNamespace(model=model, optimizer=optimizers, extensions={}, paused_extensions=frozenset())
    ema = EMA(0.9, optimizer="d")
    ema.pre_run(tm)
    for name in "gdgdg":
        ema.post_train_optimizer_step(tm, optimizers[name], name)
    assert ema.state_dict()["updates"] == 2
    assert list(ema.state_dict()["average"]) == ["1.weight", "1.bias"]
    assert list(ema.average) == ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("pair", [(None, None), ("optimizer", None), ("optimizer", "optimizer")])
def test_two_averages_of_the_same_weights_are_refused_before_the_first_step(pair: tuple[str | None, ...]) -> None:
    tm = tiny_manager(*(EMA(optimizer=name) for name in pair))
    with pytest.raises(InputError) as error:
        tm.train()

    assert str(error.value) == (
        "'ema' and 'ema_2' are both an EMA of one model, which is evaluated with one average\n"
        '  remove_extension("ema"), or in a phase without="ema"; of several optimizers each may have its own: '
        'EMA(optimizer="...")'
    )
    assert tm.step_num == 0


def test_a_phase_may_have_an_average_of_its_own_while_the_other_pauses() -> None:
    first, second = EMA(0.9), EMA(0.5)
    tm = tiny_manager(first)
    tm.train_epochs(1)
    with tm.phase("fast", without="ema", extensions=[second]):
        tm.train_epochs(1)

    assert first.state_dict()["updates"] == second.state_dict()["updates"] == 3


def test_two_averages_of_two_optimizers_are_two() -> None:
    emas = [EMA(0.9, optimizer=name) for name in ("generator", "critic")]
    gan_manager(*emas).train()

    names = [{name.partition(".")[0] for name in ema.state_dict()["average"]} for ema in emas]
    assert names == [{"generator"}, {"critic"}]


def test_an_optimizer_that_does_not_exist_is_refused_before_the_first_step() -> None:
    tm = tiny_manager(EMA(optimizer="generator"))
    with pytest.raises(InputError, match=r"^EMA finds no optimizer 'generator'\n"):
        tm.train()
    assert tm.step_num == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_average_of_a_model_in_16_bits_moves_at_the_default_decay(dtype: torch.dtype) -> None:
    """By a thousandth of the distance in each step, which 16 bits cannot tell apart from nothing."""
    average = Average()
    average.update({"weight": torch.ones(1, dtype=dtype)}, decay=0.999)
    for _ in range(1000):
        average.update({"weight": torch.full((1,), 2.0, dtype=dtype)}, decay=0.999)

    assert average.tensors["weight"].item() == pytest.approx(2 - 0.999**1000, rel=1e-4)


def test_the_average_of_a_model_in_16_bits_has_its_type_for_the_model() -> None:
    model = nn.Linear(2, 2, dtype=torch.bfloat16)
    batches = [(torch.rand(4, 2, dtype=torch.bfloat16), torch.rand(4, 2, dtype=torch.bfloat16))] * 3
    tm = tiny_manager(EMA(), model=model, loss=nn.functional.mse_loss, train_data=batches, eval_data={})
    tm.train()

    assert tm.extension(EMA).average["weight"].dtype == torch.bfloat16


# ---- begun with the model --------------------------------------------------------------------------------------------


def from_model(decay: float = 0.9, **others: Any) -> EMA:
    return EMA(decay, begin="model", **others)


def with_norm() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def by_hand(decay: float, epochs: int) -> nn.Module:
    """Train a copy of the model by hand, with an average as timm's ModelEmaV3 has it, which copies the model first."""
    model, batches = with_norm(), tiny_manager().train_data
    assert batches is not None
    average, optimizer = copy.deepcopy(model).eval(), torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in list(batches) * epochs:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                if old.is_floating_point():
                    old.lerp_(new, weight=1 - decay)
                else:
                    old.copy_(new)
    return average


@pytest.mark.parametrize("single_steps", [False, True])
def test_begun_with_the_model_it_is_the_average_of_a_loop_by_hand_bit_for_bit(single_steps: bool) -> None:
    ema = from_model(use_buffers=True)
    tm = tiny_manager(
        ema, model=with_norm(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), epochs=3
    )
    if single_steps:
        with tm.run():
            for batch in list(tm.train_data or ()) * 3:
                tm.train_on_batch(batch)
    else:
        tm.train()
    expected = {name: one for name, one in by_hand(0.9, 3).state_dict().items() if one.is_floating_point()}

    assert same([ema.average[name] for name in expected], list(expected.values()))


def test_the_training_is_the_same_to_the_bit_with_an_average_that_begins_with_the_model() -> None:
    averaged, plain = tiny_manager(from_model(), epochs=3), tiny_manager(epochs=3)
    averaged.train()
    plain.train()

    assert same(weights(averaged), weights(plain))


def test_a_warm_up_begun_with_the_model_has_no_step_in_it_at_first() -> None:
    ema, seen = from_model(0.999, warm_up=True), Weights()
    tm = tiny_manager(ema, seen)
    average = weights(tm)
    tm.train()
    for updates, trained in enumerate(seen.trained):
        average = [
            torch.lerp(old, new, 1 - decay_after(updates, 0.999)) for old, new in zip(average, trained, strict=True)
        ]

    assert same(averages(ema), average)


def test_begun_with_the_model_of_one_optimizer_it_has_its_parameters_only() -> None:
    model = nn.ModuleDict({"g": nn.Linear(2, 2), "d": nn.Linear(2, 2)})
    before = model.state_dict()["d.weight"].clone()

    class Both(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
            for name in "gd":
                self.update(nn.functional.cross_entropy(model[name](inputs), targets), name)

    ema = from_model(0.5, optimizer="d")
    data = list(tiny_manager().train_data or ())[:1]
    tm = Both(model=model, optimizer=dict.fromkeys("gd", torch.optim.SGD), train_data=data, extensions=[ema])
    tm.train()

    assert list(ema.state_dict()["average"]) == ["d.weight", "d.bias"]
    assert ema.average["d.weight"].equal(before.lerp(model.get_parameter("d.weight").detach(), 0.5))


class NoStep(Extension):
    def pre_train_optimizer_step(self) -> None:
        raise SkipStage


def test_an_average_that_has_no_step_yet_is_in_the_state_and_continues() -> None:
    first, second = from_model(), from_model()
    tm = tiny_manager(first, NoStep())
    before = weights(tm)
    tm.train()
    state = first.state_dict()
    second.load_state_dict(state)
    resumed = tiny_manager(second, model=nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)))
    resumed.train_steps(1)

    assert (state["updates"], list(state["average"])) == (0, ["0.weight", "0.bias", "2.weight", "2.bias"])
    assert same(list(state["average"].values()), before)
    assert same(averages(second), [old.lerp(new, 1 - 0.9) for old, new in zip(before, weights(resumed), strict=True)])


def test_each_model_begins_with_its_own_weights_and_continues_with_its_own_average() -> None:
    ema = from_model()
    tm = tiny_manager(ema)
    other = nn.Linear(2, 2)
    before = [one.detach().clone() for one in other.parameters()]
    tm.train_epochs(1)
    of_first = ema.state_dict()["average"]
    with tm.run():
        with tm.phase("other", model=other, optimizer=lambda of: torch.optim.SGD(of, lr=0.0), epochs=1):
            tm.train()
            assert same(averages(ema), before)
    with ema.applied(tm.model):
        assert same(weights(tm), list(of_first.values()))


def test_the_weights_that_are_there_as_the_training_begins_are_the_first_average() -> None:
    ema = from_model()
    tm = tiny_manager(ema, optimizer=lambda of: torch.optim.SGD(of, lr=0.0))
    tm.eval()
    with tm.run(), torch.no_grad():
        for parameter in tm.model.parameters():
            parameter.fill_(3.0)
        tm.train()

    assert all(bool((one == 3.0).all()) for one in averages(ema))


def test_if_a_layer_grows_before_its_first_step_the_average_keeps_what_it_has() -> None:
    ema = from_model()
    tm = tiny_manager(ema, NoStep())
    tm.train()
    before = ema.state_dict()["average"]
    ema.replace_parameters(grow(tm.model))

    assert_has_grown(ema, before)


def test_a_lazy_parameter_begins_with_its_first_step() -> None:
    ema = from_model()
    tm = tiny_manager(ema, model=nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), eval_data={})
    tm.train_steps(1)

    assert ema.average["0.weight"].equal(tm.model.get_parameter("0.weight"))
    assert not ema.average["1.weight"].equal(tm.model.get_parameter("1.weight"))


def test_a_model_in_16_bits_begins_with_32() -> None:
    ema = from_model()
    model = nn.Linear(2, 2, dtype=torch.bfloat16)
    batches = [(torch.rand(4, 2, dtype=torch.bfloat16), torch.rand(4, 2, dtype=torch.bfloat16))]
    tiny_manager(ema, model=model, loss=nn.functional.mse_loss, train_data=batches, eval_data={}).train()

    assert ema.state_dict()["average"]["weight"].dtype == torch.float32


def test_an_object_that_trains_itself_has_no_average() -> None:
    class Trains:
        def train_step(self, batch: Any) -> Tensor:
            return torch.zeros(())

    ema = from_model()
    with pytest.warns(UserWarning, match="EMA.post_train_optimizer_step"):
        tiny_manager(ema, model=Trains(), loss=None, optimizer=None, eval_data={}).train()

    assert ema.average == {}


def test_only_an_average_that_begins_with_the_model_has_a_hook_of_each_batch() -> None:
    assert [hook.stage for hook in read_hooks(EMA(), "ema") if hook.stage == "train_step_batch"] == []
    assert [hook.kind for hook in read_hooks(from_model(), "ema") if hook.stage == "train_step_batch"] == ["pre"]


def test_another_word_for_the_beginning_is_refused() -> None:
    with pytest.raises(InputError) as error:
        EMA(begin="epoch")  # type: ignore[arg-type]

    assert str(error.value) == "EMA's begin must be 'step' or 'model', but is 'epoch'"


def test_ctrl_c_while_the_average_is_inside_brings_the_trained_weights_back() -> None:
    for at_point in count(1, stride(4)):
        tm = tiny_manager(EMA(decay=0.5))
        tm.train()
        trained = copy.deepcopy(tm.model.state_dict())
        with CtrlC(at_point, inside="_inside") as ctrl_c:
            tm.eval()
        assert all(value.equal(trained[name]) for name, value in tm.model.state_dict().items())
        if not ctrl_c.has_come:
            break
    assert at_point > 6  # at least one for each of the loops


FIRST = "more than half of the average of EMA is still its first weights"


@pytest.mark.parametrize(
    ("ema", "steps", "is_told"),
    [
        (EMA(0.9), 1, False),  # the average is the weights
        (EMA(0.9), 7, True),  # 0.9 ** 6 = 0.53
        (EMA(0.9), 8, False),  # 0.9 ** 7 = 0.48
        (EMA(0.9, begin="model"), 6, True),
        (EMA(0.9, begin="model"), 7, False),
        (EMA(0.999, warm_up=True), 2, False),  # the second step has a decay of 2 / 11
        (EMA(0.999), 30, True),
    ],
    ids=repr,
)
def test_an_average_that_is_mostly_its_first_weights_is_told_as_the_run_ends(
    ema: EMA, steps: int, is_told: bool
) -> None:
    tm = tiny_manager(ema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tm.run():
            tm.train_steps(1)
            if steps > 1:
                tm.train_steps(steps - 1)
            assert tm.findings == []

    assert [(one.check, one.level, one.what) for one in tm.findings] == [("EMA", "warning", FIRST)] * is_told


def test_an_average_that_no_step_has_touched_is_not_told() -> None:
    class SkipsAll(Extension):
        def pre_train_optimizer_step(self) -> None:
            raise SkipStage

    tm = tiny_manager(EMA(begin="model"), SkipsAll())
    tm.train()

    assert tm.findings == []


@pytest.mark.filterwarnings(f"ignore:{FIRST}")
def test_an_evaluation_alone_does_not_tell_of_the_average() -> None:
    tm = tiny_manager(EMA())
    tm.train()
    tm.findings.clear()
    tm.eval()

    assert tm.findings == []


def train_single_steps(count: int) -> None:
    tm = tiny_manager(EMA(0.9))
    for _ in range(count):
        tm.train_steps(1)


def test_of_many_calls_the_last_one_decides_as_the_program_ends_whether_the_average_is_told(
    fork_server: ForkServer,
) -> None:
    assert FIRST not in fork_server.run(train_single_steps, 8).errors
    assert fork_server.run(train_single_steps, 7).errors.count(FIRST) == 1


def test_a_training_that_a_limit_of_time_has_stopped_does_not_tell_of_the_average() -> None:
    class Limit(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            train_manager.stop("the time is over", whole_run=True)

    tm = tiny_manager(EMA(begin="model"), Limit())
    tm.train()

    assert tm.findings == []
