"""What counts after any sequence of trainings, resumes and rewinds, beside a model of a few lines."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from train_manager.runs.record.metric_items import Begin, HistoryRow
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import EPOCHS, EVALUATIONS, Series
from train_manager.runs.record.metric_writer import MetricWriter

LOSS = Series("loss", "train_step_batch")
FIGURES = st.floats(allow_nan=False) | st.integers(-(2**70), 2**70) | st.booleans() | st.text() | st.lists(st.floats())


class Model:
    """The same in lists: one training, of which parts are forgotten."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, float]] = []
        self.history: dict[str, list[dict[str, Any]]] = {EPOCHS: [], EVALUATIONS: []}
        self.all: list[tuple[int, float]] = []

    @property
    def step(self) -> int:
        return self.losses[-1][0] if self.losses else 0

    def rewind(self, step: int) -> None:
        self.losses = [(at, value) for at, value in self.losses if at <= step]
        for rows in self.history.values():
            rows[:] = [row for row in rows if row["step"] <= step]

    def row(self, stage: str, figure: Any, *, partial: bool) -> tuple[int, dict[str, Any]]:
        """Add a row, or replace one that is partial; return its number too."""
        rows = self.history[stage]
        if rows and rows[-1].get("partial"):
            rows.pop()
        rows.append({"step": self.step, "epoch": len(rows), "figure": figure, **({"partial": True} if partial else {})})
        return len(rows) - 1, dict(rows[-1])


batches = st.tuples(st.just("batches"), st.lists(st.floats(allow_nan=False), min_size=1, max_size=400))
row = st.tuples(st.just("row"), st.sampled_from([EPOCHS, EVALUATIONS]), FIGURES, st.booleans())
rewind = st.tuples(st.just("rewind"), st.floats(0, 1), st.booleans())
simple = st.sampled_from([("flush",), ("close",), ("anew",)])


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # to the bit, and nan equals nan


@settings(max_examples=30, deadline=None)
@given(st.lists(batches | row | rewind | simple, max_size=12))
def test_a_reader_finds_what_a_training_has_that_goes_on_from_earlier_steps(actions: list[tuple[Any, ...]]) -> None:
    model, time = Model(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.sqlite"
        writer = MetricWriter(path, "0")
        writer.append(Begin(-1, time, {EPOCHS: [], EVALUATIONS: []}))
        for kind, *rest in actions:
            time += 1
            if kind == "batches":
                for value in rest[0]:
                    model.losses.append((model.step + 1, value + 0.0))
                    model.all.append(model.losses[-1])
                    writer.append((writer.number(LOSS), model.step, 1, time, value))
            elif kind == "row":
                number, found = model.row(rest[0], rest[1], partial=rest[2])
                writer.append(HistoryRow(rest[0], number, found, time))
            elif kind in ("rewind", "anew"):
                step = int(rest[0] * model.step) if kind == "rewind" else -1
                model.rewind(step)
                if kind == "anew" or rest[1]:  # another process goes on
                    writer.close()
                    writer = MetricWriter(path, str(time))
                writer.append(Begin(step, time, {stage: [*map(dict, rows)] for stage, rows in model.history.items()}))
            elif kind == "flush":
                writer.flush()
            else:
                writer.close()
        writer.close()
        reader = MetricReader(path)

        pairs = [pair for of in reader.scalars("loss").values() for pair in zip(*of[:2], strict=True)]
        every = [pair for of in reader.scalars("loss", superseded=True).values() for pair in zip(*of[:2], strict=True)]
        assert same(pairs, model.losses)
        assert same(every, model.all)
        assert same(reader.history(), {"epochs": model.history[EPOCHS], "evaluations": model.history[EVALUATIONS]})
