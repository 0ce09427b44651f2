from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from train_manager.runs.record.metric_schema import database_uri, is_empty, make_tables

PLACE = ["id", "series", "segment", "step", "epoch", "time"]


def test_the_tables_are_these() -> None:
    """Other programs read the file: a change of a table needs another VERSION."""
    with closing(sqlite3.connect(":memory:")) as connection:
        assert is_empty(connection)
        make_tables(connection)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}

    assert found == {
        "segments": ["id", "run", "began", "from_step", "until_step"],
        "series": ["id", "name", "stage", "datasource", "phase"],
        "scalars": [*PLACE, "value", "own_step"],
        "histograms": [*PLACE, "edges", "counts", "own_step"],
        "texts": [*PLACE, "text", "own_step"],
        "files": [*PLACE, "path", "size", "sha256", "own_step"],
    }


@pytest.mark.parametrize("name", ["a b", "a?mode=rwc", "a#b", "a%41", "a\nb", "🦊"])
def test_a_path_with_any_characters_is_opened_as_it_is(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(database_uri(tmp_path / name, "rwc"), uri=True)) as connection:
        connection.execute("CREATE TABLE found(x)")

    assert [path.name for path in tmp_path.iterdir()] == [name]
