"""The codes of findings: each finding of the library has one of its own, which the reference lists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from train_manager.checks.batch_leak import RULES
from train_manager.model import parameters

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "errors-and-cures.md"
MAKERS = ("Finding", "_found")  # the second is that of checks/overfit
FIELDS = 6  # of a Finding before its code


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """The calls that make findings, and the places where they are."""
    found = []
    for path in [*(ROOT / "train_manager").rglob("*.py"), *(ROOT / "extensions").rglob("*.py")]:
        if "Finding" in (text := path.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", node))
    return found


def code_of(call: ast.Call) -> ast.expr | None:
    """The code that a call gives: a keyword, or the argument behind all others."""
    behind = call.args[FIELDS] if len(call.args) > FIELDS else None
    return next((one.value for one in call.keywords if one.arg == "code"), behind)


def codes() -> list[str]:
    """The codes that stand in the source; those of texts are behind the name of the constant."""
    written = [code.value for _, call in calls() if isinstance(code := code_of(call), ast.Constant)]
    texts = [one[0] for one in vars(parameters).values() if isinstance(one, tuple) and len(one) == 4]
    return [*map(str, written), *texts, *(code for code, _, _ in RULES.values())]


def test_each_finding_has_a_code() -> None:
    assert [place for place, call in calls() if code_of(call) is None] == []
    assert len(calls()) > 30


def test_no_two_findings_have_the_same_code() -> None:
    assert len(codes()) == len(set(codes()))


def test_codes_are_short_words_in_small_letters() -> None:
    assert [code for code in codes() if not re.fullmatch("[a-z]+(-[a-z]+)+", code) or len(code) > 30] == []


def test_the_reference_lists_the_codes() -> None:
    section = PAGE.read_text().partition("## Findings")[2].partition("## Arguments")[0]

    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == sorted(codes())
