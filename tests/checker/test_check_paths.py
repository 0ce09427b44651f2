"""Conditions on the path of open stages, of which the check follows the branch that fits."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tests.checker.checking import Loop, ask
from tests.checker.test_walk import tree_of
from train_manager import Extensible, Extension
from train_manager.core.stage import Stage


class Phases(Extensible):
    """A training and an evaluation that share what follows."""

    def fit(self) -> None:
        with self.staged("train"):
            self.forward()

    def evaluate(self) -> None:
        with self.staged("eval"):
            self.forward()

    def forward(self) -> None:
        raise NotImplementedError


def test_a_branch_is_followed_only_where_its_stage_is_open() -> None:
    class Both(Phases):
        def forward(self) -> None:
            if "eval" in self.fixtures.path:
                with self.staged("eval_forward"):
                    pass
            elif "train" in self._store.open:
                with self.staged("train_forward"):
                    pass
            else:
                raise RuntimeError

    assert list(tree_of(Both()).nodes) == [("train",), ("train", "train_forward"), ("eval",), ("eval", "eval_forward")]


def test_not_in_and_not_turn_the_branches_round() -> None:
    class Both(Phases):
        def forward(self) -> None:
            if "eval" not in self.fixtures.path:
                self.fixtures["of_train"] = 1
            if not ("train" in self.fixtures.path):  # noqa: E713
                self.fixtures["of_eval"] = 1

    nodes = tree_of(Both()).nodes
    assert [[*nodes[path].definers] for path in (("train",), ("eval",))] == [["of_train"], ["of_eval"]]


def test_a_value_that_the_path_chooses_is_followed() -> None:
    class Both(Phases):
        def forward(self) -> None:
            self.first() if "train" in self.fixtures.path else self.second()

        def first(self) -> None:
            with self.staged("first"):
                pass

        def second(self) -> None:
            with self.staged("second"):
                pass

    assert set(tree_of(Both()).nodes) == {("train",), ("train", "first"), ("eval",), ("eval", "second")}


def test_what_follows_a_branch_that_returns_is_the_other_branch() -> None:
    class Both(Phases):
        def forward(self) -> None:
            if "eval" in self.fixtures.path:
                self.fixtures["quick"] = 1
                return
            with self.staged("slow"):
                pass

    assert list(tree_of(Both()).nodes) == [("train",), ("train", "slow"), ("eval",)]


def test_a_branch_that_raises_ends_the_way_that_led_to_it() -> None:
    class Both(Phases):
        def forward(self) -> None:
            self.require_training()
            with self.staged("backward"):
                pass

        def require_training(self) -> None:
            if "train" not in self.fixtures.path:
                raise RuntimeError

    assert list(tree_of(Both()).nodes) == [("train",), ("train", "backward"), ("eval",)]


def test_a_method_that_refuses_to_be_called_from_outside_is_no_way_in() -> None:
    class Steps(Loop):
        def backward(self) -> None:
            if "step" not in self._store.open:
                raise RuntimeError
            self._backward()

        def _backward(self) -> None:
            with self.staged("backward"):
                pass

    assert "backward" not in tree_of(Steps()).stages


def test_a_method_that_wants_an_outermost_stage_may_run_while_that_is_held_open() -> None:
    class Steps(Loop):
        def distill(self) -> None:
            if "run" not in self.fixtures.path:
                raise RuntimeError
            with self.staged("distill"):
                pass

        def note(self) -> None:
            if "run" in self.fixtures.path:
                with self.staged("note"):
                    pass

    steps = Steps([ask("distill", "epoch_num"), ask("note", "epoch_num")])
    assert steps.check() == []
    assert [*tree_of(steps).nodes][-2:] == [("run", "distill"), ("run", "note")]


def test_a_branch_with_another_way_out_does_not_always_raise() -> None:
    class Both(Phases):
        def forward(self) -> None:
            self.find(1)
            with self.staged("after"):
                pass

        def find(self, number: int) -> int:
            if "eval" in self.fixtures.path:
                return 0
            if number:
                return 1
            raise LookupError

    assert ("train", "after") in tree_of(Both()).nodes


def test_where_a_refusal_is_caught_the_method_continues() -> None:
    class Both(Phases):
        def forward(self) -> None:
            try:
                self.require_training()
            except RuntimeError:
                self.fixtures["caught"] = 1
            with suppress(RuntimeError):
                self.require_training()
            with self.staged("after"):
                pass

        def require_training(self) -> None:
            if "train" not in self.fixtures.path:
                raise RuntimeError

    assert ("eval", "after") in tree_of(Both()).nodes


@pytest.mark.parametrize("form", ["local", "fixture", "stage"])
def test_the_path_may_come_from_a_local_name_or_a_stage(form: str) -> None:
    class Local(Phases):
        def forward(self) -> None:
            path = self.fixtures.path
            if "eval" in path:
                self.fixtures["of_eval"] = 1

    class Fixture(Phases):
        def forward(self) -> None:
            if "eval" in self.fixtures["stage"].path:
                self.fixtures["of_eval"] = 1

    class Opened(Phases):
        def forward(self) -> None:
            with self.staged("forward") as stage:
                if "eval" in stage.path:
                    self.fixtures.define("of_eval", 1, stage="eval")

    nodes = tree_of({"local": Local, "fixture": Fixture, "stage": Opened}[form]()).nodes
    assert ["of_eval" in nodes[path].definers for path in (("train",), ("eval",))] == [False, True]


def test_any_other_path_decides_nothing() -> None:
    class Both(Phases):
        file: Any

        def forward(self) -> None:
            if "eval" in self.file.path:
                self.fixtures["x"] = 1
            else:
                self.fixtures["y"] = 1

    assert {*tree_of(Both()).nodes["train",].definers} == {"x", "y"}


def test_inside_a_stage_of_unknown_name_every_branch_may_run() -> None:
    class Made(Extensible):
        def fit(self, name: str) -> None:
            with self.staged(name):
                if "eval" in self.fixtures.path:
                    with self.staged("inner"):
                        pass

    assert "inner" in tree_of(Made()).stages


def test_a_hook_that_looks_at_the_path_may_write_in_each_branch() -> None:
    class Notes(Extension):
        def post_forward(self, stage: Stage, fixtures: Any) -> None:
            if "run" in stage.path:
                fixtures["note"] = 1

    assert Loop([Notes(), Extension.of(post_forward=lambda note: None)]).check() == []


def test_a_fixture_of_the_other_branch_is_found_missing() -> None:
    class Both(Phases):
        def forward(self) -> None:
            if "eval" in self.fixtures.path:
                self.fixtures["score"] = 1
            with self.staged("report"):
                pass

    both = Both([ask("report", "score")])
    assert both.check("evaluate") == []
    with pytest.raises(Exception, match="wants 'score', which is never alive at pre_report"):
        both.check("fit")
