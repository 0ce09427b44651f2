"""Wrong names of fixtures and stages that a newcomer writes in a hook of a TrainManager, and what is right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from train_manager import Extension
from train_manager.errors import CheckError
from train_manager.extensions import Avg, ClipGradients, Metrics
from train_manager.telling.words import fixture_of
from train_manager.testing import tiny_manager


class Case(NamedTuple):
    """A wrong name in a hook, and the cure.

    Attributes:
        hook: the hook as it was written.
        name: the parameter as it was written; empty where the name of the hook is wrong.
        cure: what the message must say.
        works: the hook and the parameter, or an expression of it, that the cure leads to.
        needs: makes the extension that the cure tells to add.
    """

    hook: str
    name: str
    cure: str
    works: tuple[str, str]
    needs: Callable[[], Extension] | None = None

    @property
    def written(self) -> str:
        return f"{self.hook}(self, {self.name})" if self.name else f"{self.hook}(self)"


def _at(hook: str, name: str, meant: str) -> Case:
    """Return a case of another word for what is alive at the hook."""
    fixture = fixture_of(meant)
    told = f"did you mean {meant!r}?" if fixture == meant else f"did you mean {meant}? ask for {fixture!r}"
    return Case(hook, name, told, (hook, meant))


_STEP, _EPOCH = "post_train_step_batch", "post_train_step_epoch"
_OF_EXTENSIONS = "of train_manager.extensions, which provides {!r}".format

CASES: Final = [
    _at(_STEP, "preds", "prediction"),
    _at(_STEP, "y_pred", "prediction"),
    _at("pre_train_loss_forward", "y_hat", "prediction"),
    _at(_STEP, "outputs", "prediction"),
    _at("post_eval_step_batch", "logits", "prediction"),
    _at(_STEP, "x", "inputs"),
    _at("pre_train_model_forward", "data", "batch"),
    _at(_STEP, "input", "inputs"),
    _at(_STEP, "y", "targets"),
    _at("post_eval_step_batch", "labels", "targets"),
    _at(_STEP, "target", "targets"),
    _at(_STEP, "batch_idx", "batch_num"),
    _at(_STEP, "i", "batch_num"),
    _at(_STEP, "step", "step_num"),
    _at(_STEP, "global_step", "step_num"),
    _at(_EPOCH, "epoch", "epoch_num"),
    _at("post_eval", "current_epoch", "epoch_num"),
    _at("pre_train", "trainer", "train_manager"),
    _at("post_train", "tm", "train_manager"),
    _at("post_train_backward", "pl_module", "model"),
    _at("pre_train", "net", "model"),
    _at(_EPOCH, "lr", "train_manager.optimizer.param_groups[0]['lr']"),
    _at(_EPOCH, "learning_rate", "train_manager.optimizer.param_groups[0]['lr']"),
    _at(_STEP, "optimizer", "train_manager.optimizer"),
    _at(_EPOCH, "scheduler", "train_manager.lr_schedule"),
    _at("pre_train", "dataloader", "train_manager.train_data"),
    _at("post_train", "criterion", "train_manager.loss"),
    _at("post_eval", "logs", "eval_results"),
    _at("post_eval", "metrics", "eval_results"),
    _at("post_eval_step_epoch", "val_loss", "eval_result['loss']"),
    _at(_STEP, "train_loss", "loss"),
    _at("pre_train", "train_manger", "train_manager"),
    Case(_EPOCH, "val_loss", "did you mean 'eval_results'? use post_eval", ("post_eval", "eval_results")),
    Case(_EPOCH, "preds", "did you mean 'prediction'? use post_train_step_batch", (_STEP, "prediction")),
    Case(_EPOCH, "loss", "use post_train_step_batch;", (_STEP, "loss")),
    Case(
        _EPOCH,
        "loss",
        f'for its mean, add the extension Avg("loss") {_OF_EXTENSIONS("avg_loss")}',
        (_EPOCH, "avg_loss"),
        needs=lambda: Avg("loss"),
    ),
    Case(
        "post_eval_step_epoch", "loss", "for its mean, ask for 'eval_result'", ("post_eval_step_epoch", "eval_result")
    ),
    Case(
        "post_eval",
        "loss",
        "use post_eval_step_batch; for its mean, ask for 'eval_results'",
        ("post_eval", "eval_results"),
    ),
    Case(
        "pre_train_step_batch",
        "loss",
        "it is defined later: use pre_train_backward or post_train_step_batch",
        (_STEP, "loss"),
    ),
    Case(
        "pre_train_step_batch",
        "x",
        "did you mean 'inputs'? use pre_train_model_forward or post_train_step_batch",
        ("pre_train_model_forward", "inputs"),
    ),
    Case(
        _EPOCH,
        "epoch_loss",
        f'add the extension Avg("loss") {_OF_EXTENSIONS("avg_loss")}',
        (_EPOCH, "avg_loss"),
        needs=lambda: Avg("loss"),
    ),
    Case(
        "pre_train_model_forward",
        "preds",
        "did you mean 'prediction'? use post_train_model_forward",
        ("post_train_model_forward", "prediction"),
    ),
    Case("pre_train_step_epoch", "batch", "use pre_train_step_batch", ("pre_train_step_batch", "batch")),
    Case("post_train", "eval_results", "use post_eval", ("post_eval", "eval_results")),
    Case("post_predict", "prediction", "for all of them, ask for 'predictions'", ("post_predict", "predictions")),
    Case(
        _STEP,
        "metrics",
        f"add the extension Metrics {_OF_EXTENSIONS('metrics')}",
        (_STEP, "metrics"),
        needs=Metrics,
    ),
    Case(
        _STEP,
        "grad_norm",
        f"add the extension ClipGradients {_OF_EXTENSIONS('grad_norm')}",
        (_STEP, "grad_norm"),
        needs=lambda: ClipGradients(1.0),
    ),
]
"""Wrong parameters."""


def _stage(written: str, meant: str) -> Case:
    return Case(written, "", f"did you mean {meant!r}?", (meant, ""))


STAGES: Final = [
    _stage("post_epoch", "post_train_step_epoch"),
    _stage("pre_epoch", "pre_train_step_epoch"),
    _stage("post_step", "post_train_step_batch"),
    _stage("post_batch", "post_train_step_batch"),
    _stage("post_validation", "post_eval"),
    _stage("pre_backward", "pre_train_backward"),
    _stage("post_backward", "post_train_backward"),
    _stage("post_optimizer_step", "post_train_optimizer_step"),
    _stage("post_forward", "post_train_model_forward"),
    _stage("pre_training", "pre_train"),
    _stage("post_fit", "post_train"),
    _stage("post_test", "post_eval"),
    _stage("post_train_epoch", "post_train_step_epoch"),
    _stage("post_train_batch", "post_train_step_batch"),
    _stage("post_train_step", "post_train_step_batch"),
    _stage("post_val_epoch", "post_eval_step_epoch"),
    _stage("post_eval_batch", "post_eval_step_batch"),
    _stage("post_train_step_bach", "post_train_step_batch"),
]
"""Wrong names of hooks."""


def hook(name: str, parameter: str) -> Extension:
    """Return an extension with one hook, which looks at one parameter, or at an expression of it."""
    fixture = fixture_of(parameter)
    namespace: dict[str, Any] = {}
    exec(f"def {name}(self, {fixture}):\n    self.seen.append({parameter or None})\n", namespace)
    made: Extension = type("Written", (Extension,), {name: namespace[name], "seen": []})()
    return made


@functools.cache
def find_advice(case: Case) -> tuple[str, str]:
    """Return the last line of what is said of a case, and when that was found."""
    tm = tiny_manager(hook(case.hook, case.name))
    with pytest.raises(CheckError) as caught:
        tm.check()  # as each run does before it opens its first stage
    return str(caught.value).splitlines()[-1].strip(), "before the first step"


def rows() -> list[tuple[str, str, str]]:
    """Return what was written, what the message says to do, and when it was found; a row for each case."""
    return [(case.written, *find_advice(case)) for case in (*CASES, *STAGES)]
