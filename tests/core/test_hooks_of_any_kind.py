"""Hooks that are not plain methods: callable objects, partials, functions of other objects; and what they return."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import nn

import train_manager
from train_manager import Extensible, Extension, every, provides, scheduled
from train_manager import priority as hook_priority
from train_manager.core.hooks import read_hooks
from train_manager.errors import HookError


class Loop(Extensible):
    def step(self, **fixtures: Any) -> None:
        with self.staged("step", {"x": 1, "y": 2, **fixtures}):
            pass


class Adder:
    """An object that can be called."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, x: int) -> int:
        self.seen.append(x)
        return x


def refused(extension: Extension) -> str:
    with pytest.raises(HookError) as error:
        Loop([extension])
    return str(error.value)


# ---- callable objects and partials ---------------------------------------------------------------------------------


def test_a_callable_object_in_the_class_is_a_hook() -> None:
    adder = Adder()

    class Watcher(Extension):
        post_step = adder

    Loop([Watcher()]).step()
    assert adder.seen == [1]


def test_a_callable_object_given_to_one_extension_is_a_hook_of_it() -> None:
    watcher: Any = Extension()
    watcher.post_step = adder = Adder()
    Loop([watcher]).step()
    assert adder.seen == [1]


def test_a_method_of_another_object_is_a_hook() -> None:
    adder = Adder()

    class Watcher(Extension):
        pre_step = adder.__call__

    watcher: Any = Watcher()
    watcher.post_step = adder.__call__
    Loop([watcher]).step()
    assert adder.seen == [1, 1]


def test_a_module_is_refused_for_it_takes_whatever_it_is_given() -> None:
    watcher: Any = Extension()
    watcher.post_step = nn.Linear(1, 1)
    assert refused(watcher).splitlines()[0] == (
        "Extension.post_step has the parameter `*args`, but fixtures are given by name"
    )


def test_a_callable_object_that_is_async_is_refused() -> None:
    class Waits:
        async def __call__(self, x: int) -> None: ...

    watcher: Any = Extension()
    watcher.post_step = Waits()
    assert refused(watcher).startswith("Extension.post_step is async, which nothing would await")


def test_a_callable_object_with_a_yield_is_refused_but_around_a_stage() -> None:
    class Yields:
        def __call__(self) -> Any:
            yield

    watcher: Any = Extension()
    watcher.around_step = Yields()
    Loop([watcher]).step()
    watcher.post_step = Yields()
    assert refused(watcher).startswith("Extension.post_step is a generator, so its body would never run")


def test_what_has_no_signature_is_refused() -> None:
    watcher: Any = Extension()
    watcher.post_step = max
    assert refused(watcher) == (
        "Extension.post_step has no signature, so nothing says which fixtures it wants\n"
        "  write a function around it that names the fixtures as its parameters"
    )


def collect(seen: list[Any], x: int = 0, y: int = 0, z: int = 0) -> None:
    seen.append((x, y, z))


def test_what_a_partial_has_bound_is_not_asked_for() -> None:
    seen: list[Any] = []

    class Watcher(Extension):
        pre_step = staticmethod(functools.partial(collect, seen, x=10))

        def _collect(self, x: int, y: int) -> None:
            seen.append((x, y))

        post_step = functools.partialmethod(_collect, x=30)

    watcher: Any = Watcher()
    Loop([watcher]).step()
    watcher.pre_step = functools.partial(collect, seen, y=20)
    Loop([watcher]).step()
    assert seen == [(10, 2, 0), (30, 2), (1, 20, 0), (30, 2)]


# ---- what hooks return ---------------------------------------------------------------------------------------------


class Returns(Extension):
    def __init__(self, value: Any) -> None:
        self.value = value

    def post_step(self, x: int) -> Any:
        return self.value


def returning(value: Any) -> list[Extension]:
    """Extensions that return a value, with and without a schedule."""
    return [Returns(value), scheduled(Returns(value), "post_step", every(1))]


@pytest.mark.parametrize("returns", returning(0))
def test_a_value_that_a_hook_returns_without_declaring_it_is_an_error(returns: Extension) -> None:
    with pytest.raises(HookError) as error:
        Loop([returns]).step()
    lines = str(error.value).splitlines()
    assert lines[0] == "Returns.post_step returned a value that it does not declare"
    assert lines[-1].strip() == (
        'declare what it writes: @provides("name") or @modifies("name") above the hook; or drop the return'
    )
    assert error.value.__notes__ == ["in hook Returns.post_step of extension 'returns', at stage step"]


