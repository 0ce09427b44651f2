from __future__ import annotations

import pytest

from train_manager.files.json_text import json_of
from train_manager.telling.errors import CheckpointError


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff", b"[" * 100_000])
def test_a_json_text_that_is_damaged_is_named(content: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^state\.json is damaged: ") as caught:
        json_of(content, "state.json")

    assert caught.value.name == "state.json"
