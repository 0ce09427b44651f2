"""The outlines and stage trees of a class, kept on the class as long as its attributes are the same objects.

So a second object of a class is checked in a tenth of the time. If a method is replaced on the class, or on one of its
bases, the next check notices it and reads all methods anew.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import FunctionType
from typing import Any, final

from train_manager.checker.outline import Outline
from train_manager.checker.tree import StageTree

_KEPT = "__train_manager_known__"  # the attribute of the class
_IMMUTABLE = 1 << 8  # the flag of a builtin class
MOST_TREES = 20  # one for each set of fixtures that hooks define, and each entry of a run


@final
class Known:
    """The outlines and trees that were read of one class."""

    def __init__(self, cls: type) -> None:
        self.outlines: dict[FunctionType, Outline] = {}  # of each method, as it runs on an object of the class
        self.trees: dict[Hashable, StageTree] = {}  # by all that a tree depends on beside the class
        self._attributes = _attributes_of(cls)  # as they were when the class was read

    def is_current(self, cls: type) -> bool:
        """Return whether the attributes of the class and its bases are the same objects as before."""
        now, before = _attributes_of(cls), self._attributes
        return len(now) == len(before) and all(map(_is_same, now, before))

    def keep(self, key: Hashable, tree: StageTree) -> None:
        """Keep a tree, and forget the others if they are too many."""
        if len(self.trees) >= MOST_TREES:  # all at once: a program with so many is likely to make new ones only
            self.trees.clear()
        self.trees[key] = tree


def get_known(cls: type) -> Known:
    """Return the outlines and trees of a class, current or not; ``refresh`` is called before the first use."""
    known: Known | None = vars(cls).get(_KEPT)
    if known is None:
        known = Known(cls)
        if not cls.__flags__ & _IMMUTABLE:  # a builtin class takes no attribute, and is read each time
            setattr(cls, _KEPT, known)  # on the class, so that both are freed together
    return known


def refresh(cls: type) -> Known:
    """Forget the outlines and trees of a class that has changed; return the current ones."""
    known = get_known(cls)
    if not known.is_current(cls) and not cls.__flags__ & _IMMUTABLE:
        delattr(cls, _KEPT)
    return get_known(cls)


def _attributes_of(cls: type) -> list[tuple[str, Any]]:
    """Return the attributes of a class and of its bases, without the one that this file sets."""
    return [(name, value) for base in cls.__mro__ for name, value in vars(base).items() if name != _KEPT]


def _is_same(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    # By `is`: the `==` of an attribute may be slow, or return an array.
    return one[1] is other[1] and one[0] == other[0]
