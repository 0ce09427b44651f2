"""The values that are alive, by name: one flat dict, so that a read costs the same however deep the stages nest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, final

from train_manager.core.scope import Caller, Scope


class NotAlive(KeyError):
    """A look-up found nothing; whoever looked makes a FixtureNotFound of it, which says who asked."""


class Promised(Protocol):
    """A provided fixture of an open stage that nobody has asked for yet; calling it computes the value."""

    @property
    def scope(self) -> Scope: ...
    @property
    def provider(self) -> Caller: ...
    def __call__(self) -> Any: ...


@final
class Alive(dict[str, Any]):
    """Values by name; what is only promised is computed at its first look-up, and costs nothing before.

    >>> Alive({"loss": 0.5})["loss"]
    0.5

    Attributes:
        promised: what would be computed, by name.
    """

    __slots__ = ("promised",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.promised: dict[str, Promised] = {}

    def __missing__(self, name: str) -> Any:
        promised = self.promised.get(name)
        if promised is None:
            raise NotAlive(name)
        return promised()

    def has(self, name: object) -> bool:
        """Whether a look-up would find it; computes nothing."""
        return name in self or name in self.promised

    def names(self) -> list[str]:
        """All that a look-up would find."""
        return [*self, *self.promised]
