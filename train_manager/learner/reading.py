"""The tree of a file or of a dict, with the line of each key, or with the reasons why it cannot be used."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from train_manager.learner.places import DEEPEST, Place, UnreadableText, places
from train_manager.telling.showing import short

LARGEST: Final = 1_000_000  # bytes of a file
MOST_VALUES: Final = 100_000  # a few lines of YAML with anchors become a dict of billions
MOST_NEIGHBOURS: Final = 1_000  # files of a folder that are looked at for the one that was meant

_SCALARS: Final = frozenset({str, int, float, bool, datetime.datetime, datetime.date, datetime.time})
_POSITION: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class Flaw(NamedTuple):
    """A reason why a file or a dict cannot be used."""

    what: str  # a predicate: "is a folder"
    place: Place = ()
    line: int = 0
    names: tuple[str, ...] | None = None  # of the files that may be meant
    cure: str = ""


@final
class Unusable(Exception):
    """A file or a dict cannot be used."""

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__()
        self.flaws = flaws


def read_file(path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """Return the tree of a TOML file, and the line of each of its keys.

    Raises:
        Unusable: the file is missing, too large, not TOML, or nested too deep.
    """
    text = _text_of(path)
    try:
        lines = places(text)
    except UnreadableText as error:
        if error.place:
            raise Unusable(Flaw(str(error), error.place, error.line)) from None
        _loads(text, error.open_since)  # the message of tomllib says more
        raise Unusable(Flaw(str(error), line=error.line)) from None
    tree = _loads(text)
    try:
        return copy_plain(tree), lines
    except Unusable as error:
        raise Unusable(*(flaw._replace(line=lines.get(flaw.place, 0)) for flaw in error.flaws)) from None


def copy_plain(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of a mapping down to its values, all of which must be of kinds that TOML has.

    >>> copy_plain({"image": (1, 8, 8)})
    {'image': [1, 8, 8]}

    Raises:
        Unusable: with all values that are of other kinds; or there are too many, or they are nested too deep.
    """
    copier = _Copier()
    copied: dict[str, Any] = copier.copy(given, ())
    if copier.flaws:
        raise Unusable(*copier.flaws)
    return copied


def places_of(tree: Any, place: Place = ()) -> Iterable[Place]:
    """Yield the place of each value of a tree, tables and lists before what is in them."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in items:
        yield (*place, step)
        yield from places_of(value, (*place, step))


def _text_of(path: Path) -> str:
    try:
        if not path.is_file():
            raise Unusable(_not_a_file(path))
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise Unusable(Flaw(f"cannot be read: {error.strerror}")) from None
    if len(content) > LARGEST:
        raise Unusable(Flaw("is larger than 1 MB", cure="give the name of a function that returns the data"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Unusable(Flaw("is not UTF-8 text", line=line, cure="save it in the encoding UTF-8")) from None


def _not_a_file(path: Path) -> Flaw:
    if path.exists():
        return Flaw("is a folder" if path.is_dir() else "is not a file", cure="give the path of a TOML file")
    if not path.parent.is_dir():
        return Flaw("is in a folder that does not exist")
    neighbours = (other.name for other in islice(path.parent.iterdir(), MOST_NEIGHBOURS))
    return Flaw("does not exist", names=tuple(sorted(name for name in neighbours if name.endswith(".toml"))))


def _loads(text: str, open_since: int = 0) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unusable(_not_toml(text, str(error), open_since)) from None
    except ValueError:  # of Python, which reads no longer number
        raise Unusable(Flaw("has a number of more than 4300 digits")) from None


def _not_toml(text: str, message: str, open_since: int) -> Flaw:
    """Return what ``tomllib`` says, with the line that it means."""
    position = _POSITION.search(message)
    lines = text.rstrip().split("\n")
    number = min(int(position[1] or len(lines)), len(lines)) if position else 0
    reason = _POSITION.sub("", message)
    hints = [
        f"the line is {short(lines[number - 1].strip())}" if number else "",
        f"the bracket of line {open_since} is not closed" if open_since else "",
    ]
    what = f"is not TOML: {reason[:1].lower()}{reason[1:]}"
    return Flaw(what, line=number, cure="; ".join(filter(None, hints)))


class _Copier:
    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self._count = 0

    def copy(self, value: Any, place: Place) -> Any:
        self._count += 1
        if self._count > MOST_VALUES:
            raise Unusable(Flaw(f"has more than {MOST_VALUES:,} values"))
        if len(place) > DEEPEST:
            raise Unusable(Flaw(f"is nested deeper than {DEEPEST} levels", place))
        if isinstance(value, Mapping):
            return {key: self.copy(item, (*place, key)) for key, item in value.items() if self._is_name(key, place)}
        if isinstance(value, list | tuple):
            return [self.copy(item, (*place, index)) for index, item in enumerate(value)]
        # A larger number could not even be written in a message: Python refuses to print more than 4300 digits.
        if type(value) is int and not -(2**63) <= value < 2**63:
            self.flaws.append(Flaw("is a whole number of more than 64 bits", place))
        elif type(value) not in _SCALARS:
            self.flaws.append(_not_plain(value, place))
        return value

    def _is_name(self, key: object, place: Place) -> bool:
        if type(key) is not str:
            self.flaws.append(Flaw(f"has the key {short(key)}, which is not a text", place))
        return type(key) is str


def _not_plain(value: object, place: Place) -> Flaw:
    if value is None:
        return Flaw("is None", place, cure="leave the key out")
    kind = type(value)
    return Flaw(
        f"is an object of the class {kind.__module__}.{kind.__qualname__}",
        place,
        cure="a description has texts, numbers, true, false, dates, lists and dicts",
    )
