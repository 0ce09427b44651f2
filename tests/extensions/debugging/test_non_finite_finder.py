from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.extensions.debugging.breaking import INF, NAN, breaking, error_of, log, marked, net
from train_manager import Extension, InputError, NonFiniteLoss, TrainManager, modifies
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.extensions import (
    SAM,
    Accumulate,
    ClipGradients,
    MixedPrecision,
    NonFiniteFinder,
    RunRecord,
)
from train_manager.testing import tiny_manager

HERE = "tests/extensions/debugging/test_non_finite_finder.py"


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return log(x)


# ---- what it says ----------------------------------------------------------------------------------------------------


def root(x: Tensor) -> Tensor:
    return (x * 0).sqrt()


LOOK = "look at its logarithms, roots, powers and divisions; float16 ends at 65,504: take torch.bfloat16"
LINE_OF_ROOT = f"{HERE}:{root.__code__.co_firstlineno + 1}"


def test_the_error_names_the_module_the_step_and_the_batch(tmp_path: Path) -> None:
    tm = breaking(log, 2, train_dir=tmp_path)
    error = error_of(tm)

    assert str(error) == (
        "the loss was nan in step 2, epoch 1: module '0.1' (Breaks) made it of finite numbers: "
        "of 32 numbers 32 are infinite\n"
        f"  at module '0.1' (Breaks): {LOOK}\n"
        f"  the batch is in {tmp_path}/non_finite/batch_of_step_2: read_checkpoint(path)['batch']"
    )
    assert (error.step, error.epoch, tm.step_num) == (2, 1, 1)


def test_gradients_that_break_name_the_module_and_the_line_of_its_forward() -> None:
    tm = breaking(root, 3)
    error = error_of(tm)

    assert error.what == (
        "the gradients were not finite (of 8 numbers 2 are nan) in step 3, epoch 1: SqrtBackward0 in module '0.1' "
        "(Breaks) made it of finite numbers: of 16 numbers 16 are infinite"
    )
    assert error.cure == (
        f"at module '0.1' (Breaks), {LINE_OF_ROOT}: its gradient at 0 is infinite: (x + 1e-6).sqrt()\n"
        "  the batch is not kept, since there is no train_dir"
    )


def test_a_loss_that_breaks_a_finite_prediction_is_told_as_code_outside_of_the_modules() -> None:
    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets) / (targets.sum() * 0)

    error = error_of(tiny_manager(NonFiniteFinder(), loss=loss))

    assert error.what == (
        "the loss was inf in step 1, epoch 1: code outside of the modules made it of finite numbers: "
        "of 1 number 1 is infinite"
    )
    assert error.cure.startswith(LOOK)


def test_a_loss_that_is_a_module_is_named() -> None:
    class Entropy(nn.Module):
        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return (prediction * 0).log().mean()

    error = error_of(tiny_manager(NonFiniteFinder(), loss=Entropy()))
    assert "module 'loss' (Entropy) made it" in error.what


def test_data_that_were_broken_are_told_as_such_with_their_examples() -> None:
    inputs = torch.rand(6, 2)
    inputs[4, 1] = NAN
    error = error_of(tiny_manager(NonFiniteFinder(), train_data=[(inputs, torch.zeros(6, dtype=torch.long))]))

    assert error.what == (
        "the loss was nan in step 1, epoch 1: "
        "the data were not finite: of 12 numbers 1 is nan, in the examples [4] of inputs"
    )
    assert error.cure.startswith("at inputs: leave these examples out, or put a number in the place of what is missing")


def test_targets_that_were_broken_are_told_too() -> None:
    data = [(torch.rand(3, 2), torch.tensor([[1.0, 2.0], [1.0, INF], [0.0, 0.0]]))]
    error = error_of(tiny_manager(NonFiniteFinder(), loss=F.mse_loss, train_data=data, eval_data=None))

    assert "of 6 numbers 1 is infinite, in the examples [1] of targets" in error.what


