"""Generator methods, those of context managers among them: what runs at their yield."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from tests.checker.checking import ask
from train_manager import Extensible, Extension


def test_the_body_of_a_context_manager_method_runs_at_its_yield() -> None:
    class Fits(Extensible):
        @contextmanager
        def opened(self) -> Iterator[None]:
            with self.staged("outer", {"x": 1}):
                yield

        def fit(self) -> None:
            with nullcontext(), self.opened() as _, self.staged("inner"):
                pass

    assert Fits([ask("inner", "x")]).check() == []


def test_a_context_manager_may_be_made_by_another_method() -> None:
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

    assert Fits([ask("fit", "number")]).check() == []


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


def test_the_body_of_a_for_loop_runs_at_the_yield_of_a_generator_method() -> None:
    class Fits(Batches):
        def fit(self) -> None:
            for _, _batch in enumerate(self.batches()):
                self.step()

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_a_generator_may_have_a_name_before_the_loop() -> None:
    class Fits(Batches):
        def fit(self) -> None:
            batches = self.batches()
            for _ in batches:
                self.step()

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_a_comprehension_runs_at_the_yield_of_a_generator_method() -> None:
    class Fits(Batches):
        def fit(self) -> list[None]:
            return [self.step() for _ in self.batches()]  # type: ignore[func-returns-value]

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_a_generator_method_may_hand_on_another_one() -> None:
    class Fits(Batches):
        def twice(self) -> Iterator[int]:
            yield from self.batches()

        def chosen(self) -> Iterator[int]:
            return self.twice()

        def fit(self) -> None:
            for _ in self.chosen():
                self.step()

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_two_generators_in_one_loop_are_not_followed() -> None:
    class Fits(Batches):
        def labels(self) -> Iterator[int]:
            with self.staged("labelled", {"label": 1}):
                yield 1

        def fit(self) -> None:
            for _ in zip(self.batches(), self.labels(), strict=False):
                self.step()

    (unknown,) = Fits([ask("step", "shard", "number", "label")]).check()
    assert unknown.endswith("iterates over `zip(self.batches(), self.labels(), strict=False)`")


def test_async_methods_are_read() -> None:
    class Fits(Extensible):
        async def batches(self) -> AsyncIterator[int]:
            with self.staged("source", {"shard": 1}):
                yield 1

        async def fit(self) -> None:
            async for _ in self.batches():
                await self.step()

        async def step(self) -> None:
            with self.staged("step"):
                pass

    assert Fits([ask("step", "shard")]).check() == []


class Opening(Extensible):
    """Its context manager is returned through two methods."""

    def run(self) -> AbstractContextManager[None]:
        return self._run()

    def _run(self) -> AbstractContextManager[None]:
        return self._new_run()

    @contextmanager
    def _new_run(self) -> Iterator[None]:
        with self.staged("run", {"lr": 1}):
            yield


def test_a_context_manager_that_is_returned_through_two_methods_is_followed() -> None:
    class Fitting(Opening):
        def fit(self) -> None:
            with self.run(), self.staged("own"):
                pass

    assert Fitting([Extension.of(post_own=lambda lr: None)]).check() == []


def test_a_method_that_a_yield_from_hands_on_is_followed() -> None:
    class Fits(Extensible):
        def fit(self, data: list[int]) -> Iterator[None]:
            with self.staged("fit", {"lr": 1}):
                yield from map(self.step, data)

        def step(self, number: int) -> None:
            with self.staged("step", {"number": number}):
                pass

    assert Fits([ask("step", "lr", "number")]).check() == []
