"""The speed of a run, measured over about a second at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import nn

from train_manager.metrics.deferred import numbers
from train_manager.metrics.windows import GrowingCurve


@final
class Speed:
    """Measure steps, and return metrics about once a second.

    >>> times = iter([0.0, 0.5, 1.0])
    >>> speed = Speed(1.0, lambda: next(times))
    >>> for step in (1, 2, 3):
    ...     metrics = speed.append(step, size=16, waited=0.1, model=None)
    >>> metrics
    {'examples_per_second': 32.0, 'waiting_share': 0.2}

    Args:
        seconds: how long a metric is measured.
        clock: a function that returns the seconds since any fixed moment.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._before: float | None = None  # when the last step ended; None after a pause
        self._sizes: list[Any] = []  # the batch sizes since the last metrics; they may be tensors
        self._elapsed = self._waited = 0.0
        self._has_waits = False
        self.curves: dict[str, GrowingCurve] = {}

    def pause(self) -> None:
        """Leave out the time until the next step ends, with that step."""
        self._before = None

    def append(self, step: int, size: Any, waited: float | None, model: Any) -> dict[str, float]:
        """Take note that a step ends; return metrics if it is time for them."""
        before, self._before = self._before, self._clock()
        # The first step after a pause: the time of an evaluation or a checkpoint would count as its time.
        if before is None:
            return {}
        self._sizes.append(size)
        self._elapsed += self._before - before
        # nan: the batch was given to train_on_batch, so that no data were waited for.
        if waited is not None and not math.isnan(waited):
            self._has_waits = True
            self._waited += waited
        return self._metrics(step, model) if self._elapsed >= self._seconds else {}

    def _metrics(self, step: int, model: Any) -> dict[str, float]:
        metrics = {"examples_per_second": sum(numbers(self._sizes)) / self._elapsed}
        if self._has_waits:
            metrics["waiting_share"] = min(1.0, self._waited / self._elapsed)
        metrics |= peak_memory(model)
        self._sizes.clear()
        self._elapsed = self._waited = 0.0
        for name, value in metrics.items():
            self.curves.setdefault(name, GrowingCurve()).append(step, value)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: a resumed process measures its own speed."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Do nothing: there is no state."""


def peak_memory(model: Any) -> dict[str, float]:
    """Return the peak memory in bytes of the GPU that a model is on; an empty dict on the CPU."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if parameter is None or parameter.device.type != "cuda":
        return {}
    # The allocator of torch counts on the host, so that nothing waits for the device.
    return {"peak_memory": float(torch.cuda.max_memory_allocated(parameter.device))}
