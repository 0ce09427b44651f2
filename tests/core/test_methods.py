from __future__ import annotations

import gc
import weakref
from typing import Any

from train_manager import Extensible, Extension
from train_manager.core.methods import method_names


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
