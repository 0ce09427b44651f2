from __future__ import annotations

from typing import Any

import pytest

from train_manager import Extensible, Extension, modifies
from train_manager import priority as hook_priority
from train_manager.core.hooks import read_hooks
from train_manager.core.plan import Plans, compile_plan
from train_manager.core.store import Store
from train_manager.errors import OrderError, StageError


class Watcher(Extension):
    def pre_step(self) -> None: ...

    def post_step(self) -> None: ...

    def pre_run(self) -> None: ...


class EveryWatcher(Extension):
    def pre_stage(self) -> None: ...


def test_a_plan_has_the_hooks_of_its_stage_and_those_of_every_stage() -> None:
    hooks = [*read_hooks(Watcher(), "a"), *read_hooks(EveryWatcher(), "b")]
    plan = compile_plan("step", hooks, {})
    assert [hook.label for hook in plan.pre] == ["Watcher.pre_step", "EveryWatcher.pre_stage"]
    assert [hook.label for hook in plan.post] == ["Watcher.post_step"]
    assert plan.around == ()


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_hooks_run_in_the_order_of_registration(kind: str) -> None:
    hooks = [hook for owner in "abc" for hook in read_hooks(Watcher(), owner)]
    assert [hook.owner for hook in getattr(compile_plan("step", hooks, {}), kind)] == ["a", "b", "c"]


def test_the_lowest_priority_runs_first_and_ties_in_order_of_registration() -> None:
    hooks = [
        hook for owner, rank in [("a", 5), ("b", 0), ("c", -5), ("d", 0)] for hook in read_hooks(Watcher(), owner, rank)
    ]
    assert [hook.owner for hook in compile_plan("step", hooks, {}).pre] == ["c", "b", "d", "a"]


def test_the_priority_of_a_hook_goes_before_that_of_its_extension() -> None:
    class Mixed(Extension):
        priority = -1

        @hook_priority(9)
        def pre_step(self) -> None: ...

        def post_step(self) -> None: ...

    hooks = [*read_hooks(Mixed(), "mixed", Mixed.priority), *read_hooks(Watcher(), "watcher")]
    plan = compile_plan("step", hooks, {})
    assert [hook.owner for hook in plan.pre] == ["watcher", "mixed"]
    assert [hook.owner for hook in plan.post] == ["mixed", "watcher"]


def test_the_extensibles_own_hooks_run_first_whatever_the_priorities() -> None:
    hooks = [*read_hooks(Watcher(), "early", -100), *read_hooks(Watcher(), "", 100)]
    assert [hook.owner for hook in compile_plan("step", hooks, {}).pre] == ["", "early"]


def test_a_plan_is_made_once_and_anew_only_when_the_hooks_change() -> None:
    store = Store({})
    plans = Plans(store)
    plans.use(read_hooks(Watcher(), "a"), [])
    first = plans["step"]
    assert plans["step"] is first
    plans.use([], [])
    assert plans["step"].pre == ()
    assert [hook.owner for hook in first.pre] == ["a"]


def test_a_stage_cannot_have_the_name_of_the_hooks_of_every_stage() -> None:
    with pytest.raises(StageError) as error, Extensible().staged("stage"):
        pass
    assert str(error.value) == (
        "a stage cannot be called 'stage', the name of the hooks of every stage\n"
        "  take another name, like 'train_step_batch'"
    )


@pytest.mark.parametrize("name", ["train step", "train-step", "1st", "", 1])
def test_a_stage_name_must_be_an_identifier(name: Any) -> None:
    with pytest.raises(StageError) as error, Extensible().staged(name):
        pass
    assert str(error.value) == (
        f"a stage cannot be called {name!r}: hooks are named after it, so it must be an identifier\n"
        "  take another name, like 'train_step_batch'"
    )


def test_a_refused_stage_name_leaves_nothing_open() -> None:
    extensible = Extensible()
    with pytest.raises(StageError), extensible.staged("not a name", {"x": 1}):
        pass
    assert extensible.fixtures["stage"] is None
    assert dict(extensible.fixtures) == {}


class Doubles(Extension):
    """Modifies a fixture at many stages."""

    def __init__(self) -> None:
        for stage in "abcdefghij":
            setattr(self, f"pre_stage_{stage}", modifies("x")(lambda x: 2 * x))


def test_of_mistakes_at_several_stages_that_of_the_first_hook_is_refused() -> None:
    first, *_ = hooks = [hook for owner in "ab" for hook in read_hooks(Doubles(), owner)]
    with pytest.raises(OrderError, match=f"at pre_{first.stage}, and nothing says which is first"):
        Plans(Store({})).use(hooks, [])
