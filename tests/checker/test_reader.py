from __future__ import annotations

import gc
import weakref
from types import FunctionType
from typing import Any

import pytest

from train_manager import Extensible
from train_manager.checker import reader


class Fits(Extensible):
    def fit(self, data: list[int]) -> None:
        with self.staged("fit", {"data": data}):
            for batch in data:
                self.step(batch)

    def step(self, batch: int) -> None:
        with self.staged("step", {"batch": batch}):
            pass


def test_an_outline_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader._read
    done: list[FunctionType] = []

    def _read(function: FunctionType) -> Any:
        done.append(function)
        return read(function)

    monkeypatch.setattr(reader, "_read", _read)

    class Derived(Fits):
        def fit(self, data: list[int]) -> None:
            super().fit(data)

    Derived().explain()
    Derived().check()
    type("Another", (Derived,), {})().check()
    assert done.count(Derived.fit) == 1  # type: ignore[arg-type]
    assert len(done) == len({*done})


def test_outlines_do_not_keep_their_class_alive() -> None:
    class Gone(Fits):
        def step(self, batch: int) -> None:
            super().step(batch)  # holds the class in a closure

    Gone().explain()
    reference = weakref.ref(Gone)
    del Gone
    gc.collect()
    assert reference() is None
