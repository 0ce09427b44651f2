"""The names for fixtures cover the loop, and are the same for Python and for type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
import typing
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.test_stages import parsed
from train_manager import Extension, InMemory, types
from train_manager.core.stage import Stage
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.stages import MAP
from train_manager.testing import tiny_manager

ROOT = Path(__file__).parents[1]
ALWAYS_THERE = {"fixtures", "stage", "train_manager", "extensible"}
OF_FAILURES = {"exc_type", "exc_value", "traceback"}
OF_EXTENSIONS = {"writer"}  # that the map of the loop does not show
PYTHONS = {"Any": Any, "TracebackType": TracebackType}


def test_every_fixture_of_the_map_has_a_type() -> None:
    assert set(types.FIXTURES) == set().union(*parsed(MAP).values()) | ALWAYS_THERE | OF_FAILURES | OF_EXTENSIONS


@pytest.mark.parametrize("name", types.ALIASES)
def test_every_alias_can_be_imported(name: str) -> None:
    assert getattr(types, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'train_manager\.types' has no attribute 'Lost'"):
        getattr(types, "Lost")  # noqa: B009


def type_of(fixture: str) -> Any:
    """Return the annotation of a fixture as a hint that ``isinstance`` takes."""
    names = {name: getattr(types, name) for name in types.ALIASES} | PYTHONS
    hint = eval(types.FIXTURES[fixture].annotation, names)
    return object if hint is Any else typing.get_origin(hint) if typing.get_origin(hint) in (dict, type) else hint


@pytest.mark.parametrize("fixture", types.FIXTURES)
def test_an_annotation_is_made_of_names_of_this_module_and_of_python(fixture: str) -> None:
    assert type_of(fixture) is not None


class Kinds(Extension):
    """Keep the fixtures that do not have the type that they are said to have."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.wrong: dict[str, Any] = {}

    def post_train_step_batch(
        self, last_batch: Any, example_index: Any, data_seconds: Any, loss_parts: Any
    ) -> None: ...

    def post_stage(self, stage: Stage, fixtures: types.Fixtures, train_manager: Any, extensible: Any) -> None:
        alive = {**fixtures, "stage": stage, "fixtures": fixtures}
        alive |= {"train_manager": train_manager, "extensible": extensible}
        self.seen |= {*alive}
        self.wrong |= {name: value for name, value in alive.items() if not isinstance(value, type_of(name))}


def test_the_fixtures_of_a_training_have_these_types(tmp_path: Path) -> None:
    kinds = Kinds()
    tm = tiny_manager(kinds, Checkpoints(), MetricStore(), train_dir=tmp_path, device="cpu")
    tm.train_data = InMemory(*next(iter(tm.train_data or ())), batch_size=8)
    tm.train()
    tm.predict([next(iter(tm.train_data))])

    assert (kinds.wrong, set(types.FIXTURES) - kinds.seen) == ({}, OF_FAILURES)


def test_type_checkers_see_the_same_names() -> None:
    source = Path(types.__file__).read_text(encoding="utf-8")
    branch = next(node for node in ast.parse(source).body if isinstance(node, ast.If)).body
    assigned = [node.target.id for node in branch if isinstance(node, ast.AnnAssign) and type(node.target) is ast.Name]
    aliases = [alias for node in branch if isinstance(node, ast.ImportFrom) for alias in node.names]

    assert sorted([*assigned, *(one.name for one in aliases if one.asname == one.name)]) == sorted(types.ALIASES)


def test_the_names_need_no_torch_before_they_are_read() -> None:
    code = "import sys; from train_manager.types import FIXTURES, StepNum; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
