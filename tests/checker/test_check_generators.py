"""Generator methods and context managers of the user's own, which are not followed if they open stages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from tests.checker.checking import ask
from train_manager import Extensible, Extension, TrainManager
from train_manager.testing import tiny_manager


def test_a_context_manager_that_opens_a_stage_is_not_followed() -> None:
    class Fits(Extensible):
        @contextmanager
        def opened(self) -> Iterator[None]:
            with self.staged("outer", {"x": 1}):
                yield

        def fit(self) -> None:
            with nullcontext(), self.opened() as _, self.staged("inner"):
                pass

    (unknown,) = Fits([ask("inner", "x")]).check()
    assert unknown.endswith("Fits.opened is entered by `with`, and opens stages or defines fixtures")


def test_a_context_manager_that_another_method_makes_is_not_followed() -> None:
    class Fits(Extensible):
        def run(self) -> AbstractContextManager[None]:
            return self._run(1)

        @contextmanager
        def _run(self, number: int) -> Iterator[None]:
            with self.staged("run", {"number": number}):
                yield

        def fit(self) -> None:
            with self.run():
                with self.staged("fit"):
                    pass

    assert len(Fits([ask("fit", "number")]).check()) == 2  # `run`, and the generator that it calls


def test_a_context_manager_that_opens_no_stage_hides_nothing() -> None:
    class Fits(Extensible):
        @contextmanager
        def timed(self) -> Iterator[None]:
            yield

        def fit(self) -> None:
            with self.staged("fit", {"x": 1}), self.timed(), self.staged("inner"):
                pass

    assert Fits([ask("inner", "x")]).check() == []


class Batches(Extensible):
    """Batches made by a generator with a stage around each."""

    def batches(self) -> Iterator[int]:
        with self.staged("source", {"shard": 1}):
            for number in range(3):
                with self.staged("read", {"number": number}):
                    yield number

    def step(self) -> None:
        with self.staged("step"):
            pass


def test_a_generator_that_opens_stages_is_not_followed() -> None:
    class Fits(Batches):
        def fit(self) -> None:
            for _, _batch in enumerate(self.batches()):
                self.step()

    (unknown,) = Fits([ask("step", "shard", "number")]).check()
    assert unknown.endswith("Batches.batches is a generator, and opens stages or defines fixtures")


def test_a_generator_that_opens_no_stage_hides_nothing() -> None:
    class Fits(Batches):
        def numbers(self) -> Iterator[int]:
            yield from range(3)

        def fit(self) -> None:
            with self.staged("fit", {"lr": 1}):
                for _ in self.numbers():
                    self.step()

    assert Fits([ask("step", "lr")]).check() == []


def test_async_methods_are_read() -> None:
    class Fits(Extensible):
        async def batches(self) -> AsyncIterator[int]:
            yield 1

        async def fit(self) -> None:
            async with self.staged("fit", {"lr": 1}):  # type: ignore[attr-defined]
                async for _ in self.batches():
                    await self.step()

        async def step(self) -> None:
            with self.staged("step"):
                pass

    assert Fits([ask("step", "lr")]).check() == []


class Held(TrainManager):
    """Trains in a run that it holds open."""

    def fit(self) -> None:
        with self.run(), self.staged("report"):
            self.train_steps(1)


class OnAStack(TrainManager):
    """The same, with the run on a stack."""

    def fit(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self.run())
            with self.staged("report"):
                self.train_steps(1)


def as_manager(kind: type[TrainManager], *extensions: Extension) -> TrainManager:
    tiny = tiny_manager()
    return kind(
        model=tiny.model, loss=tiny.loss, optimizer=tiny.optimizer, train_data=tiny.train_data, extensions=[*extensions]
    )


def test_what_stands_inside_of_a_run_that_is_held_open_is_followed() -> None:
    assert as_manager(Held, ask("report", "model", "epoch_num")).check() == []


def test_a_run_that_is_entered_in_another_way_is_not_followed() -> None:
    (unknown,) = as_manager(OnAStack, ask("report", "model")).check()
    assert unknown.endswith("TrainManager.run is a generator, and opens stages or defines fixtures")
