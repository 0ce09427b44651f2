"""A stage of the base class that an override no longer opens: its hooks would never run."""

from __future__ import annotations

from tests.checker.checking import At, Loop, ask, mistake
from train_manager import Extensible, Extension, fixture
from train_manager.errors import HookError


class Steps(Loop):
    """Its step is done by a method that only a step may call."""

    def step(self, batch: int) -> None:
        with self.staged("step", {"batch": batch}):
            self.with_batch()

    def with_batch(self) -> None:
        self.measure()
        self.forward()

    def forward(self) -> None:
        if "step" not in self.fixtures.path:
            raise RuntimeError
        with self.staged("forward"):
            pass

    def measure(self) -> None:
        with self.staged("measure"):
            pass


class Watcher(Extension):
    def post_forward(self) -> None: ...  # left out


def test_a_hook_of_a_stage_that_an_override_leaves_out_is_found(at: At) -> None:
    class Own(Steps):
        def with_batch(self) -> None:  # no forward
            self.measure()

    found = mistake(Watcher(), Own)
    assert isinstance(found, HookError)
    assert str(found) == (
        "Watcher.post_forward (extension 'watcher') would never run: "
        f"Own.with_batch ({at('no forward')}) does not call self.forward()\n"
        f"  asked at     {at('left out')}\n"
        "  call it there, or use post_step, or a hook of measure"
    )


def test_a_provider_of_such_a_stage_is_found(at: At) -> None:
    class Own(Steps):
        def with_batch(self) -> None: ...  # nothing at all

    class Lazy(Extension):
        @fixture("forward")
        def size(self) -> int:
            return 1

    assert str(mistake(Lazy(), Own)).endswith(
        f"Own.with_batch ({at('nothing at all')}) does not call self.forward()\n"
        f"  asked at     {mistake(Lazy(), Own).asked_at}\n"  # type: ignore[attr-defined]
        '  call it there, or use @fixture("step")'
    )


def test_all_methods_that_would_open_the_stage_are_named() -> None:
    class Updates(Steps):
        def with_batch(self) -> None:
            self.update()

        def update(self) -> None:
            self.backward()

        def backward(self) -> None:
            self.forward()

    class Own(Updates):
        def with_batch(self) -> None: ...

    assert "does not call self.update() or self.backward() or self.forward()\n" in str(mistake(Watcher(), Own))


def test_an_override_that_calls_the_overridden_method_leaves_nothing_out() -> None:
    class Own(Steps):
        def train(self) -> None:
            super().train()

        def with_batch(self) -> None:
            super().with_batch()

    assert Own([Watcher()]).check() == []


def test_of_several_overrides_the_one_that_leaves_the_call_out_is_named() -> None:
    class Own(Steps):
        def train(self) -> None:
            super().train()

        def with_batch(self) -> None: ...

    assert "Own.with_batch (" in str(mistake(Watcher(), Own))


def test_an_override_may_call_it_by_a_helper_of_its_own() -> None:
    class Own(Steps):
        def with_batch(self) -> None:
            for _ in range(2):
                if self:
                    self.helper()

        def helper(self) -> None:
            def nested() -> None:
                self.forward()

            nested()

    assert Own([Watcher()]).check() == []


def test_an_override_that_hands_the_object_on_may_do_anything() -> None:
    class Own(Steps):
        def with_batch(self) -> None:
            unread(self)

    (unknown,) = Own([Watcher()]).check()
    assert unknown.endswith("hands `self` to `unread`")


def unread(loop: Extensible) -> None:
    loop.forward()  # type: ignore[attr-defined]


def test_a_stage_whose_method_may_be_called_from_outside_is_no_mistake() -> None:
    class Own(Steps):
        def with_batch(self) -> None: ...

    assert Own([ask("measure")]).check() == []


def test_the_fixtures_of_a_hook_whose_stage_is_left_out_are_not_looked_at_elsewhere() -> None:
    class Similar(Steps):
        def with_batch(self) -> None:  # leaves out self.forward()
            with self.staged("forwards"):
                pass

    class Watcher(Extension):
        def post_forward(self, unknown: int) -> None: ...

    assert "does not call self.forward()" in str(mistake(Watcher(), Similar))
