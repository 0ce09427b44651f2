from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.extensions.optimization.gan import Gan, GanManager, assert_same_weights, gan_batches, gan_manager
from tests.support.resuming import round_trip
from train_manager import Extension, InputError, TrainManager, modifies
from train_manager.extensions import EMA, SAM, MixedPrecision
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


# ---- a train_batch of your own -------------------------------------------------------------------------------------


class ThreeUpdates(TrainManager):
    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        for _ in range(3):
            self.update(nn.functional.cross_entropy(self.model(inputs), targets))


def own(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    tiny = tiny_manager()
    given = {"model": tiny.model, "optimizer": tiny.optimizer, "train_data": tiny.train_data}
    return kind(**{**given, **options}, extensions=list(extensions))


def test_several_updates_in_one_batch_equal_the_hand_written_loop_to_the_bit() -> None:
    tm = own(ThreeUpdates, MixedPrecision())
    tm.train()
    plain = tiny_manager()
    batches: Any = plain.train_data
    for inputs, targets in (batch for batch in batches for _ in range(3)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(plain.model(inputs), targets)
        loss.backward()
        plain.optimizer.step()
        plain.optimizer.zero_grad()
    assert_same_weights(tm.model, plain.model)


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


# ---- pauses and phases -----------------------------------------------------------------------------------------------


def test_while_it_pauses_the_second_pass_of_sam_is_in_32_bits_as_the_first_to_the_bit() -> None:
    tm, plain = tiny_manager(MixedPrecision(), SAM(rho=0.5)), tiny_manager(SAM(rho=0.5))
    with tm.run(), tm.phase("exact", without=["mixed_precision"]):
        tm.train_epochs(1)
    plain.train_epochs(1)
    assert_same_weights(tm.model, plain.model)


def test_after_a_pause_the_model_runs_in_16_bits_again() -> None:
    dtypes = Dtypes()
    tm = tiny_manager(MixedPrecision(), eval_data=None)
    with tm.run():
        with tm.phase("exact", without=["mixed_precision"], extensions=[dtypes]):
            tm.train_epochs(1)
        assert dtypes.seen == {("prediction", torch.float32), ("loss", torch.float32)}
        tm.add_extension(dtypes)
        tm.train_epochs(1)
    assert ("prediction", torch.bfloat16) in dtypes.seen


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


@pytest.mark.filterwarnings(f"ignore:{SKIPPED}")
def test_skipped_steps_are_counted_on_after_a_resume() -> None:
    tm = tiny_manager(MixedPrecision(torch.float16), Overflows(), eval_data=None)
    tm.train_steps(11)
    again = tiny_manager(MixedPrecision(torch.float16), Overflows(), eval_data=None)
    again.load_state_dict(round_trip(tm.state_dict()))
    again.train_steps(10)

    assert [one.what for one in again.findings] == [SKIPPED]
