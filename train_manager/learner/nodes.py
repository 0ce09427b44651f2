"""The modules of a file, and which of them feed which."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from train_manager.learner import layers  # noqa: F401  # registers its words
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.keys import COUNT, NAMES, TABLE, TABLES, Form, Key, as_names, read_keys, read_tables
from train_manager.learner.places import Place
from train_manager.learner.showing import told
from train_manager.learner.words import MODULE, Entry, Filled, read_entry

FOLLOWING: Final = {"in_features": -1, "input_size": -1, "in_channels": 1, "num_features": 1}
"""Widths that follow from the feeder: the axis of what it gives."""

KEYS: Final = {
    "from": Key(NAMES, "the inputs and modules that feed it, in the order of its arguments", required=True),
    "layers": Key(TABLES, "the layers, one after the other, each with `use` and its arguments"),
}
"""The keys of a module, beside ``use`` and its arguments."""

TOP: Final = {
    "inputs": Key(TABLE, "the inputs by name, each with the shape of one example: image = [1, 8, 8]", required=True),
    "module": Key(TABLE, "the modules by name", required=True),
    "objective": Key(TABLE, "the objectives by name"),
    "outputs": Key(NAMES, "the modules whose results are the prediction; those that feed nothing, if it is left out"),
}
"""The keys of a model's file."""

RESERVED: Final = (
    "description",
    "examples",
    "has_several_outputs",
    "objectives",
    "source",
    "input_names",
    "leading_to",
    "learner",
    "names",
    "values_of",
)
"""Attributes of a model from a file."""

DTYPES: Final = {"float32": torch.float32, "int64": torch.int64}

MOST_NUMBERS: Final = 10**9
"""The numbers that one example of an input may have."""

_SHAPE: Final = Form(
    "a list of whole numbers, the shape of one example",
    lambda value: isinstance(value, list) and all(COUNT.fits(size) and size < 2**31 for size in value),
)
_DTYPE: Final = Form(" or ".join(map(repr, DTYPES)), lambda value: isinstance(value, str) and value in DTYPES)


