from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from train_manager import Extensible, Extension, staged
from train_manager.core.outcome import Skip
from train_manager.errors import CheckError, ExtensionNotFound, FixtureNotFound, HookError

At = Callable[[str], str]


class Watcher(Extension):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def post_step(self, x: int) -> None:
        self.seen.append(x)


class OtherWatcher(Watcher):
    pass


class Worker(Extensible):
    def work(self, x: int = 1) -> None:
        with self.staged("step", {"x": x}):
            pass


def names(extensible: Extensible) -> list[str]:
    view: Any = extensible.extensions  # declared as what a class may give: a list or a dict
    return list(view)


# ---- extensions ------------------------------------------------------------------------------------------------------


def test_extensions_come_from_the_class_and_from_the_constructor() -> None:
    class Equipped(Worker):
        extensions = [Watcher()]

    equipped = Equipped([OtherWatcher()])
    assert names(equipped) == ["watcher", "other_watcher"]


def test_an_extension_of_the_constructor_replaces_the_classs_of_the_same_name() -> None:
    class Equipped(Worker):
        extensions = {"watcher": Watcher()}

    mine = Watcher()
    equipped = Equipped({"watcher": mine})
    equipped.work()
    assert equipped["watcher"] is mine
    assert mine.seen == [1]
    assert names(equipped) == ["watcher"]


def test_a_subclass_need_not_call_the_constructor_of_its_base() -> None:
    class Careless(Worker):
        extensions = [Watcher()]

        def __init__(self) -> None:
            self.rate = 0.1

    assert names(Careless()) == ["watcher"]


def test_an_unknown_extension_is_refused_with_the_near_name() -> None:
    with pytest.raises(ExtensionNotFound) as error:
        Worker([Watcher()])["watchers"]
    assert str(error.value) == "Worker has no extension 'watchers'\n  did you mean 'watcher'?"
    assert error.value.nearest == ("watcher",)


def test_an_unknown_extension_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(ExtensionNotFound) as error:
        Worker({"a": Watcher(), "b": OtherWatcher()})["curves"]
    assert str(error.value) == "Worker has no extension 'curves'\n  its extensions: a, b"


def test_an_extensible_without_extensions_says_so() -> None:
    with pytest.raises(ExtensionNotFound) as error:
        Worker().remove_extension("curves")
    assert str(error.value) == "Worker has no extension 'curves'\n  its extensions: none"


def test_an_added_extension_comes_back_and_gets_a_name_of_its_own() -> None:
    worker = Worker([Watcher()])
    second = worker.add_extension(Watcher())
    assert worker["watcher_2"] is second
    third = worker.add_extension(Watcher(), "third")
    assert worker["third"] is third


def test_an_extension_is_removed_as_it_was_added() -> None:
    extensible = Extensible()
    added = extensible.add_extension(post_step=lambda: None)

    assert extensible.remove_extension(added) is added
    assert dict(extensible.extensions) == {}
    with pytest.raises(ExtensionNotFound, match="Extensible has no extension 'Hooks'"):
        extensible.remove_extension(added)


def test_one_extension_is_not_added_under_two_names() -> None:
    watcher = Watcher()
    worker = Worker({"one": watcher})
    with pytest.raises(HookError) as error:
        worker.add_extension(watcher, "two")
    assert str(error.value) == (
        "this Watcher is already an extension here, named 'one'\n  its hooks would run twice; add another Watcher()"
    )
    assert names(worker) == ["one"]


def test_an_extension_may_be_added_again_under_its_own_name() -> None:
    watcher = Watcher()
    worker = Worker([watcher])
    worker.add_extension(watcher, "watcher")
    worker.work()
    assert watcher.seen == [1]


def test_a_refused_extension_changes_nothing() -> None:
    class Broken(Watcher):
        async def pre_step(self) -> None: ...

    watcher = Watcher()
    worker = Worker({"watcher": watcher})
    with pytest.raises(HookError):
        worker.add_extension(Broken(), "watcher")
    worker.work()
    assert watcher.seen == [1]


def test_two_objects_of_a_class_share_no_fixtures() -> None:
    one, two = Worker(), Worker()
    with one.staged("step", {"x": 1}):
        assert "x" not in two.fixtures


# ---- own hooks -------------------------------------------------------------------------------------------------------


def test_own_methods_are_hooks_and_run_before_those_of_the_extensions() -> None:
    log: list[str] = []

    class Own(Worker):
        def post_step(self, x: int) -> None:
            log.append(f"own {x}")

    class Logging(Extension):
        priority = -100

        def post_step(self, x: int) -> None:
            log.append(f"extension {x}")

    Own([Logging()]).work()
    assert log == ["own 1", "extension 1"]


