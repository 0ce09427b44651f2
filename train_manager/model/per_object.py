"""Values that an extension keeps for each model, or for each optimizer, that it meets."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeVar, final
from weakref import WeakKeyDictionary

Key = TypeVar("Key")
Value = TypeVar("Value")


@final
class PerObject(WeakKeyDictionary[Key, Value]):
    """A dict by object that keeps no object alive, and that is copied and pickled together with its objects.

    If a phase of a training swaps the model, and swaps it back, the value for the model is found again. A value must
    not refer to its own key: the key would stay alive.

    >>> from torch import nn
    >>> model = nn.Linear(2, 2)
    >>> kept = PerObject()
    >>> kept[model] = "an average"
    >>> copied_model, copied = copy.deepcopy((model, kept))
    >>> copied[copied_model], model in copied
    ('an average', False)
    >>> del model
    >>> len(kept)
    0
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> PerObject[Key, Value]:
        made: PerObject[Key, Value] = PerObject()
        # A list, since a key may be freed in the meantime. `memo` has the copy of a key that was copied before, as in
        # `deepcopy((model, kept))`.
        for key, value in list(self.items()):
            made[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
        return made

    def __reduce__(self) -> tuple[Any, tuple[()], None, None, Iterator[tuple[Key, Value]]]:
        # No state of the base class, whose weak references cannot be pickled: the items are set one by one.
        return PerObject, (), None, None, iter(list(self.items()))


def name_of_part(train_manager: Any, part: str) -> str:
    """Return the name that the present model, or optimizer, of a manager has in checkpoints: ``""`` outside of phases.

    >>> from train_manager.testing import tiny_manager
    >>> name_of_part(tiny_manager(), "model")
    ''
    """
    brought_by = getattr(train_manager, "brought_by", None)  # only a TrainManager has this method
    return "" if brought_by is None else str(brought_by(part))
