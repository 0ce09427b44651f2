"""The results that training and evaluation return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from train_manager.reporting.values import html_table, plural, seconds_text, text_of

EvalResult = dict[str, float]
"""Results of one evaluation set: ``{"loss": 0.31, "accuracy": 0.9}``."""


@final
@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a call of ``train``, ``train_epochs``, ``train_steps`` or ``train_epoch`` has done, and why it ended.

    >>> from train_manager.testing import tiny_manager
    >>> result = tiny_manager(epochs=2).train()
    >>> result                                                      # doctest: +ELLIPSIS
    TrainResult(2 epochs, 6 steps, ... s; at step 6: valid loss 0.654)
    >>> result.epochs, result.steps, result.stopped
    (2, 6, None)

    Attributes:
        stopped: the reason that ``stop`` was called with; None if it was not called.
        stopped_by: the hook that called it, and at which stage: ``"EarlyStopping.post_eval at run > train > eval"``.
        metrics: the results of the last evaluation in this call, by evaluation set: those of the weights at step
            ``evaluated_at``, which training may have changed since. ``tm.history`` has all of them.
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

    def __repr__(self) -> str:
        done = [plural(self.epochs, "epoch"), plural(self.steps, "step"), seconds_text(self.seconds)]
        texts = [", ".join(done)]
        if self.metrics:
            metrics = (f"{name} {key} {text_of(of[key])}" for name, of in self.metrics.items() for key in of)
            texts.append(f"at step {self.evaluated_at}: {', '.join(metrics)}")
        if self.stopped is not None:
            texts.append(f"stopped: {self.stopped}")
        return f"TrainResult({'; '.join(texts)})"

    def _repr_html_(self) -> str:
        keys = list(dict.fromkeys(key for result in self.metrics.values() for key in result))
        rows = [[name, *(text_of(result.get(key, "")) for key in keys)] for name, result in self.metrics.items()]
        done = f"{plural(self.epochs, 'epoch')}, {plural(self.steps, 'step')} in {seconds_text(self.seconds)}"
        stopped = "" if self.stopped is None else f", stopped: {self.stopped}"
        return html_table([f"at step {self.evaluated_at}" if rows else "", *keys], rows, f"Trained {done}{stopped}")
