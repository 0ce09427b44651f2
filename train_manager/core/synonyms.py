"""What is called otherwise elsewhere: words of other tools for fixtures and stages, and what extensions provide.

The tables are only asked for a name that is not there, and only what is there is offered: a class without such
fixtures and stages never hears of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from train_manager.telling.errors import did_you_mean, near


class Provided(NamedTuple):
    """A fixture that an extension provides once it is added."""

    fixture: str
    extension: str
    stage: str


def _meant(words: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each word what may be meant by it, in the order of the table."""
    pairs = [(word, meant) for meant, listed in words.items() for word in listed.split()]
    return {word: tuple(meant for other, meant in pairs if other == word) for word, _ in pairs}


FIXTURES_MEANT: Final = _meant(
    {
        "model": "module net network pl_module",
        "model.parameters()": "parameters params weights",
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
        "train_manager.device": "device",
    }
)
"""For a word: the fixtures meant, or what is read of them. The first that is alive is right."""

STAGES_MEANT: Final = _meant(
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
"""What the end of an outer stage has of a fixture that has ended with an inner one."""

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
        Provided("warm_up_factor", "WarmUp", "train_step_batch"),
    )
}
"""What the extensions of train_manager provide; the core knows them by name only."""

CLOSE: Final = 0.85  # a name of one's own that is a letter away is meant rather than what a table says


def fixture_of(meant: str) -> str:
    """Return the fixture that an expression is read of: ``train_manager`` of ``train_manager.optimizer``."""
    return re.split(r"[.\[]", meant)[0]


def words_for(name: str, alive: Collection[str]) -> list[str]:
    """Return what the table offers for a name, as far as it is alive."""
    return [meant for meant in FIXTURES_MEANT.get(name, ()) if fixture_of(meant) in alive]


def fixtures_meant(name: str, alive: Collection[str]) -> list[str]:
    """Return what may be meant by a name that is not alive, best first.

    >>> fixtures_meant("preds", {"loss", "prediction"})
    ['prediction']
    """
    return [*dict.fromkeys((*near(name, alive, CLOSE), *words_for(name, alive), *near(name, alive)))]


def stages_meant(name: str, stages: Iterable[str]) -> list[str]:
    """Return the stages that may be meant by the name of none, best first."""
    stages = [*stages]
    meant = [stage for stage in STAGES_MEANT.get(name, ()) if stage in stages]
    return [*dict.fromkeys((*near(name, stages, CLOSE), *meant, *near(name, stages)))]


def suggested(meant: str) -> str:
    """Return the question for what may be meant, and the fixture to ask for if that is another.

    >>> suggested("prediction")
    "did you mean 'prediction'?"
    >>> suggested("train_manager.optimizer")
    "did you mean train_manager.optimizer? ask for 'train_manager'"
    """
    fixture = fixture_of(meant)
    return did_you_mean((meant,)) if fixture == meant else f"did you mean {meant}? ask for {fixture!r}"


def summary_of(name: str, alive: Collection[str]) -> str:
    """Return what to ask for where the stage of a fixture has ended; empty if nothing is there."""
    what, names = SUMMARIES.get(name, ("", ()))
    return next((f"for {what}, ask for {other!r}" for other in names if other in alive), "")


def extension_for(name: str, always_there: Collection[str]) -> Provided | None:
    """Return the extension that would provide a fixture, or what is meant by it, if the loop is a TrainManager."""
    names = (name, *FIXTURES_MEANT.get(name, ())) if "train_manager" in always_there else ()
    return next((EXTENSIONS[meant] for meant in names if meant in EXTENSIONS), None)


def added(provided: Provided) -> str:
    """Return the cure for a fixture of an extension that is not added."""
    return f"add the extension {provided.extension} of train_manager.extensions, which provides {provided.fixture!r}"
