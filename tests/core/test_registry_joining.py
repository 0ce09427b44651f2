"""Extensions that come or go while the stage is open that ``Options.joined`` names, here ``run``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from train_manager import Extensible, Extension, always, every, fixture, modifies, priority, provides
from train_manager.core.store import Options
from train_manager.errors import FixtureExists, StageError


class Loop(Extensible):
    """A run with steps in it."""

    _options = Options(joined="run")

    def run(self, *steps: Callable[[], Any]) -> None:
        with self.staged("run", {"size": 3}):
            for do in steps:
                with self.staged("step", {"number": 1}):
                    do()


class Watcher(Extension):
    """Logs its hooks of the run."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self.log, self.name = log, name

    def pre_run(self, size: int) -> None:
        self.log.append(f"pre{self.name}")

    def around_run(self) -> Iterator[None]:
        self.log.append(f"enter{self.name}")
        try:
            yield
        finally:
            self.log.append(f"leave{self.name}")

    def post_run(self) -> None:
        self.log.append(f"post{self.name}")


ALL = ["enter", "pre", "post", "leave"]


def test_what_is_added_to_an_open_run_gets_its_hooks_then_and_at_the_end() -> None:
    log: list[str] = []
    loop = Loop()

    def add() -> None:
        loop.add_extension(Watcher(log))
        assert log == ["enter", "pre"]

    loop.run(add, lambda: None)
    assert log == ALL


def test_what_is_removed_from_an_open_run_gets_its_post_hooks_then_and_no_more() -> None:
    log: list[str] = []
    loop = Loop([Watcher(log)])

    def remove() -> None:
        loop.remove_extension("watcher")
        assert log == ALL

    loop.run(remove, lambda: None)
    assert log == ALL


def test_without_a_joined_stage_an_extension_waits_for_the_next_opening() -> None:
    class Plain(Loop):
        _options = Options()

    log: list[str] = []
    loop = Plain()
    loop.run(lambda: loop.add_extension(Watcher(log)))
    assert log == []
    loop.run()
    assert log == ALL


def test_a_hook_may_add_an_extension_which_joins_before_the_hook_continues() -> None:
    log: list[str] = []

    class Adds(Extension):
        def pre_step(self, extensible: Extensible) -> None:
            extensible.add_extension(Watcher(log))
            log.append("added")

    Loop([Adds()]).run(lambda: None)
    assert log == ["enter", "pre", "added", "post", "leave"]


def test_a_hook_may_remove_its_own_extension() -> None:
    log: list[str] = []

    class Leaves(Watcher):
        def post_step(self, extensible: Extensible) -> None:
            extensible.remove_extension("leaves")
            log.append("left")

    Loop([Leaves(log)]).run(lambda: None, lambda: None)
    assert log == [*ALL, "left"]


class Adds(Extension):
    """Adds a watcher in one of its hooks of the run."""

    def __init__(self, hook: str, log: list[str]) -> None:
        setattr(self, hook, lambda extensible: extensible.add_extension(Watcher(log)))


@pytest.mark.parametrize("hook", ["pre_run", "post_run"])
def test_a_hook_of_the_run_itself_may_add_nothing(hook: str) -> None:
    log: list[str] = []
    loop = Loop([Adds(hook, log)])
    with pytest.raises(StageError) as error:
        loop.run()
    assert str(error.value).splitlines()[::3] == [
        f"Adds.{hook} changes the extensions while stage 'run' opens or ends",
        "  change them before stage 'run' opens, or in a hook of a stage inside it",
    ]
    assert (log, list(loop.extensions), loop.fixtures.path) == ([], ["adds"], ())


@pytest.mark.parametrize("change", ["remove", "pause"])
def test_a_hook_of_the_run_itself_may_remove_and_pause_nothing(change: str) -> None:
    class Changes(Extension):
        def around_run(self, extensible: Extensible) -> Iterator[None]:
            if change == "remove":
                extensible.remove_extension("watcher")
            else:
                extensible._registry.pause(["watcher"])
            yield

    log: list[str] = []
    loop = Loop([Watcher(log), Changes()])
    with pytest.raises(StageError, match=r"^Changes.around_run changes the extensions while stage 'run' opens or ends"):
        loop.run()
    assert log == ["enter", "leave"]
    assert "watcher" in loop
    assert loop._registry.paused == frozenset()


