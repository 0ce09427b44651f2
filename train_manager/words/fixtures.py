"""The words of other tools for the fixtures and stages of a TrainManager, and the extensions that provide more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from train_manager.telling.words import Provided, by_word

# The order counts: of several fixtures for a word, the first that is alive where the word stands is offered.
FIXTURES: Final = by_word(
    {
        "model": "module net network pl_module",
        "model.parameters()": "parameters params weights",
        "model.parameters(), of which each has .grad": "grad gradient gradients grads",
        "epoch_num": "current_epoch epoch epoch_idx",
        "step_num": "global_step iteration step steps",
        "batch_num": "batch_idx batch_index batch_nb i idx iteration step",
        "batch": "data sample samples",
        "inputs": "features image images input x",
        "targets": "label labels target y y_true",
        "prediction": "logits out output outputs pred predictions preds y_hat y_pred yhat",
        "loss": "batch_loss loss_value train_loss training_loss",
        "avg_loss": "epoch_loss mean_loss running_loss",
        "grad_norm": "gradient_norm norm total_norm",
        "learning_rates": "learning_rate lr lrs",
        "true_batch_size": "batch_size",
        "eval_result['loss']": "eval_loss val_loss valid_loss",
        "eval_result": "acc accuracy logs metrics result results val_acc",
        "eval_results": "acc accuracy eval_loss logs metrics result results val_acc val_loss valid_loss",
        "train_manager": "engine learner manager tm trainer",
        "train_manager.optimizer": "opt optim optimizer",
        "train_manager.optimizers": "optimizers",
        "train_manager.optimizer.param_groups[0]['lr']": "learning_rate lr",
        "train_manager.lr_schedule": "lr_scheduler scheduler",
        "train_manager.loss": "criterion loss_fn loss_function",
        "train_manager.train_data": "data data_loader dataloader dataset loader train_dataloader train_loader",
        "train_manager.eval_data": "eval_loader test_loader val_dataloader val_loader valid_loader",
        "train_manager.epochs": "epochs max_epochs num_epochs",
    }
)
"""For a word: the fixtures meant, or what is read of them. The first that is alive is right."""

STAGES: Final = by_word(
    {
        "train": "fit training",
        "train_step_epoch": "epoch train_epoch training_epoch",
        "train_step_batch": "batch iteration step train_batch train_step training_batch training_step",
        "train_model_forward": "forward model_forward train_forward",
        "train_loss_forward": "loss loss_forward train_loss",
        "train_backward": "backward",
        "train_optimizer_step": "optimizer optimizer_step train_optimizer",
        "eval": "evaluate evaluation test testing val valid validate validation",
        "eval_step_epoch": "eval_epoch test_epoch val_epoch valid_epoch validation_epoch",
        "eval_step_batch": "eval_batch eval_step test_batch test_step val_batch val_step valid_batch validation_batch "
        "validation_step",
        "eval_model_forward": "eval_forward val_forward",
        "eval_loss_forward": "eval_loss val_loss",
        "predict": "inference prediction predicting",
        "predict_step_batch": "predict_batch predict_step",
        "load_checkpoint": "checkpoint load",
    }
)

SUMMARIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "loss": ("its mean", ("eval_result", "eval_results", "avg_loss")),
    "prediction": ("all of them", ("predictions",)),
    "eval_result": ("all of them", ("eval_results",)),
}
"""For a fixture of an inner stage, its summary, and the fixtures that hold it at the end of an outer stage."""

EXTENSIONS: Final = {
    provided.fixture: provided
    for provided in (
        Provided("autocast", "MixedPrecision", "run"),
        Provided("avg_loss", 'Avg("loss")', "train_step_epoch"),
        Provided("cum_loss", "EvalTotals", "eval_step_epoch"),
        Provided("grad_norm", "ClipGradients", "train_step_batch"),
        Provided("learning_rates", "LRSchedule", "train_step_batch"),
        Provided("metrics", "Metrics", "train_step_batch"),
        Provided("num_batches", "EvalTotals", "eval_step_epoch"),
        Provided("num_samples", "EvalTotals", "eval_step_epoch"),
        Provided("update_loss", "Accumulate(1)", "train_optimizer_step"),
        Provided("warm_up_factor", "WarmUp", "train_step_batch"),
        Provided("writer", "MetricStore", "run"),
    )
}
"""The fixtures that the extensions of this package provide, by name."""
