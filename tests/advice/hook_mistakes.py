"""Twelve mistakes in hooks of a loop of one's own, and when each is found."""

from __future__ import annotations

import linecache
import textwrap
from dataclasses import dataclass
from typing import Any, Final

from train_manager import Extensible, Extension

WHEN_ADDED: Final = "when the extension is added"
AT_CHECK: Final = "at `check()`"
AT_RUN: Final = "in the run"
NEVER: Final = "never"

LOOP: Final = """\
from train_manager import Extensible, Extension, fixture, modifies, provides


class Training(Extensible):
    strict = True  # hooks may write only what they declare

    def train(self, batches):
        with self.staged("train_epoch", {"epoch_num": 1}):
            for batch in batches:
                with self.staged("train_batch", {"batch": batch}):
                    with self.staged("forward"):
                        self.fixtures.define("loss", batch * 0.1, stage="train_batch")
        with self.staged("eval"):
            self.fixtures["accuracy"] = 0.5
"""


@dataclass(frozen=True)
class Mistake:
    """One mistake: the code of one or more extensions, added in the order in which they are written."""

    title: str
    code: str


@dataclass(frozen=True)
class Found:
    """When a mistake was found, and the message."""

    when: str
    message: str


MISTAKES: Final = [
    Mistake(
        "A stage that does not exist",
        """
        class Notes(Extension):
            def post_train_bacth(self, loss):
                print(loss)
        """,
    ),
    Mistake(
        "A fixture that does not exist",
        """
        class Notes(Extension):
            def post_train_batch(self, los):
                print(los)
        """,
    ),
    Mistake(
        "A fixture of another branch of the stage tree",
        """
        class Notes(Extension):
            def post_train_batch(self, accuracy):
                print(accuracy)
        """,
    ),
    Mistake(
        "A fixture that has died",
        """
        class Notes(Extension):
            def post_train_epoch(self, loss):
                print(loss)
        """,
    ),
    Mistake(
        "No `self`",
        """
        class Notes(Extension):
            def post_train_batch(loss):
                print(loss)
        """,
    ),
    Mistake(
        "The prefix of another tool",
        """
        class Notes(Extension):
            def on_train_batch(self, loss):
                print(loss)
        """,
    ),
    Mistake(
        "A lazy fixture in the wrong stage",
        """
        class Doubled(Extension):
            @fixture("train_epoch")
            def double_loss(self, loss):
                return 2 * loss
        """,
    ),
    Mistake(
        "Two hooks that wait for each other",
        """
        class Ratio(Extension):
            @provides("ratio")
            def post_train_batch(self, scale, loss):
                return loss / scale


        class Scale(Extension):
            @provides("scale")
            def post_train_batch(self, ratio):
                return 10 * ratio
        """,
    ),
    Mistake(
        "Two hooks that provide one fixture",
        """
        class Mean(Extension):
            @provides("smooth_loss")
            def post_train_batch(self, loss):
                return loss


        class Median(Extension):
            @provides("smooth_loss")
            def post_train_batch(self, loss):
                return loss
        """,
    ),
    Mistake(
        "Two modifiers without an order",
        """
        class Halved(Extension):
            @modifies("batch")
            def pre_train_batch(self, batch):
                return batch / 2


        class Shifted(Extension):
            @modifies("batch")
            def pre_train_batch(self, batch):
                return batch + 1
        """,
    ),
    Mistake(
        "An undeclared write in a `strict` loop",
        """
        class Doubled(Extension):
            def post_train_batch(self, fixtures):
                fixtures["double_loss"] = 2 * fixtures["loss"]
        """,
    ),
    Mistake(
        "`*args`",
        """
        class Notes(Extension):
            def post_train_batch(self, *values):
                print(values)
        """,
    ),
]


def found(mistake: Mistake) -> Found:
    """Add the extensions, check and run; return the first error and when it was raised."""
    training, extensions = _loaded(mistake)
    when = WHEN_ADDED
    try:
        for extension in extensions:
            training.add_extension(extension)
        when = AT_CHECK
        training.check()
        when = AT_RUN
        training.train([1, 2])
    except Exception as error:
        return Found(when, f"{type(error).__name__}: {error}")
    return Found(NEVER, "")


def _loaded(mistake: Mistake) -> tuple[Any, list[Extension]]:
    """Return a loop and the extensions of the mistake, run from source that the library can read."""
    namespace: dict[str, Any] = {"__name__": "mistakes"}
    for file, code in (("training.py", LOOP), ("mistake.py", _plain(mistake.code))):
        lines = code.splitlines(keepends=True)
        linecache.cache[file] = len(code), None, lines, file
        exec(compile(code, file, "exec", dont_inherit=True), namespace)
    made = [value for value in namespace.values() if isinstance(value, type) and value.__module__ == "mistakes"]
    extensions = [cls() for cls in made if issubclass(cls, Extension)]
    training = next(cls for cls in made if issubclass(cls, Extensible))
    return training(), extensions


def _plain(code: str) -> str:
    return textwrap.dedent(code).strip() + "\n"
