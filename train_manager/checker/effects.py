"""The effects of a method: whether it, and all methods that it calls, could run where no stage was opened."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType

from train_manager.checker.outline import Defines, Item, Opens, Outline, Touches, Unknown, Where, body_of, find_called
from train_manager.checker.reader import outline_of


def leaves_stages_alone(function: FunctionType, owner: type) -> bool:
    """Return whether a method writes no fixture, opens no stage and asks for none, as far as its source can be read.

    >>> from train_manager import TrainManager
    >>> class Twice(TrainManager):
    ...     def model_forward(self, model, inputs):
    ...         return model(model(inputs))
    >>> class Hidden(TrainManager):
    ...     def model_forward(self, model, inputs):
    ...         self.fixtures["hidden"] = model.trunk(inputs)
    ...         return model.head(self.fixtures["hidden"])
    >>> [leaves_stages_alone(kind.model_forward, kind) for kind in (Twice, Hidden)]
    [True, False]

    Args:
        function: the method; a call of it by fixture names gives it what its parameters name.
        owner: the class of the object that it runs on.
    """
    seen: set[FunctionType] = set()
    ahead = [function]  # a list and not a recursion, since methods may call each other in a circle
    while ahead:
        method = ahead.pop()
        if method not in seen:
            seen.add(method)
            outline = outline_of(method, owner)
            if any(map(_touches_stages, _all_in(outline))):
                return False
            ahead += find_called(outline)
    return True


def _all_in(outline: Outline) -> Iterator[Item]:
    """Yield the items of an outline, and the items inside of them."""
    for item in outline:
        yield item
        yield from _all_in(body_of(item))


def _touches_stages(item: Item) -> bool:
    """Return whether an item depends on open stages, or changes fixtures."""
    # A read is harmless, unless it reads the stage itself: fixtures may come from a stage around the method.
    if isinstance(item, Touches):
        return item.modifies or "stage" in item.names
    return isinstance(item, Opens | Defines | Where | Unknown)
