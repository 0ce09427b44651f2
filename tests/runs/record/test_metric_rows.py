"""What counts after any sequence of trainings, resumes and rewinds, beside a model of a few lines."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.rotation import share_of
from train_manager.runs.record.background_writer import BackgroundWriter
from train_manager.runs.record.metric_items import Begin, Blob, HistoryRow, Labels, Other
from train_manager.runs.record.metric_news import NewRow
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import EPOCHS, EVALUATIONS, Series

LOSS = Series("loss", "train_step_batch")
VALUES = st.floats(allow_nan=False) | st.integers(-(2**70), 2**70) | st.booleans() | st.text() | st.lists(st.floats())


class Model:
    """The same in lists: one training, of which parts are forgotten."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, float]] = []
        self.history: dict[str, list[dict[str, Any]]] = {EPOCHS: [], EVALUATIONS: []}
        self.arrays: list[tuple[int, tuple[str, ...]]] = []
        self.all: list[tuple[int, float]] = []  # with what is superseded
        self._began = 0  # before which all is of trainings before
        self._cut = 0, False

    @property
    def step(self) -> int:
        return self.losses[-1][0] if self.losses else 0

    def rewind(self, step: int, *, is_told: bool) -> None:
        self.losses = [(at, value) for at, value in self.losses if at <= step]
        self.arrays = [(at, labels) for at, labels in self.arrays if at <= step]
        for rows in self.history.values():
            rows[:] = [row for row in rows if row["step"] <= step]
        self._cut = step, is_told or any(row["step"] > 0 for rows in self.history.values() for row in rows)

    def go_on(self) -> None:
        """Forget what is deleted with the first row that is written."""
        step, is_told = self._cut
        if step < 0:
            self._began = len(self.all)
        elif is_told:
            self.all[self._began :] = [(at, value) for at, value in self.all[self._began :] if at <= step]
        self._cut = 0, False

    def row(self, stage: str, metric: Any, *, partial: bool) -> tuple[int, dict[str, Any]]:
        """Add a row, or replace one that is partial; return its number too."""
        rows = self.history[stage]
        if rows and rows[-1].get("partial"):
            rows.pop()
        rows.append({"step": self.step, "epoch": len(rows), "metric": metric, **({"partial": True} if partial else {})})
        return len(rows) - 1, dict(rows[-1])


batches = st.tuples(st.just("batches"), st.lists(st.floats(allow_nan=False), min_size=1, max_size=400))
row = st.tuples(st.just("row"), st.sampled_from([EPOCHS, EVALUATIONS]), VALUES, st.booleans())
rewind = st.tuples(st.just("rewind"), st.floats(0, 1), st.booleans(), st.booleans())  # where, by another process, told
simple = st.sampled_from([("flush",), ("close",), ("anew",)])
array = st.tuples(st.just("array"), st.sampled_from([("a", "b"), ("a", "c")]))
look = st.tuples(st.just("look"), st.booleans())


