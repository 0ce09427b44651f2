from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.core.methods import is_generator, method_names, refuse_uncallable
from train_manager.errors import HookError


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
    with pytest.raises(HookError, match=r"Derived.waits is async, which nothing would await"):
        refuse_uncallable(Derived(), "waits")


def test_methods_without_self_cannot_be_called() -> None:
    with pytest.raises(HookError, match=r"Derived.selfless must take `self` first, but takes 'x'"):
        refuse_uncallable(Derived(), "selfless")


def test_a_method_with_a_yield_is_a_generator() -> None:
    assert is_generator(Derived(), "generates")
    assert not is_generator(Derived(), "first")


class Helped(Extension):
    def post_work(self) -> None: ...
    def helper(self) -> None: ...  # is it called like a stage?


def test_reading_the_source_of_a_class_keeps_nothing_that_its_methods_close_over() -> None:
    class Value: ...

    def closed_over() -> weakref.ref[Value]:
        value = Value()

        class Closing(Extensible):
            def work(self) -> Value:
                with self.staged("work"):
                    return value

        Closing([Helped()])
        return weakref.ref(value)

    watched = closed_over()
    gc.collect()
    assert watched() is None


def test_a_look_at_the_methods_of_an_object_leaves_its_attributes_fast() -> None:
    """CPython makes a dict of them as ``__dict__`` is read, and each attribute slower for good."""
    holder = Derived()
    holder.count = 0  # type: ignore[attr-defined]

    list(method_names(holder))

    assert not any(type(one) is dict for one in gc.get_referents(holder))


def test_a_callable_of_the_object_itself_is_found_beside_dicts() -> None:
    holder = Derived()
    holder.counts, holder.own = {}, lambda: None  # type: ignore[attr-defined]

    assert "own" in list(method_names(holder))
