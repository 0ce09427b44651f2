"""Tables of numbers as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def text_table(columns: Mapping[str, Mapping[str, float]], corner: str = "") -> str:
    """Return numbers by column and row as text; a cell without a number stays empty.

    >>> print(text_table({"training": {"loss": .25, "moving_loss": .375}, "valid": {"loss": 1 / 3}}, corner="metric"))
    metric       training   valid
    loss           0.2500  0.3333
    moving_loss    0.3750
    """
    rows = list(dict.fromkeys(row for values in columns.values() for row in values))
    lines = [[corner, *columns], *([row, *(number_cell(values, row) for values in columns.values())] for row in rows)]
    return align_columns(lines)


def number_cell(values: Mapping[str, float], row: str) -> str:
    """Return the text of a number, in few characters; empty if the row has none."""
    if row not in values:
        return ""
    value = values[row]
    return f"{value:.4f}" if 0.01 <= abs(value) < 10_000 or value == 0 else f"{value:.4g}"


def align_columns(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as text, with the first column to the left and the others to the right.

    >>> print(align_columns([["hook", "us"], ["EMA.post_train", "7.5"]]))
    hook             us
    EMA.post_train  7.5
    """
    first, *others = [len(max(column, key=len)) for column in zip(*lines, strict=True)]
    rows = ([line[0].ljust(first), *map(str.rjust, line[1:], others)] for line in lines)
    return "\n".join("  ".join(row).rstrip() for row in rows)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return a table as a notebook shows it: the first column to the left, the others to the right.

    >>> html_table(["set", "loss"], [["valid", "0.31"]]).count("<td")
    2
    """

    def line(cells: Sequence[str], tag: str) -> str:
        aligns = ("left", *["right"] * (len(cells) - 1))
        pairs = zip(cells, aligns, strict=True)
        return "".join(f'<{tag} style="text-align: {align}">{escape(cell)}</{tag}>' for cell, align in pairs)

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    title = f'<caption style="text-align: left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
