"""Held: an attribute that an object of the manager holds."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default, so that most attributes name one type

    Value = TypeVar("Value")
    Given = TypeVar("Given", default=Value)
else:
    from typing import TypeVar

    Value, Given = TypeVar("Value"), TypeVar("Given")


class Held(property, Generic[Value, Given]):
    """An attribute that an object of the manager holds: ``tm.model`` is ``tm._setup.model``.

    Args:
        owner: the name of the manager's attribute with that object.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __set_name__(self, cls: type, name: str) -> None:
        owner = self._owner
        # Here, not in __init__: a property in C is several times as fast as a __get__ in Python.
        super().__init__(
            attrgetter(f"{owner}.{name}"), lambda manager, value: setattr(getattr(manager, owner), name, value)
        )

    if TYPE_CHECKING:

        def __get__(self, manager: Any, cls: type | None = None) -> Value: ...  # type: ignore[override]

        def __set__(self, manager: Any, value: Given) -> None: ...
