"""The tables of a comparison on a page, with the rows that differ first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from train_manager.runs.code.differences import CodeDifference
from train_manager.runs.comparing.compared import Cells, Compared, ComparedRun, is_partial, unknown_in, unknown_line

SAME: Final = CodeDifference(())  # neither files that differ nor problems


@final
@dataclass(frozen=True)
class Table:
    """The rows of a section of the page."""

    title: str
    differing: Mapping[str, Cells]  # rows that are shown
    same: Mapping[str, str]  # rows that a reader can open, with the value that all runs have
    unknown: str = ""  # a line that lists the values that no run has recorded
    is_partial: bool = False  # whether not all was recorded


def files_of(compared: Compared) -> list[tuple[ComparedRun, CodeDifference]]:
    """Return the runs whose code differs from that of the first, and how."""
    found = zip(compared.runs[1:], compared.files, strict=False)
    return [(run, code) for run, code in found if code and code != SAME]


def tables_of(compared: Compared) -> Iterator[Table]:
    """Yield the tables of a page."""
    for title in ("metrics", "parameters", "code", "environment", "data"):
        rows: Mapping[str, Cells] = getattr(compared, title)
        shown = {name: cells for name, cells in rows.items() if len(set(cells)) > 1 or title == "metrics"}
        unknown = unknown_in(compared) if title == "parameters" else {}
        same = {name: cells[0] or "" for name, cells in rows.items() if name not in shown and name not in unknown}
        yield Table(title, shown, same, unknown_line(compared) if unknown else "", is_partial(compared, title))
