"""Wait for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(is_so: Callable[[], Any], seconds: float = 90.0) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it has not become so"
        time.sleep(0.005)
