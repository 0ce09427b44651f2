"""Write the tables that stand in pages: what is said of mistakes, and the hooks of other tools.

python docs/reference/make_tables.py            writes them
python docs/reference/make_tables.py --check    exits with 1 if one is out of date

A table stands between ``<!-- table: its name -->`` and ``<!-- end of the table -->``; the rest of the page is text.
"""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from train_manager.words.hooks import HOOKS

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
LISTS: Final = ROOT / "tests" / "advice"  # each has a function `rows`

AS_MADE: Final = "as the TrainManager is made"
AT_FIRST_BATCH: Final = "at the first batch"
NEVER: Final = "never"
OF_MANAGER: Final = re.compile(r"^TrainManager\(\.\.\., (.*)\)$")
CODE: Final = re.compile(r"`([^`\n]*)`")
TABLE: Final = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of the table -->\n)", re.DOTALL)

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


# ---- the tables ----------------------------------------------------------------------------------------------------


def arguments() -> Iterator[str]:
    """Yield the tables of wrong arguments; of a message of several lines, the first one repeats the mistake."""
    rows = _rows(LISTS / "arguments.py")
    return _tables((_as_code(OF_MANAGER.sub(r"\1", row[0])), row[1].split("\n", 1)[-1], row[2]) for row in rows)


def names() -> Iterator[str]:
    """Yield the tables of wrong names in hooks."""
    rows = _rows(LISTS / "fixture_names.py")
    return _tables((f"`{row[0].replace('(self, ', '(').removesuffix('(self)')}`", *row[1:]) for row in rows)


def batches() -> Iterator[str]:
    """Yield the tables of wrong batches, losses and outputs."""
    return _tables((title, *cure(code)) for title, code in MISTAKES_IN_TRAINING.items())


def hooks_of(tool: str) -> Iterator[str]:
    """Yield the names of a tool's hooks, and what they are called here: a row for each name here."""
    yield from (f"| {tool} | here |", "|---|---|")
    rows: dict[str, list[str]] = {}
    for hook in (hook for hook in HOOKS if hook.tool == tool):
        decorated = f" with `{hook.decorator.strip()}`" if hook.decorator else ""
        rows.setdefault(f"`{hook.here}`{decorated}" if hook.here else chr(0x2013), []).append(f"`{hook.name}`")
    yield from (f"| {', '.join(names)} | {here} |" for here, names in rows.items())


MADE: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "arguments": arguments,
    "names of fixtures and stages": names,
    "batches, losses and outputs": batches,
    **{f"hooks of {tool}": partial(hooks_of, tool) for tool in dict.fromkeys(hook.tool for hook in HOOKS)},
}

PAGES: Final = (
    DOCS / "reference" / "errors-and-cures.md",
    DOCS / "how-to" / "coming-from.md",
    DOCS / "reference" / "coming-from-others.md",
)


def with_tables(page: str) -> str:
    """Return a page with its tables as they are today."""
    return TABLE.sub(lambda found: found[1] + "\n".join(["", *MADE[found[2]](), "", ""]) + found[3], page)


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
    written: dict[str, dict[str, list[str]]] = {}  # by the moment and the message
    for mistake, message, when in rows:
        written.setdefault(when, {}).setdefault(message, []).append(mistake)
    for when, mistakes in written.items():
        yield from ("", f"Found {when}:", "", "| written | cure in the message |", "|---|---|")
        yield from (f"| {_cell(', '.join(each))} | {_cell(message)} |" for message, each in mistakes.items())


def _cell(text: str) -> str:
    """Return a text as a cell: a pipe would end it, also in code."""
    parts = CODE.split(text.strip())
    words = [html.escape(part, quote=False).replace("*", r"\*").replace("__", r"\_\_") for part in parts[::2]]
    codes = [f"<code>{html.escape(part)}</code>" if "|" in part else f"`{part}`" for part in parts[1::2]]
    return "".join(a + b for a, b in zip(words, [*codes, ""], strict=True)).replace("|", "&#124;").replace("\n", "<br>")


def main() -> int:
    made = {page: with_tables(page.read_text(encoding="utf-8")) for page in PAGES}
    outdated = [page for page, text in made.items() if page.read_text(encoding="utf-8") != text]
    if "--check" not in sys.argv[1:]:
        for page, text in made.items():
            page.write_text(text, encoding="utf-8")
    elif outdated:
        names = ", ".join(page.name for page in outdated)
        print(f"{names}: out of date; run python docs/reference/{Path(__file__).name}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
