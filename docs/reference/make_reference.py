"""Make the pages of the reference that come from signatures, docstrings and runs of the loop.

python docs/reference/make_reference.py            writes the pages
python docs/reference/make_reference.py --check    exits with 1 if a page is out of date
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from docstrings import arguments_of, as_list, labelled, summary_of, typed
from learner_keys import learner_files_page
from llms_page import llms_page

import train_manager
from train_manager import Extension, Fixtures, InMemory, TrainManager, extensions
from train_manager.checker.methods import Methods
from train_manager.checker.walk import stage_tree
from train_manager.cli import parser
from train_manager.core.stage import Stage
from train_manager.stages import FIXTURES
from train_manager.testing import tiny_manager

HERE: Final = Path(__file__).parent
LABELS: Final = ("Runs at", "Asks for", "Leaves behind")
DECORATORS: Final = ("provides", "modifies", "fixture", "always", "priority")
SCHEDULES: Final = ("every", "at_most", "exponentially", "periodically", "once", "when", "scheduled")
ALWAYS_THERE: Final = ("fixtures", "stage", "train_manager", "extensible")
AFTER_A_FAILURE: Final = ("exc_type", "exc_value", "traceback")


# ---- arguments.md --------------------------------------------------------------------------------------------------


def arguments_page() -> Iterator[str]:
    """Every argument of TrainManager."""
    yield "# The arguments of TrainManager"
    yield "All are passed by name. Only `model` is always required."
    for argument in arguments_of(TrainManager):
        yield f"## `{argument.name}`"
        yield sentence(typed(argument))
        yield sentence(argument.meaning)


# ---- stages.md -----------------------------------------------------------------------------------------------------

StagePath = tuple[str, ...]
RUN: Final = ("run",)
EPOCH: Final = ("run", "train", "train_step_epoch")
REMARKS: Final = {  # stages that are drawn in full elsewhere
    (*RUN, "train", "eval"): "(as eval_at says: see below)",
    (*EPOCH, "eval"): "(if a hook calls eval_soon: see below)",
    (*RUN, "train", "save_checkpoint"): "(between epochs, and as tm.train ends)",
    (*RUN, "save_checkpoint"): "(between calls of tm.train_on_batch)",
    (*RUN, "train_step_epoch"): "(a call of tm.end_epoch)",
    (*RUN, "train_step_batch"): "(a call of tm.train_on_batch: see above)",
    (*RUN, "phase"): "(tm.phase(...) and the calls inside it)",
}


class FirstAt(Extension):
    """Find the hook at which each fixture of each stage is alive for the first time.

    Runs at: every stage. Asks for: stage, fixtures. Leaves behind: its attributes.
    """

    def __init__(self) -> None:
        self.first: dict[str, dict[str, str]] = {}
        self._log: list[tuple[str, set[str]]] = []
        self._opened: list[int] = []

    def pre_stage(self, stage: Stage, fixtures: Fixtures) -> None:
        self.first.setdefault(stage.name, {})
        self._opened.append(len(self._log))
        self._log.append((f"pre_{stage.name}", set(fixtures)))

    def post_stage(self, stage: Stage, fixtures: Fixtures) -> None:
        self._log.append((f"post_{stage.name}", set(fixtures)))
        inside = self._log[self._opened.pop() :]
        known = self.first[stage.name]
        for name in stage.owned:
            if name not in known:
                known[name] = next(f"`{hook}`" for hook, alive in inside if name in alive)


def observed() -> FirstAt:
    """Train, evaluate and predict on a tiny problem, and return what was seen."""
    found = FirstAt()
    with tempfile.TemporaryDirectory() as folder:
        tm = tiny_manager(found, train_dir=folder, device="cpu", seed=0, eval_at="epoch")
        tm.add_extension(post_train_step_batch=lambda train_manager: train_manager.save_soon())
        tm.add_extension(post_train_step_epoch=lambda train_manager: train_manager.save_soon())
        batches = tm.train_data
        tm.train_data = InMemory(*(torch.cat(parts) for parts in zip(*batches, strict=True)), batch_size=16)
        tm.train()
        tm.eval()
        tm.predict(batches)
        with tm.run():
            tm.train_on_batch(batches[0])
            tm.end_epoch()
            with tm.phase("head", epochs=1):
                tm.train()
    return found


def stages_page() -> Iterator[str]:
    """Every stage with its fixtures and their types."""
    found, lazy = observed(), lazy_fixtures()
    yield "# Stages and their fixtures"
    yield (
        "Each stage has three hooks: `pre_<stage>`, `post_<stage>` and `around_<stage>`. A hook may name the fixtures "
        "of its stage and of all enclosing stages. *First at* is the earliest hook that can name a fixture; a *lazy* "
        "fixture is computed when a hook first asks for it. Hooks need no annotations; of the classes here, `Tensor`, "
        "`device`, `Module` and `Optimizer` are torch's, and `Fixtures`, `Extensible` and `TrainManager` are "
        "imported from `train_manager`."
    )
    yield f"```\n{drawn_tree()}\n```"
    yield (
        "[`stages.py`](../../train_manager/stages.py) is the table behind this page, the check and `explain`; "
        "its `MAP` also shows the steps of the loop between the stages."
    )
    for stage, seen in found.first.items():
        if first := seen | dict.fromkeys(lazy.get(stage, ()), f"`pre_{stage}`, lazy"):
            yield f"## `{stage}`"
            yield table_of_fixtures({name: first[name] for name in FIXTURES if name in first})
    yield "## Always there"
    yield table_of_fixtures(dict.fromkeys(ALWAYS_THERE, "everywhere"))
    yield "## In post hooks marked with `@always`"
    yield table_of_fixtures(dict.fromkeys(AFTER_A_FAILURE, "every post hook"))


def drawn_tree() -> str:
    """Draw the stages below each other, each with the fixtures that it defines."""
    tm = tiny_manager()
    nodes = stage_tree(Methods(TrainManager), tm._registry.plans.__getitem__).nodes
    return "\n".join(drawn({path: [*node.definers] for path, node in nodes.items()}, RUN, "", ""))


def drawn(owned: dict[StagePath, list[str]], path: StagePath, first: str, others: str) -> Iterator[str]:
    """Draw a stage and what is below it; ``first`` and ``others`` stand in front of its first line and the others."""
    below = [] if path in REMARKS else [child for child in owned if child[:-1] == path]
    text = REMARKS.get(path) or ", ".join(name for name in FIXTURES if name in owned[path])
    for index, part in enumerate(wrap(text, 48) or [""]):
        start = others + "│" * bool(below) if index else first + path[-1]
        yield f"{start:<33}{part}".rstrip()
    for child in below:
        mark, bar = ("└─ ", "   ") if child == below[-1] else ("├─ ", "│  ")
        yield from drawn(owned, child, others + mark, others + bar)


def lazy_fixtures() -> dict[str, list[str]]:
    """Return the fixtures of each stage that are computed when a hook asks for them."""
    stages = json.loads(tiny_manager(extensions.MetricStore()).explain(format="json"))
    found = {
        entry["stage"]: [name for name, where in entry["defines"].items() if where.endswith(f".{name}")]
        for entry in stages
    }
    return {stage: names for stage, names in found.items() if names}


def table_of_fixtures(first: dict[str, str]) -> str:
    """Return a table of fixtures, in the order in which they come."""
    rows = [
        f"| `{name}` | {annotation(FIXTURES[name].annotation)} | {hook} | {FIXTURES[name].meaning} |"
        for name, hook in first.items()
    ]
    return "\n".join(["| fixture | annotation | first at | meaning |", "|---|---|---|---|", *rows])


def annotation(text: str) -> str:
    """Return an annotation as code; a pipe would end the cell of a table."""
    return " or ".join(f"`{part}`" for part in text.split(" | "))


# ---- extensions.md and decorators.md -------------------------------------------------------------------------------


def extensions_page() -> Iterator[str]:
    """Every extension that ships, in groups by purpose."""
    yield "# Extensions"
    yield (
        "All are imported from `train_manager.extensions`. The [API](api/extensions.md) has the types of the "
        "arguments, and examples."
    )
    for purpose, classes in by_purpose().items():
        yield f"## {purpose.capitalize()}"
        for cls in classes:
            yield f"### {cls.__name__}"
            yield f"{summary_of(cls)} [More](api/extensions.md#train_manager.extensions.{cls.__name__})"
            labels = (f"- *{label}:* {labelled(cls, label)}" for label in LABELS)
            yield "\n".join([*filter(None, [as_list(arguments_of(cls))]), *labels])
    yield "## The usual ones"
    yield f"`default_extensions()`: {sentence(summary_of(extensions.default_extensions), first=str.lower)}"
    yield as_list(arguments_of(extensions.default_extensions))


def by_purpose() -> dict[str, list[type[Extension]]]:
    """Return the extensions by the folder that they are in."""
    found: dict[str, list[type[Extension]]] = {}
    for name in extensions.__all__:
        value = getattr(extensions, name)
        if inspect.isclass(value):
            found.setdefault(value.__module__.split(".")[-2], []).append(value)
    return found


def decorators_page() -> Iterator[str]:
    """Every decorator of hooks, and every schedule."""
    yield "# Decorators and schedules"
    yield "All are imported from `train_manager`, and stand above a hook; a hook may have several."
    for title, names, page in (("Decorators", DECORATORS, "decorators"), ("Schedules", SCHEDULES, "schedules")):
        yield f"## {title}"
        yield f"With examples in the [API](api/{page}.md)."
        for name in names:
            yield f"### `@{name}`" if name != "scheduled" else f"### `{name}`"
            yield from about(name)


def about(name: str) -> Iterator[str]:
    """Say what a decorator is for, and list its arguments."""
    value = getattr(train_manager, name)
    if not inspect.isfunction(value):  # `once` is an object, whose docstring is below it in the file
        yield "Run at the first opening, and never again, neither in a second run nor after a resume."
        return
    yield summary_of(value)
    if name != "always":
        yield as_list(arguments_of(value))


def sentence(text: str, first: Callable[[str], str] = str.upper) -> str:
    """Begin a text with a capital letter, if it begins with a word."""
    return first(text[:1]) + text[1:]


# ---- command-line.md -----------------------------------------------------------------------------------------------

EXAMPLES: Final = {
    "show": "train-manager show runs/digits",
    "check": "train-manager check runs/digits",
    "runs": "train-manager runs runs --sort valid/loss",
    "compare": "train-manager compare runs/a runs/b --html compared.html",
    "export": "train-manager export runs/digits --to tensorboard",
    "report": "train-manager report runs/digits --every 10",
    "reproduce": "train-manager reproduce runs/digits --link data",
    "verify-resume": "train-manager verify-resume train.py --at 40 --at 90 --lose 3 -- --epochs 2",
    "tune": "train-manager tune train.py -- --epochs 2",
    "skill": "train-manager skill",
}

KEYS: Final = {
    "show": "`path`, `problem` (empty if it is sound), `manifest`, `epoch`, `counts`, `history`, `findings`, "
    "`parameters`, `tensors`",
    "check": "`checkpoints` (`name`, `status`: sound, damaged or unreadable, `problem`), `others` (`name`, `what`)",
    "runs": "`runs`, `damaged`",
    "compare": "`runs`, `parameters`, `code`, `environment`, `data`, `metrics`, `files`, `curves`, `notes`, `findings`",
    "report": "`html`, `points`: the files that were written",
    "export": "`to`, `metrics`: how many were sent",
    "reproduce": "`identical`, `metrics`, `cut_short`, `around`, `causes`, `folder`",
    "verify-resume": "`identical`, `at`, `differences`, `causes`, `notes`",
    "tune": "`tried`, `seconds`, `steps`, `compared`, `notes`, `best`, `lines`",
    "skill": "`path`, `text`",
}
KEY_ROWS: Final = [f"| `{name}` | {keys} |" for name, keys in KEYS.items()]


def command_line_page() -> Iterator[str]:
    """Every command with its arguments."""
    yield "# The command line"
    yield (
        "`python -m train_manager` is the same as `train-manager`. Exit codes: 0 for success, 1 if something is "
        "damaged or differs, 2 if the command cannot be done. `verify_resume`, `compare_runs`, `reproduce` and `tune` "
        "are also [functions](api/tools.md)."
    )
    yield (
        "With `--json` a command prints one JSON document on the standard output; what a script or a program prints "
        "goes to the standard error. Its keys are always there, and nan and infinities are written as "
        '`{"$float": "nan"}`. Of an error it is `{"error": {"code", "message", "name", "cure"}}`, where the code is '
        "the class of the [error](errors-and-cures.md), or `UsageError` for arguments that the command does not have."
    )
    yield "\n".join(["| command | keys of the JSON document |", "|---|---|", *KEY_ROWS])
    for name, command in commands_of(parser()).items():
        yield f"## `train-manager {name}`"
        yield sentence(command.description or "")
        yield f"```sh\n{EXAMPLES[name]}\n```"
        yield "\n".join(option_line(option) for option in command._actions if option.dest != "help")


def commands_of(whole: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands."""
    (commands,) = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


def option_line(option: argparse.Action) -> str:
    """Describe an option or an argument."""
    shown = " ".join([*option.option_strings, str(option.metavar or "")]).strip()
    return f"- `{shown}`: {option.help}"


# ---- all of them ---------------------------------------------------------------------------------------------------

PAGES: Final = {
    "arguments.md": arguments_page,
    "stages.md": stages_page,
    "extensions.md": extensions_page,
    "decorators-and-schedules.md": decorators_page,
    "command-line.md": command_line_page,
    "learner-files.md": learner_files_page,
    "../llms.txt": llms_page,
}


def main() -> int:
    outdated = []
    for name, make in PAGES.items():
        text = "\n\n".join(make()) + "\n"
        page = HERE / name
        if not page.exists() or page.read_text() != text:
            outdated.append(name)
        if "--check" not in sys.argv[1:]:
            page.write_text(text)
    if outdated and "--check" in sys.argv[1:]:
        print(f"{', '.join(outdated)}: out of date; run python docs/reference/{Path(__file__).name}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
