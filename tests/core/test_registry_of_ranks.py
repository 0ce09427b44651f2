"""Extensions with ``ranks = 0``: their hooks are planned on rank 0 only, their fixtures are alive on each rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from train_manager import Extensible, Extension, fixture, modifies, provides
from train_manager.core.store import Options
from train_manager.errors import CheckError, FixtureNotFound


class Loop(Extensible):
    _options = Options(joined="run")

    def train(self) -> None:
        with self.staged("run"):
            for number in range(2):
                self.step(number)

    def step(self, number: int) -> None:
        with self.staged("step", {"number": number}):
            pass


class Writer(Extension):
    ranks = 0

    def __init__(self, log: list[str]) -> None:
        self.log = log

    @fixture("run")
    def writer(self) -> str:
        return "writer"

    def around_run(self) -> Iterator[None]:
        self.log.append("opens")
        yield
        self.log.append("closes")

    def post_step(self, number: int) -> None:
        self.log.append(f"writes {number}")


class Doubles(Extension):
    ranks = 0

    @provides("doubled")
    def pre_step(self, number: int) -> int:
        return 2 * number

    @modifies("number")
    def post_step(self, number: int) -> int:
        return number + 10


class Asks(Extension):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def post_step(self, writer: str, number: int) -> None:
        self.log.append(f"{writer} {number}")


def on_rank(rank: int, *extensions: Extension) -> Loop:
    loop = Loop(extensions)
    loop._registry.use_rank(rank)
    return loop


def test_hooks_of_rank_0_run_there() -> None:
    log: list[str] = []
    on_rank(0, Writer(log)).train()
    assert log == ["opens", "writes 0", "writes 1", "closes"]


def test_hooks_of_rank_0_do_not_run_on_another_rank() -> None:
    log: list[str] = []
    on_rank(1, Writer(log)).train()
    assert log == []


def test_fixtures_of_rank_0_are_alive_on_each_rank() -> None:
    log: list[str] = []
    on_rank(1, Writer([]), Asks(log)).train()
    assert log == ["writer 0", "writer 1"]


def test_hooks_that_write_fixtures_run_on_each_rank() -> None:
    log: list[int] = []
    hooks = Extension.of(post_step=lambda doubled, number: log.append(doubled + number))
    on_rank(1, Doubles(), hooks).train()
    assert log == [10, 13]


def test_an_extension_of_rank_0_that_joins_an_open_run_has_no_hook_on_another_rank() -> None:
    log: list[str] = []
    loop = on_rank(1)
    with loop.staged("run"):
        loop.add_extension(Writer(log))
        loop.add_extension(Asks(log))
        loop.step(0)
        loop.remove_extension("writer")
    assert log == ["writer 0"]


def test_an_extension_of_rank_0_that_joins_an_open_run_runs_on_rank_0() -> None:
    log: list[str] = []
    loop = on_rank(0)
    with loop.staged("run"):
        loop.add_extension(Writer(log))
        loop.step(0)
        loop.remove_extension("writer")
    assert log == ["opens", "writes 0", "closes"]


def test_an_extension_of_rank_0_that_pauses_has_no_hook_on_another_rank_afterwards() -> None:
    log: list[str] = []
    loop = on_rank(1, Writer(log))
    with loop.staged("run"):
        loop._registry.pause(["writer"])
        with pytest.raises(FixtureNotFound), loop.staged("step", {"number": 0}):
            loop.fixtures["unknown"]
        loop._registry.resume(["writer"])
        loop.step(1)
    assert log == []


def test_explain_shows_the_hooks_of_this_rank() -> None:
    texts = [str(on_rank(rank, Writer([])).explain(all=True)) for rank in (0, 1)]
    assert ["Writer.post_step" in text for text in texts] == [True, False]
    assert all("writer by Writer.writer" in text for text in texts)


def test_the_check_looks_at_the_hooks_of_this_rank() -> None:
    class Misspelt(Extension):
        ranks = 0

        def post_stp(self) -> None: ...

    with pytest.raises(CheckError):
        on_rank(0, Misspelt()).check()
    on_rank(1, Misspelt()).check()


def test_hooks_of_a_loop_itself_run_on_each_rank() -> None:
    log: list[int] = []

    class Own(Loop):
        ranks = 0

        def post_step(self, number: int) -> None:
            log.append(number)

    loop = Own()
    loop._registry.use_rank(1)
    loop.train()
    assert log == [0, 1]
