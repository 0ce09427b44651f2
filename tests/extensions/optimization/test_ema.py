from __future__ import annotations

import copy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.extensions.optimization.ema_averages import Weights, averages, same, weights
from tests.support.checkpointing import path_of
from tests.support.ctrl_c import CtrlC
from tests.support.rotation import stride
from train_manager import Extension, InMemory, InputError, SkipStage
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.extensions import EMA, Checkpoints, Constrain, EarlyStopping
from train_manager.extensions.optimization.ema import decay_after
from train_manager.model.constraints import non_negative
from train_manager.testing import tiny_manager


def test_a_model_has_an_average_from_its_first_step_on() -> None:
    tm = tiny_manager(ema := EMA())
    assert not ema.has_average_of(tm.model)
    tm.train_steps(1)

    assert (ema.has_average_of(tm.model), ema.has_average_of(copy.deepcopy(tm.model))) == (True, False)


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


def test_a_decay_may_be_a_function_of_the_steps_in_the_average() -> None:
    by_function, by_word = EMA(lambda n: min(0.9, (1 + n) / (10 + n))), EMA(0.9, warm_up=True)
    tiny_manager(by_function, epochs=3).train()
    tiny_manager(by_word, epochs=3).train()

    assert same([*by_function.average.values()], [*by_word.average.values()])


def test_a_resumed_average_goes_on_with_the_number_of_its_steps(tmp_path: Path) -> None:
    numbers: list[int] = []

    def decay(n: int) -> float:
        numbers.append(n)
        return 0.5

    tiny_manager(EMA(decay), Checkpoints(), epochs=1, train_dir=tmp_path).train()
    del numbers[:]
    tm = tiny_manager(EMA(decay), Checkpoints(resume=True), epochs=2, train_dir=tmp_path)
    with tm.run():
        tm.train()
        assert numbers == [3, 4, 5]


@pytest.mark.filterwarnings("ignore:more than half of the average")
def test_a_decay_that_a_function_returns_out_of_range_is_refused_with_its_step() -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(EMA(lambda n: 0.5 + n)).train()

    assert str(error.value).splitlines()[0] == ("EMA's decay(1) must be a number of at least 0 and below 1, but is 1.5")


def test_a_function_and_a_warm_up_are_refused_together() -> None:
    with pytest.raises(InputError) as error:
        EMA(lambda n: 0.9, warm_up=True)

    assert str(error.value) == (
        "EMA takes warm_up or a function as decay, but was given both\n"
        "  leave out warm_up, and return smaller decays at first"
    )


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


def test_a_model_that_cannot_be_copied_is_averaged() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    vars(model)["kept"] = model.get_parameter("0.weight") * 2  # a tensor with a graph, which has no deepcopy
    ema = EMA(0.9)
    tiny_manager(ema, model=model).train()
    assert ema.state_dict()["updates"] == 3


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


# ---- beside the trained weights ------------------------------------------------------------------------------------


def test_a_set_is_evaluated_with_the_weights_and_again_with_the_average() -> None:
    plain, averaged = tiny_manager(epochs=3), tiny_manager(EMA(0.9), epochs=3)
    both = tiny_manager(EMA(0.9, sets=["valid"]), epochs=3)
    results = [tm.train().metrics for tm in (plain, averaged, both)]

    assert results[2] == {"valid": results[0]["valid"], "valid_ema": results[1]["valid"]}


def test_so_does_an_evaluation_that_is_a_run_of_its_own() -> None:
    tm = tiny_manager(EMA(0.9, sets="valid"), epochs=3)
    result = tm.train()

    assert tm.eval() == result.metrics


def test_after_the_run_the_manager_has_its_own_sets() -> None:
    tm = tiny_manager(EMA(0.9, sets=["valid"]), epochs=3)
    tm.train()

    assert [*tm.eval_data] == ["valid"]


def test_the_set_with_the_average_is_monitored() -> None:
    stopping = EarlyStopping("valid_ema/loss", patience=1, min_delta=10)
    tm = tiny_manager(EMA(0.9, sets=["valid"]), stopping, epochs=3)
    tm.train()

    assert "valid_ema/loss" in str(tm.stop_reason)


def test_in_a_phase_without_the_extension_the_set_is_not_evaluated() -> None:
    tm = tiny_manager(EMA(0.9, sets=["valid"]), epochs=2)
    with tm.run():
        tm.train()
        with tm.phase("alone", without="ema"):
            without = tm.train_epochs(1)
        with tm.phase("own", eval_data={"valid": tm.eval_data["valid"]}):
            with_own_data = tm.train_epochs(1)

    assert [*without.metrics] == ["valid"]
    assert [*with_own_data.metrics] == ["valid", "valid_ema"]


def test_predictions_then_have_the_trained_weights() -> None:
    plain, both = tiny_manager(epochs=3), tiny_manager(EMA(0.9, sets=["valid"]), epochs=3)
    plain.train()
    both.train()

    assert plain.predict([torch.ones(2, 2)]).equal(both.predict([torch.ones(2, 2)]))


def test_a_set_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(EMA(sets=["vald"])).train()

    assert str(error.value).splitlines()[:2] == [
        "EMA was given the set 'vald', but eval_data has 'valid'",
        "  name the sets as in eval_data: EMA(sets=[...])",
    ]


def test_a_set_that_has_the_name_already_is_refused() -> None:
    data = {"valid": InMemory(torch.rand(4, 2), torch.zeros(4).long(), batch_size=4)}
    data["valid_ema"] = InMemory(torch.rand(4, 2), torch.zeros(4).long(), batch_size=4)

    with pytest.raises(InputError, match="as 'valid_ema', but eval_data has another set of this name"):
        tiny_manager(EMA(sets=["valid"]), eval_data=data).train()
