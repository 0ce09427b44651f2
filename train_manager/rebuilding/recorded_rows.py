"""The record of a run as rows of a table: dotted names and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from train_manager.rebuilding.record_tree import Step, Tree, parts_of

DEEPEST: Final = 20  # levels of dicts whose entries get rows of their own
LONGEST: Final = 8  # items of a list that are shown as one value
ARGUMENTS: Final = "command.arguments"  # the row of the command line, which is split into its options
OPTION: Final = re.compile(r"--?[A-Za-z]")  # a letter behind the dash: not a negative number

ArgumentRows = dict[str, str]


def parameter_rows(tree: Any) -> ArgumentRows:
    """Return recorded constructor parameters by their dotted paths.

    >>> net = {"$object": "nets:Net", "arguments": {"width": 8, "sizes": {"$tuple": [3, 4]}}}
    >>> parameter_rows({"$object": "train_manager:TrainManager", "arguments": {"model": net, "epochs": 3}})
    {'': 'TrainManager', 'model': 'Net', 'model.width': '8', 'model.sizes': '(3, 4)', 'epochs': '3'}
    """
    return {".".join(path): text for path, text in _parameters(tree, ())}


def value_rows(tree: Any, name: str = "") -> ArgumentRows:
    """Return nested dicts as rows.

    >>> value_rows({"threads": {"intraop": 2}, "python": "3.11"})
    {'threads.intraop': '2', 'python': '3.11'}
    >>> value_rows({"command": {"arguments": ["python", "train.py", "--lr", "0.1", "--fast"]}})
    {'command.arguments.1': 'train.py', 'command --lr': '0.1', 'command --fast': 'yes'}
    """
    if isinstance(tree, dict) and tree and name.count(".") < DEEPEST:
        parts = (value_rows(part, f"{name}.{key}" if name else str(key)) for key, part in tree.items())
        return {key: text for rows in parts for key, text in rows.items()}
    if name == ARGUMENTS and isinstance(tree, list):
        return _arguments([*map(str, tree)])
    return {name: _plain(tree)}


def expression(tree: Any) -> str:
    """Return a recorded argument as Python would have it.

    >>> expression({"$object": "nets:Net", "arguments": {"width": 8, "bias": None, "sizes": {"$tuple": [3, 4]}}})
    'Net(width=8, bias=None, sizes=(3, 4))'
    >>> expression({"$not_rebuildable": "a lambda"})
    '<a lambda>'
    >>> expression({"$not_rebuildable": "a lambda", "described": "lambda x: x + 1"})
    'lambda x: x + 1'
    """
    match tree:
        case {"$object": str(name), "arguments": dict(arguments)} | {
            "$callable": str(name),
            "arguments": dict(arguments),
        }:
            given = ", ".join(f"{key}={expression(value)}" for key, value in arguments.items())
            return f"{name.rpartition(':')[2]}({given})"
        case {"$callable": str(name)}:
            return name.rpartition(":")[2]
        case {"$not_rebuildable": _, "described": str(text)}:
            return text
        case {"$not_rebuildable": why}:
            return f"<{why}>"
        case {"$tuple": list(items)}:
            return f"({', '.join(map(expression, items))}{',' * (len(items) == 1)})"
        case {"$path": text} | {"$dtype": text} | {"$device": text} | {"$float": text}:
            return str(text)
        case list(items):
            return f"[{', '.join(map(expression, items))}]"
        case dict(items) if not any(key.startswith("$") for key in items):
            return f"{{{', '.join(f'{key!r}: {expression(value)}' for key, value in items.items())}}}"
        case dict():
            return json.dumps(tree)
    return repr(tree)


def _arguments(given: Sequence[str]) -> ArgumentRows:
    """Return each option with the arguments behind it; arguments before the first option by their number."""
    found: dict[str, list[str]] = {}
    name = ""
    for place, text in enumerate(given):
        if OPTION.match(text):
            option, is_whole, value = text.partition("=")
            name = f"{ARGUMENTS.partition('.')[0]} {option}"
            # An option that is given twice has both values.
            found.setdefault(name, []).extend([value] * bool(is_whole))
        # The argument number 0 is the interpreter, which has a row elsewhere.
        elif place:
            found.setdefault(name or f"{ARGUMENTS}.{place}", []).append(text)
    return {name: " ".join(values) or "yes" for name, values in found.items()}


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, value)) or "none"
    return "none" if value in ({}, None) else str(value)


def _parameters(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    match tree:
        # A class gets a row with its name, and a row for each of its arguments below it.
        case {"$object": str(name)} | {"$callable": str(name)}:
            yield path, name.rpartition(":")[2]
            yield from _below(parts_of(tree), path)
        # The second place of an object has no rows below it.
        case {"$same": list(place)}:
            yield path, f"the same as {'.'.join(map(str, place))}"
        case {"$tuple": list(items)} | {"$set": list(items)} | list(items) if _is_long(items):
            yield from _below(parts_of(tree), path)
        case dict() if tree and not any(key.startswith("$") for key in tree):
            yield from _below(parts_of(tree), path)
        case _:
            yield path, expression(tree)


def _below(parts: Mapping[Step, Tree], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, part in parts.items():
        yield from _parameters(part, (*path, str(name)))


def _is_long(items: list[Any]) -> bool:
    return len(items) > LONGEST or any(isinstance(item, dict | list) for item in items)
