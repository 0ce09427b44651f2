"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.rotation import ALL_PLACES, choose_all


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "test what rotates at all its places, and what is marked `whole`, as make chaos and .ci/run do"
    parser.addoption(ALL_PLACES, action="store_true", help=told)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist shares them out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not chosen; and begin with the slow ones, so that no process is alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if not config.getoption(ALL_PLACES) and item.get_closest_marker("whole"):
            item.add_marker(pytest.mark.skip(reason=f"{ALL_PLACES} runs it"))


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be taken as in a terminal: a shell that starts the tests in its background has it ignored."""
    if config.getoption(ALL_PLACES):
        choose_all()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave out of each later collection what was imported for the tests; a whole collection takes 0.4 s with it."""
    gc.freeze()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """One server for all tests of this process; it starts in two seconds, and its children in milliseconds."""
    with ForkServer() as server:
        yield server


@pytest.fixture
def at(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """``file:line`` of the line of the test's own file that ends with ``# <marker>``, as messages show it."""
    path = Path(request.path)
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    lines = path.read_text(encoding="utf-8").splitlines()

    def line_of_marker(marker: str) -> str:
        (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"# {marker}"))
        return f"{shown}:{number}"

    return line_of_marker
