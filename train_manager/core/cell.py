"""A cell: the place of one fixture, made when its name is first met, and kept. Its value is nowhere else.

    cells["loss"]   value 0.31, owner <stage train_step_batch>      alive
    cells["norm"]   no value, owner <stage run>, promise <...>      alive, to be computed at the first look-up
    cells["batch"]  no value, owner None, stage "train_step_batch"  dead; its stage has ended

Whoever has a cell reads with ``cell.value``, without looking up a name; where there is none, that is an error.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final


class Content(NamedTuple):
    """All that is in a cell, to be put back."""

    owner: Any
    definer: Any
    stage: str | None
    promise: Any
    next: Cell | None
    values: tuple[Any, ...]


@final
class Cell:
    """The place of one fixture.

    Attributes:
        name: the fixture's.
        value: only there while the fixture is alive, and computed; else reading it raises an AttributeError.
        owner: the scope that it dies with; None where it is not alive.
        definer: who has defined it; None: the line that opened the stage.
        stage: the name of its owner, or of its last one.
        promise: computes the value; None where it is there, or the fixture dead.
        next: another cell of the same owner, one that is older.
        is_pinned: somebody keeps it, so that the name must not get another one.
    """

    __slots__ = ("definer", "is_pinned", "name", "next", "owner", "promise", "stage", "value")

    value: Any

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: Any = None
        self.definer: Any = None
        self.stage: str | None = None
        self.promise: Any = None
        self.next: Cell | None = None
        self.is_pinned = False

    def empty(self) -> None:
        """The fixture dies."""
        self.owner = self.promise = None
        if hasattr(self, "value"):
            del self.value

    def content(self) -> Content:
        """What is in it now."""
        values = (self.value,) if hasattr(self, "value") else ()
        return Content(self.owner, self.definer, self.stage, self.promise, self.next, values)

    def restore(self, content: Content) -> None:
        """Put that back."""
        self.owner, self.definer, self.stage, self.promise, self.next, values = content
        for value in values:
            self.value = value
