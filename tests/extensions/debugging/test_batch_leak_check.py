from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.rotation import in_turn
from train_manager import Extension, InputError, TrainManager, every
from train_manager.extensions import EMA, Accumulate, BatchLeakCheck, MixedPrecision
from train_manager.telling.findings import FoundError
from train_manager.testing import Recorder, tiny_manager


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def leaking() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), Centred(), nn.Linear(8, 2))


def with_noise() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2))


WHAT = "what the model returns for example 1 depends on other examples"


def test_a_leak_in_the_first_batch_is_one_warning_that_names_the_module() -> None:
    with pytest.warns(UserWarning, match=WHAT) as warned:
        tiny_manager(BatchLeakCheck(), model=leaking(), epochs=2).train()

    assert len(warned) == 1
    assert "1 (Centred)" in str(warned[0].message)


def test_a_clean_training_warns_of_nothing_and_has_its_answer() -> None:
    check = BatchLeakCheck()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny_manager(check).train()

    assert check.findings is not None
    assert check.findings.is_clean


def test_then_raise_ends_the_step_with_an_error() -> None:
    tm = tiny_manager(BatchLeakCheck(then="raise"), model=leaking())
    with pytest.raises(FoundError, match=WHAT) as raised:
        tm.train()

    assert raised.value.findings[0].where == "1 (Centred)"
    assert tm.step_num == 1


def test_what_then_may_be_is_said() -> None:
    with pytest.raises(InputError) as raised:
        BatchLeakCheck(then="stop")  # type: ignore[arg-type]

    assert str(raised.value) == "then must be 'warn' or 'raise', but is 'stop'"


class RandomStates(Extension):
    """Note the random states after each step."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def post_train_step_batch(self) -> None:
        self.seen.append((random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()))


OTHERS: dict[str, Callable[[], list[Extension]]] = {
    "alone": lambda: [],
    "Accumulate": lambda: [Accumulate(2)],
    "EMA": lambda: [EMA(0.9)],
    "MixedPrecision": lambda: [MixedPrecision(torch.bfloat16, device_type="cpu")],
}


@pytest.mark.parametrize(("name", "seed"), in_turn(OTHERS, [None, 3]))
def test_the_training_is_bit_for_bit_that_without_the_check(name: str, seed: int | None) -> None:
    def trained(*extensions: Extension) -> tuple[dict[str, Tensor], list[Any], Any]:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        states = RandomStates()
        tm = tiny_manager(*extensions, *OTHERS[name](), states, model=with_noise(), epochs=2, seed=seed)
        tm.train()
        return tm.model.state_dict(), states.seen, tm.history.by_epoch()

    without, with_check = trained(), trained(BatchLeakCheck(every(2)))

    assert all(torch.equal(without[0][name], with_check[0][name]) for name in without[0])
    assert without[1] == with_check[1]
    assert [row["loss"] for row in without[2]] == [row["loss"] for row in with_check[2]]


def test_it_looks_where_its_schedule_says() -> None:
    looked: list[int] = []

    class Noting(BatchLeakCheck):
        def _look(self, train_manager: TrainManager, batch: Any) -> Any:
            looked.append(train_manager.step_num)
            return super()._look(train_manager, batch)

    tiny_manager(Noting(every(2)), epochs=2).train()

    assert looked == [2, 4, 6]


def test_it_looks_at_the_forward_pass_of_an_own_train_batch() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            self.update(nn.functional.cross_entropy(model(inputs), targets))

    tiny = tiny_manager(model=leaking())
    tm = Own(
        model=tiny.model,
        optimizer=tiny.optimizer,
        train_data=tiny.train_data,
        extensions=[BatchLeakCheck()],
    )
    with pytest.warns(UserWarning, match=WHAT):
        tm.train()


def test_where_an_own_train_batch_calls_the_model_in_another_way_it_says_that_it_could_not_look() -> None:
    class Parts(TrainManager):
        def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
            self.update(nn.functional.cross_entropy(self.model["only"](inputs), targets))

    model = nn.ModuleDict({"only": nn.Linear(2, 2)})
    tiny = tiny_manager()
    given: Any = {"optimizer": torch.optim.SGD, "train_data": tiny.train_data, "extensions": [BatchLeakCheck()]}
    tm = Parts(model=model, **given)
    tm.train()

    assert [str(one) for one in tm.findings] == [
        "note: could not look: model_forward failed with NotImplementedError: Module [ModuleDict] is missing the "
        'required "forward" function, while train_batch calls the model in another way: override it too '
        "[leak-check-blind]"
    ]


def test_its_runs_open_no_stage() -> None:
    def opened(*extensions: Extension) -> list[str]:
        recorder = Recorder()
        tiny_manager(recorder, *extensions).train()
        return list(recorder.stages)

    assert opened(BatchLeakCheck()) == opened()


def test_of_a_model_that_trains_itself_it_says_that_it_could_not_look() -> None:
    class Itself:
        def train_step(self, batch: Any) -> Tensor:
            return torch.ones(())

    check = BatchLeakCheck()
    tiny_manager(check, model=Itself(), loss=None, optimizer=None, eval_data={}).train()

    assert str(check.findings) == "batch leak  could not look: Itself trains itself"


def test_modules_that_may_mix_examples_are_allowed_by_name() -> None:
    check = BatchLeakCheck(allow=["1"])
    tiny_manager(check, model=leaking()).train()

    assert check.findings is not None
    assert check.findings.is_clean
