"""What all tests share."""

from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.forked_programs import ForkedProgram
from tests.support.rotation import ALL_PLACES, choose_all, is_in_turn, share_of
from train_manager.core.plan import Plan
from train_manager.runs.repeating import program

OF_THE_LOOP = (
    "extensions",
    "loop",
    "resume",
    "schedules",
    "test_against",
    "test_manager",
    "test_phases",
    "test_stopping",
)
"""How the paths begin, below this folder, of tests that train."""

ON_CLOSED_STAGES = "loop/test_closed_stages"
"""How the paths begin of tests that say which stages open."""


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
    """Choose how much is tested; and let Ctrl-C be taken as in a terminal.

    A shell that starts the tests in its background has it ignored.
    """
    if config.getoption(ALL_PLACES):
        choose_all()
    # 100 examples by default. To draw a few inputs may take a second on a loaded machine, which is not a failure.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("share", max_examples=share_of(share_of(100)), suppress_health_check=slow)
    hypothesis.settings.load_profile("share")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Let ``torch.manual_seed`` keep no seed for devices that are not there.

    With each one it keeps the stack as text, three times, which takes longer than most steps of the tests.
    """
    for devices in (torch.cuda, torch.mtia, torch.xpu):
        if not devices.is_available():
            setattr(devices, "manual_seed_all", lambda seed: None)  # noqa: B010  # mypy refuses an assignment


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of the loop a second time, with all stages of a batch open: one in forty, or all."""
    path = metafunc.definition.path.relative_to(Path(__file__).parent).as_posix()
    # The children of the fork server have the loop as it is.
    is_chosen = path.startswith(OF_THE_LOOP) and not path.startswith(ON_CLOSED_STAGES)
    trains_here = is_chosen and "fork_server" not in metafunc.fixturenames
    if trains_here and is_in_turn(metafunc.definition.nodeid, 40):
        metafunc.fixturenames.append("inner_stages")
        metafunc.parametrize("inner_stages", ["closed", "open"], indirect=True)


@pytest.fixture(scope="module")  # hypothesis refuses those of a function, which it would not make anew for each example
def inner_stages(request: pytest.FixtureRequest) -> Iterator[None]:
    """The stages inside ``train_step_batch``: closed where nothing looks into them, or open in each batch."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "open":
            patch.setattr(Plan, "is_empty", False)
        yield


def pytest_collection_finish() -> None:
    """Leave out of each later collection what was imported for the tests; a whole collection takes 0.4 s with it."""
    gc.freeze()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """One server for all tests of this process; it starts in two seconds, and its children in milliseconds."""
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="module", params=["forked", pytest.param("started", marks=pytest.mark.whole)])
def repeated_programs(request: pytest.FixtureRequest, fork_server: ForkServer) -> Iterator[None]:
    """The programs that ``reproduce`` runs again: children of the fork server; or interpreters, as in earnest."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "forked":
            popen = functools.partial(ForkedProgram, fork_server)
            errors_and_files = {name: getattr(subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
            patch.setattr(program, "subprocess", SimpleNamespace(Popen=popen, **errors_and_files))
        yield


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
