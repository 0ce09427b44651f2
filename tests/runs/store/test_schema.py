from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from train_manager.runs.store.rows import metrics_in, row_of_text, text_of_row
from train_manager.runs.store.schema import EVALUATIONS, make_tables

PART = ["run", "series", "step", "own_step", "epoch", "time"]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as found:
        make_tables(found)
        yield found


def test_the_tables_are_these(connection: sqlite3.Connection) -> None:
    """Other programs read the file: a change of a table needs another VERSION."""
    sql = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"
    names = [name for (name,) in connection.execute(sql)]
    found = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}

    assert found == {
        "runs": ["id", "run", "began", "resumes", "step"],
        "series": ["id", "name", "stage", "datasource", "phase", "labels"],
        "scalars": [*PART, "value"],
        "items": [*PART, "kind", "form", "content"],
        "history": ["run", "stage", "number", "time", "row"],
        "counting": ["run", "part", "until"],
        "history_numbers": ["run", "stage", "datasource", "phase", "name", "step", "value"],
        "metrics": ["run", "series", "step", "value", "latest"],
    }


# ---- which rows count ------------------------------------------------------------------------------------------------


def counting(connection: sqlite3.Connection, *parts: tuple[int | None, int | None]) -> dict[int, dict[int, int | None]]:
    """Return for each part which parts count, and up to which step; the parts are given as `resumes` and `step`."""
    connection.executemany("INSERT INTO runs(run, began, resumes, step) VALUES ('r', 0, ?, ?)", parts)
    found: dict[int, dict[int, int | None]] = {}
    for run, part, until in connection.execute("SELECT run, part, until FROM counting"):
        found.setdefault(run, {})[part] = until
    return found


def test_a_part_counts_as_a_whole_and_what_it_resumes_up_to_the_smallest_step(connection: sqlite3.Connection) -> None:
    found = counting(connection, (None, None), (1, 4), (2, 6), (3, 2))

    assert found == {
        1: {1: None},
        2: {2: None, 1: 4},
        3: {3: None, 2: 6, 1: 4},
        4: {4: None, 3: 2, 2: 2, 1: 2},
    }


def test_forged_parts_in_a_circle_end(connection: sqlite3.Connection) -> None:
    assert counting(connection, (2, 5), (1, 3))[1].keys() == {1, 2}


def test_a_hundred_resumes_are_a_chain(connection: sqlite3.Connection) -> None:
    parts: list[tuple[int | None, int | None]] = [(None, None), *((number, 10 * number) for number in range(1, 100))]

    assert counting(connection, *parts)[100] == {100: None, **{number: 10 * number for number in range(1, 100)}}


# ---- the history as numbers ------------------------------------------------------------------------------------------


def test_the_view_has_the_numbers_that_python_finds_in_a_row(connection: sqlite3.Connection) -> None:
    row = {
        "epoch": 2, "step": 7, "set": "valid", "phase": "head", "loss": 0.1, "count": 3, "worst": float("inf"),
        "least": float("-inf"), "odd": float("nan"), "is_good": True, "note": "ü", "each": [0.5], "nothing": None,
    }  # fmt: skip
    connection.execute("INSERT INTO history VALUES (1, ?, 0, 0.0, ?)", (EVALUATIONS, text_of_row(row)))

    found = connection.execute("SELECT name, datasource, phase, step, value FROM history_numbers").fetchall()
    in_python = [
        (series.name, series.datasource, series.phase, 7, None if value != value else value)
        for series, value in metrics_in(EVALUATIONS, row_of_text(text_of_row(row)))
    ]
    assert sorted(found, key=repr) == sorted(in_python, key=repr)
