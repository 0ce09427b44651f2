"""Names of hooks in other tools, as a newcomer writes them, each with the cure that the refusal must tell."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from train_manager import Extension, TrainManager, TrainManagerError
from train_manager.errors import CheckError
from train_manager.testing import tiny_manager


class Case(NamedTuple):
    """A method as it was written.

    Attributes:
        written: its name.
        tool: where it has that name.
        cure: what it is called here: a hook, or a method that a subclass of TrainManager overrides.
    """

    written: str
    tool: str
    cure: str


CASES = [
    Case(written, tool, cure)
    for tool, names in {
        "Lightning": {
            "on_fit_start": "pre_train",
            "on_train_start": "pre_train",
            "on_train_end": "post_train",
            "on_train_epoch_start": "pre_train_step_epoch",
            "on_train_epoch_end": "post_train_step_epoch",
            "on_train_batch_start": "pre_train_step_batch",
            "on_train_batch_end": "post_train_step_batch",
            "on_before_backward": "pre_train_backward",
            "on_after_backward": "post_train_backward",
            "on_before_optimizer_step": "pre_train_optimizer_step",
            "optimizer_step": "pre_train_optimizer_step",
            "on_validation_start": "pre_eval",
            "on_validation_epoch_end": "post_eval",
            "on_validation_batch_end": "post_eval_step_batch",
            "on_predict_batch_end": "post_predict_step_batch",
            "on_exception": "post_run",
            "training_step": "train_batch",
            "validation_step": "eval_batch",
        },
        "Keras": {
            "on_train_begin": "pre_train",
            "on_epoch_begin": "pre_train_step_epoch",
            "on_epoch_end": "post_train_step_epoch",
            "on_train_batch_begin": "pre_train_step_batch",
            "on_batch_begin": "pre_train_step_batch",
            "on_batch_end": "post_train_step_batch",
            "on_test_begin": "pre_eval",
            "on_test_end": "post_eval",
            "on_predict_end": "post_predict",
            "train_step": "train_batch",
        },
        "transformers": {
            "on_step_begin": "pre_train_step_batch",
            "on_step_end": "post_train_step_batch",
            "on_pre_optimizer_step": "pre_train_optimizer_step",
            "on_optimizer_step": "post_train_optimizer_step",
            "on_log": "post_train_step_batch",
            "on_evaluate": "post_eval",
            "prediction_step": "eval_batch",
        },
        "fastai": {
            "before_fit": "pre_train",
            "before_batch": "pre_train_step_batch",
            "after_pred": "post_train_model_forward",
            "after_loss": "post_train_loss_forward",
            "after_step": "post_train_optimizer_step",
            "after_epoch": "post_train_step_epoch",
        },
        "Ignite": {
            "EPOCH_COMPLETED": "post_train_step_epoch",
            "ITERATION_STARTED": "pre_train_step_batch",
            "iteration_completed": "post_train_step_batch",
        },
        "Composer": {
            "batch_end": "post_train_step_batch",
            "epoch_start": "pre_train_step_epoch",
            "after_forward": "post_train_model_forward",
            "eval_end": "post_eval",
        },
        "skorch": {"on_grad_computed": "post_train_backward"},
        "torchtnt": {"on_train_step_end": "post_train_step_batch", "on_eval_step_end": "post_eval_step_batch"},
        "Catalyst": {"on_loader_end": "post_train_step_epoch", "handle_batch": "train_batch"},
    }.items()
    for written, cure in names.items()
]


def use(case: Case, name: str) -> list[str]:
    """Train, evaluate and predict with the method of a case under a name, and return the name each time it ran."""
    ran: list[str] = []
    if hasattr(TrainManager, case.cure):

        def override(self: TrainManager) -> Any:
            ran.append(name)
            return getattr(TrainManager, case.cure)(self)

        tiny = tiny_manager()
        given = {"model": tiny.model, "loss": tiny.loss, "eval_data": tiny.eval_data, "train_data": tiny.train_data}
        tm: TrainManager = type("Mine", (TrainManager,), {name: override})(optimizer=torch.optim.SGD, **given)
    else:
        tm = tiny_manager(type("Mine", (Extension,), {name: lambda self: ran.append(name)})())
    tm.train()
    tm.predict(torch.rand(3, 2))
    return ran


def refusal(case: Case) -> TrainManagerError:
    """Return the mistake that is told of the method of a case as it is written."""
    try:
        use(case, case.written)
    except CheckError as error:
        (mistake,) = error.mistakes
        return mistake
    raise AssertionError(f"{case.written} was not refused")
