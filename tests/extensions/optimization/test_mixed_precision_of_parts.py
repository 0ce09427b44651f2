"""Mixed precision in one part of the model, with several optimizers, in pauses and in phases."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.extensions.optimization.dtypes import Dtypes
from tests.extensions.optimization.gan import Gan, GanManager, assert_same_weights, gan_batches, gan_manager
from train_manager import Extension, InputError, TrainManager, modifies
from train_manager.extensions import EMA, SAM, MixedPrecision
from train_manager.testing import tiny_manager

# ---- several optimizers --------------------------------------------------------------------------------------------


def critic_overflows(number: int) -> Extension:
    class Overflows(Extension):
        @modifies("backward_loss")
        def pre_train_backward(self, backward_loss: Tensor, step_num: int, optimizer_name: str) -> Tensor:
            is_here = optimizer_name == "critic" and step_num + 1 == number
            return backward_loss * torch.inf if is_here else backward_loss

    return Overflows()


def scales(precision: MixedPrecision) -> dict[str, float]:
    return {name: state["scale"] for name, state in precision.state_dict()["scalers"].items()}


def test_an_overflow_of_one_optimizer_skips_its_step_only() -> None:
    tm = gan_manager(precision := MixedPrecision(torch.float16))
    tm.train()
    assert tm.optimizer_updates == {"critic": 5, "generator": 5}  # the scale of the beginning is too large for both
    assert scales(precision) == {"critic": 2.0**15, "generator": 2.0**15}

    tm = gan_manager(precision := MixedPrecision(torch.float16), critic_overflows(4))
    tm.train()
    assert tm.optimizer_updates == {"critic": 4, "generator": 5}
    assert scales(precision) == {"critic": 2.0**14, "generator": 2.0**15}


def test_a_loaded_state_restores_the_scale_of_each_optimizer() -> None:
    first, second = MixedPrecision(torch.float16), MixedPrecision(torch.float16)
    gan_manager(first, critic_overflows(4)).train()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    tm = gan_manager(second, critic_overflows(1))
    tm.train()
    assert tm.optimizer_updates == {"critic": 5, "generator": 6}
    assert scales(second) == {"critic": 2.0**13, "generator": 2.0**15}


# ---- one part of the model -----------------------------------------------------------------------------------------


def dtypes_of_parts(tm: TrainManager) -> set[tuple[str, torch.dtype]]:
    """Return a set that is filled with what the last layers and the parts themselves return."""
    seen: set[tuple[str, torch.dtype]] = set()
    for name in ("generator", "generator.3", "critic", "critic.2"):
        part = tm.model.get_submodule(name)
        part.register_forward_hook(lambda _, inputs, output, name=name: seen.add((name, output.dtype)))
    return seen


def forward_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


class MeanTeacher(TrainManager):
    """Learn from the answers of the averaged weights."""

    def train_batch(self, inputs: Tensor, model: nn.Module) -> None:
        first = model(inputs)
        with torch.no_grad(), self["ema"].applied(model):
            taught = model(inputs)
        self.update(F.mse_loss(first, taught + 1) + F.mse_loss(model(inputs), taught + 1))


def test_the_average_that_is_called_within_autocast_leaves_no_weights_in_16_bits() -> None:
    """Autocast keeps those of its first call until it ends, whatever becomes of the weights."""
    batches = list(torch.randn(5, 8, 4, generator=torch.Generator().manual_seed(0)))
    network = nn.Linear(4, 4)
    by_hand, average = copy.deepcopy(network), copy.deepcopy(network)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for step, batch in enumerate(batches):
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                taught = average(batch)
            loss = F.mse_loss(by_hand(batch), taught + 1) + F.mse_loss(by_hand(batch), taught + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for averaged, weights in zip(average.parameters(), by_hand.parameters(), strict=True):
                averaged.lerp_(weights, 0.5 if step else 1.0)
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    MeanTeacher(model=network, optimizer=sgd, train_data=batches, extensions=[EMA(decay=0.5), MixedPrecision()]).train()

    assert torch.equal(network.weight, by_hand.weight)


def test_with_an_optimizer_only_its_part_of_the_model_runs_in_16_bits_and_returns_32() -> None:
    tm = gan_manager(MixedPrecision(optimizer="generator"))
    seen = dtypes_of_parts(tm)
    tm.train()
    assert ("generator.3", torch.bfloat16) in seen
    assert {dtype for name, dtype in seen if name.startswith("critic")} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_part_in_16_bits_equals_the_hand_written_loop_to_the_bit(dtype: torch.dtype) -> None:
    precision = MixedPrecision(dtype, optimizer="generator")
    tm = gan_manager(precision)
    tm.train()
    gan = Gan()
    optimizers = gan.optimizers()
    plain_generator: Callable[[Tensor], Tensor] = gan.generator.forward
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)

    def generate(noise: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype):
            fake = plain_generator(noise)
        return fake.float()

    gan.generator.forward = generate  # type: ignore[method-assign]
    for batch in gan_batches():
        gan.zero_grad()
        gan.loss_of("critic", *batch).backward()
        optimizers["critic"].step()
        gan.zero_grad()
        scaler.scale(gan.loss_of("generator", *batch)).backward()
        scaler.step(optimizers["generator"])
        scaler.update()
    assert_same_weights(tm.model, gan)
    assert list(precision.scalers) == (["generator"] if dtype is torch.float16 else [])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_part_ends_its_autocast_and_leaves_no_hook(error: type[BaseException]) -> None:
    class Breaks(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            raise error("on purpose")

    tm = gan_manager(MixedPrecision(optimizer="generator"))
    tm.model.generator.append(Breaks())
    with pytest.raises(error, match="on purpose"):
        tm.train()
    assert not torch.is_autocast_enabled("cpu")
    assert forward_hooks(tm.model) == 0


def test_an_error_in_the_part_that_train_batch_catches_ends_its_autocast() -> None:
    class Catches(GanManager):
        def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
            with pytest.raises(RuntimeError):
                self.model.generator(torch.ones(1, 99))
            self.update(self.model.critic(inputs).mean(), "critic")

    tm = gan_manager(MixedPrecision(optimizer="generator"), kind=Catches)
    seen = dtypes_of_parts(tm)
    tm.train_steps(1)
    assert seen == {("critic", torch.float32), ("critic.2", torch.float32)}


def test_after_the_run_the_part_is_as_before() -> None:
    tm = gan_manager(MixedPrecision(optimizer="generator"))
    tm.train()
    assert forward_hooks(tm.model) == 0
    assert tm.model.generator[0](torch.ones(1, 3)).dtype is torch.float32


def test_tensors_of_16_bits_in_an_output_of_several_parts_are_in_32() -> None:
    class Parts(nn.Linear):
        def forward(self, inputs: Tensor) -> Any:
            return {"pair": (super().forward(inputs), inputs.double()), "text": "as it was"}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Parts(2, 2)

        def forward(self, inputs: Tensor) -> Any:
            return self.encoder(inputs)

    model = Model()
    tm = TrainManager(
        model=model,
        optimizer={"encoder": torch.optim.SGD},
        extensions=[MixedPrecision(optimizer="encoder")],
    )
    (prediction,) = tm.predict([torch.ones(1, 2)])
    assert [value.dtype for value in prediction["pair"]] == [torch.float32, torch.float64]
    assert prediction["text"] == "as it was"


def test_an_optimizer_without_a_part_of_its_name_is_refused() -> None:
    model = Gan()
    tm = gan_manager(
        MixedPrecision(optimizer="both"),
        model=model,
        optimizer={"both": torch.optim.SGD(model.parameters(), lr=0.1)},
    )
    with pytest.raises(InputError) as caught:
        tm.train()
    assert str(caught.value) == (
        "MixedPrecision(optimizer='both') needs model.both, which is not a module\n"
        "  name the optimizer after a part (generator, critic), or leave it out"
    )


@pytest.mark.parametrize(
    ("wrong", "cure"),
    [
        (torch.float32, "give one of them: MixedPrecision(torch.bfloat16)"),
        (16, "give one of them: MixedPrecision(torch.bfloat16)"),
        ("bf16", "give the dtype of torch: MixedPrecision(torch.bfloat16)"),
        ("bfloat16", "give the dtype of torch: MixedPrecision(torch.bfloat16)"),
        ("16-mixed", "give the dtype of torch: MixedPrecision(torch.float16)"),
        ("fp16", "give the dtype of torch: MixedPrecision(torch.float16)"),
        ("half", "give the dtype of torch: MixedPrecision(torch.float16)"),
        ("cpu", "name the device: MixedPrecision(device_type='cpu')"),
    ],
)
def test_another_dtype_is_refused_with_the_code_to_write(wrong: Any, cure: str) -> None:
    with pytest.raises(InputError) as caught:
        MixedPrecision(wrong)
    assert str(caught.value) == f"dtype must be torch.bfloat16 or torch.float16, but is {wrong!r}\n  {cure}"


@pytest.mark.parametrize("wrong", ["gpu", 0])
def test_a_device_without_autocast_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        MixedPrecision(device_type=wrong)
    assert str(caught.value) == (
        f'device_type must be a device with autocast, but is {wrong!r}\n  give "cuda" or "cpu", or leave it out'
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_a_gpu_the_model_runs_in_autocast_and_learns(dtype: torch.dtype) -> None:
    dtypes = Dtypes()
    tm = tiny_manager(MixedPrecision(dtype), dtypes, device="cuda", epochs=20)
    before = tm.eval()["valid"]["loss"]
    tm.train()
    assert ("prediction", dtype) in dtypes.seen
    assert tm.eval()["valid"]["loss"] < before - 0.1


# ---- pauses and phases -----------------------------------------------------------------------------------------------


def test_while_it_pauses_the_second_pass_of_sam_is_in_32_bits_as_the_first_to_the_bit() -> None:
    tm, plain = tiny_manager(MixedPrecision(), SAM(rho=0.5)), tiny_manager(SAM(rho=0.5))
    with tm.run(), tm.phase("exact", without=["mixed_precision"]):
        tm.train_epochs(1)
    plain.train_epochs(1)
    assert_same_weights(tm.model, plain.model)


def test_in_a_phase_whose_model_lacks_the_part_it_rests_and_says_so_once() -> None:
    class OneModel(TrainManager):
        def train_batch(self) -> None:
            self.update(self.forward())

    plain, model = tiny_manager(eval_data=None), tiny_manager().model
    tm = gan_manager(MixedPrecision(optimizer="generator"), kind=OneModel)
    given: dict[str, Any] = {"model": model, "loss": plain.loss, "train_data": plain.train_data}
    given["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.5)
    with tm.run(), tm.phase("other", **given), pytest.warns(UserWarning, match="MixedPrecision") as told:
        tm.train_epochs(2)
    plain.train_epochs(2)
    what = "MixedPrecision(optimizer='generator') needs model.generator, which is not a module"
    assert [str(warning.message) for warning in told] == [f"{what}, and leaves it out while this model is trained"]
    assert_same_weights(model, plain.model)


class Overflows(Extension):
    """Make the gradients of all batches after the first one infinite, except of one batch."""

    def __init__(self, but: int | None = None) -> None:
        self.but = but

    @modifies("backward_loss")
    def pre_train_backward(self, backward_loss: Tensor, step_num: int) -> Tensor:
        return backward_loss * torch.inf if step_num not in (0, self.but) else backward_loss


SKIPPED = "20 steps in a row were skipped, as the gradients overflow in float16 at any scale"


@pytest.mark.filterwarnings(f"ignore:{SKIPPED}")
def test_float16_tells_once_of_twenty_skipped_steps_in_a_row() -> None:
    tm = tiny_manager(MixedPrecision(torch.float16), Overflows(), eval_data=None)
    tm.train_steps(20)
    before = len(tm.findings)
    tm.train_steps(30)

    assert (before, [(one.level, one.what) for one in tm.findings]) == (0, [("warning", SKIPPED)])


def test_float16_does_not_tell_of_twenty_skipped_steps_with_one_between_them() -> None:
    tm = tiny_manager(MixedPrecision(torch.float16), Overflows(but=15), eval_data=None)
    tm.train_steps(30)

    assert (tm.update_num, tm.findings) == (2, [])
