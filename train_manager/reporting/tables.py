"""Tables of numbers as text."""

from __future__ import annotations

from collections.abc import Mapping


def text_table(columns: Mapping[str, Mapping[str, float]], corner: str = "") -> str:
    """Return numbers by column and row as text; a cell without a number stays empty.

    >>> print(text_table({"training": {"loss": .25, "moving_loss": .375}, "valid": {"loss": 1 / 3}}, corner="metric"))
    metric       training   valid
    loss           0.2500  0.3333
    moving_loss    0.3750
    """
    rows = list(dict.fromkeys(row for values in columns.values() for row in values))
    lines = [[corner, *columns], *([row, *(shown(values, row) for values in columns.values())] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(aligned(line, widths) for line in lines)


def shown(values: Mapping[str, float], row: str) -> str:
    """Return the text of a number, in few characters; empty if the row has none."""
    if row not in values:
        return ""
    value = values[row]
    return f"{value:.4f}" if 0.01 <= abs(value) < 10_000 or value == 0 else f"{value:.4g}"


def aligned(cells: list[str], widths: list[int]) -> str:
    """Return a line whose first cell is aligned to the left and the others to the right."""
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([cells[0].ljust(widths[0]), *rest]).rstrip()
