"""An average that begins with the model, and what is told of one that is mostly its first weights."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.extensions.optimization.ema_averages import Weights, assert_has_grown, averages, grow, same, weights
from tests.support.fork_server import ForkServer
from train_manager import Extension, InputError, SkipStage, TrainManager
from train_manager.extensions import EMA
from train_manager.extensions.optimization.ema import decay_after
from train_manager.testing import tiny_manager


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


def test_another_word_for_the_beginning_is_refused() -> None:
    with pytest.raises(InputError) as error:
        EMA(begin="epoch")  # type: ignore[arg-type]

    assert str(error.value) == "EMA's begin must be 'step' or 'model', but is 'epoch'"


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
