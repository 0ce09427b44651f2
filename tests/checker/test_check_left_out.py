"""A stage of the base class that an override no longer opens: its hooks would never run."""

from __future__ import annotations

import pytest
import torch

from tests.checker.checking import At, ask
from train_manager import Extensible, Extension, TrainManager, fixture
from train_manager.errors import CheckError, HookError
from train_manager.testing import tiny_manager


def check(kind: type[TrainManager], *extensions: Extension) -> list[str]:
    tiny = tiny_manager()
    return kind(
        model=tiny.model, loss=tiny.loss, optimizer=tiny.optimizer, train_data=tiny.train_data, extensions=[*extensions]
    ).check()


def mistake(kind: type[TrainManager], extension: Extension) -> Exception:
    with pytest.raises(CheckError) as error:
        check(kind, extension)
    (found,) = error.value.mistakes
    return found


class Watcher(Extension):
    def post_train_loss_forward(self) -> None: ...  # left out


def test_a_hook_of_a_stage_that_an_override_leaves_out_is_found(at: At) -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:  # no forward
            self.update(torch.ones((), requires_grad=True))

    found = mistake(Own, Watcher())
    assert isinstance(found, HookError)
    assert str(found) == (
        "Watcher.post_train_loss_forward (extension 'watcher') would never run: "
        f"Own.train_batch ({at('no forward')}) does not call self.forward()\n"
        f"  asked at     {at('left out')}\n"
        "  call it there, or use post_train_step_batch, or a hook of train_backward or train_optimizer_step"
    )


def test_a_hook_of_a_class_that_is_not_checked_may_have_no_stage() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None: ...

    class Perhaps(Watcher):
        _checked_before_run = False

    assert check(Own, Perhaps()) == []


def test_a_provider_of_such_a_stage_is_found(at: At) -> None:
    class Own(TrainManager):
        def train_batch(self) -> None: ...  # nothing at all

    class Lazy(Extension):
        @fixture("train_model_forward")
        def size(self) -> int:
            return 1

    assert str(mistake(Own, Lazy())).endswith(
        f"Own.train_batch ({at('nothing at all')}) does not call self.forward()\n"
        f"  asked at     {mistake(Own, Lazy()).asked_at}\n"  # type: ignore[attr-defined]
        '  call it there, or use @fixture("train_step_batch")'
    )


class Helped(TrainManager):
    """Calls the forward pass by helpers of its own."""

    def train_batch(self) -> None:
        self.helper()

    def helper(self) -> None:
        for _ in range(2):
            if self:
                self.inner()

    def inner(self) -> None:
        self.update(self.forward())


def test_an_override_may_call_it_by_a_helper_of_its_own() -> None:
    assert check(Helped, Watcher()) == []


def test_all_methods_that_would_open_the_stage_are_named() -> None:
    class Own(Helped):
        def train_batch(self) -> None: ...

    assert "does not call self.helper() or self.inner() or self.forward()\n" in str(mistake(Own, Watcher()))


def test_an_override_that_calls_the_overridden_method_leaves_nothing_out() -> None:
    class Own(Helped):
        def train_batch(self) -> None:
            super().train_batch()

        def inner(self) -> None:
            super().inner()

    assert check(Own, Watcher()) == []


def test_of_several_overrides_the_one_that_leaves_the_call_out_is_named() -> None:
    class Own(Helped):
        def train_batch(self) -> None:
            super().train_batch()

        def helper(self) -> None: ...

    assert "Own.helper (" in str(mistake(Own, Watcher()))


def test_an_override_that_hands_the_object_on_may_do_anything() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            unread(self)

    (unknown,) = check(Own, Watcher())
    assert unknown.endswith("hands `self` to `unread`")


def unread(tm: TrainManager) -> None:
    tm.update(tm.forward())


def test_a_stage_whose_method_may_be_called_from_outside_is_no_mistake() -> None:
    class Steps(Extensible):
        def step(self) -> None:
            with self.staged("step"):
                self.measure()

        def measure(self) -> None:
            with self.staged("measure"):
                pass

    class Own(Steps):
        def step(self) -> None: ...

    assert Own([ask("measure")]).check() == []


def test_the_fixtures_of_a_hook_whose_stage_is_left_out_are_not_looked_at_elsewhere() -> None:
    class Similar(TrainManager):
        def train_batch(self) -> None:  # leaves out self.forward()
            with self.staged("train_loss_forwards"):
                pass

    class Wrong(Extension):
        def post_train_loss_forward(self, unknown: int) -> None: ...

    assert "does not call self.forward()" in str(mistake(Similar, Wrong()))
