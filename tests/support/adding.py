"""What the tests of totals share: totals of parts are added, element by element, before they give a mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from train_manager.metrics.averages import mean_of


def mean_of_parts(*totals: Iterable[Any]) -> Any:
    return mean_of(*map(sum, zip(*totals, strict=True)))
