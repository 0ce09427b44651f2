"""What a benchmark hands back: a section of the page, with its claims and its pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.measure import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Costs = Mapping[str, Mapping[int, Spread]]
"""Toolkit -> number of subscribers -> what it costs."""


@dataclass(frozen=True)
class Claim:
    """A number that the library holds itself to.

    Args:
        what: what was measured.
        measured: what came out.
        must: its limit.
        goal: what it should be.
        unit: such as "us"; "x" for a ratio.
        at_least: whether more is better.
    """

    what: str
    measured: float
    must: float
    goal: float
    unit: str = "x"
    at_least: bool = False

    def verdict(self) -> str:
        """In a word: goal met, kept, or missed."""
        if self._reaches(self.goal):
            return "goal met"
        return "kept" if self._reaches(self.must) else "**missed**"

    def row(self) -> list[str]:
        """A row of the table of claims."""
        numbers = (f"{value:.3g} {self.unit}".strip() for value in (self.measured, self.must, self.goal))
        return [self.what, *numbers, self.verdict()]

    def _reaches(self, limit: float) -> bool:
        return self.measured >= limit if self.at_least else self.measured <= limit


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Args:
        title: its heading.
        text: Markdown below it.
        claims: for the table at the top of the page.
        figures: pictures; the text has the picture ``name`` as ``benchmarks/name.png``.
        on_page: whether the page has the section; otherwise the page has its claims only.
    """

    title: str
    text: str
    claims: Sequence[Claim] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    on_page: bool = True


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: words to the left, numbers to the right.

    >>> print(table(["case", "us"], [["a stage", "0.3"]]))
    | case    |  us |
    |:--------|----:|
    | a stage | 0.3 |
    """
    lines = [list(heads), *(list(row) for row in rows)]
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "| " + " | ".join([line[0].ljust(first), *map(str.rjust, line[1:], others)]) + " |"  # numbers to the right
        for line in lines
    ]
    rule = "|:" + "-" * (first + 1) + "|" + "".join("-" * (width + 1) + ":|" for width in others)
    return "\n".join([shown[0], rule, *shown[1:]])


def better(costs: Costs, ours: str, others: Iterable[str]) -> str:
    """Where another toolkit costs less or as much, in words; as much is where the quartiles overlap."""
    rivals = list(others)
    told = []
    for count, mine in costs[ours].items():
        for name in rivals:
            other = costs[name][count]
            times = f"{other.median:.1f} against {mine.median:.1f}"
            if other.is_below(mine):
                told.append(f"- H = {count}: {name} costs less, {times}")
            elif not mine.is_below(other):
                told.append(f"- H = {count}: {name} cannot be told apart, {times}")
    if told:
        return "Cases in which another toolkit is better, or as good:\n\n" + "\n".join(told)
    return f"{ours} costs less than each of the others at every H." if rivals else ""


def lines(texts: Iterable[str]) -> str:
    """A paragraph each."""
    return "".join(f"\n\n{text}" for text in texts if text)