def test_weights_that_an_update_broke_are_told_as_such_with_the_first_step() -> None:
    """Adam divides 0 by 0 for the first layer, behind a last one that is zero."""
    tm = tiny_manager(NonFiniteFinder(), optimizer=lambda parameters: torch.optim.Adam(parameters, eps=0))
    nn.init.zeros_(tm.model[2].weight)
    error = error_of(tm)

    assert error.what.startswith(
        "the loss was nan in step 2, epoch 1: weights were not finite before it, seen first in this step: ['0.weight'"
    )
    told = "at 0.weight: they broke between the update of step 1 and this forward pass: try a smaller learning rate"
    assert error.cure.startswith(told)


def test_weights_that_came_broken_into_the_training_are_told_as_such() -> None:
    tm = tiny_manager(NonFiniteFinder())
    nn.init.constant_(tm.model[2].bias, NAN)
    error = error_of(tm)

    assert "weights were not finite before it, seen first in this step: ['2.bias']" in error.what
    assert error.cure.startswith("at 2.bias: they came so into the training")


def test_a_cause_that_does_not_come_again_is_said_to_be_unknown() -> None:
    class Once(Extension):
        @modifies("loss")
        def post_train_loss_forward(self, loss: Tensor) -> Tensor:
            return loss * NAN

    error = error_of(tiny_manager(NonFiniteFinder(), Once()))
    assert error.what.startswith("the loss was nan in step 1, epoch 1: the same batch was finite when it ran again")
    assert error.cure.startswith(
        "if Python's or numpy's random numbers play a part: NonFiniteFinder(python_random=True); "
        "a number that forward changes (a counter) may play a part too\n"
    )


# ---- what it leaves --------------------------------------------------------------------------------------------------


def test_the_finding_is_kept_before_the_error_and_recorded(tmp_path: Path) -> None:
    tm = breaking(log, 1, NonFiniteFinder(), RunRecord(), train_dir=tmp_path)
    error = error_of(tm)

    [finding] = tm.findings
    assert (finding.check, finding.level, finding.what) == ("non-finite", "error", error.what)
    assert finding.where == "module '0.1' (Breaks)"
    assert finding.numbers == {"step": 1, "epoch": 1}
    [record] = tmp_path.glob("run*.json")
    assert error.what in json.dumps(json.loads(record.read_text()))


def test_the_batch_and_the_random_state_before_it_are_kept(tmp_path: Path) -> None:
    tm = breaking(log, 2, train_dir=tmp_path)
    error_of(tm)

    state = read_checkpoint(tmp_path / "non_finite" / "batch_of_step_2")
    inputs, targets = marked(2)[1]
    assert state["batch"][0].equal(inputs)
    assert state["batch"][1].equal(targets)
    assert state["random"]["torch"].equal(torch.get_rng_state())  # no number was drawn


def test_a_second_batch_of_the_same_step_does_not_replace_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        error_of(breaking(log, 1, train_dir=tmp_path))

    assert sorted(path.name for path in (tmp_path / "non_finite").iterdir()) == ["batch_of_step_1", "batch_of_step_1-2"]


def test_a_batch_that_cannot_be_kept_does_not_hide_the_error(tmp_path: Path) -> None:
    class Holder:
        x = torch.ones(3, 2)

    class Own(TrainManager):
        def unpack_batch(self, batch: Any) -> tuple[Any, ...]:
            return batch["holder"].x * 10, torch.zeros(3, dtype=torch.long)

        def get_true_batch_size(self, batch: Any) -> int:
            return 3

    tm = Own(
        model=(model := net(log)),
        loss=F.cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        extensions=[NonFiniteFinder()],
        train_data=[{"holder": Holder()}],
        train_dir=tmp_path,
    )
    error = error_of(tm)
    assert "module '0.1' (Breaks)" in error.what
    assert "the batch could not be kept: " in error.cure


def test_buffers_random_states_and_hooks_are_as_they_were_before_the_search() -> None:
    layers = [nn.Linear(2, 4), norm := nn.BatchNorm1d(4), nn.Dropout(0.5), Log(), nn.Linear(4, 2)]
    tm = tiny_manager(NonFiniteFinder(), model=nn.Sequential(*layers))
    states: list[Tensor] = []
    tm.add_extension(post_train_model_forward=lambda: states.append(torch.get_rng_state()))
    error_of(tm)

    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 1
    assert torch.get_rng_state().equal(states[0])
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in tm.model.modules())
    assert all(one.grad is None for one in tm.model.parameters())


