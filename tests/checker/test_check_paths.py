"""Conditions on the path of open stages: each branch counts, as of any other condition."""

from __future__ import annotations

from typing import Any

from tests.checker.checking import Loop, ask
from tests.checker.test_walk import tree_of
from train_manager import Extensible, Extension
from train_manager.core.stage import Stage


class Both(Extensible):
    """A training and an evaluation that share what follows."""

    def fit(self) -> None:
        with self.staged("train"):
            self.forward()

    def evaluate(self) -> None:
        with self.staged("eval"):
            self.forward()

    def forward(self) -> None:
        if "eval" in self.fixtures.path:
            self.fixtures["score"] = 1
            with self.staged("eval_forward"):
                pass
        else:
            with self.staged("train_forward"):
                pass


def test_each_branch_may_run_wherever_it_is_called() -> None:
    inside = [("train_forward",), ("eval_forward",)]
    assert {*tree_of(Both()).nodes} == {
        *((stage, *path) for stage in ("train", "eval") for path in ((), *inside)),
    }


def test_a_fixture_of_either_branch_may_be_alive() -> None:
    assert Both([ask("train_forward", "score")]).check() == []


def test_a_hook_that_looks_at_the_path_may_write_in_each_branch() -> None:
    class Notes(Extension):
        def post_forward(self, stage: Stage, fixtures: Any) -> None:
            if "run" in stage.path:
                fixtures["note"] = 1

    assert Loop([Notes(), Extension.of(post_forward=lambda note: None)]).check() == []
