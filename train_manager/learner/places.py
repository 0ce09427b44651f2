"""The line of each key of a TOML text: ``tomllib`` returns the values without their lines."""

from __future__ import annotations

import re
import tomllib
from typing import Final, final

Place = tuple[str | int, ...]
"""The keys, and the indices in arrays, that lead to a value: ``("module", "trunk", "layers", 0, "use")``."""

DEEPEST: Final = 20
"""The longest ``Place``. The time that ``tomllib`` needs for a dotted key grows with the square of its length."""

_BLANK: Final = re.compile(r"(?:[ \t\n]++|#[^\n\0]*+)*+")
_ONE_LINE: Final = r"""'(?!'')[^'\n]*+'|"(?!"")(?:[^"\\\n]++|\\.)*+\""""
# Before the three quotes at the end there may be one or two that belong to the text.
_LITERAL_LINES: Final = r"'''(?:[^']++|'(?!''))*+'''(?:'{0,2})"
_BASIC_LINES: Final = r'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+"""(?:"{0,2})'
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]++|{_ONE_LINE}")
# The last alternative: numbers, dates (which may have a blank in the middle), true and false.
_PLAIN: Final = re.compile(rf"""{_LITERAL_LINES}|{_BASIC_LINES}|{_ONE_LINE}|[^,\[\]{{}}#\n\0"']++""")


@final
class UnreadableText(ValueError):
    """A text cannot be read as TOML.

    Attributes:
        line: the line of the mistake.
        place: a key that is there twice, or nested too deep; empty if the text is not TOML.
        open_since: the line of the bracket that is not closed until the end of the text; 0 if there is none.
    """

    def __init__(self, what: str, line: int, place: Place = (), open_since: int = 0) -> None:
        super().__init__(what)
        self.line = line
        self.place = place
        self.open_since = open_since


def places(text: str) -> dict[Place, int]:
    r"""Return the line of each key and of each item of an array, counted from 1.

    A table that several headers mention is at the first of them. Some text that is not TOML is accepted: let
    ``tomllib`` read it too.

    >>> places('[module.trunk]\nlayers = [\n  { use = "ReLU" },\n]')[("module", "trunk", "layers", 0, "use")]
    3

    Raises:
        UnreadableText: the text is not TOML, has a key twice, or has a place longer than ``DEEPEST``.
    """
    scanner = _Scanner(text.replace("\r\n", "\n") + "\0")  # marks the end, as TOML cannot contain this character
    scanner.read_document()
    return scanner.found


class _Scanner:
    """Walks over a text once; ``found`` has the lines of the keys that it has passed."""

    def __init__(self, text: str) -> None:
        self.found: dict[Place, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._brackets: list[int] = []  # the lines of those that are open
        self._headers: set[Place] = set()
        self._last: dict[Place, int] = {}  # of each array of tables, the index of its last table

    def read_document(self) -> None:
        table: Place = ()
        while not self._takes("\0"):
            if self._takes("["):
                table = self._read_header()
            else:
                self._read_pair(table)

    def _read_header(self) -> Place:
        """Pass the rest of ``[a.b]`` or ``[[a.b]]``, and return the place of the table that it opens."""
        is_array = self._takes("[")
        table = self._read_key(())
        if is_array:
            self._last[table] = self._last.get(table, -1) + 1
            table = self._note((*table, self._last[table]))
        elif table in self._headers:
            raise self._there_twice(table)
        self._headers.add(table)
        self._expect("]]" if is_array else "]")
        return table

    def _read_pair(self, table: Place) -> None:
        known = len(self.found)
        place = self._read_key(table)
        if len(self.found) == known:
            raise self._there_twice(place)
        self._expect("=")
        self._read_value(place)

    def _read_key(self, place: Place) -> Place:
        """Pass a key with its dots, and return its place below another."""
        while True:
            last = self._last.get(place)
            place = self._note((*place, self._read_name()) if last is None else (*place, last, self._read_name()))
            if not self._takes("."):
                return place

    def _read_name(self) -> str:
        self._pass(_BLANK)
        word = self._pass(_NAME)
        if word[0] == '"':
            try:
                return next(iter(tomllib.loads(f"{word} = 0"))) if "\\" in word else word[1:-1]
            except tomllib.TOMLDecodeError:
                raise self._not_toml() from None
        return word[1:-1] if word[0] == "'" else word

    def _read_value(self, place: Place) -> None:
        if self._takes("["):
            self._brackets.append(self._line)
            index = 0
            while not self._takes("]"):
                self._read_value(self._note((*place, index)))
                self._takes(",")
                index += 1
            self._brackets.pop()
        elif self._takes("{"):
            self._brackets.append(self._line)
            while not self._takes("}"):
                self._read_pair(place)
                self._takes(",")
            self._brackets.pop()
        else:
            self._pass(_PLAIN)

    def _note(self, place: Place) -> Place:
        if len(place) > DEEPEST:
            raise UnreadableText(f"is nested deeper than {DEEPEST} levels", self._line, place)
        self.found.setdefault(place, self._line)
        return place

    def _takes(self, sign: str) -> bool:
        """Pass a sign, and the blanks before it, if it comes next."""
        self._pass(_BLANK)
        is_next = self._text.startswith(sign, self._at)
        self._at += len(sign) if is_next else 0
        return is_next

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._not_toml()

    def _pass(self, pattern: re.Pattern[str]) -> str:
        """Pass what matches here, and return it."""
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._not_toml()
        self._at = match.end()
        self._line += match[0].count("\n")
        return match[0]

    def _not_toml(self) -> UnreadableText:
        is_at_end = self._at == len(self._text) - 1
        return UnreadableText(
            "is not TOML", self._line, open_since=self._brackets[0] if is_at_end and self._brackets else 0
        )

    def _there_twice(self, place: Place) -> UnreadableText:
        return UnreadableText(f"is there twice, first in line {self.found[place]}", self._line, place)
