"""What the tests of the core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from train_manager.core import dispatch


@pytest.fixture(autouse=True, scope="module", params=["written_out", "looped"])
def way_of_running_hooks(request: pytest.FixtureRequest) -> Iterator[None]:
    """All tests of the core run twice: with generated functions, and with the loop that they stand for."""
    dispatch.compiled, before = getattr(dispatch.Side, request.param), dispatch.compiled
    yield
    dispatch.compiled = before
