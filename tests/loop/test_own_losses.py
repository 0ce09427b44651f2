"""What an own ``train_batch`` adds to the loss beside ``forward``, and the means of what it updates with."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD
from torch.utils.checkpoint import checkpoint

from tests.support.training import At, Values
from train_manager import NonFiniteLoss, TrainManager, add_loss
from train_manager.loop.losses import Losses, StepMeans, report_loss
from train_manager.loop.skip import SkipBatch
from train_manager.testing import tiny_manager

X, Y = torch.ones(4, 1), torch.zeros(4, 1)


class Penalised(nn.Linear):
    """Adds the square of its weight, which is 2."""

    def __init__(self) -> None:
        super().__init__(1, 1, bias=False)
        nn.init.constant_(self.weight, 2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        add_loss(self.weight.square(), "penalty")
        return super().forward(inputs)


def trained(kind: type[TrainManager], *extensions: Any, model: Any = None, steps: int = 1, **given: Any) -> Any:
    """Train for some batches whose loss by itself is 4, and whose gradient is 4."""
    optimizer = given.pop("optimizer", lambda parameters: SGD(parameters, lr=0.25))
    options = {"optimizer": optimizer, "train_data": [(X, Y)] * steps, "extensions": [*extensions], **given}
    tm = kind(model=model or Penalised(), **options)
    tm.train()
    return tm


def seen(*names: str) -> Values:
    return Values("post_train_step_batch", *names)


# ---- what is added ---------------------------------------------------------------------------------------------------


class CallsTheModel(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.update(F.mse_loss(model(inputs), targets))


class AddsItself(TrainManager):
    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        weight = self.model.weight
        add_loss(weight.square(), "penalty")
        self.update((inputs * weight - targets).square().mean())


class CallsBackward(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.backward(F.mse_loss(model(inputs), targets))
        self.step()


class OfAFunction(TrainManager):
    def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.update(lambda: F.mse_loss(model(inputs), targets))


@pytest.mark.parametrize("kind", [CallsTheModel, AddsItself, CallsBackward, OfAFunction])
def test_an_update_in_an_own_train_batch_trains_on_what_was_added(kind: type[TrainManager]) -> None:
    parts = seen("loss", "losses")
    tm = trained(kind, parts)

    assert tm.model.weight.item() == 0.0  # 2 - 0.25 * (4 + 4)
    [(loss, losses)] = parts.seen
    assert loss.item() == 8.0
    assert {name: value.item() for name, value in losses.items()} == {"penalty": 4.0, "optimizer": 8.0}


def test_what_forward_has_added_is_added_once() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            self.update(self.forward())

    parts = seen("loss", "losses")
    tm = trained(Own, parts, loss=F.mse_loss)

    assert tm.model.weight.item() == 0.0
    [(loss, losses)] = parts.seen
    assert (loss.item(), [*losses]) == (8.0, ["penalty"])


def test_what_is_added_beside_forward_is_added_to_its_loss() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            loss = self.forward()
            add_loss(self.model.weight.square() / 2, "own")
            self.update(loss)

    assert trained(Own, loss=F.mse_loss).model.weight.item() == -0.5  # 2 - 0.25 * (4 + 4 + 2)


def test_an_own_forward_adds_too() -> None:
    class Own(TrainManager):
        def forward(self) -> Tensor:
            return F.mse_loss(self.model(self.fixtures["inputs"]), self.fixtures["targets"])

    assert trained(Own, loss=F.mse_loss).model.weight.item() == 0.0


def test_an_own_update_adds_too() -> None:
    class Decay(TrainManager):
        def update(self, loss: Any, optimizer: str | None = None, *, retain_graph: bool = False) -> None:
            add_loss(self.model.weight.square() / 2, "decay")
            super().update(loss, optimizer, retain_graph=retain_graph)

    assert trained(Decay, loss=F.mse_loss).model.weight.item() == -0.5  # 2 - 0.25 * (4 + 4 + 2)


def test_each_update_takes_what_was_added_since_the_last_one() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            weight = self.model.weight
            add_loss(weight.sum(), "first")
            self.update(weight.sum())
            self.update(weight.sum())

    assert trained(Own).model.weight.item() == pytest.approx(2 - 0.25 * (2 + 1))


def test_two_optimizers_that_share_a_loss_share_what_was_added() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Penalised(), Penalised()

        def forward(self, inputs: Tensor) -> Tensor:
            return self.second(self.first(inputs))  # type: ignore[no-any-return]

    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            loss = F.mse_loss(model(inputs), targets) * 0
            self.backward(loss, "first", retain_graph=True)
            self.backward(loss, "second")
            self.step("first")
            self.step("second")

    optimizers = {name: lambda parameters: SGD(parameters, lr=0.25) for name in ("first", "second")}
    tm = trained(Own, model=Two(), optimizer=optimizers)

    assert [tm.model.first.weight.item(), tm.model.second.weight.item()] == [1.0, 1.0]  # 2 - 0.25 * 4


def test_what_is_added_without_gradients_has_a_curve_and_is_in_no_loss() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            with torch.no_grad():
                model(inputs)
            self.update((inputs * self.model.weight - targets).square().mean())

    parts = seen("loss", "losses")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm = trained(Own, parts)

    assert tm.model.weight.item() == 1.0
    [(loss, losses)] = parts.seen
    assert (loss.item(), losses["penalty"].item()) == (4.0, 4.0)


def test_what_is_reported_in_an_own_train_batch_has_a_curve_and_is_in_no_loss() -> None:
    class Own(TrainManager):
        def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
            loss = (inputs * self.model.weight - targets).square().mean()
            report_loss(3 * loss, "tripled")
            self.update(loss)

    parts = seen("loss", "losses")
    tm = trained(Own, parts)

    assert tm.model.weight.item() == 1.0
    [(loss, losses)] = parts.seen
    assert (loss.item(), losses["tripled"].item()) == (4.0, 12.0)


def test_an_activation_checkpoint_in_an_own_train_batch_adds_once() -> None:
    class Checkpointed(Penalised):
        def forward(self, inputs: Tensor) -> Tensor:
            run: Any = checkpoint(super().forward, inputs, use_reentrant=False)
            return run  # type: ignore[no-any-return]

    parts = seen("losses")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm = trained(CallsTheModel, parts, model=Checkpointed())

    assert tm.model.weight.item() == 0.0
    assert parts.seen[0]["penalty"].item() == 4.0


def test_hooks_of_an_update_add_nothing() -> None:
    def call(model: nn.Module, inputs: Tensor) -> None:
        model(inputs)

    hooks = [At(f"{kind}_train_{stage}", call) for kind in ("pre", "post") for stage in ("backward", "optimizer_step")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm = trained(CallsTheModel, *hooks)

    assert tm.model.weight.item() == 0.0


def test_a_function_that_is_called_again_adds_each_time() -> None:
    lbfgs = lambda parameters: LBFGS(parameters, max_iter=20, line_search_fn="strong_wolfe")  # noqa: E731
    tm = trained(OfAFunction, optimizer=lbfgs)

    assert tm.model.weight.item() == pytest.approx(0.0, abs=1e-5)


def test_what_waits_for_a_tensor_is_not_in_a_function() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            weight = self.model.weight
            add_loss(weight.sum(), "early")
            self.update(lambda: weight.sum())
            self.update(weight.sum())

    losses = Values("pre_train_backward", "backward_loss")
    trained(Own, losses)

    assert [loss.item() for loss in losses.seen] == [2.0, 3.75]  # the weight is 1.75 then


def test_what_no_update_takes_is_warned_of_once_for_each_name() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            self.update((inputs * self.model.weight - targets).square().mean())
            model(inputs)
            if self.step_num:
                add_loss(self.model.weight.sum())

    with pytest.warns(UserWarning, match="no update or backward came after train_batch added") as told:
        trained(Own, steps=3)

    assert [str(warning.message) for warning in told] == [
        f"no update or backward came after train_batch added {name} by add_loss, so it is not trained on "
        "(call the model, or add_loss, before self.update(loss), or else under torch.no_grad())"
        for name in ("'penalty'", "'added'")
    ]


def test_a_batch_that_is_skipped_leaves_nothing_to_the_next() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            prediction = model(inputs)
            if not self._skipped:
                self._skipped = True
                raise SkipBatch
            self.update(F.mse_loss(prediction, targets))

        _skipped = False

    tm = trained(Own, steps=2)

    assert (tm.step_num, tm.model.weight.item()) == (1, 0.0)


def test_a_second_forward_leaves_what_was_added_beside_it() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            add_loss(self.model.weight.sum(), "own")
            self.forward()
            self.update(self.forward())

    parts = seen("losses")
    tm = trained(Own, parts, loss=F.mse_loss)

    assert tm.model.weight.item() == -0.25  # 2 - 0.25 * (4 + 4 + 1)
    assert {name: value.item() for name, value in parts.seen[0].items()} == {
        "own": 2.0,
        "penalty": 4.0,
        "optimizer": 10.0,
    }


def test_the_parts_of_forward_keep_their_curves() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
            loss = self.forward()
            self.update(loss + 0 * model(inputs).sum())

    parts = seen("losses")
    trained(Own, parts, loss=F.mse_loss)

    assert parts.seen[0]["penalty"].item() == 4.0


# ---- evaluations -----------------------------------------------------------------------------------------------------


class Evaluates(TrainManager):
    def eval_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.fixtures["loss"] = F.mse_loss(model(inputs), targets)


def test_an_own_eval_batch_has_the_parts_of_the_loss_by_name() -> None:
    parts = Values("post_eval_step_batch", "losses")
    tm = Evaluates(model=Penalised(), eval_data=[(X, Y)], extensions=[parts])

    assert tm.eval()["eval"]["loss"] == 4.0
    assert [{name: value.item() for name, value in losses.items()} for losses in parts.seen] == [{"penalty": 4.0}]


def test_forward_in_an_own_eval_batch_adds_what_it_adds_alone() -> None:
    class Both(TrainManager):
        def eval_batch(self, model: nn.Module, inputs: Tensor) -> None:
            model(inputs)
            self.forward()

    tm = Both(model=Penalised(), loss=F.mse_loss, eval_data=[(X, Y)])

    assert tm.eval()["eval"]["loss"] == 8.0


# ---- means over steps ------------------------------------------------------------------------------------------------


class Given(TrainManager):
    """Updates with the losses 1, 2, 3 and 6, or adds them up in one step."""

    together = False

    def train_batch(self) -> None:
        for value in (1.0, 2.0, 3.0, 6.0):
            nothing = self.model.weight.sum() * 0
            report_loss(nothing + 10 * value, "tenfold")
            self.backward(nothing + value)
            if not self.together:
                self.step()
        self.step()


class Together(Given):
    together = True


@pytest.mark.parametrize(("kind", "expected"), [(Given, 3.0), (Together, 12.0)])
def test_backwards_of_a_step_add_up_and_steps_are_averaged(kind: type[TrainManager], expected: float) -> None:
    parts = seen("loss", "losses")
    tm = trained(kind, parts)

    [(loss, losses)] = parts.seen
    assert loss.item() == expected
    assert {name: value.item() for name, value in losses.items()} == {"tenfold": 10 * expected, "optimizer": expected}
    assert tm.history.epochs[0]["loss"] == expected


def test_backwards_that_no_step_has_ended_count_as_one_step() -> None:
    means = StepMeans()
    for value in (4.0, 1.0, 1.0):
        means.add("policy", torch.tensor(value))
        if value == 4.0:
            means.end_step()

    assert means["policy"].item() == 3.0


def test_a_step_without_a_loss_of_its_own_does_not_count() -> None:
    means = StepMeans()
    means.end_step("policy")
    means.add("policy", torch.tensor(4.0))
    means.end_step("policy")
    means.end_step("policy")

    assert means == {"policy": torch.tensor(4.0)}


def test_the_step_of_one_optimizer_does_not_end_that_of_another() -> None:
    own = Losses()
    own.add_update("generator", torch.tensor(1.0))
    own.add_update("critic", torch.tensor(5.0))
    own.end_step("critic")
    own.add_update("generator", torch.tensor(2.0))

    assert own.sum_of_updates() == torch.tensor(8.0)


def test_losses_in_16_bits_are_added_up_in_32_over_steps() -> None:
    means = StepMeans()
    for _ in range(3000):
        means.add("policy", torch.tensor(1.5, dtype=torch.bfloat16))
        means.end_step()

    assert means["policy"].item() == 1.5


def test_a_loss_that_is_not_finite_in_one_of_several_steps_is_an_error() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            for value in (1.0, float("nan"), 1.0):
                self.update(self.model.weight.sum() * value)

    with pytest.raises(NonFiniteLoss, match="the loss was nan in step 1, epoch 1, and not finite in 1 of 1 losses"):
        trained(Own)


def test_the_default_train_batch_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny_manager(Values("post_train_backward")).train()
