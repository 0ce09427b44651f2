from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from train_manager import Extensible, Extension, always, fixture, modifies, priority, provides
from train_manager.core.declarations import Declarations, Write, declarations_of
from train_manager.errors import HookError


def test_declarations_add_up_and_the_tuple_is_read_from_above() -> None:
    @always
    @priority(-2)
    @modifies("a", "b")
    @provides("c", stage="run")
    def hook() -> None: ...

    writes = (Write("a", False), Write("b", False), Write("c", True, "run"))
    assert declarations_of(hook) == Declarations(always=True, priority=-2, writes=writes)


def test_declarations_above_and_below_a_static_method_add_up() -> None:
    class Watcher(Extension):
        @always
        @provides("a")
        @staticmethod
        @priority(3)
        def post_step() -> None: ...

    declared = Declarations(always=True, priority=3, writes=(Write("a", defines=True),))
    assert declarations_of(vars(Watcher)["post_step"]) == declared


@pytest.mark.parametrize("decorator", [provides, modifies])
def test_a_decorator_without_the_name_of_a_fixture_is_refused(decorator: Any) -> None:
    with pytest.raises(
        TypeError, match=rf'@{decorator.__name__} takes the names of fixtures: @{decorator.__name__}\("loss"\)'
    ):
        decorator()
    with pytest.raises(TypeError):
        decorator(len)  # the decorator without its call


def test_writes_of_a_method_that_is_no_hook_are_refused() -> None:
    class Helper(Extension):
        @provides("x")
        def helper(self) -> int:
            return 1

    with pytest.raises(HookError, match=r"Helper.helper is declared as a hook, but does not have the name of a hook"):
        Extensible([Helper()])


def test_an_around_hook_may_not_declare_writes() -> None:
    class Around(Extension):
        @provides("x")
        def around_step(self) -> Any:
            yield

    with pytest.raises(HookError, match=r"declares writes, but an around-hook returns nothing"):
        Extensible([Around()])


def test_a_hook_of_every_stage_may_not_provide() -> None:
    class Every(Extension):
        @provides("x")
        def pre_stage(self) -> int:
            return 1

    with pytest.raises(HookError, match=r"Every.pre_stage provides a fixture in every stage"):
        Extensible([Every()])


def unused() -> None: ...


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        (lambda: fixture(unused), '@fixture takes the name of a stage: @fixture("train_step_batch")'),  # type: ignore[arg-type]
        (lambda: fixture(3), '@fixture takes the name of a stage: @fixture("train_step_batch")'),  # type: ignore[arg-type]
        (lambda: priority(unused), "@priority takes a whole number: @priority(-1)"),  # type: ignore[arg-type]
        (lambda: priority("a"), "@priority takes a whole number: @priority(-1)"),  # type: ignore[arg-type]
        (lambda: provides(unused), '@provides takes the names of fixtures: @provides("loss")'),  # type: ignore[arg-type]
    ],
)
def test_a_decorator_without_its_argument_is_refused(decorator: Callable[[], object], message: str) -> None:
    with pytest.raises(HookError) as error:
        decorator()
    assert str(error.value) == message


def test_a_bound_method_cannot_be_decorated() -> None:
    class Watcher(Extension):
        def post_step(self) -> None: ...

    with pytest.raises(HookError) as error:
        priority(1)(Watcher().post_step)
    assert str(error.value) == (
        "test_a_bound_method_cannot_be_decorated.<locals>.Watcher.post_step cannot be decorated: "
        "it is not a plain function\n"
        "  write the decorator above the `def` of the hook"
    )