class Input(NamedTuple):
    """An input of a model: the shape of one example, and its type."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def examples(self, number: int, device: torch.device | str) -> torch.Tensor:
        """Return so many examples: random numbers, or zeros, as numbers of tokens."""
        if self.dtype == torch.float32:
            return torch.rand(number, *self.shape, device=device)
        return torch.zeros(number, *self.shape, dtype=self.dtype, device=device)


class Node(NamedTuple):
    """A module of a file.

    Attributes:
        name: its name, which is an attribute of the model.
        feeders: the inputs and modules that feed it.
        layers: its layers; a module of one ``use`` has one.
        is_list: whether the file has a list of layers.
    """

    name: str
    feeders: list[str]
    layers: list[Entry]
    is_list: bool


class Net(NamedTuple):
    """The inputs, modules and outputs of a file; each module after its feeders."""

    inputs: dict[str, Input]
    nodes: dict[str, Node]
    outputs: list[str]


def read_net(description: Description, mistakes: Mistakes) -> Net:
    """Read the inputs, modules and outputs; what is wrong with them is left out."""
    top = read_keys(description, (), description.tree, TOP, mistakes)
    inputs = dict(_read_inputs(description, top.get("inputs", {}), mistakes))
    tables = dict(read_tables(description, ("module",), top.get("module", {}), mistakes))
    names = [*top.get("inputs", {}), *top.get("module", {})]
    nodes: dict[str, Node] = {}
    for name, table in tables.items():
        _check_name(description, name, inputs, mistakes)
        node = _read_node(description, name, table, names, mistakes)
        if node is not None:
            nodes[name] = node
    nodes = _in_order(description, nodes, mistakes)
    outputs = as_names(top["outputs"]) if "outputs" in top else _last(nodes)
    for name in outputs:
        if name not in tables:
            mistakes.add(
                description, ("outputs",), f"names {name!r:.60}, which is not a module", nearest_of=tables, name=name
            )
    return Net(inputs, nodes, [name for name in outputs if name in nodes])


def _read_inputs(description: Description, table: Mapping[str, Any], mistakes: Mistakes) -> Iterable[tuple[str, Input]]:
    for name, given in table.items():
        shape, dtype = given, "float32"
        if isinstance(given, Mapping):
            keys = {"shape": Key(_SHAPE, "the shape of one example", required=True), "dtype": Key(_DTYPE, "its type")}
            found = read_keys(description, ("inputs", name), given, keys, mistakes)
            shape, dtype = found.get("shape"), found.get("dtype", dtype)
            if shape is None:
                continue
        if _SHAPE.fits(shape) and math.prod(shape) > MOST_NUMBERS:
            what = f"must have at most {MOST_NUMBERS:,} numbers, but is {told(shape)}"
            mistakes.add(description, ("inputs", name), what)
        elif _SHAPE.fits(shape):
            yield name, Input(tuple(shape), DTYPES[dtype])
        else:
            what = f"must be the shape of one example, such as [1, 8, 8], but is {told(shape)}"
            mistakes.add(description, ("inputs", name), what, cure="an example is counted without its batch")


def _check_name(description: Description, name: str, inputs: Mapping[str, Input], mistakes: Mistakes) -> None:
    if not name.isidentifier() or name.startswith("_"):
        what = "has a name that an attribute cannot have"
        mistakes.add(description, ("module", name), what, cure="give one of letters, digits and _")
    elif name in inputs:
        mistakes.add(description, ("module", name), "has the name of an input", cure="give it another name")
    elif hasattr(nn.Module(), name) or name in RESERVED:
        what = f"has the name of model.{name}, which every model has"
        mistakes.add(description, ("module", name), what, cure="give it another name")


def _read_node(
    description: Description, name: str, table: Mapping[str, Any], names: list[str], mistakes: Mistakes
) -> Node | None:
    path: Place = ("module", name)
    is_list, before = "layers" in table, len(mistakes)
    if is_list and "use" in table:
        cure = 'a single module has use = "..." and its arguments, several have layers = [{ use = "..." }]'
        mistakes.add(description, (*path, "use"), "stands beside layers", cure=cure)
        return None
    found = read_keys(description, path, table, KEYS, mistakes, has_arguments=not is_list)
    feeders = as_names(found.get("from", []))
    for feeder in feeders:
        if feeder not in names:
            what = f"names {feeder!r:.60}, which is neither an input nor a module"
            mistakes.add(description, (*path, "from"), what, nearest_of=names, name=feeder)
    if is_list:
        places = [((*path, "layers", index), layer) for index, layer in enumerate(found.get("layers", []))]
    else:
        places = [(path, {key: value for key, value in table.items() if key not in KEYS})]
    filled = Filled(following=FOLLOWING)
    keys = () if is_list else KEYS
    entries = [read_entry(description, at, layer, MODULE, mistakes, keys=keys, filled=filled) for at, layer in places]
    if is_list and not entries and len(mistakes) == before:
        mistakes.add(description, (*path, "layers"), "is empty", cure='give it a layer: { use = "ReLU" }')
    if len(mistakes) > before:
        return None
    return Node(name, feeders, [entry for entry in entries if entry is not None], is_list)


def _in_order(description: Description, nodes: dict[str, Node], mistakes: Mistakes) -> dict[str, Node]:
    """Return the nodes, each after its feeders; those in a circle, and after it, are left out."""
    ordered: dict[str, Node] = {}
    waiting = dict(nodes)
    while waiting:
        ready = [name for name, node in waiting.items() if not any(feeder in waiting for feeder in node.feeders)]
        if not ready:
            circle = _circle(waiting)
            shown = " -> ".join([*circle, circle[0]])
            what, cure = f"feeds itself: {shown}", "feed one of them by an input, or by a module before it"
            mistakes.add(description, ("module", circle[0], "from"), what, cure=cure)
            return ordered
        for name in ready:
            ordered[name] = waiting.pop(name)
    return ordered


def _circle(waiting: Mapping[str, Node]) -> list[str]:
    """Return modules that feed each other in a circle, each before the next one."""
    path = [next(iter(waiting))]
    while True:
        feeder = next(feeder for feeder in waiting[path[-1]].feeders if feeder in waiting)
        if feeder in path:
            return path[path.index(feeder) :][::-1]
        path.append(feeder)


def _last(nodes: Mapping[str, Node]) -> list[str]:
    fed = {feeder for node in nodes.values() for feeder in node.feeders}
    return [name for name in nodes if name not in fed]
