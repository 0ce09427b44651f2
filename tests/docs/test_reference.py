"""The reference: its generated pages are up to date, and it leaves out no public name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import train_manager
from tests.loop.test_for_authors import FOR_AUTHORS
from tests.support import programs
from tests.support.fork_server import ForkServer
from train_manager import TrainManager, extensions, tools
from train_manager.stages import FIXTURES
from train_manager.telling import errors

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def documented() -> set[str]:
    """The names that the pages of the API show."""
    pages = [page.read_text() for page in (REFERENCE / "api").glob("*.md")]
    return {name for page in pages for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}


@pytest.mark.parametrize("script", ["make_tables.py", "make_reference.py"])
def test_a_generated_page_is_what_its_script_makes_today(script: str, fork_server: ForkServer) -> None:
    done = fork_server.run(programs.script, str(REFERENCE / script), "--check")

    assert done.code == 0, done.output + done.errors


def test_the_api_has_every_public_name() -> None:
    front = {f"train_manager.{name}" for name in train_manager.__all__ if name != "__version__"}
    of_errors = {f"train_manager.errors.{name}" for name in errors.__all__}
    of_tools = {f"train_manager.tools.{name}" for name in tools.__all__}
    in_two_places = {f"train_manager.{name}" for name in (*errors.__all__, *tools.__all__)}

    assert front - in_two_places | of_errors | of_tools <= documented()


def test_the_api_has_every_extension() -> None:
    assert {f"train_manager.extensions.{name}" for name in extensions.__all__} <= documented()


def test_the_page_for_authors_has_each_name_with_its_use() -> None:
    page = (REFERENCE / "api" / "for_authors.md").read_text()

    assert set(re.findall(r"^\| `(\w+)` \| \S.* \| \S.* \|$", page, re.MULTILINE)) == FOR_AUTHORS
    assert set(re.findall(r"^::: train_manager\.TrainManager\.(\w+)$", page, re.MULTILINE)) == FOR_AUTHORS


def test_the_page_of_train_manager_leaves_out_the_names_for_authors() -> None:
    page = (REFERENCE / "api" / "train_manager.md").read_text()
    filters = re.findall(r"!\^\((.*)\)\$", page)

    assert [set(names.split("|")) for names in filters] == [FOR_AUTHORS]


def test_every_argument_of_the_manager_has_a_meaning() -> None:
    page = (REFERENCE / "arguments.md").read_text()

    for name in inspect.signature(TrainManager).parameters:
        assert re.search(rf"^## `{name}`\n\n\S.*\n\n\S.*\.$", page, re.MULTILINE), name


def test_the_page_of_stages_has_every_fixture() -> None:
    page = (REFERENCE / "stages.md").read_text()

    assert [name for name in FIXTURES if f"\n| `{name}` | " not in page] == []


def test_every_argument_of_an_extension_decorator_or_schedule_has_a_meaning() -> None:
    for name in ("extensions.md", "decorators-and-schedules.md"):
        assert re.findall(r"^- `[^`]+`$", (REFERENCE / name).read_text(), re.MULTILINE) == []


def test_every_extension_says_where_it_runs_what_it_asks_for_and_what_it_leaves_behind() -> None:
    assert re.findall(r"^- \*[\w ]+:\* *$", (REFERENCE / "extensions.md").read_text(), re.MULTILINE) == []
