"""The results that training and evaluation return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

EvalResult = dict[str, float]
"""Results of one evaluation set: ``{"loss": 0.31, "accuracy": 0.9}``."""


@final
@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a call of ``train``, ``train_epochs``, ``train_steps`` or ``train_epoch`` has done, and why it ended.

    >>> from train_manager.testing import tiny_manager
    >>> result = tiny_manager(epochs=2).train()
    >>> result.epochs, result.steps, result.stopped
    (2, 6, None)

    Attributes:
        stopped: the reason that ``stop`` was called with; None if it was not called.
        stopped_by: the hook that called it, and at which stage: ``"EarlyStopping.post_eval at run > train > eval"``.
        metrics: the results of the last evaluation in this call, by evaluation set.
        evaluated_at: the ``step_num`` that they are of; None if nothing was evaluated.
        epochs: epochs completed in this call.
        steps: batches trained on in this call.
        updates: optimizer steps in this call.
        seconds: the duration of this call.
    """

    stopped: str | None = None
    stopped_by: str | None = None
    metrics: dict[str, EvalResult] = field(default_factory=dict)
    evaluated_at: int | None = None
    epochs: int = 0
    steps: int = 0
    updates: int = 0
    seconds: float = 0.0
