"""What a reproduction has come to: whether the figures are identical, where they differ first, and what lies around."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from train_manager.reporting.terminal_text import printable
from train_manager.reporting.values import plural
from train_manager.runs.record.metric_schema import Series
from train_manager.runs.repeating.comparing_figures import FigureComparison, series_text

MOST_NAMES: Final = 5  # of series that are named in a line


@final
@dataclass(frozen=True)
class Reproduction:
    """What a run that was run again has come to; as text, it is for people.

    Attributes:
        figures: how the figures of the reproduction compare with those of the record.
        cut_short: why the two may end at different steps; "" if both must end at the same.
        around: what differs besides: seed, parameters, packages, threads, devices, code.
        causes: what explains a difference though nothing of that differs, as a missing seed does.
        folder: where the code and the figures of the reproduction are; None if they were removed.
    """

    figures: FigureComparison
    cut_short: str = ""
    around: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def identical(self) -> bool:
        """Whether the reproduction has come to the same, to the bit."""
        one, other = self.figures.ends
        return self.figures.identical and (one == other or bool(self.cut_short))

    def __str__(self) -> str:
        return "\n".join(map(printable, [*self._result(), *self._surroundings(), *self._kept()]))

    def _result(self) -> Iterator[str]:
        found = self.figures
        if self.identical:
            upto = "" if found.until == max(found.ends) else f" up to step {found.until}"
            yield f"identical{upto}: {_compared(found)}, bit for bit"
        elif found.first is None:
            yield f"different: what was compared is identical, {_compared(found)}, but not all is there"
        else:
            yield from _first(found)
        yield from _lengths(found, self.cut_short)
        yield from _series("only in the record", found.only_in[0])
        yield from _series("only in the reproduction, and not compared", found.only_in[1])
        yield from _series("not compared, as times differ from run to run", found.left_out)

    def _surroundings(self) -> Iterator[str]:
        if self.around:
            yield "what differs besides:" if self.identical else "what differs around it:"
            yield from (f"  {one}" for one in self.around)
        if not self.identical:
            if not self.around:
                yield "nothing else that was recorded differs"
            yield from (f"cause, perhaps: {one}" for one in self.causes)

    def _kept(self) -> Iterator[str]:
        if self.folder is not None:
            yield f"files: {self.folder}"


def _compared(found: FigureComparison) -> str:
    return f"{plural(found.losses, 'loss', 'losses')} and {plural(found.figures, 'figure')}"


def _first(found: FigureComparison) -> Iterator[str]:
    first = found.first
    assert first is not None
    by = "" if (distance := first.by()) is None else f" (apart by {distance:.3g})"
    values = f"{_value(first.one)} in the record, {_value(first.other)} in the reproduction{by}"
    yield f"different from step {first.step} on: {series_text(first.series)} is {values}"
    total = sum(found.differing.values())
    many = f"{plural(total, 'value differs', 'values differ')} of {found.losses + found.figures:,}"
    largest = f", by {found.largest:.3g} at most" if found.largest else ""
    yield f"  {many}, in {_names(found.differing)}{largest}"


def _lengths(found: FigureComparison, cut_short: str) -> Iterator[str]:
    one, other = found.ends
    if one != other or (cut_short and found.until < max(found.ends)):
        why = f", {cut_short}" if cut_short else ""
        of_other = "" if cut_short and one > found.until else f", the reproduction {other:,}"
        yield f"  compared up to step {found.until}{why}; the record has {plural(one, 'step')}{of_other}"


def _series(told: str, names: Iterable[Series]) -> Iterator[str]:
    if found := _names(names):
        yield f"  {told}: {found}"


def _names(names: Iterable[Series]) -> str:
    all_names = [series_text(name) for name in names]
    more = len(all_names) - MOST_NAMES
    return ", ".join(all_names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _value(value: float | None) -> str:
    return "missing" if value is None else repr(value)  # all digits: the last bit counts
