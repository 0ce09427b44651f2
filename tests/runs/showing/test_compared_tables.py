from __future__ import annotations

from dataclasses import replace

from tests.runs.comparing.test_comparison_lines import COMPARED, UNKNOWN
from train_manager.runs.showing.compared_tables import tables_of


def test_a_value_that_is_not_recorded_is_listed_and_not_counted() -> None:
    table = {table.title: table for table in tables_of(UNKNOWN)}["parameters"]

    assert [*table.differing] == ["seed"]
    assert table.same == {"epochs": "2"}
    assert table.unknown.startswith("not recorded: model (a Net), ")


def test_code_that_is_not_in_full_is_the_same_as_far_as_recorded() -> None:
    rows = {"commit": ("18afa3f", "18afa3f")}
    notes = ("base: the code is not in full: git is not installed",)

    partly = [table.title for table in tables_of(replace(COMPARED, code=rows, notes=notes)) if table.is_partial]

    assert partly == ["code"]
