from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.extensions.optimization.dtypes import Dtypes
from tests.extensions.optimization.gan import assert_same_weights
from train_manager import Extension, InputError, TrainManager, modifies
from train_manager.extensions import MixedPrecision
from train_manager.testing import tiny_manager


class Overflow(Extension):
    """Make the gradients of one batch infinite."""

    def __init__(self, number: int) -> None:
        self.number = number

    @modifies("backward_loss")
    def pre_train_backward(self, backward_loss: Tensor, step_num: int) -> Tensor:
        return backward_loss * torch.inf if step_num + 1 == self.number else backward_loss


class Seen(Extension):
    """Record the gradient of the first weights at each step, where hooks clip it."""

    def __init__(self) -> None:
        self.gradients: list[Tensor] = []

    def pre_train_optimizer_step(self, train_manager: TrainManager) -> None:
        gradient = next(train_manager.model.parameters()).grad
        assert gradient is not None
        self.gradients.append(gradient.clone())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_model_and_loss_run_in_autocast_in_training_and_evaluation(dtype: torch.dtype) -> None:
    dtypes = Dtypes()
    tm = tiny_manager(MixedPrecision(dtype), dtypes)
    tm.train()
    assert {("prediction", dtype), ("eval prediction", dtype)} <= dtypes.seen
    assert {parameter.dtype for parameter in tm.model.parameters()} == {torch.float32}
    assert not torch.is_autocast_enabled("cpu")


def test_it_equals_the_hand_written_loop_under_autocast_to_the_bit() -> None:
    tm = tiny_manager(MixedPrecision(), eval_data=None, epochs=2)
    tm.train()
    plain = tiny_manager()
    assert plain.optimizer is not None
    assert plain.train_data is not None
    for _ in range(2):
        for inputs, targets in plain.train_data:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(plain.model(inputs), targets)
            loss.backward()
            plain.optimizer.step()
            plain.optimizer.zero_grad()
    for name, weights in plain.model.state_dict().items():
        assert weights.equal(tm.model.state_dict()[name]), name


def test_bfloat16_needs_no_scaler() -> None:
    extension = MixedPrecision()
    tiny_manager(extension).train()
    assert extension.scalers == {}
    assert extension.state_dict() == {"scalers": {}}


def test_a_step_that_overflows_is_skipped_and_not_counted_and_the_scale_is_halved() -> None:
    seen, updates = Seen(), []
    watch = Extension.of(post_train_optimizer_step=lambda update_num: updates.append(update_num))
    extension = MixedPrecision(torch.float16)
    tm = tiny_manager(extension, Overflow(2), seen, watch, eval_data=None)
    tm.train()
    assert (tm.step_num, tm.update_num, updates) == (3, 2, [1, 2])
    assert extension.state_dict()["scalers"]["optimizer"]["scale"] == 2.0**15
    assert all(gradient.isfinite().all() for gradient in seen.gradients)
    assert len(seen.gradients) == 2


def test_after_an_overflow_the_training_continues_as_if_the_batch_had_been_left_out() -> None:
    batches = tiny_manager().train_data
    assert batches is not None
    first, _, third = batches
    overflowed = tiny_manager(MixedPrecision(torch.float16), Overflow(2), eval_data=None)
    without = tiny_manager(MixedPrecision(torch.float16), train_data=[first, third], eval_data=None)
    overflowed.train()
    without.train()
    for name, weights in without.model.state_dict().items():
        torch.testing.assert_close(weights, overflowed.model.state_dict()[name], rtol=0, atol=1e-5)


def test_a_state_can_be_loaded_in_the_middle_of_a_run() -> None:
    first, second = MixedPrecision(torch.float16), MixedPrecision(torch.float16)
    tiny_manager(first, Overflow(2), eval_data=None).train()
    load = Extension.of(pre_load_checkpoint=lambda: second.load_state_dict(first.state_dict()))
    tm = tiny_manager(second, load, eval_data=None)
    tm.train()
    assert second.state_dict()["scalers"]["optimizer"]["scale"] == 2.0**15
    assert tm.update_num == 3


