"""Row T46: the faults O1 to O15 of an earlier implementation, beaten."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from train_manager import Extensible, Extension, always
from train_manager.errors import CheckError, FixtureExists, FixtureNotFound, HookError


def test_o01_a_misspelt_hook_is_an_error_before_the_first_stage() -> None:
    class Worker(Extensible):
        def work(self) -> None:
            with self.staged("stage_one"):
                pass

    class Watcher(Extension):
        def pre_stge_one(self) -> None: ...

    with pytest.raises(CheckError, match="did you mean 'pre_stage_one'"):
        Worker([Watcher()]).check()


def test_o02_a_hook_that_asks_for_an_unknown_fixture_is_told_by_name_with_what_is_alive() -> None:
    """In the run, and by the check before it."""

    class Worker(Extensible):
        def work(self) -> None:
            with self.staged("step", {"loss": 0.3}):
                pass

    class Watcher(Extension):
        def post_step(self, losses: float) -> None: ...

    with pytest.raises(CheckError, match=r"Watcher.post_step wants 'losses'(.|\n)*alive +loss\n.*mean 'loss'"):
        Worker([Watcher()]).check()
    with pytest.raises(
        FixtureNotFound, match=r"Watcher.post_step wants 'losses', which no open stage provides"
    ) as error:
        with Extensible([Watcher()]).staged("step", {"loss": 0.3}):  # no stage of the class: the check knows nothing
            pass
    assert (error.value.alive, error.value.nearest) == (("loss",), ("loss",))


def test_o03_the_default_of_a_hook_is_honoured_when_the_fixture_is_missing() -> None:
    seen: list[str] = []

    class Watcher(Extension):
        def post_step(self, x: str = "default") -> None:
            seen.append(x)

    with Extensible([Watcher()]).staged("step"):
        pass
    assert seen == ["default"]


def test_o04_an_always_hook_that_cannot_be_called_does_not_hide_the_stages_error() -> None:
    class Watcher(Extension):
        @always
        def post_step(self, x: int) -> None: ...

    with pytest.raises(ValueError, match="body") as error, Extensible([Watcher()]).staged("step"):
        raise ValueError("body")
    assert "FixtureNotFound: Watcher.post_step wants 'x', which no open stage provides" in error.value.__notes__[0]


def test_o05_an_always_hook_gets_the_exceptions_type_and_value() -> None:
    told: list[object] = []

    class Notes(Extension):
        @always
        def post_step(self, exc_type: object, exc_value: object) -> None:
            told.extend([exc_type, exc_value])

    with pytest.raises(ValueError, match="body") as error, Extensible([Notes()]).staged("step"):
        raise ValueError("body")
    assert told == [ValueError, error.value]


def test_o06_a_true_return_value_of_an_always_hook_swallows_nothing() -> None:
    class True_(Extension):  # noqa: N801
        @always
        def post_step(self) -> bool:
            return True

    with pytest.raises(ValueError, match="body"), Extensible([True_()]).staged("step"):
        raise ValueError("body")


def test_o07_an_inner_fixture_is_gone_after_its_stage() -> None:
    extensible = Extensible()
    with extensible.staged("outer"):
        with extensible.staged("inner", {"x": 1}):
            pass
        assert "x" not in extensible.fixtures


def test_o08_an_inner_stage_that_passes_an_existing_fixture_is_refused() -> None:
    extensible = Extensible()
    with extensible.staged("outer", {"a": 1}):
        with pytest.raises(FixtureExists, match="'a', which stage 'outer' has defined already"):
            with extensible.staged("inner", {"a": 2}):
                pass


def test_o09_the_stages_are_clean_after_a_refused_fixture() -> None:
    extensible = Extensible()
    with pytest.raises(FixtureExists), extensible.staged("outer", {"a": 1}), extensible.staged("inner", {"a": 2}):
        pass
    assert dict(extensible.fixtures) == {}
    assert extensible.fixtures["stage"] is None


def test_o10_a_hook_that_asks_for_a_value_only_cannot_change_the_fixture() -> None:
    """Reading is the default; the declared ways to write are `@provides` and `@modifies`."""

    class Rebinding(Extension):
        def pre_step(self, loss: float) -> float:
            loss = -1
            return loss

    extensible = Extensible([Rebinding()])
    with pytest.raises(HookError, match=r"Rebinding\.pre_step returned a value that it does not declare"):
        with extensible.staged("step", {"loss": 0.3}):
            pass


def test_o11_a_hook_with_kwargs_gets_every_live_fixture() -> None:
    seen: list[dict[str, Any]] = []

    class Watcher(Extension):
        def post_step(self, **kw: Any) -> None:
            seen.append(kw)

    with Extensible([Watcher()]).staged("step", {"a": 1, "b": 2}):
        pass
    assert seen == [{"a": 1, "b": 2}]


def test_o12_pre_and_post_hooks_run_in_the_order_of_registration_and_around_hooks_leave_in_reverse() -> None:
    log: list[str] = []

    class Logging(Extension):
        def __init__(self, name: str) -> None:
            self.name = name

        def pre_step(self) -> None:
            log.append(f"pre {self.name}")

        def post_step(self) -> None:
            log.append(f"post {self.name}")

        def around_step(self) -> Any:
            log.append(f"enter {self.name}")
            yield
            log.append(f"leave {self.name}")

    with Extensible([Logging("A"), Logging("B")]).staged("step"):
        pass
    assert log == ["enter A", "enter B", "pre A", "pre B", "post A", "post B", "leave B", "leave A"]


def test_o13_extensions_on_the_class_are_used() -> None:
    seen: list[int] = []

    class Watcher(Extension):
        def pre_step(self, var_a: int) -> None:
            seen.append(var_a)

    class Equipped(Extensible):
        extensions = [Watcher()]

    with Equipped().staged("step", {"var_a": 1}):
        pass
    assert seen == [1]


def test_o14_when_a_pre_hook_fails_the_always_hooks_of_the_others_still_run() -> None:
    log: list[str] = []

    class First(Extension):
        @always
        def post_step(self) -> None:
            log.append("always")

    class Second(Extension):
        def pre_step(self) -> None:
            raise ValueError("second")

    with pytest.raises(ValueError, match="second"), Extensible([First(), Second()]).staged("step"):
        log.append("body")
    assert log == ["always"]


def test_o15_the_signature_of_a_hook_is_read_when_it_is_added_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watcher(Extension):
        def pre_step(self, x: int) -> None: ...

        def post_step(self, x: int) -> None: ...

    reads: list[Callable[..., Any]] = []
    signature = inspect.signature

    def counting(function: Callable[..., Any], **options: Any) -> inspect.Signature:
        reads.append(function)
        return signature(function, **options)

    monkeypatch.setattr(inspect, "signature", counting)
    extensible = Extensible({str(number): Watcher() for number in range(5)})
    at_first = len(reads)
    for _ in range(100):
        with extensible.staged("step", {"x": 1}):
            pass
    assert at_first >= 10
    assert len(reads) == at_first


def test_t46_each_of_the_fifteen_faults_has_a_test_of_its_number() -> None:
    found = {int(match[1]) for name in globals() if (match := re.match(r"test_o(\d\d)_", name))}
    assert found == set(range(1, 16))
