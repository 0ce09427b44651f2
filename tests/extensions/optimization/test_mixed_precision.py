from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, InputError, TrainManager, modifies
from train_manager.extensions import MixedPrecision
from train_manager.testing import tiny_manager


class Dtypes(Extension):
    """Record the precision of each computation."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, torch.dtype]] = set()

    def post_train_step_batch(self, prediction: Tensor, loss: Tensor) -> None:
        self.seen |= {("prediction", prediction.dtype), ("loss", loss.dtype)}

    def post_eval_step_batch(self, prediction: Tensor, loss: Tensor) -> None:
        self.seen |= {("eval prediction", prediction.dtype), ("eval loss", loss.dtype)}


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


def test_float16_equals_the_hand_written_loop_with_a_grad_scaler_to_the_bit() -> None:
    tm = tiny_manager(MixedPrecision(torch.float16), eval_data=None, epochs=2)
    tm.train()
    plain = tiny_manager()
    scaler = torch.amp.GradScaler("cpu")
    assert plain.optimizer is not None
    assert plain.train_data is not None
    for _ in range(2):
        for inputs, targets in plain.train_data:
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.cross_entropy(plain.model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(plain.optimizer)
            scaler.update()
            plain.optimizer.zero_grad()
    for name, weights in plain.model.state_dict().items():
        assert weights.equal(tm.model.state_dict()[name]), name


def test_bfloat16_needs_no_scaler() -> None:
    extension = MixedPrecision()
    tiny_manager(extension).train()
    assert extension.scalers == {}
    assert extension.state_dict() == {"scalers": {}}


def test_hooks_before_the_step_read_unscaled_gradients() -> None:
    scaled, plain = Seen(), Seen()
    tiny_manager(scaled, MixedPrecision(torch.float16)).train()
    tiny_manager(plain).train()
    torch.testing.assert_close(scaled.gradients, plain.gradients, rtol=0.05, atol=1e-2)


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


def test_a_loaded_state_restores_the_scale() -> None:
    first, second = MixedPrecision(torch.float16), MixedPrecision(torch.float16)
    tiny_manager(first, Overflow(2), eval_data=None).train()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    tm = tiny_manager(second, Overflow(1), eval_data=None)
    tm.train()
    assert second.state_dict()["scalers"]["optimizer"]["scale"] == 2.0**14
    assert tm.update_num == 2


def test_a_state_can_be_loaded_in_the_middle_of_a_run() -> None:
    first, second = MixedPrecision(torch.float16), MixedPrecision(torch.float16)
    tiny_manager(first, Overflow(2), eval_data=None).train()
    load = Extension.of(pre_load_checkpoint=lambda: second.load_state_dict(first.state_dict()))
    tm = tiny_manager(second, load, eval_data=None)
    tm.train()
    assert second.state_dict()["scalers"]["optimizer"]["scale"] == 2.0**15
    assert tm.update_num == 3


def test_a_hook_that_calls_the_model_can_use_autocast() -> None:
    class Again(Extension):
        dtype: torch.dtype | None = None

        def post_train_step_batch(self, train_manager: TrainManager, inputs: Tensor, autocast: Any) -> None:
            with autocast():
                self.dtype = train_manager.model(inputs).dtype

    again = Again()
    tiny_manager(MixedPrecision(), again).train()
    assert again.dtype is torch.bfloat16


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


def test_a_second_training_continues_with_the_same_scaler() -> None:
    extension = MixedPrecision(torch.float16)
    tm = tiny_manager(extension)
    tm.train_epochs(1)
    tm.train_epochs(1)
    assert extension.state_dict()["scalers"]["optimizer"]["_growth_tracker"] == 6


def test_after_removal_the_training_is_in_full_precision() -> None:
    dtypes = Dtypes()
    tm = tiny_manager(MixedPrecision(torch.float16), dtypes, eval_data=None)
    tm.train_epochs(1)
    tm.remove_extension("mixed_precision")
    dtypes.seen.clear()
    tm.train_epochs(1)
    assert dtypes.seen == {("prediction", torch.float32), ("loss", torch.float32)}


@pytest.mark.parametrize("wrong", [torch.float32, torch.int8, "bfloat16"])
def test_another_dtype_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        MixedPrecision(wrong)
    assert str(caught.value) == (
        f"dtype must be torch.bfloat16 or torch.float16, but is {wrong!r}\n"
        "  give one of them: MixedPrecision(torch.bfloat16)"
    )


@pytest.mark.parametrize("wrong", ["gpu", 0])
def test_a_device_without_autocast_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        MixedPrecision(device_type=wrong)
    assert str(caught.value) == (
        f'device_type must be a device with autocast, but is {wrong!r}\n  give "cuda" or "cpu", or leave it out'
    )


def test_autocast_returns_a_context_manager() -> None:
    assert isinstance(MixedPrecision(device_type="cpu").autocast(tiny_manager())(), AbstractContextManager)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_a_gpu_the_model_runs_in_autocast_and_learns(dtype: torch.dtype) -> None:
    dtypes = Dtypes()
    tm = tiny_manager(MixedPrecision(dtype), dtypes, device="cuda", epochs=20)
    before = tm.eval()["valid"]["loss"]
    tm.train()
    assert ("prediction", dtype) in dtypes.seen
    assert tm.eval()["valid"]["loss"] < before - 0.1
