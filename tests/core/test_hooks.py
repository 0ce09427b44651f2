from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from train_manager import Extensible, Extension, always
from train_manager import priority as hook_priority
from train_manager.core.hooks import read_hooks
from train_manager.errors import HookError

At = Callable[[str], str]


def refusal(holder: Extension) -> str:
    """What an Extensible answers to an extension whose hook can never be called."""
    extensible = Extensible()
    with pytest.raises(HookError) as error:
        extensible.add_extension(holder)
    assert not extensible.extensions
    return str(error.value)


# ---- found by name ---------------------------------------------------------------------------------------------------


def test_hooks_are_found_by_their_names_in_the_order_they_are_written() -> None:
    class Watcher(Extension):
        def post_step(self) -> None: ...
        def helper(self) -> None: ...
        def pre_step(self) -> None: ...
        def around_step(self) -> Generator[None]:
            yield

    found = [(hook.kind, hook.stage) for hook in read_hooks(Watcher(), "w")]
    assert found == [("post", "step"), ("pre", "step"), ("around", "step")]


def test_hooks_of_base_classes_come_first_and_an_override_takes_their_place() -> None:
    class Base(Extension):
        def pre_a(self) -> str:
            return "base"

        def pre_b(self) -> str:
            return "base"

    class Derived(Base):
        def pre_c(self) -> str:
            return "derived"

        def pre_a(self) -> str:
            return "derived"

    hooks = read_hooks(Derived(), "d")
    store = Extensible()._store
    assert [(hook.stage, hook.call(store)) for hook in hooks] == [("a", "derived"), ("b", "base"), ("c", "derived")]
    assert [hook.label for hook in hooks] == ["Derived.pre_a", "Derived.pre_b", "Derived.pre_c"]


def test_a_hook_that_a_subclass_sets_to_none_is_gone() -> None:
    class Base(Extension):
        def pre_step(self) -> None: ...

    class Without(Base):
        pre_step = None  # type: ignore[assignment]

    assert read_hooks(Without(), "w") == []


def test_static_methods_class_methods_and_partials_are_hooks() -> None:
    def scaled(factor: int, x: int) -> int:
        return factor * x

    class Watcher(Extension):
        @staticmethod
        def post_a(x: int) -> int:
            return x

        @classmethod
        def post_b(cls, x: int) -> tuple[str, int]:
            return cls.__name__, x

        def _shifted(self, shift: int, x: int) -> int:
            return x + shift

        post_c = staticmethod(functools.partial(scaled, 10))  # a plain one will be a method in a later Python
        post_d = functools.partialmethod(_shifted, 100)

    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        results = [hook.call(extensible._store) for hook in read_hooks(Watcher(), "w")]
    assert results == [1, ("Watcher", 1), 10, 101]


def test_a_wrapped_method_is_a_hook_with_the_parameters_of_what_it_wraps() -> None:
    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return "counted", function(*args, **kwargs)

        return wrapper

    class Watcher(Extension):
        @counted
        def post_step(self, x: int) -> int:
            return x

    extensible = Extensible()
    (hook,) = read_hooks(Watcher(), "w")
    with extensible.staged("step", {"x": 1}):
        assert hook.call(extensible._store) == ("counted", 1)


def test_attributes_that_cannot_be_called_are_no_hooks() -> None:
    class Watcher(Extension):
        pre_trained = True
        post_error = ValueError

    watcher: Any = Watcher()
    watcher.pre_count = 3
    assert read_hooks(watcher, "w") == []


def test_a_bare_prefix_is_no_hook() -> None:
    class Watcher(Extension):
        def pre_(self) -> None: ...
        def around(self) -> None: ...
        def prefix(self) -> None: ...

    assert read_hooks(Watcher(), "w") == []


def test_a_class_with_slots_can_hold_hooks() -> None:
    class Slotted:
        __slots__ = ("count",)

        def pre_step(self) -> None: ...

    assert [hook.stage for hook in read_hooks(Slotted(), "s")] == ["step"]


def test_priority_applies_to_a_class_method_above_and_below_its_decorator() -> None:
    class Watcher(Extension):
        @classmethod
        @hook_priority(3)
        def pre_a(cls) -> None: ...

        @hook_priority(3)
        @classmethod
        def pre_b(cls) -> None: ...

    assert [hook.priority for hook in read_hooks(Watcher(), "w", default_priority=7)] == [3, 3]


# ---- refused when the extension is added -----------------------------------------------------------------------------


def test_star_args_in_a_hook_are_refused(at: At) -> None:
    class Watcher(Extension):
        def post_step(self, *losses: float) -> None: ...  # star args hook

    assert refusal(Watcher()) == (
        "Watcher.post_step has the parameter `*losses`, but fixtures are given by name\n"
        f"  asked at     {at('star args hook')}\n"
        "  name what it wants, or take all with **losses"
    )


def test_a_positional_only_parameter_of_a_hook_is_refused(at: At) -> None:
    class Watcher(Extension):
        def post_step(self, loss: float, /) -> None: ...  # positional hook

    assert refusal(Watcher()) == (
        "Watcher.post_step has the parameter `loss, /`, but fixtures are given by name\n"
        f"  asked at     {at('positional hook')}\n"
        "  take the `/` out of its signature"
    )


