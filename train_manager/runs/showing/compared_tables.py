"""The tables of a comparison, as a page shows them: what differs first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from train_manager.runs.code.differences import CodeDifference
from train_manager.runs.comparing.compared import Cells, Compared, ComparedRun

SAME: Final = CodeDifference(())


@final
@dataclass(frozen=True)
class Table:
    """The rows of a section, those that differ first apart.

    Attributes:
        title: of the section.
        differing: the rows that are shown.
        same: the rows that can be opened.
    """

    title: str
    differing: Mapping[str, Cells]
    same: Mapping[str, str]


def files_of(compared: Compared) -> list[tuple[ComparedRun, CodeDifference]]:
    """Return the runs whose code differs from that of the first, and how."""
    found = zip(compared.runs[1:], compared.files, strict=False)
    return [(run, code) for run, code in found if code and code != SAME]


def tables_of(compared: Compared) -> Iterator[Table]:
    """Yield the tables of a page."""
    for title in ("metrics", "parameters", "code", "environment", "data"):
        rows: Mapping[str, Cells] = getattr(compared, title)
        shown = {name: cells for name, cells in rows.items() if len(set(cells)) > 1 or title == "metrics"}
        same = {name: cells[0] or "" for name, cells in rows.items() if name not in shown}
        yield Table(title, shown, same)