def test_a_late_pre_hook_of_the_run_may_add_nothing_and_its_extension_leaves() -> None:
    log: list[str] = []
    loop = Loop()

    def add() -> None:
        with pytest.raises(StageError, match=r"Adds\.pre_run changes the extensions"):
            loop.add_extension(Adds("pre_run", log))

    loop.run(add)
    assert (log, list(loop.extensions)) == ([], [])


# ---- what the hooks may do -----------------------------------------------------------------------------------------


def test_its_hooks_run_in_the_order_of_the_plan_with_their_writes() -> None:
    class Doubles(Extension):
        @provides("double")
        def pre_run(self, size: int) -> int:
            return 2 * size

    class Grows(Extension):
        @modifies("size")
        def pre_run(self, size: int) -> int:
            return 10 * size

    loop = Loop()
    seen = []
    loop.run(
        lambda: (loop.add_extension(Doubles()), loop.add_extension(Grows())),
        lambda: seen.append((loop.fixtures["double"], loop.fixtures["size"])),
    )
    assert seen == [(6, 30)]


def test_a_fixture_that_a_late_pre_hook_writes_belongs_to_the_run() -> None:
    class Writes(Extension):
        def pre_run(self, fixtures: Any, stage: Any) -> None:
            fixtures["path"] = stage.path

    loop = Loop()
    seen = []
    loop.run(lambda: loop.add_extension(Writes()), lambda: seen.append(loop.fixtures["path"]))
    assert seen == [("run",)]
    assert "path" not in loop.fixtures


class Squares(Extension):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    @fixture("run")
    def square(self, size: int) -> Iterator[int]:
        yield size**2
        self.log.append("cleaned up")


def test_its_lazy_fixtures_are_there_at_once_and_die_as_it_goes() -> None:
    log: list[str] = []
    loop = Loop()

    def step() -> None:
        loop.add_extension(Squares(log))
        assert loop.fixtures["square"] == 9
        loop.remove_extension("squares")
        assert ("square" in loop.fixtures, log) == (False, ["cleaned up"])

    loop.run(step)
    assert log == ["cleaned up"]


def test_a_lazy_fixture_that_nothing_has_asked_for_goes_with_its_extension() -> None:
    log: list[str] = []
    loop = Loop([Squares(log)])
    seen: list[bool] = []

    def remove() -> None:
        loop.remove_extension("squares")
        seen.append("square" in loop.fixtures)

    loop.run(remove)
    assert (seen, log) == ([False], [])


def test_what_its_hooks_have_provided_dies_as_it_goes_and_no_other_fixture() -> None:
    class Provides(Extension):
        @provides("mine")
        def pre_run(self) -> int:
            return 1

        @provides("later", stage="run")
        def post_step(self) -> int:
            return 2

    loop = Loop([Provides()])
    seen: list[list[str]] = []

    def remove() -> None:
        loop.remove_extension("provides")
        seen.append(sorted(loop.fixtures))

    loop.run(lambda: None, remove)
    assert seen == [["number", "size"]]


def test_what_an_extension_has_provided_is_provided_anew_by_the_next() -> None:
    class Provides(Extension):
        def __init__(self, value: int) -> None:
            self.value = value

        @provides("value")
        def pre_run(self) -> int:
            return self.value

        @fixture("run")
        def lazy(self) -> int:
            return -self.value

    loop = Loop([Provides(1)])
    seen = []

    def see() -> None:
        seen.append((loop.fixtures["value"], loop.fixtures["lazy"]))

    loop.run(
        see,
        lambda: loop.add_extension(Provides(2), "provides"),
        see,
        lambda: loop.add_extension(loop.remove_extension("provides")),
        see,
    )
    assert seen == [(1, -1), (2, -2), (2, -2)]


def test_a_name_that_is_alive_is_refused_and_the_extension_taken_back() -> None:
    class Sizes(Extension):
        @fixture("run")
        def size(self) -> int:
            return 0

    loop = Loop()

    def add() -> None:
        with pytest.raises(FixtureExists, match="'size'"):
            loop.add_extension(Sizes())

    loop.run(add)
    assert "sizes" not in loop


def test_its_schedules_are_told_that_the_run_has_opened() -> None:
    ran = []

    class Once(Extension):
        @every(1)
        def pre_run(self) -> None:
            ran.append("pre")

    loop = Loop()
    loop.run(lambda: loop.add_extension(Once()))
    assert ran == ["pre"]


