"""Settings of a training because of which one batch is learned slowly, or not to a loss near zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from train_manager.checks.first_loss import LossCall, classes_of, labels_in
from train_manager.checks.overfit import LEARNED
from train_manager.data.batch import tensors_in
from train_manager.model.optimizers import parameters_in
from train_manager.trials.first_steps import FirstSteps

Question = Callable[[FirstSteps], str]
"""Returns the reason in words; empty if it does not hold for the training."""


def reasons(questions: Iterable[Question], first: FirstSteps) -> list[str]:
    """Return the reasons that hold for a training."""
    return [reason for ask in questions if (reason := ask(first))]


# ---- why it is learned slowly ----------------------------------------------------------------------------------------


def weight_decay(first: FirstSteps) -> str:
    groups = [group for one in first.tm.optimizers.values() for group in one.param_groups]
    decay = max((float(group.get("weight_decay") or 0) for group in groups), default=0.0)
    return f"weight_decay {decay:g}" if decay else ""


def dropout(first: FirstSteps) -> str:
    share = max((one.p for one in first.tm.model.modules() if isinstance(one, _DropoutNd)), default=0.0)
    return f"dropout {share:g}" if share else ""


# ---- why its loss may stay up ----------------------------------------------------------------------------------------


def few_parameters(first: FirstSteps) -> str:
    trained = sum(one.numel() for optimizer in first.tm.optimizers.values() for one in parameters_in(optimizer))
    targets = first.fixtures.get("targets", first.fixtures.get("prediction"))
    is_less = trained < sum(one.numel() for one in tensors_in(targets))
    return f"no more than {trained:,} parameters" if is_less else ""


def added_losses(first: FirstSteps) -> str:
    losses = first.fixtures.get("losses")
    added = sorted(losses.of_forward) if losses is not None and losses.added is not None else []
    return " and ".join(f"the added loss {name!r}" for name in added)


def several_optimizers(first: FirstSteps) -> str:
    return "several optimizers" if len(first.tm.optimizers) > 1 else ""


def random_numbers(first: FirstSteps) -> str:
    return "random numbers that each step draws" if first.draws and not dropout(first) else ""


def soft_targets(first: FirstSteps) -> str:
    return "targets between 0 and 1" if any(map(_is_soft, first.calls)) else ""


def contrastive_loss(first: FirstSteps) -> str:
    return "a loss that compares the examples" if any(map(_is_contrastive, first.calls)) else ""


def unknown_loss(first: FirstSteps) -> str:
    return "" if first.loss_calls() else "a loss whose least value is not known"


def frozen_part(first: FirstSteps) -> str:
    return "" if all(one.requires_grad for one in first.tm.model.parameters()) else "a frozen part"


def label_smoothing(first: FirstSteps) -> str:
    smoothing = max((call.options.get("label_smoothing", 0.0) for call in first.calls), default=0.0)
    return f"label_smoothing {smoothing:g}" if smoothing else ""


def ambiguous_inputs(first: FirstSteps) -> str:
    return "equal predictions that have different labels" if any(map(_is_contradicted, first.loss_calls())) else ""


SLOWED_BY: Final[tuple[Question, ...]] = (weight_decay, dropout)
KEPT_UP_BY: Final[tuple[Question, ...]] = (
    few_parameters,
    added_losses,
    several_optimizers,
    random_numbers,
    soft_targets,
    contrastive_loss,
    unknown_loss,
    frozen_part,
    label_smoothing,
    ambiguous_inputs,
)


# ---- calls of a loss -------------------------------------------------------------------------------------------------


def _is_soft(call: LossCall) -> bool:
    target = call.target
    return call.name != "mse_loss" and target.is_floating_point() and not bool((target == target.round()).all())


def _is_contradicted(call: LossCall) -> bool:
    """Return whether equal predictions have different labels, as those of a model that sees one token at a time.

    The least loss is then the mean of ``-log(share of the label among those of equal predictions)``.
    """
    labels, rows = labels_in(call), call.output.movedim(1, -1).flatten(0, -2) if call.output.dim() > 1 else call.output
    if not len(labels) or len(rows) != len(labels):  # probabilities of classes, or some labels are ignored
        return False
    # Different rows differ in the first classes already; all of them would be sorted by a whole vocabulary.
    different, numbers, alike = rows[:, :8].unique(dim=0, return_inverse=True, return_counts=True)
    _, pairs, same = torch.stack([numbers, labels]).unique(dim=1, return_inverse=True, return_counts=True)
    least = float((alike[numbers] / same[pairs]).log().mean())
    # If all predictions are equal, a part of the model is cut off, or begins with zeros.
    return len(different) > 1 and least > LEARNED * float(F.cross_entropy(rows, labels))


def _is_contrastive(call: LossCall) -> bool:
    """Return whether each label is the number of another example, as in a loss that finds the second of each pair."""
    labels = labels_in(call)
    return len(labels) > 1 and len(labels.unique()) == len(labels) == classes_of(call.output)
