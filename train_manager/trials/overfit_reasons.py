"""Settings of a training because of which one batch is learned slowly, or not to a loss near zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from train_manager.checks.first_loss import LossCall, classes_of, labels_in
from train_manager.checks.overfit import LEARNED
from train_manager.data.batch import tensors_in
from train_manager.model.optimizers import parameters_in
from train_manager.trials.first_steps import FirstSteps

Question = Callable[[FirstSteps], Any]
"""Returns whether a reason holds for a training; or its number, which the text of the reason names."""


def reasons(table: Mapping[str, Question], first: FirstSteps) -> list[str]:
    """Return the texts of the reasons that hold for a training."""
    return [text.format(answer) for text, ask in table.items() if (answer := ask(first))]


def _weight_decay(first: FirstSteps) -> float:
    groups = [group for one in first.tm.optimizers.values() for group in one.param_groups]
    return max((float(group.get("weight_decay") or 0) for group in groups), default=0.0)


def _dropout(first: FirstSteps) -> float:
    return max((one.p for one in first.tm.model.modules() if isinstance(one, _DropoutNd)), default=0.0)


def _too_few_parameters(first: FirstSteps) -> int:
    trained = sum(one.numel() for optimizer in first.tm.optimizers.values() for one in parameters_in(optimizer))
    targets = first.fixtures.get("targets", first.fixtures.get("prediction"))
    return trained if trained < sum(one.numel() for one in tensors_in(targets)) else 0


def _added_losses(first: FirstSteps) -> str:
    losses = first.fixtures.get("losses")
    added = sorted(losses.of_forward) if losses is not None and losses.added is not None else []
    return " and ".join(map(repr, added))


def _label_smoothing(first: FirstSteps) -> float:
    return max((call.options.get("label_smoothing", 0.0) for call in first.calls), default=0.0)


SLOWED_BY: Final[Mapping[str, Question]] = {"weight_decay {:g}": _weight_decay, "dropout {:g}": _dropout}
"""Why one batch is learned slowly."""

KEPT_UP_BY: Final[Mapping[str, Question]] = {
    "no more than {:,} parameters": _too_few_parameters,
    "the added loss {}": _added_losses,
    "several optimizers": lambda first: len(first.tm.optimizers) > 1,
    "random numbers that each step draws": lambda first: first.draws and not _dropout(first),
    "targets between 0 and 1": lambda first: any(map(_is_soft, first.calls)),
    "a loss that compares the examples": lambda first: any(map(_is_contrastive, first.calls)),
    "a loss whose least value is not known": lambda first: not first.loss_calls(),
    "a frozen part": lambda first: not all(one.requires_grad for one in first.tm.model.parameters()),
    "label_smoothing {:g}": _label_smoothing,
    "equal predictions that have different labels": lambda first: any(map(_is_contradicted, first.loss_calls())),
}
"""Why the loss of one batch may not come near zero."""


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