@pytest.mark.parametrize("returns", returning(None))
def test_none_is_no_value(returns: Extension) -> None:
    Loop([returns]).step()


def test_a_hook_of_every_stage_is_told_so_too() -> None:
    class Returns(Extension):
        def post_stage(self, x: int) -> int:
            return x

    with pytest.raises(HookError, match=r"Returns\.post_stage returned a value"):
        Loop([Returns()]).step()


def test_a_static_method_is_told_so_too() -> None:
    class Returns(Extension):
        @staticmethod
        def post_step(x: int) -> int:
            return x

    with pytest.raises(HookError, match=r"Returns\.post_step returned a value"):
        Loop([Returns()]).step()


def give_back(x: int) -> int:
    return x


def with_own_hook(hook: Any) -> Extension:
    own: Any = Extension()
    own.post_step = hook
    return own  # type: ignore[no-any-return]


@pytest.mark.parametrize("made", [lambda: Extension.of(post_step=give_back), lambda: with_own_hook(give_back)])
def test_a_function_given_as_a_hook_is_told_so_too(made: Any) -> None:
    extension = made()
    label = f"{type(extension).__name__}.post_step"
    with pytest.raises(HookError) as error:
        Loop([extension]).step()

    lines = str(error.value).splitlines()
    assert lines[0] == f"{label} returned a value that it does not declare"
    assert lines[-1].strip() == (
        'declare what it writes: @provides("name") or @modifies("name") above the hook; or drop the return'
    )


def test_a_function_that_is_added_as_a_hook_is_told_so_too() -> None:
    loop = Loop()
    loop.add_extension(post_step=give_back)

    with pytest.raises(HookError, match=r"Hooks\.post_step returned a value"):
        loop.step()


def test_a_method_of_its_own_that_an_extension_takes_as_a_hook_is_told_so_too() -> None:
    class Chooses(Extension):
        def __init__(self) -> None:
            self.post_step = self._give_back

        def _give_back(self, x: int) -> int:
            return x

    with pytest.raises(HookError, match=r"Chooses\.post_step returned a value"):
        Loop([Chooses()]).step()


def test_a_function_that_returns_what_it_declares_is_heard() -> None:
    seen: list[int] = []
    doubled = provides("doubled")(lambda x: 2 * x)
    Loop([Extension.of(post_step=doubled), Extension.of(post_step=lambda doubled: seen.append(doubled))]).step()

    assert seen == [2]


def test_lambdas_partials_and_methods_of_other_objects_may_return_what_they_like() -> None:
    class Watcher(Extension):
        pre_step = lambda self, x: x  # noqa: E731

    others: list[Any] = [lambda x: x, functools.partial(give_back, x=3), Adder().__call__, Adder()]
    Loop([Watcher(), *(with_own_hook(hook) for hook in others)]).step()
    Loop([Extension.of(post_step=hook) for hook in others]).step()


# ---- priorities, names, frozen extensions --------------------------------------------------------------------------


class Early(Extension):
    priority = 5

    def post_step(self) -> None: ...


class Mixed(Early):
    @hook_priority(7)
    def pre_step(self) -> None: ...


class Before(Extension):
    priority = 5

    @train_manager.priority(7)
    def pre_step(self) -> None: ...


class After(Extension):
    @hook_priority(3)
    def pre_step(self) -> None: ...

    priority = 5


@pytest.mark.parametrize(("extension", "expected"), [(Mixed(), [5, 7]), (After(), [3]), (Before(), [7])])
def test_the_priority_of_a_hook_wins_over_that_of_its_class(extension: Extension, expected: list[int]) -> None:
    assert [hook.priority for hook in read_hooks(extension, "e", extension.priority)] == expected


@dataclass(frozen=True)
class Frozen(Extension):
    ran: list[int] = field(default_factory=list)

    @every(2)
    def post_step(self, x: int) -> None:
        self.ran.append(x)


def test_a_frozen_dataclass_may_have_schedules() -> None:
    frozen = Frozen()
    loop = Loop([scheduled(frozen, "post_step", every(1, first=True))])
    for x in range(1, 5):
        loop.step(x=x)
    assert frozen.ran == [2, 4]
    assert frozen.state_dict() == {"schedules": {"post_step": [{"count": 4}, {"count": 4}]}}
