"""A file or a dict that describes a learner, and its mistakes: gathered, and reported at once."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from train_manager.reporting.terminal import printable
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.showing import cut, short

KeyPath = tuple[str | int, ...]
"""The keys, and the indices in lists, that lead to a value: ``("module", "trunk", "layers", 0, "use")``."""

A_DICT: Final = "the dict"
SHOWN_NAMES: Final = 12
LONGEST: Final = 300  # characters of a line of a message

_SCALARS: Final = frozenset({str, int, float, bool, datetime.datetime, datetime.date, datetime.time})
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_POSITION: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@final
@dataclass(frozen=True, eq=False)
class Description:
    """The tree of a file or of a dict.

    Attributes:
        source: the path of the file as it was given, or ``"the dict"``.
        tree: the values as ``tomllib`` reads them; for a dict a copy of it.
        text: of the file; empty for a dict.
    """

    source: str
    tree: dict[str, Any] = field(default_factory=dict)
    text: str = ""

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
            InputError: the file cannot be read, is not TOML, or a dict has values that a file cannot have.
        """
        mistakes = FileMistakes()
        if isinstance(given, Mapping):
            read = cls(A_DICT, _copied(given, (), mistakes))
        elif isinstance(given, str | Path):
            read = _read_file(Path(given), mistakes)
        else:
            read = cls(what)
            mistakes.add(read, (), f"must be the path of a file or a dict, but is {short(given)}")
        mistakes.raise_all()
        return read

    def root(self, mistakes: FileMistakes) -> Spot:
        """Return the spot of the whole tree."""
        return Spot(self, (), self.tree, mistakes)

    def at(self, *path: str | int) -> str:
        """Return where a value is: ``model.toml:14``, or ``the dict: module.trunk.layers[0]``."""
        if self.source == A_DICT:
            return f"{A_DICT}: {dotted(path)}" if path else A_DICT
        line = self.order(path)
        return f"{self.source}:{line}" if line else self.source

    def order(self, path: KeyPath) -> int:
        """Return the line of a value, or of the innermost table around it that is there; 0 if there is none.

        In a dict, the number of the value among all.
        """
        return next((self._order[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._order), 0)

    @cached_property
    def _order(self) -> Mapping[KeyPath, int]:
        # Asked for only after a mistake: to find the lines, a file is read once for each of them.
        if self.text:
            return lines_of(self.text)
        return {path: number for number, path in enumerate(paths_of(self.tree), start=1)}


@final
@dataclass(frozen=True, eq=False)
class Spot:
    """A value of a description, and where it is, so that a mistake in it can be told.

    Attributes:
        description: the description that has it.
        path: where it is in it.
        value: what is there; None if nothing is.
        mistakes: to which those in it are added.
    """

    description: Description
    path: KeyPath
    value: Any
    mistakes: FileMistakes

    def below(self, *steps: str | int) -> Spot:
        """Return the spot of a value within this one."""
        value = self.value
        for step in steps:
            is_there = step in value if isinstance(value, Mapping) else isinstance(value, list)
            value = value[step] if is_there else None
        return Spot(self.description, (*self.path, *steps), value, self.mistakes)

    def wrong(
        self, what: str, *, nearest_of: Iterable[str] | None = None, name: str | None = None, cure: str = ""
    ) -> None:
        """Add a mistake; ``FileMistakes.add`` has its arguments."""
        self.mistakes.add(self.description, self.path, what, nearest_of=nearest_of, name=name, cure=cure)


# ---- reading -------------------------------------------------------------------------------------------------------


def lines_of(text: str) -> dict[KeyPath, int]:
    r"""Return the line of each key and of each item of a list: the first up to which the text is TOML and has it.

    >>> lines_of('[module.trunk]\nlayers = [\n  { use = "ReLU" },\n]')[("module", "trunk", "layers", 0, "use")]
    3
    """
    found: dict[KeyPath, int] = {}
    lines, begins = text.split("\n"), 1
    for end in range(1, len(lines) + 1):
        tree = _tree_of(lines[:end])
        if tree is not None:
            for path in paths_of(tree):
                found.setdefault(path, begins)
            begins = end + 1  # a text of several lines is at its first line
    return found


def _tree_of(lines: Sequence[str], closings: Sequence[str] = ("", "]", "]]")) -> dict[str, Any] | None:
    """Return the tree of the first lines of a text, of which the last may be within a list; None if there is none."""
    for closing in closings:
        with suppress(ValueError):
            return tomllib.loads("\n".join([*lines, closing]))
    return None


def paths_of(tree: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of each value of a tree, tables and lists before what is in them."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in items:
        yield (*path, step)
        yield from paths_of(value, (*path, step))


def _read_file(path: Path, mistakes: FileMistakes) -> Description:
    """Return the description of a TOML file; an empty one if there is a mistake."""
    missing, text = Description(str(path)), ""
    try:
        if not path.is_file():
            _add_missing(missing, path, mistakes)
            return missing
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        return Description(missing.source, tomllib.loads(text), text)
    except OSError as error:
        mistakes.add(missing, (), f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        mistakes.add(missing, (), "is not UTF-8 text", line=line, cure="save it in the encoding UTF-8")
    except RecursionError:
        mistakes.add(missing, (), "is nested too deep")
    except ValueError as error:  # also of Python, which reads no number of more than 4300 digits
        _add_not_toml(missing, text, str(error), mistakes)
    return missing


def _add_missing(missing: Description, path: Path, mistakes: FileMistakes) -> None:
    if path.exists():
        what = "is a folder" if path.is_dir() else "is not a file"
        mistakes.add(missing, (), what, cure="give the path of a TOML file")
    elif not path.parent.is_dir():
        mistakes.add(missing, (), "is in a folder that does not exist")
    else:
        names = sorted(other.name for other in path.parent.iterdir() if other.suffix == ".toml")
        mistakes.add(missing, (), "does not exist", nearest_of=names, name=path.name)


def _add_not_toml(missing: Description, text: str, message: str, mistakes: FileMistakes) -> None:
    """Add what ``tomllib`` says, with the line that it means, and that of a bracket which is not closed there."""
    position = _POSITION.search(message)
    reason = _POSITION.sub("", message)
    lines = text.rstrip().split("\n")
    number = min(int(position[1] or len(lines)), len(lines)) if position else 0
    hints = [f"the line is {short(lines[number - 1].strip())}"] if number else []
    before = lines[: number - bool(position and position[1])]
    if _tree_of(before, closings=[""]) is None and _tree_of(before) is not None:
        hints.append(f"the bracket of line {_line_of_bracket(before)} is not closed there")
    what = f"is not TOML: {reason[:1].lower()}{reason[1:]}"
    mistakes.add(missing, (), what, line=number, cure="; ".join(hints))


def _line_of_bracket(lines: Sequence[str]) -> int:
    """Return the line of the bracket that is not closed at the end of some lines."""
    return next(end + 1 for end in range(len(lines) - 1, -1, -1) if _tree_of(lines[:end], closings=[""]) is not None)


def _copied(value: Any, path: KeyPath, mistakes: FileMistakes) -> Any:
    """Return a copy of a value of a dict; what a TOML file does not have is a mistake."""
    given = Description(A_DICT)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                mistakes.add(given, path, f"has the key {short(key)}, which is not a text")
        return {key: _copied(item, (*path, key), mistakes) for key, item in value.items() if isinstance(key, str)}
    if isinstance(value, list | tuple):
        return [_copied(item, (*path, index), mistakes) for index, item in enumerate(value)]
    if value is None:
        mistakes.add(given, path, "is None", cure="leave the key out")
    elif type(value) not in _SCALARS:
        kind = type(value)
        what = f"is an object of the class {kind.__module__}.{kind.__qualname__}"
        mistakes.add(given, path, what, cure="a description has texts, numbers, true, false, dates, lists and dicts")
    return value


# ---- mistakes ------------------------------------------------------------------------------------------------------


class _Mistake(NamedTuple):
    description: Description
    path: KeyPath
    what: str
    advice: Sequence[str]
    order: int  # the line

    @property
    def where(self) -> str:
        """``model.toml:14``; a dict has no lines, and the path follows in any case."""
        source = self.description.source
        return _line_of(f"{source}:{self.order}" if self.order and source != A_DICT else source)


@final
class FileMistakes:
    """The mistakes of one or several descriptions, raised together."""

    def __init__(self) -> None:
        self._found: list[_Mistake] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self,
        description: Description,
        path: KeyPath,
        what: str,
        *,
        nearest_of: Iterable[str] | None = None,
        name: str | None = None,
        cure: str = "",
        line: int | None = None,
    ) -> None:
        """Add a mistake.

        Args:
            description: the description that has it.
            path: the value that is wrong; it is the subject of ``what``.
            what: a predicate: "is not a key of a dataset".
            nearest_of: the names that there are; one that is like the wrong name is offered first.
            name: the wrong name; by default the last key of the path.
            cure: what to do about it.
            line: of the mistake; by default that of the value.
        """
        wrong = name if name is not None else str(path[-1]) if path else ""
        offers = [] if nearest_of is None else [_offer(wrong, list(nearest_of))]
        order = description.order(path) if line is None else line
        self._found.append(_Mistake(description, path, what, [*offers, *([cure] if cure else [])], order))

    def raise_all(self) -> None:
        """Raise all mistakes as one error, by file and line; return if there is none.

        Raises:
            InputError: with a line for each mistake.
        """
        if self._found:
            found = sorted(self._found, key=lambda mistake: (mistake.description.source, mistake.order))
            sources = [*dict.fromkeys(_line_of(mistake.description.source) for mistake in found)]
            count = "a mistake" if len(found) == 1 else f"{len(found)} mistakes"
            what = f"{' and '.join(sources)} {'has' if len(sources) == 1 else 'have'} {count}"
            raise InputError(what, name=dotted(found[0].path), cure="\n  ".join(_lines(found)))


def dotted(path: KeyPath) -> str:
    """Return a path as TOML writes it, with the index of a list in brackets.

    >>> dotted(("module", "a b", "layers", 0, "use"))
    "module.'a b'.layers[0].use"
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in path).removeprefix(".")


def told(value: object) -> str:
    """Return a value of a description, for a message, with what it is.

    >>> told("0.1"), told(True), told([1, 8, 8])
    ("the text '0.1'", 'true', 'the list [1, 8, 8]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"the number {value!r}"  # 10.0, where a whole number is asked for, must not look like one
    kinds = {int: "the number ", str: "the text ", list: "the list ", dict: "the table "}
    return kinds.get(type(value), "") + short(value)


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else repr(key)


def _offer(wrong: str, names: Sequence[str]) -> str:
    """Return the name that may be meant, and the names that there are."""
    more = len(names) - SHOWN_NAMES
    shown = [*names[:SHOWN_NAMES], *([f"... ({more} more)"] if more > 0 else [])]
    known = f"known: {', '.join(shown)}" if names else "there is nothing to choose from"
    return " ".join(filter(None, [did_you_mean(_meant(wrong, names)), known]))


def _meant(wrong: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names that may be meant: those that differ by upper and lower case alone come first."""
    same = [name for name in names if name.casefold() == wrong.casefold()]
    return same or near(wrong, names)


def _line_of(text: str) -> str:
    """Return a text that may come from a file: in one line, and without characters that a terminal obeys."""
    return printable(cut(text, LONGEST))


def _lines(found: Sequence[_Mistake]) -> Iterator[str]:
    """Yield the lines of mistakes, with the texts below each other."""
    width = max(len(mistake.where) for mistake in found)
    for mistake in found:
        texts = [f"{dotted(mistake.path)} {mistake.what}".lstrip(), *mistake.advice]
        for label, text in zip([mistake.where, *[""] * len(mistake.advice)], texts, strict=True):
            yield f"{label:<{width}}  {_line_of(text)}"
