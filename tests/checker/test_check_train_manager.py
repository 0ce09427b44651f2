"""The check of a TrainManager: an own ``train_batch`` or ``eval_batch`` is followed, and late modifiers are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import train_manager.extensions as shipped
from tests.checker.checking import At
from train_manager import Extension, TrainManager
from train_manager.errors import CheckError, StageError
from train_manager.stages import TOO_LATE
from train_manager.testing import tiny_manager


class Adversarial(TrainManager):
    """Updates without a forward pass of the loop."""

    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:  # updates only
        for _ in range(2):
            if inputs.requires_grad is False:
                self.critic(model, inputs)

    def critic(self, model: nn.Module, inputs: Tensor) -> None:
        def again() -> Tensor:
            loss: Tensor = model(inputs).square().mean()
            return loss

        self.update(again)


class Mean(TrainManager):
    """An evaluation without a forward pass of the loop."""

    def eval_batch(self, model: nn.Module, inputs: Tensor) -> None:  # a loss only
        self.fixtures["loss"] = model(inputs).mean()


class ByHand(TrainManager):
    """Trains in a way that only it knows."""

    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:  # by hand
        model(inputs).mean().backward()


def manager(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    tiny = tiny_manager()
    options = {"loss": tiny.loss, "optimizer": tiny.optimizer, "train_data": tiny.train_data, **options}
    return kind(model=tiny.model, eval_data=tiny.eval_data, extensions=list(extensions), **options)


def hook(name: str) -> Extension:
    return Extension.of(**{name: lambda: None})


def mistakes_of(tm: TrainManager) -> str:
    with pytest.raises(CheckError) as error:
        tm.check()
    return "\n".join(map(str, error.value.mistakes))


# ---- an own train_batch or eval_batch ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TrainManager, Adversarial, Mean, ByHand])
def test_nothing_of_it_is_unknown(kind: type[TrainManager]) -> None:
    assert manager(kind).check() == []


def test_a_misspelt_parameter_is_found_before_the_first_step() -> None:
    class Misspelt(TrainManager):
        def train_batch(self, modl: nn.Module, inputs: Tensor) -> None: ...

        def eval_batch(self, imputs: Tensor) -> None: ...

    with pytest.raises(CheckError) as error:
        manager(Misspelt).train()
    evaluates, trains = sorted(map(str, error.value.mistakes))
    assert "Misspelt.eval_batch wants 'imputs', which is never alive where it is called" in evaluates
    assert evaluates.endswith("did you mean 'inputs'?")
    assert "Misspelt.train_batch wants 'modl', which is never alive where it is called" in trains
    assert trains.endswith("did you mean 'model'?")


def test_its_updates_are_found_in_loops_conditions_helpers_and_nested_functions() -> None:
    tm = manager(Adversarial, hook("post_train_backward"), hook("post_train_optimizer_step"))
    tm.train()

    assert tm.check() == []
    assert tm.update_num == 6


def test_explain_shows_the_stages_that_it_opens() -> None:
    shown = manager(Adversarial).explain()

    assert "train_model_forward" not in shown
    assert "train_backward" in shown


def test_the_same_for_an_evaluation(at: At) -> None:
    told = mistakes_of(manager(Mean, hook("pre_eval_model_forward")))

    assert f"Mean.eval_batch ({at('a loss only')}) does not call self.forward()" in told
    assert told.endswith("call it there, or use pre_eval_step_batch")


def test_the_same_for_hooks_of_an_update(at: At) -> None:
    told = mistakes_of(manager(ByHand, hook("post_train_backward"), hook("pre_train_optimizer_step")))

    line = at("by hand")
    assert f"ByHand.train_batch ({line}) does not call self.update()\n" in told
    assert f"ByHand.train_batch ({line}) does not call self.update()\n" in told


def test_where_neither_calls_forward_both_are_told_so() -> None:
    class Neither(Mean, Adversarial):
        pass

    told = mistakes_of(manager(Neither, hook("post_train_model_forward"), hook("post_eval_model_forward")))

    assert "Adversarial.train_batch (" in told
    assert "Mean.eval_batch (" in told
    assert [line.split()[1] for line in manager(Neither).explain().splitlines() if line[0] in "├└"] == [
        "load_checkpoint",
        "train",
        "train_step_batch",
        "train_step_epoch",
        "save_checkpoint",
        "eval",
        "predict",
        "phase",
    ]


def test_forward_outside_of_a_batch_says_so() -> None:
    with pytest.raises(StageError) as error:
        tiny_manager().forward()
    assert str(error.value) == (
        "forward() was called, but no batch is alive\n"
        "  open stages  none\n"
        "  call it in train_batch(self, ...) or eval_batch(self, ...)"
    )


# ---- the extensions of the library beside an own train_batch -------------------------------------------------------

WORKING: dict[str, Callable[[], Extension]] = {
    "Accumulate": lambda: shipped.Accumulate(2),
    "Avg": lambda: shipped.Avg("loss"),
    "ClipGradients": lambda: shipped.ClipGradients(1.0),
    "Constrain": lambda: shipped.Constrain(torch.abs, "0"),
    "Deterministic": shipped.Deterministic,
    "EarlyStopping": lambda: shipped.EarlyStopping(patience=2),
    "EMA": shipped.EMA,
    "EvalTotals": shipped.EvalTotals,
    "FreezeModules": lambda: shipped.FreezeModules("0"),
    "LRSchedule": lambda: shipped.LRSchedule(lambda step: 1.0),
    "LossCurves": shipped.LossCurves,
    "MixedPrecision": shipped.MixedPrecision,
    "SAM": shipped.SAM,
    "ProgressBar": shipped.ProgressBar,
    "ConfusionMatrix": shipped.ConfusionMatrix,
    "GradientNorms": shipped.GradientNorms,
    "NonFiniteFinder": lambda: shipped.NonFiniteFinder(explain=False),
    "Throughput": shipped.Throughput,
    "TimeLimit": lambda: shipped.TimeLimit(60),
    "UpdateRatios": shipped.UpdateRatios,
    "WarmUp": lambda: shipped.WarmUp(3),
    "WeightHistograms": lambda: shipped.WeightHistograms(gradients=True),
}


@pytest.mark.parametrize("name", WORKING)
def test_an_extension_works_with_updates_alone(name: str, tmp_path: Any) -> None:
    assert manager(Adversarial, WORKING[name](), train_dir=tmp_path).check() == []


@pytest.mark.parametrize("extension", [lambda: shipped.Mixup(1.0), lambda: shipped.CutMix(1.0)])
def test_an_extension_that_mixes_what_the_forward_pass_gets_is_refused(extension: Callable[[], Extension]) -> None:
    assert "does not call self.forward()" in mistakes_of(manager(Adversarial, extension()))


# ---- modifiers that come too late ----------------------------------------------------------------------------------


def modifier(point: str, name: str) -> Extension:
    scope: dict[str, Any] = {}
    source = f"from train_manager import modifies\n@modifies({name!r})\ndef {point}(self, {name}): return {name}\n"
    exec(source, scope)
    made: Extension = type("Late", (Extension,), {point: scope[point]})()
    return made


@pytest.mark.parametrize(
    ("point", "name", "told"),
    [
        ("pre_train_backward", "loss", "too late: backward_loss was made of it before train_backward"),
        ("post_train_step_batch", "loss", "too late: backward_loss was made of it before train_backward"),
        ("post_eval_step_batch", "loss", "too late: the mean of the evaluation has taken it"),
        ("post_train_loss_forward", "prediction", "too late: the loss was made of it in train_loss_forward"),
        ("pre_train_backward", "inputs", "too late: the loss was made of it in train_loss_forward"),
        ("post_train_step_batch", "targets", "too late: the loss was made of it in train_loss_forward"),
        ("pre_train_model_forward", "batch", "too late: inputs and targets were unpacked from it"),
        ("post_train_backward", "backward_loss", "too late: the gradients were computed of it"),
        ("pre_train_backward", "update_ends", "too late: the batch has had a backward"),
        ("pre_train_step_batch", "update_begins", "which is read-only: the loop sets it"),
        ("pre_run", "step_num", "which is read-only: the loop counts it"),
        ("post_run", "model", "which is read-only: the loop calls what the train_manager has"),
        ("pre_train", "end_step", "which is read-only: the loop sets it"),
        ("pre_phase", "phase_name", "which is read-only: the loop sets it"),
        ("pre_train", "device", "which is read-only: the loop moves batches to what the train_manager has"),
        ("pre_train_backward", "optimizer", "which is read-only: the loop steps what the train_manager has"),
    ],
)
def test_a_modifier_that_the_loop_would_not_see_is_refused(point: str, name: str, told: str) -> None:
    with pytest.raises(CheckError, match=f"Late.{point} modifies '{name}',? {told}"):
        manager(TrainManager, modifier(point, name)).train()


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("pre_train_step_batch", "batch"),
        ("pre_train_step_batch", "update_ends"),
        ("pre_train_model_forward", "inputs"),
        ("pre_train_loss_forward", "targets"),
        ("post_train_model_forward", "prediction"),
        ("post_train_loss_forward", "loss"),
        ("pre_train_backward", "backward_loss"),
        ("post_eval_loss_forward", "prediction"),
        ("post_eval_loss_forward", "loss"),
        ("post_predict_step_batch", "prediction"),
        ("post_eval_step_epoch", "eval_result"),
    ],
)
def test_a_modifier_that_the_loop_sees_is_none(point: str, name: str) -> None:
    tm = manager(TrainManager, modifier(point, name))
    tm.train()

    assert tm.check() == []


def test_each_point_of_the_table_is_a_hook_at_which_its_fixture_is_alive() -> None:
    """Else a name in it could be misspelt, and nothing would be refused there."""
    for late in TOO_LATE:
        for point in late.points:
            reading = [name for name in late.names if is_alive(point, name)]
            assert reading, f"{late.names} at {point}"


def is_alive(point: str, name: str) -> bool:
    scope: dict[str, Any] = {}
    exec(f"def {point}(self, {name}): ...", scope)
    try:
        return tiny_manager(type("Reads", (Extension,), {point: scope[point]})()).check() == []
    except CheckError:
        return False
