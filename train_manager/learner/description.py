"""A file or a dict that describes a learner, and its mistakes: gathered, and reported at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from train_manager.learner.places import Place
from train_manager.learner.reading import Unusable, copy_plain, places_of, read_file
from train_manager.reporting.terminal_text import printable
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.showing import cut, short

A_DICT: Final = "the dict"
SHOWN_MISTAKES: Final = 100
SHOWN_NAMES: Final = 12
LONGEST: Final = 300  # characters of a line of a message
LONGEST_NAME: Final = 60

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@final
@dataclass(frozen=True, eq=False)
class Description:
    """The tree of a file or of a dict, with the place of each of its keys.

    Attributes:
        source: the path of the file as it was given, or ``"the dict"``.
        tree: the values as ``tomllib`` reads them; for a dict a copy of it.
        order: of each key its line; in a dict, its number.
    """

    source: str
    tree: dict[str, Any] = field(default_factory=dict)
    order: Mapping[Place, int] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the file, from which the paths in it lead; for a dict the current one."""
        return Path() if self.source == A_DICT else Path(self.source).parent

    @classmethod
    def read(cls, given: object, what: str) -> Description:
        """Read a TOML file, or copy a dict.

        Args:
            given: the path of a file, or a mapping.
            what: the name of the argument, for errors.

        Raises:
            InputError: the file cannot be read, is not TOML, or has values that cannot be used.
        """
        mistakes = Mistakes()
        read = _read(given, what, mistakes)
        mistakes.raise_all()
        return read

    def at(self, *path: str | int) -> str:
        """Return where a value is: ``model.toml:14``, or ``the dict: module.trunk.layers[0]``."""
        if self.source == A_DICT:
            return f"{A_DICT}: {dotted(path)}" if path else A_DICT
        line = self.line(path)
        return f"{self.source}:{line}" if line else self.source

    def line(self, path: Place) -> int:
        """Return the line of a value, or of the innermost table around it that is there; 0 if there is none."""
        return next((self.order[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.order), 0)


class _Mistake(NamedTuple):
    description: Description
    path: Place
    what: str
    advice: Sequence[str]

    @property
    def order(self) -> tuple[str, int]:
        return self.description.source, self.description.line(self.path)

    @property
    def where(self) -> str:
        """``model.toml:14``; a dict has no lines, and the path follows in any case."""
        is_dict = self.description.source == A_DICT
        return A_DICT if is_dict else _line_of(self.description.at(*self.path))


@final
class Mistakes:
    """The mistakes of one or several descriptions, raised together."""

    def __init__(self) -> None:
        self._found: list[_Mistake] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self,
        description: Description,
        path: Place,
        what: str,
        *,
        nearest_of: Iterable[str] | None = None,
        name: str | None = None,
        cure: str = "",
    ) -> None:
        """Add a mistake.

        Args:
            description: the description that has it.
            path: the value that is wrong; it is the subject of ``what``.
            what: a predicate: "is not a key of a dataset".
            nearest_of: the names that there are; one that is like the wrong name is offered first.
            name: the wrong name; by default the last key of the path.
            cure: what to do about it.
        """
        wrong = name if name is not None else str(path[-1]) if path else ""
        offers = [] if nearest_of is None else [_offer(wrong, list(nearest_of))]
        self._found.append(_Mistake(description, path, what, [*offers, *([cure] if cure else [])]))

    def raise_all(self) -> None:
        """Raise all mistakes as one error, by file and line; return if there is none.

        Raises:
            InputError: with a line for each mistake.
        """
        if self._found:
            found = sorted(self._found, key=lambda mistake: mistake.order)
            sources = [*dict.fromkeys(_line_of(mistake.description.source) for mistake in found)]
            count = "a mistake" if len(found) == 1 else f"{len(found)} mistakes"
            what = f"{' and '.join(sources)} {'has' if len(sources) == 1 else 'have'} {count}"
            raise InputError(what, name=dotted(found[0].path), cure="\n  ".join(_lines(found)))


def dotted(path: Place) -> str:
    """Return a path as TOML writes it, with the index of a list in brackets.

    >>> dotted(("module", "a b", "layers", 0, "use"))
    "module.'a b'.layers[0].use"
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in path).removeprefix(".")


def _name(key: str) -> str:
    return cut(key if _BARE.fullmatch(key) else repr(key), LONGEST_NAME)


def _read(given: object, what: str, mistakes: Mistakes) -> Description:
    """Read a file or copy a dict; if that fails, add the mistakes, and return an empty description."""
    source = what
    try:
        if isinstance(given, Mapping):
            source = A_DICT
            tree = copy_plain(given)
            return Description(source, tree, {place: number for number, place in enumerate(places_of(tree), start=1)})
        if isinstance(given, str | Path):
            source = str(given)
            return Description(source, *read_file(Path(given)))
        mistakes.add(Description(what), (), f"must be the path of a file or a dict, but is {short(given)}")
    except Unusable as unusable:
        for flaw in unusable.flaws:
            broken = Description(source, {}, {flaw.place: flaw.line})
            wrong = os.path.basename(source)
            mistakes.add(broken, flaw.place, flaw.what, nearest_of=flaw.names, name=wrong, cure=flaw.cure)
    return Description(source)


def _offer(wrong: str, names: Sequence[str]) -> str:
    """Return the name that may be meant, and the names that there are."""
    more = len(names) - SHOWN_NAMES
    shown = [*(cut(name, LONGEST_NAME) for name in names[:SHOWN_NAMES]), *([f"... ({more} more)"] if more > 0 else [])]
    known = f"known: {', '.join(shown)}" if names else "there is nothing to choose from"
    return " ".join(filter(None, [did_you_mean(_meant(wrong[:LONGEST_NAME], names)), known]))


def _meant(wrong: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names that may be meant: those that differ by upper and lower case alone come first."""
    same = [name for name in names if name.casefold() == wrong.casefold()]
    return same or near(wrong, names)


def _line_of(text: str) -> str:
    """Return a text that may come from a file: in one line, and without characters that a terminal obeys."""
    return printable(cut(text, LONGEST))


def _lines(found: Sequence[_Mistake]) -> Iterator[str]:
    """Yield the lines of mistakes, with the texts below each other."""
    shown = found[:SHOWN_MISTAKES]
    width = max(len(mistake.where) for mistake in shown)
    for mistake in shown:
        texts = [f"{dotted(mistake.path)} {mistake.what}".lstrip(), *mistake.advice]
        for label, text in zip([mistake.where, *[""] * len(mistake.advice)], texts, strict=True):
            yield f"{label:<{width}}  {_line_of(text)}"
    if len(found) > len(shown):
        yield f"... ({len(found) - len(shown)} more)"