def test_an_own_hook_can_be_overridden() -> None:
    class Own(Worker):
        def post_step(self, x: int) -> None:
            raise AssertionError("is overridden")

    class Derived(Own):
        seen = 0

        def post_step(self, x: int) -> None:
            self.seen = x

    derived = Derived()
    derived.work()
    assert derived.seen == 1


def test_the_name_of_the_class_stands_in_the_message_of_an_own_hook() -> None:
    class Own(Worker):
        def post_step(self, y: int) -> None: ...

    with pytest.raises(FixtureNotFound, match=r"^Own.post_step wants 'y', which no open stage provides\n"):
        with Own().staged("step"):
            pass


# ---- classes of all kinds --------------------------------------------------------------------------------------------


def test_a_dataclass_can_be_extensible() -> None:
    @dataclass
    class Job(Extensible):
        size: int = 2

        def post_step(self) -> None:
            self.size += 1

    job = Job(size=5)
    with job.staged("step"):
        pass
    assert job.size == 6


def test_a_class_with_a_second_base_can_be_extensible() -> None:
    class Module:
        """Guards its attributes until it is initialised, as torch's modules do."""

        def __init__(self) -> None:
            super().__init__()
            self.__dict__["ready"] = True

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    class First(Module, Extensible):
        extensions = [Watcher()]

    class Second(Extensible, Module):
        extensions = [Watcher()]

    for made in (First(), Second()):
        with made.staged("step", {"x": 3}):
            assert made.fixtures["extensible"] is made
    assert names(First()) == names(Second()) == ["watcher"]


def test_properties_are_not_looked_at_when_an_extensible_is_made() -> None:
    class Careful(Worker):
        @property
        def pre_computed(self) -> int:
            raise AssertionError("was looked at")

    Careful().work()


# ---- bare staged -----------------------------------------------------------------------------------------------------


class Bare(Extensible):
    def work(self) -> tuple[str, ...]:
        with staged("step", {"x": 1}):
            path: tuple[str, ...] = self.fixtures["stage"].path
            return path

    def otherwise_named(this) -> tuple[str, ...]:  # noqa: N805
        with staged("step"):
            path: tuple[str, ...] = this.fixtures["stage"].path
            return path

    def nested(self) -> tuple[str, ...]:
        def inside() -> tuple[str, ...]:
            with staged("step"):
                path: tuple[str, ...] = self.fixtures["stage"].path
                return path

        return inside()


@pytest.mark.parametrize("method", [Bare.work, Bare.otherwise_named, Bare.nested])
def test_a_bare_staged_in_a_method_is_a_stage_of_its_object(method: Callable[[Bare], tuple[str, ...]]) -> None:
    bare = Bare()
    assert method(bare) == ("step",)
    assert bare.fixtures["stage"] is None


def test_a_bare_staged_takes_defaults_too() -> None:
    class Defaulting(Extensible):
        def work(self) -> dict[str, int]:
            with staged("step", {"x": 1}, {"x": 2, "y": 3}):
                return dict(self.fixtures)

    assert Defaulting().work() == {"x": 1, "y": 3}


def test_a_bare_staged_outside_of_an_extensible_is_a_type_error(at: At) -> None:
    with pytest.raises(TypeError) as error:
        staged("step")  # bare, in a function
    assert str(error.value) == (
        "test_a_bare_staged_outside_of_an_extensible_is_a_type_error calls staged(...), "
        "but is not a method of an Extensible\n"
        f"  asked at     {at('bare, in a function')}\n"
        "  write `extensible.staged(...)` with the object whose stage it is"
    )
    assert type(error.value) is HookError


def test_a_bare_staged_in_a_method_of_an_extension_is_a_type_error() -> None:
    class Opener(Extension):
        def helper(self) -> None:
            staged("step")

    with pytest.raises(TypeError, match=r"Opener.helper calls staged\(...\), but is not a method of an Extensible"):
        Opener().helper()


def test_a_bare_staged_keeps_no_local_value_of_the_method_alive() -> None:
    class Value:
        deaths = 0

        def __del__(self) -> None:
            Value.deaths += 1

    class Dropping(Extensible):
        def work(self) -> int:
            value = Value()
            with staged("step"):
                del value
                return Value.deaths

    assert Dropping().work() == 1


# ---- call_by_name ----------------------------------------------------------------------------------------------------


def test_a_function_is_called_with_the_fixtures_that_it_names() -> None:
    worker = Worker()
    with worker.staged("step", {"x": 1, "y": 2}):
        assert worker.call_by_name(lambda y, x, z=3: (y, x, z)) == (2, 1, 3)


