from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

from train_manager import Extensible, StageError
from train_manager.core.thread_affinity import current_task


def test_each_task_of_one_thread_is_another() -> None:
    async def both() -> tuple[object, object]:
        async def mine() -> object:
            return current_task()

        first, second = await asyncio.gather(mine(), mine())
        return first, second

    first, second = asyncio.run(both())
    assert first is not None
    assert first is not second


def test_no_task_runs_in_plain_code() -> None:
    assert current_task() is None


class Waiter(Extensible):
    """Its tasks take turns."""

    async def wait(self, other: asyncio.Event, mine: asyncio.Event) -> None:
        with self.staged("wait"):
            mine.set()
            await other.wait()

    def all_together(self) -> None:
        async def two() -> None:
            first, second = asyncio.Event(), asyncio.Event()
            await asyncio.gather(self.wait(first, second), self.wait(second, first))

        with self.staged("all"):
            asyncio.run(two())

    def work(self) -> int:
        with self.staged("work", {"x": 1}):
            return int(self.fixtures["x"])

    def work_in_a_task(self) -> int:
        async def one() -> int:
            return self.work()

        with self.staged("all"):
            return asyncio.run(one())


def test_tasks_that_are_started_inside_a_stage_of_plain_code_open_none_that_they_could_mix_up() -> None:
    with pytest.raises(StageError, match="another thread or task"):
        Waiter().all_together()


def test_a_plain_function_opens_a_stage_also_in_a_task_that_was_started_inside_one() -> None:
    assert Waiter().work_in_a_task() == 1


class Numbers(Extensible):
    """A plain function around a generator with a stage of its own."""

    def all(self) -> list[int]:
        with self.staged("all"):
            return list(self.each())

    def each(self) -> Iterator[int]:
        with self.staged("each"):
            yield 1


@pytest.mark.parametrize("was_used", [False, True])
def test_a_generator_inside_a_plain_functions_stage_opens_its_own_in_a_task_too(was_used: bool) -> None:
    async def main() -> list[int]:
        return numbers.all()

    numbers = Numbers()
    if was_used:
        numbers.all()
    assert asyncio.run(main()) == [1]


def test_asyncio_is_not_imported_to_find_that_no_task_runs() -> None:
    code = (
        "import sys\n"
        "from train_manager import Extensible\n"
        "with Extensible().staged('work'):\n"
        "    print('asyncio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
