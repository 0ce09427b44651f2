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

    @property
    def is_missed(self) -> bool:
        """Whether it is beyond its limit."""
        return not self._reaches(self.must)

    def verdict(self) -> str:
        """In a word: goal met, kept, or missed."""
        if self._reaches(self.goal):
            return "goal met"
        return "**missed**" if self.is_missed else "kept"

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
        claims: the page has the table of the ones that are missed.
        figures: pictures; the text has the picture ``name`` as ``benchmarks/name.png``.
        on_page: whether the page has the section; otherwise it only has the claims that are missed.
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
    """Where another toolkit costs less or as much, in words; as much is where the quartiles overlap.

    >>> dear, cheap = Spread(4, 5, 6), Spread(1, 2, 3)
    >>> better({"ours": {0: dear, 5: dear}, "other": {0: cheap, 5: Spread(3, 4, 5)}}, "ours", ["other"])
    'Cheaper than ours: other (H = 0). Not told apart: other (H = 5).'
    """
    rivals = list(others)
    cheaper: dict[str, list[str]] = {}
    alike: dict[str, list[str]] = {}
    for name in rivals:
        for count, mine in costs[ours].items():
            if costs[name][count].is_below(mine):
                cheaper.setdefault(name, []).append(str(count))
            elif not mine.is_below(costs[name][count]):
                alike.setdefault(name, []).append(str(count))
    told = [_said(f"Cheaper than {ours}", cheaper), _said("Not told apart", alike)]
    return " ".join(filter(None, told)) or (f"{ours} is the cheapest." if rivals else "")


def _said(how: str, found: Mapping[str, Sequence[str]]) -> str:
    names = [f"{name} (H = {', '.join(counts)})" for name, counts in found.items()]
    return f"{how}: {', '.join(names)}." if names else ""


def lines(texts: Iterable[str]) -> str:
    """A paragraph each."""
    return "".join(f"\n\n{text}" for text in texts if text)
