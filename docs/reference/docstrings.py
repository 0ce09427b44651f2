"""Reads what a docstring says about arguments, and what stands after a label such as *Runs at:*."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
ALIASES = {  # names of annotations that no user writes
    "AnExtension": "`Extension`",
    "Chosen": "`str`, `nn.Module`",
    "EvalAtArgument": "`str`, `Schedule` or an iterable of them",
    "Extensions": "a list of `Extension`, a dict of them by name",
    "Iterable[Chosen]": "an iterable of them",
    "Mapping[str, OptimizerArgument]": "a dict of them by name",
    "OptimizerArgument": "`Optimizer`, a callable that makes one",
    "TrainsItself": "an object with `train_step`",
}
ENTRY = re.compile(r"^ {4}([\w, *]+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Argument:
    """One argument as its signature and its docstring have it."""

    name: str
    type: str
    default: str
    meaning: str


def arguments_of(documented: Callable[..., Any]) -> list[Argument]:
    """Return the arguments of a class or a function; of a class, from its own docstring."""
    meanings = _entries(text_of(documented), "Args")
    parameters = inspect.signature(documented).parameters.values()
    return [
        Argument(STARS.get(each.kind, "") + each.name, _type(each), _default(each), meanings.get(each.name, ""))
        for each in parameters
    ]


def text_of(documented: object) -> str:
    """Return a docstring as Markdown."""
    return (inspect.getdoc(documented) or "").replace("``", "`")


def summary_of(documented: object) -> str:
    """Return the first sentence of a docstring."""
    return _in_one_line(text_of(documented).partition("\n\n")[0])


def labelled(documented: object, label: str) -> str:
    """Return the paragraph that begins with a label; nothing if there is none."""
    found = re.search(rf"^\*{label}:\* (.*?)(?:\n\n|\Z)", text_of(documented), re.MULTILINE | re.DOTALL)
    return _in_one_line(found[1]) if found else ""


def as_list(arguments: list[Argument]) -> str:
    """Return a Markdown list of arguments with their defaults; their types are in the API."""
    return "\n".join(f"- `{one.name}{_given(one)}`{one.meaning and ': '}{one.meaning}" for one in arguments)


def typed(argument: Argument) -> str:
    """Return the type of an argument and its default, in words."""
    return "; ".join(part for part in (argument.type, argument.default) if part)


def _given(argument: Argument) -> str:
    """Return a default as a signature has it."""
    return f"={argument.default.split('`')[1]}" if "`" in argument.default else ""


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return "any number of them" if parameter.kind in STARS else "required"
    return f"default `{value.__module__}.{value.__qualname__}`" if callable(value) else f"default `{value!r}`"


def _type(parameter: inspect.Parameter) -> str:
    """Return an annotation in words: a pipe would end the cell of a table, and hints are strings here."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    names = _alternatives(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))
    *others, last = [ALIASES.get(name, f"`{name}`") for name in names]
    return f"{', '.join(others)} or {last}" if others else last


def _alternatives(annotation: str) -> list[str]:
    """Split an annotation at the pipes that are not in brackets."""
    depth, parts = 0, [""]
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _entries(text: str, section: str) -> dict[str, str]:
    """Return the entries of a section such as Args, by name."""
    found = re.search(rf"^{section}:\n((?: {{4}}.*\n?|\n(?= {{4}}))+)", text, re.MULTILINE)
    entries = ENTRY.findall(found[1]) if found else []
    return {name.strip(" *"): _in_one_line(meaning) for names, meaning in entries for name in names.split(",")}


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
