"""The cell of one fixture: a value while it is alive, and an error if there is none."""

from __future__ import annotations

import pytest

from train_manager import Extensible
from train_manager.core.store import Cell, Scope


def filled() -> Cell:
    cell = Cell("x")
    cell.owner, cell.stage, cell.value = Scope("step"), "step", 1
    return cell


def test_a_new_cell_has_no_value_to_read() -> None:
    with pytest.raises(AttributeError):
        _ = Cell("x").value


def test_an_emptied_cell_has_no_value_and_no_owner() -> None:
    cell = filled()
    cell.empty()
    assert cell.owner is None
    assert not hasattr(cell, "value")


def test_an_emptied_cell_knows_the_stage_of_its_last_owner() -> None:
    cell = filled()
    cell.empty()
    assert cell.stage == "step"


def test_a_cell_can_be_emptied_twice() -> None:
    cell = filled()
    cell.empty()
    cell.empty()
    assert cell.owner is None


@pytest.mark.parametrize("cell", [filled(), Cell("x")], ids=["filled", "empty"])
def test_what_was_in_a_cell_can_be_put_back(cell: Cell) -> None:
    before = cell.content()
    cell.empty()
    cell.restore(before)
    assert cell.content() == before


def test_a_fixture_has_the_same_cell_in_each_stage_that_defines_it() -> None:
    extensible = Extensible()
    cells = extensible._store.cells
    with extensible.staged("first", {"x": 1}):
        first = cells["x"]
    with extensible.staged("second", {"x": 2}):
        assert cells["x"] is first
        assert first.value == 2
