"""The result of a reproduction: whether the metrics are identical, where they differ first, and likely causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from train_manager.reporting.terminal import printable
from train_manager.reporting.values import plural
from train_manager.runs.repeating.metrics import Alone, MetricComparison, series_text
from train_manager.runs.store.schema import Series

MOST_NAMES: Final = 5  # of series that are named in a line


@final
@dataclass(frozen=True)
class Reproduction:
    """The result of a run that was run again; as text, it is for people.

    Attributes:
        metrics: how the metrics of the reproduction compare with those of the record.
        cut_short: why the two may end at different steps; "" if both must end at the same.
        around: what differs besides: seed, parameters, packages, threads, devices, code.
        causes: what explains a difference although none of these differ, such as a missing seed.
        folder: where the code and the metrics of the reproduction are; None if they were removed.
    """

    metrics: MetricComparison
    cut_short: str = ""
    around: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def identical(self) -> bool:
        """Whether the reproduction has come to the same, to the bit."""
        # A program that ended early may have identical metrics up to there, and has not reproduced the run.
        one, other = self.metrics.ends
        return not self._is_empty and self.metrics.identical and (one == other or bool(self.cut_short))

    @property
    def _is_empty(self) -> bool:
        return not self.metrics.losses + self.metrics.metrics

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data; a series as it is called in the text."""
        found = self.metrics
        metrics = {
            **vars(found),
            "first": found.first and {**asdict(found.first), "series": series_text(found.first.series)},
            "differing": {series_text(series): count for series, count in found.differing.items()},
            "only_in": [
                {series_text(series): one._asdict() for series, one in alone.items()} for alone in found.only_in
            ],
            "left_out": [*map(series_text, found.left_out)],
        }
        folder = self.folder and str(self.folder)
        return {"identical": self.identical, **vars(self), "metrics": metrics, "folder": folder}

    def __str__(self) -> str:
        return "\n".join(map(printable, [*self._result(), *self._surroundings(), *self._folder_line()]))

    def _result(self) -> Iterator[str]:
        found = self.metrics
        if self.identical:
            upto = "" if found.until == max(found.ends) else f" up to step {found.until}"
            yield f"identical{upto}: {_counts_text(found)}, bit for bit"
        elif self._is_empty:
            yield "not compared: the record and the reproduction have no metric in common"
        elif found.first is None:
            yield f"different: what was compared is identical, {_counts_text(found)}, but not all is there"
        else:
            yield from _first(found)
        yield from _lengths(found, self.cut_short)
        yield from _alone("only in the record", found.only_in[0])
        yield from _alone("only in the reproduction, and not compared", found.only_in[1])
        if found.left_out:
            yield f"  not compared, as times differ from run to run: {_names(found.left_out)}"

    def _surroundings(self) -> Iterator[str]:
        if self.around:
            yield "what differs besides:" if self.identical else "what differs around it:"
            yield from (f"  {one}" for one in self.around)
        if not self.identical:
            if not self.around:
                yield "nothing else that was recorded differs"
            yield from (f"cause, perhaps: {one}" for one in self.causes)

    def _folder_line(self) -> Iterator[str]:
        if self.folder is not None:
            yield f"files: {self.folder}"


def _counts_text(found: MetricComparison) -> str:
    return f"{plural(found.losses, 'loss', 'losses')} and {plural(found.metrics, 'metric')}"


def _first(found: MetricComparison) -> Iterator[str]:
    first = found.first
    assert first is not None
    by = "" if (distance := first.by()) is None else f" (apart by {distance:.3g})"
    # All digits: the last bit counts.
    values = f"{first.one!r} in the record, {first.other!r} in the reproduction{by}"
    yield f"different from step {first.step} on: {series_text(first.series)} is {values}"
    total = sum(found.differing.values())
    many = f"{plural(total, 'value differs', 'values differ')} of {found.losses + found.metrics:,}"
    largest = f", by {found.largest:.3g} at most" if found.largest else ""
    yield f"  {many}, in {_names(found.differing)}{largest}"


def _lengths(found: MetricComparison, cut_short: str) -> Iterator[str]:
    one, other = found.ends
    if one != other or (cut_short and found.until < max(found.ends)):
        why = f", {cut_short}" if cut_short else ""
        of_other = "" if cut_short and one > found.until else f", the reproduction {other:,}"
        yield f"  compared up to step {found.until}{why}; the record has {plural(one, 'step')}{of_other}"


def _alone(where: str, found: Mapping[Series, Alone]) -> Iterator[str]:
    if found:
        first, last = min(one.first for one in found.values()), max(one.last for one in found.values())
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        yield f"  {where}: {plural(sum(one.number for one in found.values()), 'value')} at {steps}, of {_names(found)}"


def _names(names: Iterable[Series]) -> str:
    all_names = [series_text(name) for name in names]
    more = len(all_names) - MOST_NAMES
    return ", ".join(all_names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
