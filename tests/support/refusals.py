"""What is said of a mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from train_manager import InputError


def refusal(call: Callable[[], object], error: type[BaseException] = InputError) -> str:
    """Return the text of the error that a call raises."""
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)
