from __future__ import annotations

from typing import Any

import pytest

from train_manager import HookError
from train_manager.core.methods import is_generator, method_names, refuse_uncallable


class Base:
    def second(self) -> None: ...

    def first(self) -> None: ...


class Derived(Base):
    number = 3

    @property
    def third(self) -> int:
        raise AssertionError

    def first(self) -> None: ...

    async def waits(self) -> None: ...

    def selfless(x: int) -> int:  # type: ignore[misc]  # noqa: N805
        return x

    def generates(self) -> Any:
        yield


def test_names_come_base_first_and_no_property_is_called() -> None:
    names = [name for name in method_names(Derived()) if not name.startswith("__")]
    assert names == ["second", "first", "waits", "selfless", "generates"]


def test_functions_of_the_object_itself_come_last() -> None:
    derived: Any = Derived()
    derived.own = lambda: None
    assert list(method_names(derived))[-1] == "own"


def test_async_methods_cannot_be_called() -> None:
    with pytest.raises(HookError, match=r"Derived.waits is async, and nobody would await it"):
        refuse_uncallable(Derived(), "waits")


def test_methods_without_self_cannot_be_called() -> None:
    with pytest.raises(HookError, match=r"Derived.selfless takes 'x' where `self` belongs"):
        refuse_uncallable(Derived(), "selfless")


def test_a_method_with_a_yield_is_a_generator() -> None:
    assert is_generator(Derived(), "generates")
    assert not is_generator(Derived(), "first")
