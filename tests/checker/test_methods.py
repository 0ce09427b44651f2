"""Which function a call in a class finds, and what a class with a table adds to it."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from tests.checker.checking import ask
from tests.checker.test_check_left_out import check
from train_manager import Extensible, Extension, TrainManager
from train_manager.checker import reader
from train_manager.errors import CheckError


def new_class() -> type[Extensible]:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.helper()

        def helper(self) -> None: ...

    return Fits


def opening(self: Any) -> None:
    with self.staged("helped", {"y": 1}):
        pass


# ---- a method that is replaced -------------------------------------------------------------------------------------


def test_a_method_that_is_replaced_on_the_class_is_seen() -> None:
    fits = new_class()
    with pytest.raises(CheckError):
        fits([ask("helped", "y")]).check()
    fits.helper = opening  # type: ignore[attr-defined]
    fits([ask("helped", "y")]).check()
    del fits.helper  # type: ignore[attr-defined]
    with pytest.raises(CheckError):
        fits([ask("helped", "y")]).check()


def test_a_method_that_is_replaced_on_a_base_class_is_seen() -> None:
    base = new_class()
    derived: Any = type("Derived", (base,), {})
    derived().check()
    base.helper = opening  # type: ignore[attr-defined]
    assert derived([ask("helped", "y", "x")]).check() == []


def test_a_method_that_is_replaced_on_the_class_of_an_extension_is_seen() -> None:
    class Writes(Extension):
        def pre_fit(self, fixtures: Any) -> None:
            self.write(fixtures)

        def write(self, fixtures: Any) -> None: ...

    def write(self: Any, fixtures: Any) -> None:
        fixtures["y"] = 1

    asks = Extension.of(post_fit=lambda y: None)
    fits = new_class()
    with pytest.raises(CheckError):
        fits([Writes(), asks]).check()
    Writes.write = write  # type: ignore[method-assign]
    fits([Writes(), asks]).check()


def test_a_method_of_the_loop_that_is_replaced_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainManager, "eval_batch", opening)
    assert check(TrainManager, ask("helped", "y", "inputs")) == []


# ---- a class with a table ------------------------------------------------------------------------------------------


def test_nothing_of_a_loop_with_a_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            super().train_batch()
            self.helper()

        def helper(self) -> None: ...

    done: list[str] = []

    def _read(function: FunctionType) -> Any:
        done.append(function.__name__)
        return ()

    monkeypatch.setattr(reader, "_read", _read)
    check(Own)
    assert sorted(done) == ["helper", "train_batch"]


def test_a_private_method_that_a_subclass_adds_is_read() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            self._work()

        def _work(self) -> None:
            with self.staged("work", {"done": 1}):
                self.update(self.forward())

    assert check(Own, ask("work", "done", "inputs"), ask("train_model_forward", "done")) == []


def test_a_method_that_a_subclass_adds_may_be_called_while_a_run_is_held_open() -> None:
    class Own(TrainManager):
        def distill(self) -> None:
            with self.staged("distill"):
                pass

    assert check(Own, ask("distill", "epoch_num", "model")) == []
    with pytest.raises(CheckError, match="'batch', which is not alive at pre_distill"):
        check(Own, ask("distill", "batch"))


# ---- which function ------------------------------------------------------------------------------------------------


def test_code_without_source_matters_only_if_it_names_stages_or_methods() -> None:
    scope: dict[str, Any] = {"__name__": "made"}
    exec("def opens(self): self.staged('x')\ndef calls(self): self.fit([])\ndef shows(self): return 'x'", scope)
    made = type("Made", (new_class(),), {name: scope[name] for name in ("opens", "calls", "shows")})
    assert made().check() == ["opens has no source to read", "calls has no source to read"]
