"""The documentation is run: every python block of README, CONTRIBUTING and docs/, page by page, in order.

A page says what its blocks print in two ways:

- a ``text`` block right below a python block is all that this block prints; where the block ends in an error, then
  the error's last lines as Python shows them
- ``print(...)  # 25`` at the start of a line says what that line prints

In both, ``...`` stands for anything. Each block is a file ``example.py`` of its own: its lines count from its top.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import re
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from train_manager.core import errors

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```\n(?:\s*^\1```text\n(.*?)^\1```\n)?", re.DOTALL | re.MULTILINE)
SECONDS = re.compile(r"(?m)(?<=  )\d+\.\d\d(?=(?:  best)?$)")  # the last figure of a line of `Log`
PRINTED = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One python block of a page, and what the page says that it prints; None where it does not say."""

    code: str
    shown: str | None


def blocks(page: Path) -> Iterator[Block]:
    """The python blocks of a page, also those that are indented in a list."""
    for match in BLOCK.finditer(page.read_text()):
        shown = match[3]
        yield Block(textwrap.dedent(match[2]), None if shown is None else textwrap.dedent(shown))


def run_block(block: Block, file: Path, namespace: dict[str, Any]) -> str:
    """Run a block from a file, whose source the library can read, and return what a terminal would show."""
    file.parent.mkdir()
    file.write_text(block.code)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(block.code, str(file), "exec", dont_inherit=True), namespace)
        except Exception as error:
            if block.shown is None:
                raise
            printed.write("".join(traceback.format_exception_only(error)))
    return re.sub(r"[^\s(]*example\.py", "example.py", printed.getvalue())


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether a text is the one on the page, where ``...`` and the seconds of an epoch stand for anything."""
    shown = SECONDS.sub("...", shown)
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def in_order(shown: list[str], printed: str) -> bool:
    """Whether the lines of a page come in this order among those that were printed."""
    lines = iter(printed.splitlines())
    return all(any(is_as_shown(f"{wanted}\n", f"{line}\n") for line in lines) for wanted in shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "example"}

    for number, block in enumerate(blocks(page), start=1):
        printed = run_block(block, tmp_path / str(number) / "example.py", namespace)

        if block.shown is not None:
            assert is_as_shown(block.shown, printed), f"{block.code}\nprints\n\n{printed}\nnot\n\n{block.shown}"
        comments = PRINTED.findall(block.code)
        assert in_order(comments, printed), f"{block.code}\nprints\n\n{printed}\nnot {comments}"


def test_every_error_has_a_section_of_its_own_and_shows_its_message() -> None:
    page = (ROOT / "docs" / "reference" / "errors-and-cures.md").read_text()
    sections = {part.partition("\n")[0].strip(" `"): part for part in page.split("\n## ")[1:]}

    for error in _error_classes():
        assert error.__name__ in sections, f"docs/reference/errors-and-cures.md has no section `## {error.__name__}`"
        if error is not errors.TrainManagerError:
            assert f"```text\ntrain_manager.{error.__name__}: " in sections[error.__name__]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()

    for page in (ROOT / "docs").rglob("*.md"):
        assert page.name == "README.md" or f"]({page.relative_to(ROOT / 'docs')})" in index


def test_no_page_has_a_link_that_leads_nowhere() -> None:
    for page in PAGES[2:]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_seeded_mistake_is_found_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "reference")
    script = importlib.import_module("make_mistakes")

    found = {mistake.title: script.found(mistake).when for mistake in script.MISTAKES}

    assert len(found) == 12
    assert set(found.values()) <= {script.WHEN_ADDED, script.AT_CHECK}, found


def _error_classes() -> list[type]:
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [cls for cls in found if issubclass(cls, errors.TrainManagerError)]
