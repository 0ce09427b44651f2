"""The page of all keys and words in the files of a learner, of the tables by which the files are read."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from docstrings import summary_of

from train_manager.learner import dataset_file, deployment, model, objectives, options
from train_manager.learner.entries import Key
from train_manager.learner.model import Concatenate, Sum
from train_manager.learner.objectives import contrast
from train_manager.learner.tasks import Masked, SimCLR
from train_manager.learner.transforms import Standardize, divide, noise, shift

TOKENS: Final = 'An input of whole numbers: `tokens = { shape = [12], dtype = "int64" }`.'
TABLES: Final[tuple[tuple[str, str, Mapping[str, Key]], ...]] = (
    ("The data file", "", dataset_file.KEYS),
    ("`[dataset.NAME]`", "`use` names a function.", dataset_file.DATASET_KEYS),
    ("`[curriculum]`", "The arguments of `Curriculum` stand beside these.", dataset_file.CURRICULUM_KEYS),
    ("The model file", TOKENS, model.KEYS),
    ("`[module.NAME]`", "`use` names a module; or `layers` are given.", model.MODULE_KEYS),
    ("`[objective.NAME]`", "`use` names a loss; either `at` or `between` is given.", objectives.KEYS),
    ("The options", "", options.KEYS),
    ("`[[self_supervised]]`", "`use` names a task.", options.PHASE_KEYS),
)
WORDS: Final = {
    "`features`": (divide, Standardize),
    "`augment`": (shift, noise),
    "modules, beside those of `torch.nn`": (Concatenate, Sum),
    "objectives, beside the losses of `torch.nn`": (contrast,),
    "tasks": (SimCLR, Masked),
}
GIVEN: Final = ("column", "values", "one", "other", "encoder", "augment", "args", "kwargs")


def learner_files_page() -> Iterator[str]:
    """Every key of the files, and the words that ship for them."""
    yield "# The files of a learner"
    yield (
        "[A tutorial](../tutorials/learner-from-files.md) shows the files. Beside `use` stand the arguments of what it "
        "names; any other key is an error. A dict may take the place of a file."
    )
    for title, text, keys in TABLES:
        yield f"## {title}"
        yield from ([text] if text else [])
        yield "\n".join(f"- `{name}` ({_form(key)}): {key.meaning}" for name, key in keys.items())
    yield "## The deployment"
    yield "\n".join(f"- `{name}`: {meaning}" for name, meaning in deployment.KEYS.items())
    yield "## Words that ship"
    yield (
        "Entries of `features` and `augment` have `of`, the column, if there are several; those of modules have "
        "`weights`, a file. The program adds [words of its own](../how-to/words-of-your-own.md)."
    )
    for title, things in WORDS.items():
        yield f"For {title}:"
        yield "\n".join(f"- `{_called(thing)}`: {summary_of(thing)}" for thing in things)


def _form(key: Key) -> str:
    form = key.form.words.removeprefix("a ").removesuffix(" that is not empty")
    return f"{form}, required" if key.required else form


def _called(thing: Any) -> str:
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name not in GIVEN]
    written = [p.name if p.default is p.empty else f"{p.name} = {_toml(p.default)}" for p in parameters]
    return ", ".join([f'use = "{thing.__name__}"', *written])


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
