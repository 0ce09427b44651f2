"""What the manifest tells of the place in which a checkpoint was written."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager.checkpoints.manifest import (
    FILES,
    FORMAT,
    differences_from_here,
    environment,
    parse_manifest,
    render_manifest,
)
from train_manager.errors import CheckpointError


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


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("versions", None, "its versions is None"),
        ("threads", "x", "its threads is 'x'"),
        ("metrics", [1], "its metrics is [1]"),
        ("monitored", {}, "its monitored is {}"),
        ("mode", 5, "its mode is 5"),
    ],
)
def test_a_fact_of_another_kind_under_a_right_hash_is_damage(name: str, value: object, told: str) -> None:
    files = {file: {"size": 0, "sha256": ""} for file in FILES}
    content = render_manifest({"format": FORMAT, **environment(), "files": files, name: value})

    with pytest.raises(CheckpointError) as refused:
        parse_manifest(content, "manifest.json")
    assert str(refused.value) == f"manifest.json is damaged: {told}"
