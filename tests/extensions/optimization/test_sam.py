from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.ctrl_c import CtrlC
from tests.support.host_reads import HostReads
from train_manager import Extension, InputError, TrainManager, always, modifies
from train_manager.extensions import SAM, Accumulate, MixedPrecision, Mixup
from train_manager.extensions.optimization.sam import climb
from train_manager.loop.losses import add_loss
from train_manager.testing import Recorder, tiny_manager


def norm_net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def hand_written(tm: TrainManager, epochs: int, rho: float) -> nn.Module:
    """Train as in the paper, without this library; BatchNorm sees the first pass only."""
    assert tm.optimizer is not None
    assert tm.train_data is not None
    parameters = list(tm.model.parameters())

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(tm.model(inputs), targets)

    for _ in range(epochs):
        for inputs, targets in tm.train_data:
            loss_of(inputs, targets).backward()
            statistics = {name: buffer.clone() for name, buffer in tm.model.named_buffers()}
            weights = [parameter.detach().clone() for parameter in parameters]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.add_(gradient * (rho / (norm + 1e-12)))
            tm.optimizer.zero_grad()
            loss_of(inputs, targets).backward()
            with torch.no_grad():
                for parameter, weight in zip(parameters, weights, strict=True):
                    parameter.copy_(weight)
            tm.model.load_state_dict(statistics, strict=False)
            tm.optimizer.step()
            tm.optimizer.zero_grad()
    model: nn.Module = tm.model
    return model


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert value.equal(other.state_dict()[name]), name


@pytest.mark.parametrize("rho", [0.05, 0.5])
@pytest.mark.parametrize("net", [lambda: tiny_manager().model, norm_net], ids=["plain", "with BatchNorm"])
def test_it_equals_the_hand_written_loop_to_the_bit(rho: float, net: Any) -> None:
    tm = tiny_manager(SAM(rho), model=net(), eval_data=None, epochs=3)
    tm.train()
    assert_same(tm.model, hand_written(tiny_manager(model=net()), epochs=3, rho=rho))


def test_each_stage_opens_once_per_batch() -> None:
    recorder, plain = Recorder(), Recorder()
    tiny_manager(SAM(), recorder).train()
    tiny_manager(plain).train()
    assert recorder.hooks == plain.hooks


def test_prediction_and_loss_stay_those_of_the_first_pass() -> None:
    class Compare(Extension):
        first: tuple[Any, Any] = (None, None)
        compared = 0

        def post_train_loss_forward(self, prediction: Tensor, loss: Tensor) -> None:
            self.first = prediction, loss

        def post_train_step_batch(self, prediction: Tensor, loss: Tensor) -> None:
            assert (prediction, loss) == self.first
            self.compared += 1

    compare = Compare()
    tiny_manager(SAM(), compare).train()
    assert compare.compared == 3