def test_an_async_hook_is_refused(at: At) -> None:
    class Watcher(Extension):
        async def post_step(self) -> None: ...  # async hook

    assert refusal(Watcher()) == (
        "Watcher.post_step is async, which nothing would await\n"
        f"  asked at     {at('async hook')}\n"
        "  make it a plain `def`"
    )


def test_an_async_generator_hook_is_refused() -> None:
    class Watcher(Extension):
        async def around_step(self) -> AsyncIterator[None]:
            yield

    assert refusal(Watcher()).startswith("Watcher.around_step is async, which nothing would await\n")


def test_a_hook_without_parameters_is_refused_for_its_missing_self(at: At) -> None:
    class Watcher(Extension):
        def post_step() -> None: ...  # type: ignore[misc] # no self at all

    assert refusal(Watcher()) == (
        "Watcher.post_step must take `self` first, but takes nothing\n"
        f"  asked at     {at('no self at all')}\n"
        "  write `def post_step(self, ...)`"
    )


def test_a_hook_that_starts_with_a_fixture_is_refused_for_its_missing_self(at: At) -> None:
    class Watcher(Extension):
        def post_step(loss) -> None: ...  # noqa: N805 # loss instead of self

    assert refusal(Watcher()) == (
        "Watcher.post_step must take `self` first, but takes 'loss'\n"
        f"  asked at     {at('loss instead of self')}\n"
        "  write `def post_step(self, ...)`"
    )


def test_a_pre_hook_that_is_a_generator_is_refused(at: At) -> None:
    class Watcher(Extension):
        def pre_step(self) -> Generator[None]:  # generator pre hook
            yield

    assert refusal(Watcher()) == (
        "Watcher.pre_step is a generator, so its body would never run\n"
        f"  asked at     {at('generator pre hook')}\n"
        "  remove the `yield`, or call it 'around_step'"
    )


def test_an_around_hook_that_is_no_generator_is_refused(at: At) -> None:
    class Watcher(Extension):
        def around_step(self) -> None: ...  # plain around hook

    assert refusal(Watcher()) == (
        "Watcher.around_step is not a generator\n"
        f"  asked at     {at('plain around hook')}\n"
        "  an around-hook must have one bare `yield`, where the stage runs, and no @contextmanager"
    )


def test_always_on_a_pre_hook_is_refused() -> None:
    class Watcher(Extension):
        @always
        def pre_step(self) -> None: ...

    assert refusal(Watcher()).startswith("Watcher.pre_step has @always, which is only for post hooks\n")


def test_a_plain_hook_that_asks_for_the_failure_is_refused() -> None:
    class Watcher(Extension):
        def post_step(self, exc_value: Exception) -> None: ...

    text = refusal(Watcher())
    assert text.startswith("Watcher.post_step wants 'exc_value', which only an @always hook gets\n")
    assert text.endswith("\n  decorate it with @always")


def test_a_hook_of_the_extensible_itself_is_refused_when_it_is_made() -> None:
    class Worker(Extensible):
        def pre_step(self, *args: Any) -> None: ...

    with pytest.raises(HookError, match=r"Worker.pre_step has the parameter `\*args`"):
        Worker()


# ---- called by hand --------------------------------------------------------------------------------------------------


def test_a_hook_is_a_plain_method_that_can_be_called_by_hand() -> None:
    class Largest(Extension):
        value = 0.0

        @always
        @hook_priority(2)
        def post_step(self, loss: float) -> None:
            self.value = max(self.value, loss)

    largest = Largest()
    largest.post_step(loss=0.3)
    assert largest.value == 0.3


def test_a_context_manager_around_a_stage_is_refused_at_the_latest_when_it_runs(at: At) -> None:
    class Watcher(Extension):
        @contextmanager  # wrapped around hook
        def around_step(self) -> Iterator[None]:
            yield

    with pytest.raises(HookError) as error, Extensible([Watcher()]).staged("step"):
        pass
    assert str(error.value) == (
        "Watcher.around_step returned a _GeneratorContextManager, which is not a generator\n"
        f"  asked at     {at('wrapped around hook')}\n"
        "  an around-hook must have one bare `yield`, where the stage runs, and no @contextmanager"
    )


def test_a_priority_on_what_is_no_hook_is_refused(at: At) -> None:
    class Helper(Extension):
        @hook_priority(1)  # priority of a helper
        def helper(self) -> None: ...

    assert refusal(Helper()) == (
        "Helper.helper is declared as a hook, but does not have the name of a hook\n"
        f"  asked at     {at('priority of a helper')}\n"
        "  hooks are called pre_<stage>, post_<stage> or around_<stage>"
    )


def test_an_extension_whose_priority_is_no_number_is_refused() -> None:
    class Late(Extension):
        priority = "high"  # type: ignore[assignment]

    assert refusal(Late()) == (
        "Late.priority must be a whole number, but is 'high'\n  give a whole number: priority = -1"
    )
