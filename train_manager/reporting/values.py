"""Values as text: in a few characters, for bars and lines, and in tables.

A tensor is read on the host as its text is made. torch is not imported, so that commands that only read files are
fast: a program that has no torch has no tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from torch import Tensor

MOST_NUMBERS = 8  # numbers of a tuple that are shown one by one


def texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of fixtures by name, with one for each entry of a dict, such as ``metrics`` and ``losses``.

    A name that comes twice has its first text, since ``loss`` is an entry of ``metrics`` too.

    >>> texts_of({"step_num": 3, "loss": 0.5, "metrics": {"loss": 0.5, "accuracy": 0.25}})
    {'step_num': '3', 'loss': '0.5', 'accuracy': '0.25'}
    """
    texts: dict[str, str] = {}
    for name, value in values.items():
        for key, entry in value.items() if isinstance(value, Mapping) else [(name, value)]:
            if key not in texts:  # a tensor that is shown already is not read again
                texts[key] = text_of(entry)
    return texts


def text_of(value: Any) -> str:
    """Return a value in a few characters: numbers and texts as they are, a large tensor as its shape, others as a type.

    >>> import torch
    >>> text_of(torch.tensor(.31234)), text_of(1e-5), text_of(7), text_of("warm up")
    ('0.3123', '1e-05', '7', 'warm up')
    >>> text_of((0.5, 0.1)), text_of((0.5,))
    ('(0.5, 0.1)', '0.5')
    >>> text_of(torch.ones(16, 2)), text_of(["a", "b"])
    ('16x2', 'list')
    """
    if isinstance(value, tuple | list) and 0 < len(value) <= MOST_NUMBERS and all(map(_is_single_number, value)):
        texts = ", ".join(map(text_of, value))
        return texts if len(value) == 1 else f"({texts})"
    if _is_tensor(value):
        if value.numel() != 1:
            return "x".join(map(str, value.shape))
        value = value.item()
    if isinstance(value, Real) and not isinstance(value, Integral):
        return f"{float(value):.4g}"
    if isinstance(value, str | Integral | None):
        return f"{value!s:.30}"
    return type(value).__name__


def number_text(value: float) -> str:
    """Return a number with four significant digits, so that numbers below each other have the same length.

    >>> import torch
    >>> number_text(0.5), number_text(torch.tensor(12345.678)), number_text(1e-7), number_text(3)
    ('0.5000', '12346', '1.000e-07', '3')
    """
    if isinstance(value, Integral):
        return str(value)
    number = float(value)
    if 1000 <= abs(number) < 1e7:
        return f"{number:.0f}"
    return f"{number:#.4g}"


def short_name(name: str, most: int = 90) -> str:
    """Return a name that fits into a legend or a header; a long one loses its middle, since names differ at the ends.

    >>> short_name("validation set of the year 2024, second half", most=20)
    'validation…cond half'
    """
    name = " ".join(name.split())
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - half]}…{name[-half:]}"


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a number and a noun.

    >>> plural(1, "epoch"), plural(2000, "epoch"), plural(2, "loss", "losses")
    ('1 epoch', '2,000 epochs', '2 losses')
    """
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"


def seconds_text(seconds: float) -> str:
    """Return a duration in few characters.

    >>> seconds_text(0.0314), seconds_text(75.26), seconds_text(3725.2)
    ('0.031 s', '1 min 15 s', '1 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size_text(number: float) -> str:
    """Return a number of bytes.

    >>> size_text(168), size_text(102_228_128)
    ('168 B', '102 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def _is_single_number(value: Any) -> bool:
    return isinstance(value, Real) or (_is_tensor(value) and value.numel() == 1)


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    # A program that has not imported torch has no tensors, and need not wait for the import.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# ---- tables ----------------------------------------------------------------------------------------------------------


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