def test_both_passes_use_modified_inputs() -> None:
    seen: list[Tensor] = []

    class Watching(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(inputs)
            return super().forward(inputs)

    tiny_manager(SAM(), Mixup(num_classes=2), model=Watching(2, 2), eval_data=None).train()
    assert len(seen) == 6
    assert all(first is second for first, second in zip(seen[::2], seen[1::2], strict=True))


def test_a_loss_that_the_model_adds_is_in_the_second_pass() -> None:
    class Adding(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            add_loss(100 * self.weight.square().sum())
            return super().forward(inputs)

    def first_weights(model: nn.Module) -> Tensor:
        batches: Any = tiny_manager().train_data
        model.load_state_dict({"weight": torch.ones(2, 2), "bias": torch.zeros(2)})
        tiny_manager(SAM(), model=model, train_data=batches[:1], eval_data=None).train()
        return model.weight  # type: ignore[return-value]

    assert (first_weights(Adding(2, 2)) - first_weights(nn.Linear(2, 2))).abs().max() > 50


def test_an_error_in_the_second_pass_restores_weights_and_statistics() -> None:
    class FailsSecond(nn.Sequential):
        calls = 0

        def forward(self, inputs: Tensor) -> Any:
            self.calls += 1
            if self.calls == 4:
                raise ValueError("on purpose")
            return super().forward(inputs)  # type: ignore[no-untyped-call]

    net = FailsSecond(*norm_net())  # type: ignore[misc]
    before: dict[str, Tensor] = {}

    def remember(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 1:
            before.update({name: value.clone() for name, value in train_manager.model.state_dict().items()})

    tm = tiny_manager(SAM(), Extension.of(post_train_backward=remember), model=net, eval_data=None)
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    assert all(value.equal(before[name]) for name, value in net.state_dict().items())
    tm.train()
    assert tm.update_num == 1 + 3


def test_after_an_error_in_the_second_pass_the_prediction_is_that_of_the_first() -> None:
    calls: list[Tensor] = []

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        calls.append(prediction)
        if len(calls) == 2:
            raise ValueError("on purpose")
        return nn.functional.cross_entropy(prediction, targets)

    class Note(Extension):
        seen: Any = None

        @always
        def post_train_step_batch(self, prediction: Any = None) -> None:
            self.seen = prediction

    note = Note()
    with pytest.raises(ValueError, match="on purpose"):
        tiny_manager(SAM(), note, loss=loss, eval_data=None).train()
    assert note.seen is calls[0]


def test_a_step_reads_nothing_on_the_host() -> None:
    with HostReads() as reads:
        tiny_manager(SAM(), model=norm_net(), eval_data=None).train()
    assert reads.count == 0


@pytest.mark.parametrize("other", [Accumulate(2), MixedPrecision(torch.float16)], ids=["accumulation", "float16"])
def test_a_backward_loss_that_is_not_the_loss_is_refused(other: Extension) -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(SAM(), other).train()
    assert str(caught.value) == (
        "the loss of optimizer 'optimizer' must be computed anew, but its gradients are not those of one loss\n"
        "  leave out Accumulate, CombineGradients, float16 and hooks that modify the loss"
    )


# ---- a train_batch of your own -------------------------------------------------------------------------------------


class GivesATensor(TrainManager):
    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        self.update(nn.functional.cross_entropy(self.model(inputs), targets))


class GivesAFunction(TrainManager):
    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        self.update(lambda: nn.functional.cross_entropy(self.model(inputs), targets))


def own(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    tiny = tiny_manager()
    given = {"model": tiny.model, "optimizer": tiny.optimizer, "train_data": tiny.train_data, "epochs": 3}
    return kind(**{**given, **options}, extensions=list(extensions))


def test_the_loss_of_an_own_train_batch_may_be_a_function() -> None:
    tm = own(GivesAFunction, SAM(0.5))
    tm.train()
    assert_same(tm.model, hand_written(tiny_manager(), epochs=3, rho=0.5))


def test_the_loss_of_an_own_train_batch_may_not_be_a_tensor() -> None:
    with pytest.raises(InputError) as caught:
        own(GivesATensor, SAM()).train()
    assert str(caught.value) == (
        "the loss of optimizer 'optimizer' must be computed anew, but it was given as a tensor\n"
        "  give a function: self.update(lambda: loss_of(model(inputs), targets))"
    )


def test_a_hook_that_modifies_the_loss_does_so_in_the_first_pass_only() -> None:
    class Double(Extension):
        @modifies("loss")
        def post_train_loss_forward(self, loss: Tensor) -> Tensor:
            return 2 * loss

    doubled, plain = tiny_manager(SAM(0.5), Double(), eval_data=None), tiny_manager(SAM(0.5), eval_data=None)
    doubled.train()
    plain.train()
    assert_same(doubled.model, plain.model)  # the climb is of a fixed length


def test_a_loss_that_is_updated_twice_in_a_batch_is_climbed_for_twice() -> None:
    class Twice(TrainManager):
        def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
            for _ in range(2):
                self.update(lambda: nn.functional.cross_entropy(self.model(inputs), targets))

    batches: Any = tiny_manager().train_data
    twice = own(Twice, SAM(0.5), epochs=1)
    once = own(GivesAFunction, SAM(0.5), epochs=1, train_data=[batch for batch in batches for _ in range(2)])
    twice.train()
    once.train()
    assert_same(twice.model, once.model)


@pytest.mark.parametrize("wrong", [0, -0.1, float("inf"), float("nan"), True, "0.05"])
def test_an_invalid_rho_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        SAM(wrong)
    assert str(caught.value) == f"rho must be a number above 0, but is {wrong!r}"


def test_a_climb_without_gradients_changes_nothing() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    with climb([weight], 0.1):
        assert weight.tolist() == [1.0, 1.0]
    with climb([], 0.1):
        pass


def test_ctrl_c_while_the_weights_are_put_back_leaves_none_at_the_other_point() -> None:
    for at_point in count(1):
        parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]
        for parameter in parameters:
            parameter.grad = torch.ones(2)
        with torch.enable_grad():  # as it was: the tracer raises also where a `with` ends, which no signal does
            with CtrlC(at_point, inside="climb") as ctrl_c, climb(parameters, rho=0.5):
                pass
        assert all(parameter.equal(torch.ones(2)) for parameter in parameters)
        if not ctrl_c.has_come:
            break
    assert at_point > 3