def test_another_thread_may_not_add_to_an_open_run() -> None:
    errors: list[BaseException] = []
    loop = Loop()

    def add() -> None:
        try:
            loop.add_extension(Watcher([]))
        except StageError as error:
            errors.append(error)

    def step() -> None:
        thread = Thread(target=add)
        thread.start()
        thread.join()

    loop.run(step)
    assert len(errors) == 1


# ---- errors --------------------------------------------------------------------------------------------------------


class Fails(Watcher):
    @priority(1)
    def pre_run(self, size: int) -> None:
        super().pre_run(size)
        raise ValueError("no room")

    @always
    def post_run(self) -> None:
        super().post_run()


def test_an_error_of_a_late_pre_hook_takes_the_addition_back() -> None:
    log: list[str] = []
    loop = Loop()

    def add() -> None:
        with pytest.raises(ValueError, match="no room") as error:
            loop.add_extension(Fails(log))
        assert error.value.__notes__ == ["in hook Fails.pre_run of extension 'fails', at stage run"]

    loop.run(add, lambda: log.append("step"))
    assert "fails" not in loop
    assert log == [*ALL, "step"]  # `post_run` has @always


def test_a_post_hook_without_always_does_not_run_after_a_late_pre_hook_failed() -> None:
    class Plain(Fails):
        def post_run(self) -> None:
            raise AssertionError("ran")

    log: list[str] = []
    loop = Loop()

    def add() -> None:
        with pytest.raises(ValueError, match="no room") as error:
            loop.add_extension(Plain(log))
        assert len(error.value.__notes__) == 1

    loop.run(add)
    assert log == ["enter", "pre", "leave"]


def test_what_was_to_be_replaced_stays_away_after_an_error() -> None:
    log: list[str] = []
    loop = Loop({"first": Watcher(log), "other": Extension()})

    def replace() -> None:
        with pytest.raises(ValueError, match="no room"):
            loop.add_extension(Fails(log, " new"), "first")

    loop.run(replace)
    assert list(loop.extensions) == ["other"]
    assert log == [*ALL, "enter new", "pre new", "post new", "leave new"]


def test_an_error_of_a_post_hook_comes_out_of_the_removal_which_stands() -> None:
    class Late(Watcher):
        def post_run(self) -> None:
            raise ValueError("disk full")

    log: list[str] = []
    loop = Loop([Late(log)])

    def remove() -> None:
        with pytest.raises(ValueError, match="disk full"):
            loop.remove_extension("late")

    loop.run(remove)
    assert log == ["enter", "pre", "leave"]
    assert "late" not in loop


def test_the_hook_that_was_running_is_blamed_for_its_own_errors_only() -> None:
    class Adds(Extension):
        def pre_step(self, extensible: Extensible) -> None:
            extensible.add_extension(Watcher([]))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as error:
        Loop([Adds()]).run(lambda: None)
    assert error.value.__notes__ == ["in hook Adds.pre_step of extension 'adds', at stage run > step"]


# ---- pauses --------------------------------------------------------------------------------------------------------


class Steps(Watcher):
    def pre_step(self) -> None:
        self.log.append("step")

    @fixture("step")
    def lazy(self) -> int:
        return 1


def test_a_paused_extension_runs_nothing_lets_go_and_comes_back_without_pre_and_post_hooks() -> None:
    log: list[str] = []
    loop = Loop([Steps(log)])
    seen = []
    loop.run(
        lambda: loop._registry.pause(["steps"]),
        lambda: seen.append("lazy" in loop.fixtures),
        lambda: loop._registry.resume(["steps"]),
        lambda: seen.append("lazy" in loop.fixtures),
    )
    assert log == ["enter", "pre", "step", "leave", "enter", "step", "post", "leave"]
    assert seen == [False, True]


def test_a_paused_extension_keeps_its_name_and_its_place() -> None:
    log: list[str] = []
    loop = Loop({"first": Watcher(log, " 1"), "second": Watcher(log, " 2")})
    loop._registry.pause(["first"])
    assert list(loop.extensions) == ["first", "second"]
    assert [hook.owner for hook in loop._registry.hooks] == ["second"] * 3
    loop._registry.resume(["first"])
    loop.run()
    assert log[:2] == ["enter 1", "enter 2"]


def test_an_extension_that_is_not_there_cannot_be_paused() -> None:
    with pytest.raises(KeyError, match="Loop has no extension 'ema'"):
        Loop()._registry.pause(["ema"])


def test_what_is_paused_as_the_run_ends_gets_no_post_hooks() -> None:
    log: list[str] = []
    loop = Loop([Watcher(log)])
    loop.run(lambda: loop._registry.pause(["watcher"]))
    assert log == ["enter", "pre", "leave"]


