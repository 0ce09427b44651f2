"""What was read of a class before, kept on the class as long as the attributes of the class are what they were.

A second object of a class is checked in a tenth of the time that way. A method that is replaced on the class, or on one
of its bases, is noticed as the next check begins, and all is read anew.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import FunctionType
from typing import Any, final

from train_manager.checker.outline import Outline
from train_manager.checker.tree import StageTree

_KEPT = "__train_manager_known__"
_IMMUTABLE = 1 << 8  # the flag of a builtin class
MOST_TREES = 20  # one for each set of fixtures that hooks define, and each entry of a run


@final
class Known:
    """What was read of one class.

    Attributes:
        outlines: of each method, as it runs on an object of the class.
        trees: the stage trees, by all that they were made of beside the class.
    """

    def __init__(self, cls: type) -> None:
        self.outlines: dict[FunctionType, Outline] = {}
        self.trees: dict[Hashable, StageTree] = {}
        self._attributes = _attributes_of(cls)

    def is_current(self, cls: type) -> bool:
        """Return whether the attributes of the class and its bases are the same objects as before."""
        now, before = _attributes_of(cls), self._attributes
        return len(now) == len(before) and all(map(_is_same, now, before))

    def keep(self, key: Hashable, tree: StageTree) -> None:
        """Keep a tree, and forget the others if they are too many."""
        if len(self.trees) >= MOST_TREES:
            self.trees.clear()
        self.trees[key] = tree


def known_of(cls: type) -> Known:
    """Return what is known of a class, whether it is still true or not: ``refresh`` comes first."""
    known: Known | None = vars(cls).get(_KEPT)
    if known is None:
        known = Known(cls)
        if not cls.__flags__ & _IMMUTABLE:
            setattr(cls, _KEPT, known)  # on the class, so that both are freed together
    return known


def refresh(cls: type) -> Known:
    """Forget what is known of a class that has changed, and return what is left."""
    known = known_of(cls)
    if not known.is_current(cls) and not cls.__flags__ & _IMMUTABLE:
        delattr(cls, _KEPT)
    return known_of(cls)


def _attributes_of(cls: type) -> list[tuple[str, Any]]:
    return [(name, value) for base in cls.__mro__ for name, value in vars(base).items() if name != _KEPT]


def _is_same(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    return one[1] is other[1] and one[0] == other[0]