class Follower:
    """The rows of a follower, which reads what is new and forgets what a new segment has gone back before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, int] = {}
        self.got: list[tuple[str, int]] = []
        self.losses: list[NewRow] = []

    def look(self) -> None:
        if not self._path.exists():
            return
        has_more = True
        while has_more:
            news = MetricReader(self._path).since(self._ids, most=7)
            self._ids, has_more = news.ids, news.has_more
            for segment in news.segments:
                if segment.from_step is not None:
                    self.losses = [row for row in self.losses if row.written_in <= segment.from_step]
            self.got += [(table, row.id) for table, rows in news.rows.items() for row in rows]
            self.losses += [row for row in news.rows["scalars"] if row.series == LOSS]


def counting_ids(path: Path) -> set[tuple[str, int]]:
    """The rows that count, but for those of the history as texts."""
    latest = "training IS (SELECT training FROM segments ORDER BY id DESC LIMIT 1)"
    counts = f"segment = segments.id AND {latest} AND step <= coalesce(until_step, step)"
    with closing(sqlite3.connect(path)) as connection:
        return {
            (table, int(id_))
            for table in ("scalars", "arrays")
            for (id_,) in connection.execute(f"SELECT {table}.id FROM {table} JOIN segments ON {counts}")
        }


def ids_of_parts(path: Path) -> set[tuple[str, int]]:
    """The scalars of epochs that were left before their ends."""
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT text FROM texts JOIN series ON series.id = series WHERE name = 'history' AND stage = ?"
        found = [json.loads(text) for (text,) in connection.execute(sql, (EPOCHS,))]
    parts = [range(one["scalars"][0], one["scalars"][1] + 1) for one in found if "partial" in one["row"]]
    return {("scalars", id_) for part in parts for id_ in part}


def delete_what_is_superseded(path: Path) -> None:
    latest = "training IS (SELECT training FROM segments ORDER BY id DESC LIMIT 1)"
    counts = f"SELECT 1 FROM segments WHERE id = segment AND {latest} AND step <= coalesce(until_step, step)"
    with closing(sqlite3.connect(path)) as connection:
        for table in ("scalars", "arrays", "texts"):
            connection.execute(f"DELETE FROM {table} WHERE NOT EXISTS ({counts})")
        connection.commit()


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # to the bit, and nan equals nan


@settings(max_examples=share_of(30), deadline=None)
@given(st.lists(batches | row | rewind | simple | array | look, max_size=12), st.booleans())
def test_a_reader_and_a_follower_find_what_a_training_has_that_resumes_from_earlier_steps(
    actions: list[tuple[Any, ...]], deletes: bool
) -> None:
    model, time = Model(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.sqlite"
        follower = Follower(path)
        wrote: str | None = None  # the run that has written the last row
        writer = BackgroundWriter(path, run := "0")
        writer.append(Begin(-1, time, {EPOCHS: [], EVALUATIONS: []}))
        for kind, *rest in [*actions, ("batches", [0.5])]:  # what has begun is seen with its first row
            time += 1
            if kind in ("batches", "row", "array"):
                wrote = run
                model.go_on()
            if kind == "batches":
                for value in rest[0]:
                    model.losses.append((model.step + 1, value + 0.0))
                    model.all.append(model.losses[-1])
                    writer.append((writer.number(LOSS), model.step, 1, time, value))
            elif kind == "row":
                number, found = model.row(rest[0], rest[1], partial=rest[2])
                writer.append(HistoryRow(rest[0], number, found, time))
            elif kind == "array":
                model.arrays.append((model.step, rest[0]))
                values = ("[2]", Labels(rest[0]), Blob("f", [time, 0]))
                writer.append(Other("arrays", writer.number(Series("norms")), model.step, 1, time, values))
            elif kind == "look":
                writer.flush()
                follower.look()
                if deletes and rest[0]:
                    writer.close()
                    delete_what_is_superseded(path)
            elif kind in ("rewind", "anew"):
                goes_on = kind == "rewind" and wrote is not None
                step, is_told = (int(rest[0] * model.step), rest[2]) if goes_on else (-1, False)
                model.rewind(step, is_told=is_told)
                begin = Begin(
                    step,
                    time,
                    {stage: [*map(dict, rows)] for stage, rows in model.history.items()},
                    wrote if is_told else None,
                )
                if kind == "anew" or rest[1]:  # another process continues
                    writer.close()
                    writer = BackgroundWriter(path, run := str(time))
                wrote = wrote if goes_on else None
                writer.append(begin)
            elif kind == "flush":
                writer.flush()
            else:
                writer.close()
        writer.close()
        reader = MetricReader(path)

        pairs = [pair for of in reader.scalars("loss").values() for pair in zip(*of[:2], strict=True)]
        every = [pair for of in reader.scalars("loss", superseded=True).values() for pair in zip(*of[:2], strict=True)]
        assert same(pairs, model.losses)
        assert deletes or same(every, model.all)
        assert same(reader.history(), {"epochs": model.history[EPOCHS], "evaluations": model.history[EVALUATIONS]})
        arrays = [(row.step, row.labels) for of in reader.arrays().values() for row in of]
        assert arrays == model.arrays

        follower.look()
        assert len(follower.got) == len(set(follower.got))
        assert counting_ids(path) - ids_of_parts(path) <= set(follower.got)
        assert not ids_of_parts(path) & set(follower.got)
        assert same([(row.step, row.value) for row in follower.losses], model.losses)
