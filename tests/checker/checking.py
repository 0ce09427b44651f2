"""What the tests of the check share: a small loop, an extension that asks, and the one mistake found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.errors import CheckError

At = Callable[[str], str]


class Loop(Extensible):
    """A run of steps, and an evaluation beside it."""

    def train(self) -> None:
        with self.staged("run", {"epoch_num": 0}):
            self.evaluate()
            for batch in range(3):
                self.step(batch)

    def step(self, batch: int) -> None:
        with self.staged("step", {"batch": batch}):
            with self.staged("forward"):
                self.fixtures.define("loss", 0.5, stage="step")

    def evaluate(self) -> None:
        with self.staged("eval"):
            self.fixtures["result"] = 1


def mistake(extension: Extension, extensible: type[Extensible] = Loop) -> Exception:
    """The one mistake that the check finds."""
    with pytest.raises(CheckError) as error:
        extensible([extension]).check()
    (found,) = error.value.mistakes
    return found


def ask(stage: str, *names: str) -> Extension:
    """An extension with one hook that asks for these."""
    scope: dict[str, Any] = {}
    exec(f"def pre_{stage}(self, {', '.join(names)}): ...", scope)
    asks: Extension = type("Asks", (Extension,), {f"pre_{stage}": scope[f"pre_{stage}"]})()
    return asks
