"""What counts after any sequence of trainings, resumes and rewinds, beside a model of a few lines."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.support.rotation import share_of
from train_manager.runs.store.batches import Written
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import Begin, HistoryRow, StoredRow, Vector
from train_manager.runs.store.schema import EPOCHS, EVALUATIONS, Series
from train_manager.runs.store.thread import StoreThread

NORMS = Series("norms")
VALUES = st.floats(allow_nan=False) | st.integers(-(2**70), 2**70) | st.booleans() | st.text() | st.lists(st.floats())


class Model:
    """The same in lists: one training, of which parts are forgotten."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, float]] = []
        self.history: dict[str, list[dict[str, Any]]] = {EPOCHS: [], EVALUATIONS: []}
        self.arrays: list[tuple[int, tuple[str, ...]]] = []
        self.step = 0

    def rewind(self, step: int, *, is_told: bool) -> None:
        """Go back; where it is not told of which run the state is, the rows before count no more."""
        self.losses = [(at, value) for at, value in self.losses if at <= step and is_told]
        self.arrays = [(at, labels) for at, labels in self.arrays if at <= step and is_told]
        for rows in self.history.values():
            rows[:] = [row for row in rows if row["step"] <= step]
        self.step = step

    def row(self, stage: str, metric: Any, *, partial: bool) -> tuple[int, dict[str, Any]]:
        """Add a row, or replace one that is partial; return its number too."""
        rows = self.history[stage]
        if rows and rows[-1].get("partial"):
            rows.pop()
        rows.append({"step": self.step, "epoch": len(rows), "metric": metric, **({"partial": True} if partial else {})})
        return len(rows) - 1, dict(rows[-1])

    def copy_of_history(self) -> dict[str, list[dict[str, Any]]]:
        return {stage: [*map(dict, rows)] for stage, rows in self.history.items()}


batches = st.tuples(st.just("batches"), st.lists(st.floats(allow_nan=False), min_size=1, max_size=400))
row = st.tuples(st.just("row"), st.sampled_from([EPOCHS, EVALUATIONS]), VALUES, st.booleans())
rewind = st.tuples(st.just("rewind"), st.floats(0, 1), st.booleans(), st.booleans())  # where, by another process, told
array = st.tuples(st.just("array"), st.sampled_from([("a", "b"), ("a", "c")]))
simple = st.sampled_from([("flush",), ("close",), ("anew",), ("other",), ("evaluation",)])


class Training:
    """A training that writes, and its model."""

    def __init__(self, path: Path) -> None:
        self.path, self.model, self.time, self.runs = path, Model(), 0.0, 0
        self.told: list[StoredRow] = []
        self.others: list[StoreThread] = []  # what else writes into the file at the same time
        self._start()
        self.thread.append(Begin(0.0, self.run, 0, {}))

    def _start(self) -> None:
        """Be another process."""
        self.runs += 1
        self.run = f"run {self.runs}"
        self.thread = StoreThread(self.path, self.run)
        self.thread.follow(lambda _, rows: self.told.extend(rows))

    def batches(self, values: list[float]) -> None:
        for value in values:
            self.model.step += 1
            self.model.losses.append((self.model.step, value + 0.0))
            self.thread.append((value, self.model.step, 16, self.time, "train", None))

    def row(self, stage: str, metric: Any, partial: bool) -> None:
        number, found = self.model.row(stage, metric, partial=partial)
        self.thread.append(HistoryRow(stage, number, found, self.time))

    def array(self, labels: tuple[str, ...]) -> None:
        self.model.arrays.append((self.model.step, labels))
        value = Vector([self.time, 0], (2,), labels)
        self.thread.append(Written((NORMS, self.model.step, None, 1, self.time, value)))

    def rewind(self, share: float, by_another: bool, is_told: bool) -> None:
        self.thread.flush()
        step, run = int(share * self.model.step), self.run
        has_rows = any(part.run == run for part in self._parts())
        if by_another:
            self.thread.close()
            self._start()
        self.model.rewind(step, is_told=has_rows and (is_told or not by_another))
        resumes = run if is_told or not by_another else self.run
        self.thread.append(Begin(self.time, resumes, step, self.model.copy_of_history()))

    def anew(self) -> None:
        self.thread.close()
        self._start()
        self.model = Model()
        self.thread.append(Begin(self.time, self.run, 0, {}))

    def other(self) -> None:
        """Begin another training in the same file, which writes until the end."""
        self.others.append(other := StoreThread(self.path, run := f"other {len(self.others)}"))
        other.append(Begin(self.time, run, 0, {}))
        for thread in self.others:
            thread.append((-1.0, 1, 16, self.time, "train", None))
            thread.flush()

    def evaluation(self) -> None:
        """Evaluate the training in another process."""
        self.thread.flush()
        evaluates = StoreThread(self.path, f"evaluates {self.time}")
        evaluated = {"step": 0, "epoch": 0, "metric": 0.5}
        evaluates.append(Begin(self.time, self.run, None, {EVALUATIONS: [evaluated]}, new=1))
        evaluates.close()

    def flush(self) -> None:
        self.thread.flush()

    def close(self) -> None:
        self.thread.close()

    def _parts(self) -> list[Any]:
        return MetricReader(self.path).runs() if self.path.exists() else []


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # to the bit, and nan equals nan


def rows_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        tables = "SELECT run FROM scalars UNION ALL SELECT run FROM items"
        sql = f"SELECT count(*) FROM ({tables}) AS rows JOIN runs ON runs.id = rows.run WHERE runs.run LIKE 'run %'"
        return int(connection.execute(sql).fetchone()[0])


@settings(max_examples=share_of(30), deadline=None)
@given(st.lists(batches | row | rewind | simple | array, max_size=12))
def test_a_reader_finds_what_a_training_has_that_resumes_from_earlier_steps(actions: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.sqlite"
        training = Training(path)
        for kind, *rest in [*actions, ("batches", [0.5])]:  # a part that has begun is seen with its first row
            training.time += 1
            getattr(training, kind)(*rest)
        for one in (training.thread, *training.others):
            one.close()
        reader, model, run = MetricReader(path), training.model, training.run

        losses = [pair for of in reader.scalars("loss", run=run).values() for pair in zip(*of[:2], strict=True)]
        assert same(losses, model.losses)
        history = reader.history(run)
        assert same(history, {"epochs": model.history[EPOCHS], "evaluations": model.history[EVALUATIONS]})
        arrays = [(one.step, one.labels) for of in reader.arrays(run=run).values() for one in of]
        assert arrays == model.arrays

        # A follower gets each row of its run once, and those of no other.
        told = [one for one in training.told if one.series.stage not in (EPOCHS, EVALUATIONS)]
        assert len(told) == rows_in(path)
        for number in range(len(training.others)):
            assert {*reader.scalars("loss", run=f"other {number}").popitem()[1].values} == {-1.0}
