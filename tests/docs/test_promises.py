"""docs/explanation/checkpoints.md: each promise names tests, and each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "checkpoints.md"
PROMISES = re.findall(r"^\d+\. .*\n(?:^ {3,}\S.*\n)*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
TESTS = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", "".join(PROMISES))


def test_the_promises_are_numbered_in_a_row() -> None:
    assert [int(promise.partition(".")[0]) for promise in PROMISES] == [*range(1, len(PROMISES) + 1)] != []


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.partition(".")[0])
def test_a_promise_names_a_test(promise: str) -> None:
    assert re.search(r"^    - \[`\w+`\]\(\.\./\.\./tests/[\w/]+\.py\)$", promise, re.MULTILINE), promise


@pytest.mark.parametrize(("name", "file"), TESTS, ids=[name for name, _ in TESTS])
def test_a_test_that_is_named_is_there(name: str, file: str) -> None:
    source = (PAGE.parent / file).read_text(encoding="utf-8")

    assert re.search(rf"^(?:def {name}\(|{name} = )", source, re.MULTILINE), f"{file} has no {name}"
