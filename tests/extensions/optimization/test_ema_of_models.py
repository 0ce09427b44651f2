"""The averages of several models, and of models that change; and of one of several optimizers."""

from __future__ import annotations

import copy
import gc
import pickle
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

from tests.extensions.optimization.ema_averages import assert_has_grown, averages, grow, same
from tests.extensions.optimization.gan import gan_manager
from train_manager import InputError, TrainManager
from train_manager.extensions import EMA
from train_manager.extensions.optimization.ema import Average
from train_manager.testing import tiny_manager

# ---- models that change ----------------------------------------------------------------------------------------------


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