def test_weights_that_a_hook_changes_for_a_call_of_the_model_do_not_stay_in_16_bits() -> None:
    class Elsewhere(Extension):
        def pre_train_model_forward(self, train_manager: TrainManager, inputs: Tensor, autocast: Any) -> None:
            first = next(train_manager.model.parameters())
            first.data.mul_(2)
            with autocast():
                train_manager.model(inputs)
            first.data.div_(2)

    changing, plain = (tiny_manager(MixedPrecision(), *given, eval_data=None) for given in ([Elsewhere()], []))
    changing.train()
    plain.train()
    assert_same_weights(changing.model, plain.model)


def test_an_error_ends_autocast_and_the_next_run_trains() -> None:
    class FailOnce(Extension):
        has_failed = False

        def post_train_model_forward(self) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise ValueError("on purpose")

    tm = tiny_manager(MixedPrecision(torch.float16), FailOnce(), eval_data=None)
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    assert not torch.is_autocast_enabled("cpu")
    tm.train()
    assert tm.update_num == 3


# ---- a train_batch of your own -------------------------------------------------------------------------------------


def own(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    tiny = tiny_manager()
    given = {"model": tiny.model, "optimizer": tiny.optimizer, "train_data": tiny.train_data}
    return kind(**{**given, **options}, extensions=list(extensions))


def test_an_own_eval_batch_and_predictions_run_in_autocast() -> None:
    seen: list[torch.dtype] = []

    class Own(TrainManager):
        def eval_batch(self, inputs: Tensor) -> None:
            seen.append(self.model(inputs).dtype)

    tm = own(Own, MixedPrecision(), eval_data=tiny_manager().eval_data)
    tm.eval()
    assert seen == [torch.bfloat16] * 2
    assert tm.predict(torch.rand(3, 2)).dtype is torch.bfloat16


def test_backward_passes_and_steps_run_without_autocast() -> None:
    class Watching(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            seen.append(torch.is_autocast_enabled("cpu"))
            return super().step(closure)

    seen: list[bool] = []
    tm = tiny_manager(MixedPrecision(), optimizer=lambda parameters: Watching(parameters, lr=0.1), eval_data=None)
    next(iter(tm.model.parameters())).register_hook(lambda _: seen.append(torch.is_autocast_enabled("cpu")))
    tm.add_extension(post_train_loss_forward=lambda: seen.append(torch.is_autocast_enabled("cpu")))
    tm.train_steps(1)
    assert seen == [True, False, False]


def test_a_closure_runs_in_bfloat16_with_the_weights_of_the_moment() -> None:
    make = lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=4)  # noqa: E731
    tm, plain = tiny_manager(MixedPrecision(), optimizer=make, eval_data=None), tiny_manager(optimizer=make)
    tm.train()
    batches: Any = plain.train_data
    for inputs, targets in batches:

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            plain.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(plain.model(inputs), targets)
            loss.backward()
            return loss

        plain.optimizer.step(closure)  # type: ignore[arg-type]  # torch asks for a float, and takes a tensor
    assert_same_weights(tm.model, plain.model)


def test_a_closure_is_refused_in_float16() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(MixedPrecision(torch.float16), optimizer=torch.optim.LBFGS).train()
    assert str(caught.value) == (
        "the loss of optimizer 'optimizer' must be computed anew, but its gradients are not those of one loss\n"
        "  leave out Accumulate, CombineGradients, float16 and hooks that modify the loss"
    )


def test_a_model_that_trains_itself_is_refused_also_in_an_open_run() -> None:
    class Itself:
        def train_step(self, batch: Any) -> Tensor:
            return torch.zeros(())

    tm = TrainManager(model=Itself(), train_data=[1])
    with tm.run(), pytest.raises(InputError) as caught:
        tm.add_extension(MixedPrecision())
    assert str(caught.value) == (
        "MixedPrecision works on a torch.nn.Module, but the model is a Itself, which trains itself\n"
        "  leave MixedPrecision out, and do its work in train_step(batch)"
    )
