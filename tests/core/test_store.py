"""What a hook has provided in an outer stage is renewed by this hook alone."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager import Extensible, Extension, provides
from train_manager.errors import FixtureExists, OrderError


class Mean(Extension):
    def __init__(self) -> None:
        self.seen: list[int] = []

    @provides("mean", stage="run")
    def post_step(self, x: int) -> int:
        self.seen.append(x)
        return sum(self.seen) // len(self.seen)


def test_a_hook_renews_what_it_has_provided_in_an_outer_stage() -> None:
    extensible = Extensible([Mean()])
    means = []
    with extensible.staged("run"):
        for x in (2, 4):
            with extensible.staged("step", {"x": x}):
                pass
            means.append(extensible.fixtures["mean"])
    assert (means, dict(extensible.fixtures)) == ([2, 3], {})


def test_nobody_else_may_renew_it() -> None:
    class Other(Extension):
        @provides("mean", stage="run")
        def post_other(self) -> int:
            return 0

    class Loose(Extension):
        def post_loose(self, fixtures: Any) -> None:
            fixtures.define("mean", 0, stage="run")

    with pytest.raises(OrderError, match=r"both provide 'mean' in stage 'run'"):
        Extensible([Mean(), Other()])
    extensible = Extensible([Mean()])
    with extensible.staged("run", {"mean": 7}):
        with pytest.raises(
            FixtureExists, match=r"Mean.post_step defines 'mean', which stage 'run' has defined already"
        ):
            with extensible.staged("step", {"x": 2}):
                pass
        assert extensible.fixtures["mean"] == 7
    extensible = Extensible([Mean(), Loose()])
    with extensible.staged("run"):
        with extensible.staged("step", {"x": 2}):
            pass
        with pytest.raises(FixtureExists, match=r"which stage 'run' has defined already"):
            with extensible.staged("loose"):
                pass
        assert extensible.fixtures["mean"] == 2