def test_a_paused_extension_that_is_removed_gets_its_post_hooks() -> None:
    log: list[str] = []
    loop = Loop([Watcher(log)])
    loop.run(lambda: loop._registry.pause(["watcher"]), lambda: loop.remove_extension("watcher"))
    assert log == ["enter", "pre", "leave", "post"]


def test_what_is_added_under_a_paused_name_runs() -> None:
    log: list[str] = []
    loop = Loop([Watcher(log)])
    loop._registry.pause(["watcher"])
    loop.add_extension(Watcher(log, " new"), "watcher")
    loop.run()
    assert log == ["enter new", "pre new", "post new", "leave new"]


class Holder(Extension):
    """Holds something for as long as each stage is open."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self.log, self.name = log, name

    def around_run(self) -> Iterator[None]:
        yield from self._held("run")

    def around_part(self) -> Iterator[None]:
        yield from self._held("part")

    def _held(self, stage: str) -> Iterator[None]:
        self.log.append(f"take {stage}{self.name}")
        try:
            yield
        finally:
            self.log.append(f"let go {stage}{self.name}")


class Parts(Loop):
    """A run with parts inside each other."""

    def part(self, do: Callable[[], Any]) -> None:
        with self.staged("part"):
            do()

    def pausing(self, *names: str, do: Callable[[], Any] = lambda: None) -> None:
        self._registry.pause(names)
        try:
            do()
        finally:
            self._registry.resume(names)


TAKE, LET_GO = ["take run", "take part"], ["let go part", "let go run"]


def test_what_pauses_lets_go_in_all_open_stages_and_takes_all_of_it_again() -> None:
    log: list[str] = []
    loop = Parts([Holder(log)])
    loop.run(lambda: loop.part(lambda: loop.pausing("holder", do=lambda: log.append("pause"))))
    assert log == [*TAKE, *LET_GO, "pause", *TAKE, *LET_GO]


def test_what_pauses_already_lets_go_once() -> None:
    log: list[str] = []
    loop = Parts([Holder(log)])

    def again() -> None:
        loop._registry.pause(["holder"])

    loop.run(lambda: loop.pausing("holder", do=again))
    assert log == ["take run", "let go run", "take run", "let go run"]


def test_what_ends_while_its_extension_pauses_is_not_taken_again() -> None:
    log: list[str] = []
    loop = Parts([Holder(log)])
    loop.run(lambda: loop.part(lambda: loop._registry.pause(["holder"])), lambda: loop._registry.resume(["holder"]))
    assert log == [*TAKE, *LET_GO, "take run", "let go run"]


def test_an_extension_that_keeps_hold_continues_while_it_pauses() -> None:
    class Keeps(Holder):
        keeps_hold = True

    log: list[str] = []
    loop = Parts([Keeps(log)])
    loop.run(lambda: loop.pausing("keeps", do=lambda: log.append("pause")))
    assert log == ["take run", "pause", "let go run"]


def test_what_was_removed_while_it_paused_is_not_taken_again() -> None:
    log: list[str] = []
    loop = Parts([Holder(log)])
    loop.run(lambda: loop.pausing("holder", do=lambda: loop.remove_extension("holder")))
    assert log == ["take run", "let go run"]


@pytest.mark.parametrize("fails_at", ["take", "let go"])
def test_one_that_fails_to_let_go_or_to_come_back_does_not_keep_the_others_from_it(fails_at: str) -> None:
    class Fails(Extension):
        is_first = True

        def around_run(self) -> Iterator[None]:
            if not self.is_first and fails_at == "take":
                raise ValueError("on purpose")
            yield
            is_first, self.is_first = self.is_first, False
            if is_first and fails_at == "let go":
                raise ValueError("on purpose")

    log: list[str] = []
    loop = Parts([Holder(log, " 1"), Fails(), Holder(log, " 2")])
    names = [*loop.extensions]

    def pause() -> None:
        with pytest.raises(ValueError, match="on purpose") as error:
            loop._registry.pause(names)
            loop._registry.resume(names)
        assert error.value.__notes__ == ["in hook Fails.around_run of extension 'fails', at stage run"]
        loop._registry.resume(names)

    loop.run(pause)
    pause_and_end = ["let go run 2", "let go run 1", "take run 1", "take run 2"]
    assert log == ["take run 1", "take run 2", *pause_and_end, "let go run 2", "let go run 1"]
