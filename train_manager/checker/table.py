"""The table of a loop: the stages that its methods open, written down as data, so that nobody reads their source.

A class that has such a table in ``_stages`` is checked and explained from it, and its map is drawn from it. The source
of a method is read only where a subclass overrides one of the table, or adds one that opens stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, final

from train_manager.checker.outline import Calls, Defines, Item, Opens, Outline, Touches, Where, Yields

THE_LOOP: Final = "the loop"
"""The definer of a fixture that the loop itself defines."""

WIDTH: Final = 120  # columns of a map
COMMENTS: Final = (49, 58, 74)  # the columns at which the names of fixtures may begin; the first with room


@final
@dataclass(frozen=True, slots=True)
class TableStage:
    """A stage that a method of the loop opens."""

    name: str
    fixtures: tuple[str, ...] = ()  # defined as it opens
    body: Body = ()
    lazy: tuple[str, ...] = ()  # computed as a hook asks for them, by a provider of the class
    reads: tuple[str, ...] = ()  # fixtures that the code of the stage reads
    changes: tuple[str, ...] = ()  # fixtures that it modifies


@final
@dataclass(frozen=True, slots=True)
class Line:
    """A line of the loop, with the fixtures that it defines; it may call a method that a subclass overrides."""

    text: str
    defines: tuple[str, ...] = ()
    of: str = ""  # the stage that owns them; empty for the innermost one
    method: str = ""  # called with the fixtures that its parameters name


@final
@dataclass(frozen=True, slots=True)
class Block:
    """A line of the loop with others inside it: ``for each epoch:``."""

    text: str
    body: Body


@final
@dataclass(frozen=True, slots=True)
class Again:
    """A stage that the map shows in full at another place."""

    text: str  # on which condition it opens
    stage: TableStage


@final
@dataclass(frozen=True, slots=True)
class MethodCall:
    """A call of a method of the table, which a subclass may override; the map shows what it does by default."""

    method: str
    text: str
    by_name: bool = False  # with the fixtures that its parameters name


@final
@dataclass(frozen=True, slots=True)
class Reads:
    """Fixtures that a method of the table reads by itself, beside those that its parameters name."""

    names: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class If:
    """A body that runs only where a stage is open, or only where it is not."""

    stage: str
    body: Body
    is_open: bool = True


@final
@dataclass(frozen=True, slots=True)
class Inside:
    """The point at which the code inside of ``with tm.run():`` runs."""

    text: str = ""


Entry = TableStage | Line | Block | Again | MethodCall | Reads | If | Inside
Body = tuple[Entry, ...]


@final
class Table:
    """What each method of a loop does that concerns stages and fixtures.

    Args:
        methods: by name. A method of the class that is not among them does nothing of the kind.
    """

    def __init__(self, methods: Mapping[str, Body]) -> None:
        self.methods = methods
        # Methods that do the same have one outline, so that a walk through all of them takes it once.
        by_body = {id(body): outline_in(body) for body in methods.values()}
        self.outlines = {name: by_body[id(body)] for name, body in methods.items()}

    def draw(self, body: Body) -> str:
        """Draw a part of the table as a map: a line for each stage and step, with the fixtures that they define."""
        return "\n".join(_Map(self.methods).lines(body, (), ""))


def outline_in(body: Body) -> Outline:
    """Return a part of a table as the outline of a method."""
    return tuple(item for entry in body for item in _items(entry))


def _items(entry: Entry) -> Iterator[Item]:
    match entry:
        case TableStage():
            touches = [
                Touches(frozenset(names), modifies)
                for names, modifies in ((entry.reads, False), (entry.changes, True))
                if names
            ]
            yield Opens(entry.name, frozenset(entry.fixtures), THE_LOOP, (*touches, *outline_in(entry.body)))
        case Line():
            if entry.method:
                yield Calls(entry.method, by_name=True)
            if entry.defines:
                definer = f"{entry.method}()" if entry.method else THE_LOOP
                yield Defines(frozenset(entry.defines), entry.of or None, definer)
        case Block():
            yield from outline_in(entry.body)
        case Again():
            yield from _items(entry.stage)
        case MethodCall():
            yield Calls(entry.method, by_name=entry.by_name)
        case Reads():
            yield Touches(frozenset(entry.names), modifies=False)
        case If():
            yield Where(entry.stage, entry.is_open, outline_in(entry.body))
        case Inside():
            yield Yields()


@final
class _Map:
    """A map that is being drawn."""

    def __init__(self, methods: Mapping[str, Body]) -> None:
        self._methods = methods
        self._drawn: set[str] = set()  # the stages that it shows so far

    def lines(self, body: Body, path: tuple[str, ...], indent: str) -> Iterator[str]:
        inner = f"{indent}    "
        for entry in body:
            match entry:
                case TableStage():
                    self._drawn.add(entry.name)
                    yield from _with_comment(f'{indent}with staged("{entry.name}"):', _fixtures_of(entry))
                    yield from self.lines(entry.body, (*path, entry.name), inner)
                case Line() if entry.text:
                    yield from _with_comment(f"{indent}{entry.text}", f"of {entry.of}" if entry.of else "")
                case Block():
                    yield f"{indent}{entry.text}"
                    yield from self.lines(entry.body, path, inner)
                case Again():
                    where = "above" if entry.stage.name in self._drawn else "below"
                    yield f"{indent}{entry.text}: {entry.stage.name}, as {where}"
                case MethodCall():
                    yield from [f"{indent}{entry.text}"] if entry.text else []
                    yield from self.lines(self._methods[entry.method], path, inner if entry.text else indent)
                case If():
                    if (entry.stage in path) is entry.is_open:
                        yield from self.lines(entry.body, path, indent)
                case Inside() if entry.text:
                    yield f"{indent}{entry.text}"


def _fixtures_of(stage: TableStage) -> str:
    lazy = f"lazy: {', '.join(stage.lazy)}" if stage.lazy else ""
    return "; ".join(filter(None, [", ".join(stage.fixtures), lazy]))


def _with_comment(code: str, comment: str) -> Iterator[str]:
    """Yield a line and its comment, which continues below itself if it is long."""
    start = next((column for column in COMMENTS if len(code) + 2 <= column), len(code) + 2)
    for part in wrap(comment, WIDTH - start - 2) or [""]:
        yield f"{code.ljust(start)}# {part}" if part else code
        code = ""
