"""How fast a training is, measured over a second or so at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, final

import torch
from torch import nn

from train_manager.metrics.deferred import numbers

MOST: Final = 2000  # points of a curve, then every second one is left out


@final
class Speed:
    """Measures steps, and returns figures once in a while.

    >>> times = iter([0.0, 0.5, 1.0])
    >>> speed = Speed(1.0, lambda: next(times))
    >>> for step in (1, 2, 3):
    ...     figures = speed.append(step, size=16, waited=0.1, model=None)
    >>> figures
    {'examples_per_second': 32.0, 'waiting_share': 0.2}

    Args:
        seconds: how long a figure is measured.
        clock: a function that returns the seconds since any fixed moment.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._before: float | None = None  # when the last step ended
        self._sizes: list[Any] = []
        self._elapsed = self._waited = 0.0
        self._has_waits = False
        self.curves: dict[str, tuple[list[float], list[float]]] = {}

    def pause(self) -> None:
        """Leave out the time until the next step ends, with that step."""
        self._before = None

    def append(self, step: int, size: Any, waited: float | None, model: Any) -> dict[str, float]:
        """Take note that a step ends; return figures if it is time for them."""
        before, self._before = self._before, self._clock()
        if before is None:
            return {}
        self._sizes.append(size)
        self._elapsed += self._before - before
        if waited is not None and not math.isnan(waited):  # nan where no clock ran, as for a batch of one's own
            self._has_waits = True
            self._waited += waited
        return self._figures(step, model) if self._elapsed >= self._seconds else {}

    def _figures(self, step: int, model: Any) -> dict[str, float]:
        figures = {"examples_per_second": sum(numbers(self._sizes)) / self._elapsed}
        if self._has_waits:
            figures["waiting_share"] = min(1.0, self._waited / self._elapsed)
        figures |= peak_memory(model)
        self._sizes.clear()
        self._elapsed = self._waited = 0.0
        for name, value in figures.items():
            steps, values = self.curves.setdefault(name, ([], []))
            steps.append(step)
            values.append(value)
            if len(steps) > MOST:
                del steps[::2], values[::2]
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the speed of another process is another one."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Take that back."""


def peak_memory(model: Any) -> dict[str, float]:
    """Return the most bytes of the GPU that a model is on; nothing on the CPU. It is a count of the host's."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if parameter is None or parameter.device.type != "cuda":
        return {}
    return {"peak_memory": float(torch.cuda.max_memory_allocated(parameter.device))}
