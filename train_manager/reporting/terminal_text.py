"""Foreign texts in a terminal: their width in cells, shortened to fit, and without escape sequences."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

ELLIPSIS: Final = "…"
LEAD: Final = 8  # characters before the first difference of texts that are shortened together


def printable(text: str) -> str:
    r"""Return a text with the characters escaped that a terminal obeys: colours, bells, line ends, marks of direction.

    >>> print(printable("a\x1b[31mred\nb"))
    a\x1b[31mred\nb
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def printable_lines(text: str) -> str:
    """Return lines, each of which is ``printable``."""
    return "\n".join(map(printable, text.split("\n")))


def width_of(text: str) -> int:
    """Return how many cells of a terminal a text takes.

    >>> width_of("loss"), width_of("損失")
    (4, 4)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def pad(text: str, width: int, *, left: bool = True) -> str:
    """Return a text with blanks up to a width."""
    blanks = " " * (width - width_of(text))
    return text + blanks if left else blanks + text


def cut(text: str, most: int) -> str:
    """Return a text that fits, with the number of the characters that are left out.

    >>> cut("Sequential(Linear(2, 32), ReLU())", 20)
    'Sequential(Line… +18'
    """
    if width_of(text) <= most:
        return text
    kept = _head(text, most - 1)
    # The digits of the number need room themselves, so it is computed until it does not change any more.
    for _ in range(3):
        more = f"{ELLIPSIS} +{len(text) - len(kept)}"
        kept = _head(text, max(1, most - len(more)))
    return kept + f"{ELLIPSIS} +{len(text) - len(kept)}"


def cut_middle(text: str, most: int) -> str:
    """Return a path or a name that fits, without its middle: names differ at their ends.

    >>> cut_middle("runs/a/very/long/path/lr-0.1", 15)
    'runs/a/…/lr-0.1'
    """
    if width_of(text) <= most:
        return text
    start = _head(text, (most - 1) // 2)
    return start + ELLIPSIS + _head(text[::-1], most - 1 - width_of(start))[::-1]


def cut_alike(texts: Sequence[str], most: int) -> list[str]:
    """Return texts that fit and still differ, without the beginning that they share if need be.

    >>> cut_alike(["a long beginning, then 1", "a long beginning, then 2"], 16)
    ['…hen 1', '…hen 2']
    """
    short = [cut(text, most) for text in texts]
    if len({text.partition(ELLIPSIS)[0] for text in short}) == len(set(texts)):
        return short
    long = [text for text in texts if width_of(text) > most]
    start = max(0, _in_common(long) - min(LEAD, most // 4))
    return [
        one if width_of(text) <= most or not start else cut(ELLIPSIS + text[start:], most)
        for one, text in zip(short, texts, strict=True)
    ]


def cut_around(texts: Sequence[str], most: int) -> list[str]:
    """Return texts that fit, with the first place at which they differ in the middle.

    >>> cut_around(["a long line with lr=0.1 in it", "a long line with lr=0.2 in it"], 20)
    ['…with lr=0.1 in it', '…with lr=0.2 in it']
    """
    same = _in_common(texts)
    start = same - len(_head(texts[0][:same][::-1], most // 2))
    return [
        text if width_of(text) <= most else cut(f"{ELLIPSIS}{text[start:]}" if start else text, most) for text in texts
    ]


def _in_common(texts: Sequence[str]) -> int:
    """Return the number of letters that texts share at their beginning."""
    places = enumerate(zip(*texts, strict=False))
    return next((place for place, letters in places if len(set(letters)) > 1), min(map(len, texts)))


def _head(text: str, width: int) -> str:
    """Return as many of the first characters as fit."""
    if text.isascii():
        return text[:width]
    used = 0
    for number, letter in enumerate(text):
        used += _cells(letter)
        if used > width:
            return text[:number]
    return text


def _cells(letter: str) -> int:
    # An accent is drawn over the letter before it; wide East Asian letters take two cells.
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
