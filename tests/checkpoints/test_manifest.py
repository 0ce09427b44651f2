"""What the manifest tells of the place in which a checkpoint was written."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager.checkpoints.manifest import differences_from_here, environment


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ({"versions": {"torch": "1.0"}}, "torch 1.0 (here {versions[torch]})"),
        ({"threads": 1000}, "threads of torch 1000 (here {threads})"),
        ({"device": "abacus"}, "device abacus (here {device})"),
    ],
    ids=["torch", "threads", "device"],
)
def test_what_changes_bits_is_told_apart(then: dict[str, Any], told: str) -> None:
    here = environment()

    assert differences_from_here({**here, **then}) == [told.format(**here)]


def test_in_the_same_place_nothing_differs() -> None:
    assert differences_from_here(environment()) == []
