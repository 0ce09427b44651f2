"""Make docs/reference/mistakes.md: run mistakes of many kinds, and show what the message says and when it is found.

python docs/reference/make_mistakes.py            writes the page
python docs/reference/make_mistakes.py --check    exits with 1 if the page is out of date
"""

from __future__ import annotations

import html
import importlib.util
import linecache
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from train_manager import Extensible, Extension

PAGE: Final = Path(__file__).with_name("mistakes.md")

WHEN_ADDED: Final = "when the extension is added"
AT_CHECK: Final = "at `check()`"
AS_MADE: Final = "as the TrainManager is made"
AT_FIRST_BATCH: Final = "at the first batch"
AT_RUN: Final = "in the run"
NEVER: Final = "never"
CODE: Final = re.compile(r"`([^`\n]*)`")

LISTS: Final = Path(__file__).parents[2] / "tests" / "advice"  # each has a function `rows`
HOOKS: Final = LISTS / "callback_names.py"
NAMES: Final = LISTS / "fixture_names.py"
ARGUMENTS: Final = LISTS / "arguments.py"

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


TRAINING: Final = """\
import torch
from torch import nn
from torch.nn import functional as F
from train_manager import TrainManager

x, y = torch.ones(4, 2), torch.zeros(4, dtype=torch.long)
made = []


class Forgetful(nn.Linear):
    def forward(self, inputs):
        super().forward(inputs)


class Returning(TrainManager):
    def train_batch(self):
        return self.forward()


def train(model=None, loss=F.cross_entropy, batch=(x, y), manager=TrainManager):
    model = nn.Linear(2, 2) if model is None else model
    made.append(manager(model=model, loss=loss, optimizer=torch.optim.SGD, train_data=[batch]))
    made[-1].train()
"""

MISTAKES_IN_TRAINING: Final = {
    "a model without `return`": "train(Forgetful(2, 2))",
    "a loss that takes a tensor, of a model that returns a tuple": "train(nn.LSTM(2, 2))",
    "a loss of each example": "train(loss=nn.CrossEntropyLoss(reduction='none'))",
    "a loss that is a plain number": "train(loss=lambda prediction: prediction.mean().item())",
    "a loss without a graph": "train(loss=lambda prediction: prediction.mean().detach())",
    "a loss with a parameter `inputs` that gets the targets": "train(loss=lambda output, inputs: output.mean())",
    "labels that are floats": "train(batch=(x, y.float()))",
    "labels in a column": "train(batch=(x, y[:, None]))",
    "a batch of three": "train(batch=(x, y, x))",
    "a batch that is a dict": "train(batch={'image': x, 'label': y})",
    "a batch of numpy arrays": "train(batch=(x.numpy(), y.numpy()))",
    "`train_batch` returns the loss": "train(manager=Returning)",
}


def cure(code: str) -> tuple[str, str]:
    """Train with a mistake; return the last line of what is said beside where it was, and when it was said."""
    namespace: dict[str, Any] = {}
    exec(compile(TRAINING, "training.py", "exec", dont_inherit=True), namespace)
    try:
        exec(code, namespace)
    except Exception as error:
        notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith("at stage ")]
        last = [line for text in (str(error), *notes) for line in text.splitlines()][-1].strip()
        return last, AT_FIRST_BATCH if namespace["made"] else AS_MADE
    return "nothing", NEVER


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


def page() -> str:
    """Return the text of the whole page."""
    return "\n".join(
        [
            "# Mistakes, and what the library says",
            "",
            "[Errors and cures](errors-and-cures.md) explains the errors one by one.",
            "",
            "## Arguments",
            *_tables((_as_code(written), *told) for written, *told in _rows(ARGUMENTS)),
            "",
            "## Names of fixtures and stages",
            *_tables((f"`def {written}`", *told) for written, *told in _rows(NAMES)),
            "",
            "## Hooks of other tools",
            "",
            "All their names are in [Coming from Lightning or Keras](../how-to/coming-from.md) and",
            "[from others](../how-to/coming-from-others.md).",
            *_tables(_rows(HOOKS)),
            "",
            "## Batches, losses and outputs",
            "",
            "An error of torch comes out as it is, with a note of types, shapes and devices. Here is the last line",
            "of each message.",
            *_tables((title, *cure(code)) for title, code in MISTAKES_IN_TRAINING.items()),
            "",
            "## Hooks of a loop of your own",
            "",
            "The extensions are those of this loop:",
            "",
            f"```python\n{LOOP}```",
            *_tables(_hook_row(mistake) for mistake in MISTAKES),
            "",
        ]
    )


def _hook_row(mistake: Mistake) -> tuple[str, str, str]:
    result = found(mistake)
    hook = [line.strip() for line in mistake.code.splitlines() if line.strip().startswith("def ")][-1]
    return f"{mistake.title}\n`{hook}`", _shortened(result), result.when


def _shortened(result: Found) -> str:
    """Return the first line of a message, and the last, which is the cure; of a CheckError, those of its mistake."""
    lines = [line.strip() for line in result.message.splitlines()]
    first = lines[1].removeprefix("1. ") if result.when == AT_CHECK else lines[0].partition(": ")[2]
    return f"{first}\n{lines[-1]}"


def _rows(file: Path) -> list[tuple[str, str, str]]:
    """Return the mistakes that a file of the tests lists, each once."""
    spec = importlib.util.spec_from_file_location(f"mistakes_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return list(dict.fromkeys(module.rows()))


def _as_code(written: str) -> str:
    """Mark what is code, and not a sentence."""
    return f"`{written}`" if set("=(") & set(written) else written


def _tables(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a table for each moment at which mistakes are found; a third column would be too much for a phone."""
    rows = list(rows)
    for when in dict.fromkeys(when for *_, when in rows):
        yield from ("", f"Found {when}:", "", "| written | the message |", "|---|---|")
        yield from (f"| {_cell(written)} | {_cell(message)} |" for written, message, found in rows if found == when)


def _cell(text: str) -> str:
    """Return a text as a cell: a pipe would end it, also in code."""
    parts = CODE.split(text.strip())
    words = [html.escape(part, quote=False).replace("*", r"\*").replace("__", r"\_\_") for part in parts[::2]]
    codes = [f"<code>{html.escape(part)}</code>" if "|" in part else f"`{part}`" for part in parts[1::2]]
    return "".join(a + b for a, b in zip(words, [*codes, ""], strict=True)).replace("|", "&#124;").replace("\n", "<br>")


def _plain(code: str) -> str:
    return textwrap.dedent(code).strip() + "\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        print(f"{PAGE.name} is out of date: run python docs/reference/{Path(__file__).name}")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