# ---- with other parts of a training ----------------------------------------------------------------------------------


def test_what_dropout_breaks_is_found_with_the_same_random_numbers() -> None:
    """Some of the trainings break, and each of them breaks again in its second pass."""

    class Share(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / x.abs().sum()

    broken = 0
    for seed in range(8):
        model = nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.9), Share(), nn.Linear(1, 2))
        tm = tiny_manager(
            NonFiniteFinder(), model=model, seed=seed, train_data=[(torch.ones(8, 2), torch.ones(8).long())]
        )
        try:
            tm.train()
        except NonFiniteLoss as error:
            assert "module '2' (Share) made it" in error.what  # noqa: PT017
            broken += 1
    assert 0 < broken < 8


def test_numbers_of_python_are_drawn_again_if_asked_for() -> None:
    import random

    def break_sometimes(x: Tensor) -> Tensor:
        return x * 0 / 0 if random.random() < 0.5 else x

    random.seed(1)
    assert random.random() < 0.5
    random.seed(1)
    tm = breaking(break_sometimes, 1, NonFiniteFinder(python_random=True))
    assert "module '0.1' (Breaks)" in error_of(tm).what


def test_the_last_batch_of_a_window_whose_gradients_broke_is_looked_into() -> None:
    error = error_of(breaking(root, 2, NonFiniteFinder(), Accumulate(2)))

    assert "SqrtBackward0 in module '0.1' (Breaks) made it of finite numbers" in error.what
    assert error.step == 2


def test_gradients_that_an_earlier_batch_of_the_window_broke_are_told_to_come_from_one_before() -> None:
    error = error_of(breaking(root, 1, NonFiniteFinder(), Accumulate(2)))

    assert error.what.endswith(
        "in step 2, epoch 1: the last batch of the window was finite when it ran again, so it came from one before it"
    )
    assert error.cure.startswith("train with Accumulate(1), or without it, to find the batch and the place")


def test_a_loss_that_breaks_within_a_window_ends_it_at_once() -> None:
    error = error_of(breaking(log, 2, NonFiniteFinder(), Accumulate(3)))

    assert "module '0.1' (Breaks)" in error.what
    assert error.step == 2


def test_an_overflow_in_bfloat16_and_float16_is_found() -> None:
    def large(x: Tensor) -> Tensor:
        return x * 0 + 1e5

    def larger(x: Tensor) -> Tensor:
        return x * 0 + 3.4e38  # finite in float32

    half = error_of(breaking(large, 1, NonFiniteFinder(), MixedPrecision(torch.float16)))
    brain = error_of(breaking(larger, 1, NonFiniteFinder(), MixedPrecision()))
    assert "module '1' (Linear) made it" in half.what
    assert "module '1' (Linear) made it" in brain.what


def test_a_step_that_a_loss_scale_skips_is_no_finding() -> None:
    tm = breaking(root, 2, NonFiniteFinder(), MixedPrecision(torch.float16))
    tm.train()

    assert (tm.step_num, tm.update_num, tm.findings) == (3, 2, [])


def test_a_large_loss_scale_is_no_finding() -> None:
    tm = tiny_manager(NonFiniteFinder(), MixedPrecision(torch.float16), loss=lambda p, t: F.cross_entropy(p, t) * 1e3)
    tm.train()

    assert tm.step_num == 3
    assert tm.findings == []


def test_finite_gradients_whose_squares_overflow_are_no_finding() -> None:
    tm = tiny_manager(
        NonFiniteFinder(),
        loss=lambda p, t: F.cross_entropy(p, t) * 1e30,
        optimizer=lambda p: torch.optim.SGD(p, lr=1e-30),
    )
    assert tm.train().steps == 3


def test_it_looks_before_gradients_are_clipped_and_before_weights_climb() -> None:
    for other in (ClipGradients(1.0), SAM()):
        assert "SqrtBackward0 in module" in error_of(breaking(root, 1, other, NonFiniteFinder())).what


