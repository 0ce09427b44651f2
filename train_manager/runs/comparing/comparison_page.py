"""A comparison of runs as a page of HTML: one file, without scripts, that asks no other host for anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from train_manager._version import __version__
from train_manager.reporting.values import plural
from train_manager.runs.code.differences import CodeDifference
from train_manager.runs.comparing.compared import Cells, Compared, Points
from train_manager.runs.comparing.comparison_figure import MOST_PANELS, curves_svg
from train_manager.runs.comparing.page_template import TEMPLATE
from train_manager.runs.comparing.terminal_text import printable
from train_manager.telling.errors import InputError

SAME: Final = CodeDifference(())
LONG: Final = 80  # characters; what is longer can be opened


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


def comparison_page(compared: Compared) -> str:
    """Return the page.

    Raises:
        InputError: jinja2, which comes with torch, is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        cure = "pip install jinja2"
        raise InputError(f"a page needs jinja2 ({error})", name="html", cure=cure) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(plural=plural, LONG=LONG)
    svg, note = _curves(compared)
    return environment.from_string(TEMPLATE).render(
        runs=compared.runs,
        tables={table.title: table for table in _tables(compared)},
        files=[
            (run, code) for run, code in zip(compared.runs[1:], compared.files, strict=False) if code and code != SAME
        ],
        svg=svg,
        curves_note=note,
        notes=compared.notes,
        version=__version__,
    )


def _tables(compared: Compared) -> Iterator[Table]:
    for title in ("metrics", "parameters", "code", "environment", "data"):
        rows: Mapping[str, Cells] = getattr(compared, title)
        shown = {name: cells for name, cells in rows.items() if len(set(cells)) > 1 or title == "metrics"}
        same = {name: cells[0] or "" for name, cells in rows.items() if name not in shown}
        yield Table(title, shown, same)


def _curves(compared: Compared) -> tuple[str, str]:
    """Return the picture, and what is said beside it."""
    curves: Mapping[str, list[Points]] = {name: list(lines) for name, lines in compared.curves.items() if any(lines)}
    curves = {printable(name): lines for name, lines in curves.items()}
    if not curves:
        return "", "No curves were recorded."
    bands = {printable(name): lines for name, lines in compared.bands.items()}
    told = f"Curves over steps of {', '.join(list(curves)[:MOST_PANELS])}; the table of metrics has their ends."
    svg = curves_svg(curves, [printable(run.label) for run in compared.runs], told, bands)
    left_out = list(curves)[MOST_PANELS:]
    return svg, f"Not drawn: {', '.join(left_out)}." if left_out else ""
