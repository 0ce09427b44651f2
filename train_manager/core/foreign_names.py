"""The names of hooks in other tools, and what each is called here; data only.

``docs/how-to/coming-from.md`` and ``coming-from-others.md`` show the same tables, and a test holds them together. The
counterparts are hooks of a TrainManager, methods of an extension, methods that a subclass of TrainManager overrides, or
its arguments (``loss=``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class ForeignName(NamedTuple):
    """A name in another tool.

    Attributes:
        tool: the tool.
        name: the name there.
        here: its counterpart; empty if there is none.
        decorator: what stands above the counterpart, with a space after it.
    """

    tool: str
    name: str
    here: str
    decorator: str = ""


_BY_TOOL: Final[dict[str, dict[str, str]]] = {
    "Lightning": {
        "on_fit_start": "pre_train",
        "on_fit_end": "post_train",
        "on_train_start": "pre_train",
        "on_train_end": "post_train",
        "on_train_epoch_start": "pre_train_step_epoch",
        "on_train_epoch_end": "post_train_step_epoch",
        "on_train_batch_start": "pre_train_step_batch",
        "on_train_batch_end": "post_train_step_batch",
        "on_before_zero_grad": "pre_train_backward",
        "on_before_backward": "pre_train_backward",
        "on_after_backward": "post_train_backward",
        "on_before_optimizer_step": "pre_train_optimizer_step",
        "optimizer_step": "pre_train_optimizer_step",
        "on_validation_start": "pre_eval",
        "on_validation_end": "post_eval",
        "on_validation_epoch_start": "pre_eval",
        "on_validation_epoch_end": "post_eval",
        "on_validation_batch_start": "pre_eval_step_batch",
        "on_validation_batch_end": "post_eval_step_batch",
        "on_test_start": "pre_eval",
        "on_test_end": "post_eval",
        "on_test_epoch_start": "pre_eval",
        "on_test_epoch_end": "post_eval",
        "on_test_batch_start": "pre_eval_step_batch",
        "on_test_batch_end": "post_eval_step_batch",
        "on_predict_start": "pre_predict",
        "on_predict_end": "post_predict",
        "on_predict_epoch_start": "pre_predict",
        "on_predict_epoch_end": "post_predict",
        "on_predict_batch_start": "pre_predict_step_batch",
        "on_predict_batch_end": "post_predict_step_batch",
        "on_exception": "@always post_run",
        "on_save_checkpoint": "state_dict",
        "on_load_checkpoint": "load_state_dict",
        "training_step": "train_batch",
        "training_epoch_end": "post_train_step_epoch",
        "validation_step": "eval_batch",
        "validation_epoch_end": "post_eval",
        "test_step": "eval_batch",
        "predict_step": "eval_model_forward",
        "configure_optimizers": "optimizer=",
        "lr_scheduler_step": "lr_schedule=",
        "configure_callbacks": "extensions=",
        "train_dataloader": "train_data=",
        "val_dataloader": "eval_data=",
        "test_dataloader": "eval_data=",
        "training_step_end": "post_train_loss_forward",
        "validation_step_end": "post_eval_loss_forward",
        "test_step_end": "post_eval_loss_forward",
        "test_epoch_end": "post_eval",
        "optimizer_zero_grad": "pre_train_backward",
        "configure_gradient_clipping": "pre_train_optimizer_step",
        "configure_model": "model=",
        "transfer_batch_to_device": "device=",
        "on_sanity_check_start": "",
        "on_sanity_check_end": "",
    },
    "Keras": {
        "on_train_begin": "pre_train",
        "on_train_end": "post_train",
        "on_epoch_begin": "pre_train_step_epoch",
        "on_epoch_end": "post_train_step_epoch",
        "on_train_batch_begin": "pre_train_step_batch",
        "on_train_batch_end": "post_train_step_batch",
        "on_batch_begin": "pre_train_step_batch",
        "on_batch_end": "post_train_step_batch",
        "on_test_begin": "pre_eval",
        "on_test_end": "post_eval",
        "on_test_batch_begin": "pre_eval_step_batch",
        "on_test_batch_end": "post_eval_step_batch",
        "on_predict_begin": "pre_predict",
        "on_predict_end": "post_predict",
        "on_predict_batch_begin": "pre_predict_step_batch",
        "on_predict_batch_end": "post_predict_step_batch",
        "train_step": "train_batch",
        "test_step": "eval_batch",
        "predict_step": "eval_model_forward",
        "compute_loss": "loss_forward",
    },
    "transformers": {
        "on_train_begin": "pre_train",
        "on_train_end": "post_train",
        "on_epoch_begin": "pre_train_step_epoch",
        "on_epoch_end": "post_train_step_epoch",
        "on_step_begin": "pre_train_step_batch",
        "on_step_end": "post_train_step_batch",
        "on_substep_end": "post_train_backward",
        "on_pre_optimizer_step": "pre_train_optimizer_step",
        "on_optimizer_step": "post_train_optimizer_step",
        "on_log": "post_train_step_batch",
        "on_evaluate": "post_eval",
        "on_prediction_step": "post_eval_step_batch",
        "on_predict": "post_predict",
        "on_save": "post_save_checkpoint",
        "on_init_end": "pre_run",
        "training_step": "train_batch",
        "prediction_step": "eval_batch",
        "compute_loss": "loss_forward",
        "create_optimizer_and_scheduler": "optimizer=",
        "create_optimizer": "optimizer=",
        "create_scheduler": "lr_schedule=",
        "get_train_dataloader": "train_data=",
        "get_eval_dataloader": "eval_data=",
    },
    "fastai": {
        "before_fit": "pre_train",
        "after_fit": "post_train",
        "before_epoch": "pre_train_step_epoch",
        "after_epoch": "post_train_step_epoch",
        "before_train": "pre_train_step_epoch",
        "after_train": "post_train_step_epoch",
        "before_validate": "pre_eval",
        "after_validate": "post_eval",
        "before_batch": "pre_train_step_batch",
        "after_batch": "post_train_step_batch",
        "after_pred": "post_train_model_forward",
        "after_loss": "post_train_loss_forward",
        "before_backward": "pre_train_backward",
        "after_backward": "post_train_backward",
        "before_step": "pre_train_optimizer_step",
        "after_step": "post_train_optimizer_step",
        "after_cancel_fit": "@always post_train",
        "after_cancel_epoch": "@always post_train_step_epoch",
        "after_cancel_batch": "@always post_train_step_batch",
    },
    "Ignite": {
        "STARTED": "pre_train",
        "COMPLETED": "post_train",
        "EPOCH_STARTED": "pre_train_step_epoch",
        "EPOCH_COMPLETED": "post_train_step_epoch",
        "ITERATION_STARTED": "pre_train_step_batch",
        "ITERATION_COMPLETED": "post_train_step_batch",
        "GET_BATCH_COMPLETED": "pre_train_step_batch",
        "EXCEPTION_RAISED": "@always post_run",
    },
    "Composer": {
        "fit_start": "pre_train",
        "fit_end": "post_train",
        "epoch_start": "pre_train_step_epoch",
        "epoch_end": "post_train_step_epoch",
        "batch_start": "pre_train_step_batch",
        "batch_end": "post_train_step_batch",
        "before_forward": "pre_train_model_forward",
        "after_forward": "post_train_model_forward",
        "before_loss": "pre_train_loss_forward",
        "after_loss": "post_train_loss_forward",
        "before_backward": "pre_train_backward",
        "after_backward": "post_train_backward",
        "eval_start": "pre_eval",
        "eval_end": "post_eval",
        "eval_batch_start": "pre_eval_step_batch",
        "eval_batch_end": "post_eval_step_batch",
        "eval_before_forward": "pre_eval_model_forward",
        "eval_after_forward": "post_eval_model_forward",
        "predict_start": "pre_predict",
        "predict_end": "post_predict",
        "predict_batch_start": "pre_predict_step_batch",
        "predict_batch_end": "post_predict_step_batch",
    },
    "skorch": {
        "on_train_begin": "pre_train",
        "on_train_end": "post_train",
        "on_epoch_begin": "pre_train_step_epoch",
        "on_epoch_end": "post_train_step_epoch",
        "on_batch_begin": "pre_train_step_batch",
        "on_batch_end": "post_train_step_batch",
        "on_grad_computed": "post_train_backward",
        "train_step": "train_batch",
        "validation_step": "eval_batch",
    },
    "torchtnt": {
        "on_train_start": "pre_train",
        "on_train_end": "post_train",
        "on_train_epoch_start": "pre_train_step_epoch",
        "on_train_epoch_end": "post_train_step_epoch",
        "on_train_step_start": "pre_train_step_batch",
        "on_train_step_end": "post_train_step_batch",
        "on_eval_start": "pre_eval",
        "on_eval_end": "post_eval",
        "on_eval_epoch_start": "pre_eval_step_epoch",
        "on_eval_epoch_end": "post_eval_step_epoch",
        "on_eval_step_start": "pre_eval_step_batch",
        "on_eval_step_end": "post_eval_step_batch",
        "on_predict_start": "pre_predict",
        "on_predict_end": "post_predict",
        "on_predict_step_start": "pre_predict_step_batch",
        "on_predict_step_end": "post_predict_step_batch",
        "on_exception": "@always post_run",
        "train_step": "train_batch",
        "eval_step": "eval_batch",
        "predict_step": "eval_model_forward",
        "compute_loss": "loss_forward",
        "configure_optimizers_and_lr_scheduler": "optimizer=",
    },
    "Catalyst": {
        "on_experiment_start": "pre_run",
        "on_experiment_end": "post_run",
        "on_epoch_start": "pre_train_step_epoch",
        "on_epoch_end": "post_train_step_epoch",
        "on_loader_start": "pre_train_step_epoch",
        "on_loader_end": "post_train_step_epoch",
        "on_batch_start": "pre_train_step_batch",
        "on_batch_end": "post_train_step_batch",
        "on_exception": "@always post_run",
        "handle_batch": "train_batch",
    },
}


def _read(tool: str, name: str, counterpart: str) -> ForeignName:
    decorator, space, here = counterpart.rpartition(" ")
    return ForeignName(tool, name, here, decorator + space)


FOREIGN_NAMES: Final = tuple(
    _read(tool, name, counterpart) for tool, names in _BY_TOOL.items() for name, counterpart in names.items()
)

FOREIGN_PREFIXES: Final = {"on_": "", "before_": "pre", "after_": "post", "begin_": "pre", "end_": "post"}
"""How the names of hooks begin in other tools, and which hook is meant, if that tells it."""

FOREIGN_SUFFIXES: Final = {
    "_start": "pre",
    "_started": "pre",
    "_begin": "pre",
    "_end": "post",
    "_completed": "post",
}
"""How the names of hooks end in other tools, and which hook is meant."""


def known_names(name: str) -> list[ForeignName]:
    """Return the entries of a name, also in the letters of ``onEpochEnd``, and of Ignite's in small ones."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() if name[:1].islower() else name
    spellings = {name, snake, name.upper()} if "_" in snake else {name}
    return [known for known in FOREIGN_NAMES if known.name in spellings]