def test_modules_in_eval_mode_stay_in_it_during_the_search() -> None:
    class LogInEval(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if self.training else log(x)

    class Frozen(Extension):
        def pre_train_model_forward(self, model: nn.Sequential) -> None:
            model[1].eval()

        def post_train_step_batch(self) -> None:
            raise AssertionError("the loss was finite")

    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), LogInEval()))
    error = error_of(tiny_manager(NonFiniteFinder(), Frozen(), model=model))
    assert "module '1.1' (LogInEval)" in error.what


class Pair(nn.Module):
    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, x: Tensor) -> Tensor:
        return self.critic(self.generator(x))  # type: ignore[no-any-return]


class Adversarial(TrainManager):
    """An own ``train_batch``, with two optimizers."""

    def train_batch(self, model: Pair, inputs: Tensor, targets: Tensor) -> None:
        made = model.generator(inputs)
        self.update(F.cross_entropy(model.critic(made.detach()), targets), "critic", retain_graph=True)
        self.update(lambda: -F.cross_entropy(model.critic(model.generator(inputs)), targets), "generator")


def adversarial(generator: nn.Module, critic: nn.Module, *extensions: Extension) -> Adversarial:
    return Adversarial(
        model=Pair(generator, critic),
        optimizer={name: lambda p: torch.optim.SGD(p, lr=0.1) for name in ("critic", "generator")},
        train_data=marked(2),
        extensions=[NonFiniteFinder(), *extensions],
    )


def test_an_own_train_batch_with_two_optimizers_is_run_again_without_an_update() -> None:
    tm = adversarial(net(log), nn.Linear(2, 2))
    error = error_of(tm)

    assert error.what.startswith(
        "the loss of 'critic' was nan in step 2, epoch 1: module 'generator.0.1' (Breaks) made it"
    )
    assert tm.optimizer_updates == {"critic": 1, "generator": 1}


def test_gradients_of_one_of_two_optimizers_are_told_with_its_name() -> None:
    error = error_of(adversarial(net(root), nn.Linear(2, 2)))

    assert error.what.startswith("the gradients of 'generator' were not finite (of 8 numbers 2 are nan) in step 2")
    assert "SqrtBackward0 in module 'generator.0.1' (Breaks) made it" in error.what


def test_fixtures_that_a_train_batch_defines_are_defined_anew() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            self.fixtures["hidden"] = model(inputs)
            self.fixtures.define("scale", self.fixtures["hidden"].abs().max(), stage="train_step_batch")
            self.update(F.cross_entropy(self.fixtures["hidden"] / self.fixtures["scale"], targets))

    tm = Own(
        model=(model := net(log)),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        train_data=marked(2),
        extensions=[NonFiniteFinder()],
    )
    assert "module '0.1' (Breaks) made it" in error_of(tm).what


@pytest.mark.slow
@pytest.mark.parametrize("function", [log, pytest.param(root, marks=pytest.mark.whole)])
def test_a_compiled_model_is_looked_into_by_the_names_of_the_plain_one(function: Callable[[Tensor], Tensor]) -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    model = torch.compile(nn.Sequential(nn.Linear(2, 2), Plain()), backend="eager")
    assert "module '1' (Plain) made it" in error_of(tiny_manager(NonFiniteFinder(), model=model)).what


def test_an_error_in_the_second_pass_does_not_hide_the_first() -> None:
    def fails_again(x: Tensor) -> Tensor:
        if calls:
            raise ValueError("only once")
        calls.append(1)
        return x * NAN

    calls: list[int] = []
    error = error_of(breaking(fails_again, 1))
    assert "the batch could not be run again to find out why (only once)" in error.what


# ---- when it looks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("check_every", "step"), [(1, 2), (2, 2), (3, 3)])
def test_it_looks_every_few_steps(check_every: int, step: int) -> None:
    error = error_of(breaking(log, 2, NonFiniteFinder(check_every)))

    assert error.step == step
    assert ("module" in error.what) == (step == 2)


def test_it_looks_at_the_gradients_of_every_few_updates_however_long_their_windows_are() -> None:
    error = error_of(breaking(root, 3, NonFiniteFinder(2), Accumulate(2)))  # the second window has one batch

    assert "SqrtBackward0 in module '0.1' (Breaks)" in error.what
    assert error.step == 3


@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True])
def test_a_wrong_number_of_steps_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="check_every must be a whole number of at least 1"):
        NonFiniteFinder(value)