def test_a_method_is_called_by_name_in_its_overridden_form() -> None:
    class Scaling(Worker):
        def scale(self, x: int) -> int:
            return 2 * x

    class Other(Scaling):
        def scale(self, x: int, y: int = 5) -> int:
            return x * y

    for worker, result in [(Scaling(), 2), (Other(), 5)]:
        with worker.staged("step", {"x": 1}):
            assert worker.call_by_name(worker.scale) == result


def test_a_method_that_names_what_is_not_there_is_told_by_its_class(at: At) -> None:
    class Scaling(Worker):
        def scale(self, y: int) -> int:  # asks for y
            return 2 * y

    worker = Scaling()
    with pytest.raises(FixtureNotFound) as error, worker.staged("step", {"x": 1}):
        worker.call_by_name(worker.scale)
    assert str(error.value) == (
        "Scaling.scale wants 'y', which no open stage provides\n"
        f"  asked at     {at('asks for y')}\n"
        "  open stages  step\n"
        "  alive        x\n"
        "  no stage has defined it so far; a parameter with a default may be absent"
    )


def test_a_method_called_by_name_may_open_stages() -> None:
    class Nesting(Worker):
        def nested(self, x: int) -> tuple[str, ...]:
            with self.staged("inner"):
                path: tuple[str, ...] = self.fixtures["stage"].path
                return path

    worker = Nesting()
    with worker.staged("step", {"x": 1}):
        assert worker.call_by_name(worker.nested) == ("step", "inner")


def test_an_exception_of_the_function_comes_out_as_it_is() -> None:
    def failing() -> None:
        raise Skip

    with pytest.raises(Skip) as error:
        Worker().call_by_name(failing)
    assert not hasattr(error.value, "__notes__")


class Foreign:
    """Like torch's Module, it takes its state over itself."""

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


class Counting(Extension):
    def __init__(self) -> None:
        self.count = 0

    def post_work(self) -> None:
        self.count += 1


class Working(Extensible):
    def __init__(self, extensions: list[Extension] | None = None) -> None:
        super().__init__(extensions)
        self.size = 3

    def work(self) -> None:
        with self.staged("work", {"size": self.size}):
            pass


class WorkingModule(Foreign, Working):
    """The foreign base comes first, and restores in its own way."""


@pytest.mark.parametrize("cls", [Working, WorkingModule])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_has_stages_and_hooks_of_its_own(cls: type[Working], again: Callable[[Working], Working]) -> None:
    copied = again(cls([Counting()]))
    copied.work()
    assert copied.size == 3
    assert copied["counting"].count == 1
    assert copied.fixtures["extensible"] is copied


class Keeping:
    """Gives its state out."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__


def test_a_base_that_gives_out_its_state_is_refused_by_name() -> None:
    with pytest.raises(TypeError) as error:
        type("Both", (Worker, Keeping), {})
    assert str(error.value) == (
        "Both cannot derive from Keeping, which has a __getstate__: "
        "hold a Keeping as an attribute in place of deriving from it"
    )


def test_a_copy_of_a_strict_object_is_strict() -> None:
    class Strict(Worker):
        strict = True

    class Writing(Extension):
        def post_step(self, fixtures: Any) -> None:
            fixtures["y"] = 1

    worker = Strict([Writing()])
    for strict in (worker, copy.copy(worker), copy.deepcopy(worker)):
        with pytest.raises((HookError, CheckError), match="writes 'y' without declaring it, which `strict` refuses"):
            strict.work()


def test_strict_is_refused_on_an_object() -> None:
    worker = Worker()
    with pytest.raises(HookError) as error:
        worker.strict = True
    assert str(error.value) == (
        "Worker.strict was assigned to one object\n  write `strict = True` in the body of the class"
    )
    assert not worker.strict


def test_the_entry_of_a_check_is_a_method() -> None:
    with pytest.raises(ValueError, match=r"^Worker has no method 'wrk': did you mean 'work'\?$"):
        Worker().check("wrk")


class Selective(Working):
    """It says itself what is copied."""

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "size": 7}


class MoreSelective(Selective):
    """Inherits that."""


def test_what_a_class_says_of_its_copies_holds_for_its_subclasses_too() -> None:
    assert [copy.copy(cls()).size for cls in (Selective, MoreSelective)] == [7, 7]


def test_a_stage_keeps_an_extensible_that_nothing_else_refers_to() -> None:
    seen: list[object] = []
    extension = Extension.of(post_work=lambda extensible: seen.append(type(extensible)))
    with Extensible([extension]).staged("work"):
        pass

    assert seen == [Extensible]


def test_a_stage_lets_go_of_its_extensible_as_it_is_gone_itself() -> None:
    extensible = Extensible()
    with extensible.staged("work"):
        there = weakref.ref(extensible)
    gc.disable()
    try:
        del extensible
        assert there() is None
    finally:
        gc.enable()
