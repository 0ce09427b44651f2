"""The callbacks of ``examples/batch_leaks_elsewhere`` in their toolkits, which `make other-loops` installs."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.fork_server import Child, ForkServer
from tests.support.other_loops import TRAINS, look

pytestmark = [pytest.mark.slow, pytest.mark.whole]


@pytest.fixture(scope="module", params=TRAINS)
def looked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Child:
    """A process that has trained a clean network and one that leaks, with the check of a toolkit."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    child = fork_server.run(look, request.param, cwd=tmp_path_factory.mktemp("trained"), KERAS_BACKEND="torch")
    assert child.output, child.errors
    return child


def test_a_clean_network_is_clean_and_no_warning_is_shown(looked: Child) -> None:
    assert "clean: True" in looked.output.splitlines()
    assert "batch leak  error" not in looked.errors.partition("these are the warnings of a leak\n")[0]


def test_a_leak_is_found_in_its_module_and_shown_as_the_toolkit_shows_warnings(looked: Child) -> None:
    shown = looked.errors.partition("these are the warnings of a leak\n")[2]

    assert shown.count("what the model returns for example 1") == 1
    assert next(line for line in looked.output.splitlines() if "found: " in line).endswith("3 (Centred)")


def test_the_training_goes_on_as_without_the_check_to_the_bit(looked: Child) -> None:
    assert looked.code == 0, looked.errors
    assert looked.output.splitlines()[-1] == "both trainings end in the same state"
