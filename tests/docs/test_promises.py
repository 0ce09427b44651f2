"""The pages of promises, on checkpoints and on records of runs: each promise names tests, and each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "explanation" / name for name in ("checkpoints.md", "what-a-run-records.md")]
PROMISE = re.compile(r"^\d+\. .*\n(?:^ {3,}\S.*\n)*", re.MULTILINE)
PROMISES = {page: PROMISE.findall(page.read_text(encoding="utf-8")) for page in PAGES}
TESTS = sorted(
    {found for promises in PROMISES.values() for found in re.findall(r"\[`(\w+)`\]\(([^)]+)\)", "".join(promises))}
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_promises_are_numbered_in_a_row(page: Path) -> None:
    numbers = [int(promise.partition(".")[0]) for promise in PROMISES[page]]

    assert numbers == [*range(1, len(numbers) + 1)] != []


def test_each_promise_names_a_test() -> None:
    for promise in (promise for promises in PROMISES.values() for promise in promises):
        assert re.search(r"^    - \[`\w+`\]\(\.\./\.\./tests/[\w/]+\.py\)$", promise, re.MULTILINE), promise


def test_each_test_that_is_named_is_there() -> None:
    for name, file in TESTS:
        source = (PAGES[0].parent / file).read_text(encoding="utf-8")

        assert re.search(rf"^(?:def {name}\(|{name} = )", source, re.MULTILINE), f"{file} has no {name}"
