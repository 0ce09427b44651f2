"""A model that a file describes: modules, and which of them feed which."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn

from train_manager.learner.description import Description, FileMistakes, Spot
from train_manager.learner.entries import (
    COUNT,
    MODULE,
    NAMES,
    TABLE,
    TABLES,
    Entry,
    Key,
    ValueForm,
    as_names,
    has_form,
    is_among,
    read_entry,
    read_keys,
    read_tables,
)
from train_manager.learner.objectives import Term, read_objectives
from train_manager.learner.shapes import EXAMPLES, try_layers
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

MODULE_KEYS: Final = {
    "from": Key(NAMES, "the inputs and modules that feed it, in the order of its arguments", required=True),
    "layers": Key(TABLES, "the layers, one after the other, each with `use` and its arguments"),
}
"""The keys of a module, beside ``use`` and its arguments."""

KEYS: Final = {
    "inputs": Key(TABLE, "the inputs by name, each with the shape of one example: image = [1, 8, 8]", required=True),
    "module": Key(TABLE, "the modules by name", required=True),
    "objective": Key(TABLE, "the objectives by name"),
    "outputs": Key(NAMES, "the modules whose results are the prediction; those that feed nothing, if it is left out"),
}
"""The keys of a model's file."""

RESERVED: Final = ("description", "learner", "objectives", "source")
"""Attributes of a model from a file, beside those of its class and of any module."""

DTYPES: Final = {"float32": torch.float32, "int64": torch.int64}

MOST_NUMBERS: Final = 10**9
"""The numbers that one example of an input may have."""


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(map(COUNT.fits, value)) and math.prod(value) <= MOST_NUMBERS


_SHAPE: Final = ValueForm(
    "the shape of one example, such as [1, 8, 8]", _is_shape, cure="an example is counted without its batch"
)
_DTYPE: Final = ValueForm(" or ".join(map(repr, DTYPES)), lambda value: isinstance(value, str) and value in DTYPES)

INPUT_KEYS: Final = {"shape": Key(_SHAPE, "the shape of one example", required=True), "dtype": Key(_DTYPE, "its type")}
"""The keys of an input that is a table."""


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

    def made(self) -> nn.Module:
        """Return the module, with new weights."""
        layers: list[nn.Module] = [layer.made() for layer in self.layers]
        return nn.Sequential(*layers) if self.is_list else layers[0]


class Net(NamedTuple):
    """The inputs, modules and outputs of a file; each module after its feeders."""

    inputs: dict[str, Input]
    nodes: dict[str, Node]
    outputs: list[str]


def read_net(spot: Spot) -> Net:
    """Read the inputs, modules and outputs of a file; what is wrong with them is left out."""
    top = read_keys(spot, KEYS)
    inputs = dict(_read_inputs(spot.below("inputs"))) if "inputs" in top else {}
    tables = dict(read_tables(spot.below("module"))) if "module" in top else {}
    names = [*top.get("inputs", {}), *top.get("module", {})]
    for name, table in tables.items():
        _check_name(table, name, inputs)
    read = [_read_node(name, table, names) for name, table in tables.items()]
    nodes = _in_order(spot.below("module"), {node.name: node for node in read if node is not None})
    outputs = as_names(top["outputs"]) if "outputs" in top else _last(nodes)
    for name in outputs:
        is_among(spot.below("outputs"), name, tables, "is not a module")
    return Net(inputs, nodes, [name for name in outputs if name in nodes])


def _read_inputs(spot: Spot) -> Iterator[tuple[str, Input]]:
    for name, given in spot.value.items():
        found = {"shape": given}
        if isinstance(given, Mapping):
            found = read_keys(spot.below(name), INPUT_KEYS)
        elif not has_form(spot.below(name), _SHAPE):
            continue
        if "shape" in found:
            yield name, Input(tuple(found["shape"]), DTYPES[found.get("dtype", "float32")])


def _check_name(spot: Spot, name: str, inputs: Mapping[str, Input]) -> None:
    if not name.isidentifier() or name.startswith("_"):
        spot.wrong("has a name that an attribute cannot have", cure="give one of letters, digits and _")
    elif name in inputs:
        spot.wrong("has the name of an input", cure="give it another name")
    elif hasattr(FileModel, name) or hasattr(nn.Module(), name) or name in RESERVED:
        spot.wrong(f"has the name of model.{name}, which every model has", cure="give it another name")


def _read_node(name: str, spot: Spot, names: list[str]) -> Node | None:
    is_list, before = "layers" in spot.value, len(spot.mistakes)
    if is_list and "use" in spot.value:
        cure = 'a single module has use = "..." and its arguments, several have layers = [{ use = "..." }]'
        spot.below("use").wrong("stands beside layers", cure=cure)
        return None
    found = read_keys(spot, MODULE_KEYS, has_arguments=not is_list)
    feeders = as_names(found.get("from", []))
    for feeder in feeders:
        is_among(spot.below("from"), feeder, names, "is neither an input nor a module")
    if is_list:
        layers = [spot.below("layers", index) for index in range(len(found.get("layers", [])))]
        entries = [read_entry(layer, MODULE) for layer in layers]
    else:
        entries = [read_entry(spot, MODULE, keys=MODULE_KEYS)]
    if is_list and not entries and len(spot.mistakes) == before:
        spot.below("layers").wrong("is empty", cure='give it a layer: { use = "ReLU" }')
    if len(spot.mistakes) > before:
        return None
    return Node(name, feeders, [entry for entry in entries if entry is not None], is_list)


def _in_order(spot: Spot, nodes: dict[str, Node]) -> dict[str, Node]:
    """Return the nodes, each after its feeders; those in a circle, and after it, are left out."""
    ordered: dict[str, Node] = {}
    waiting = dict(nodes)
    while waiting:
        ready = [name for name, node in waiting.items() if not any(feeder in waiting for feeder in node.feeders)]
        if not ready:
            circle = _circle(waiting)
            shown = " -> ".join([*circle, circle[0]])
            cure = "feed one of them by an input, or by a module before it"
            spot.below(circle[0], "from").wrong(f"feeds itself: {shown}", cure=cure)
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


# ---- modules that join what several others give ---------------------------------------------------------------------


@recorded
class Concatenate(nn.Module):
    """Join what several modules give, along one axis.

    >>> Concatenate()(torch.zeros(4, 2), torch.zeros(4, 3)).shape
    torch.Size([4, 5])

    Args:
        dim: the axis; 1 is that of features, or of channels.
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *parts: Tensor) -> Tensor:
        """Return all parts in one tensor."""
        return torch.cat(parts, self.dim)


@recorded
class Sum(nn.Module):
    """Add what several modules give, as a residual connection does.

    >>> Sum()(torch.ones(2), torch.ones(2))
    tensor([2., 2.])
    """

    def forward(self, *parts: Tensor) -> Tensor:
        """Return the sum of all parts."""
        return torch.stack(parts).sum(0)


# ---- the model -------------------------------------------------------------------------------------------------------


@final
@recorded
class FileModel(nn.Module):
    """The model that a description says; ``load_model`` makes it of a file.

    >>> import torch
    >>> model = FileModel({
    ...     "inputs": {"point": [2]},
    ...     "module": {
    ...         "trunk": {"from": "point", "layers": [{"use": "Linear", "out_features": 8}, {"use": "ReLU"}]},
    ...         "side": {"from": "trunk", "use": "Linear", "out_features": 3}}})
    >>> model(torch.rand(5, 2)).shape, model.trunk[0].in_features
    (torch.Size([5, 3]), 2)

    The modules are attributes under their names. The prediction is what the only output gives; of several, a dict by
    their names. A module with an objective is an output too.

    Attributes:
        learner: what trains the model, by which ``eval_model`` and ``deploy_model`` find it; a copy has none.

    Args:
        description: what the file says, as a dict.

    Raises:
        InputError: all mistakes in the description.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        source, mistakes = Description.read(description, "the description of a model"), FileMistakes()
        net, self.objectives = read_model(source.root(mistakes))
        mistakes.raise_all()
        self.description, self.source = source.tree, source
        self.learner: Any = None
        for node in net.nodes.values():
            self.add_module(node.name, node.made())
        self._inputs = net.inputs
        self._feeders = {name: node.feeders for name, node in net.nodes.items()}
        at = [name for term in self.objectives.values() for name in term.modules]
        self._asked = list(dict.fromkeys([*net.outputs, *at]))

    @property
    def has_several_outputs(self) -> bool:
        """Whether the prediction is a dict."""
        return len(self._asked) > 1

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, which the learner does not train."""
        return {**vars(self), "learner": None}

    def forward(self, inputs: Any) -> Any:
        """Return what the outputs give; of several, a dict by their names.

        Args:
            inputs: a tensor with one example per row, or a dict of them by the names of the inputs. What an input that
                is not there would feed is left out.
        """
        values = self.values_of(inputs, self._asked)
        return next(iter(values.values())) if not self.has_several_outputs else values

    def values_of(self, inputs: Any, names: Collection[str]) -> dict[str, Tensor]:
        """Return what some modules give, by their names.

        Raises:
            InputError: the inputs are not those of the model.
        """
        values = self._named(inputs)
        needed = self._needed(names)
        for name, feeders in self._feeders.items():
            if name in needed and all(feeder in values for feeder in feeders):
                values[name] = getattr(self, name)(*(values[feeder] for feeder in feeders))
        return {name: values[name] for name in names if name in values}

    def examples(self, number: int) -> dict[str, Tensor]:
        """Return so many examples of each input: random numbers, or zeros where it has whole numbers."""
        device = next((parameter.device for parameter in self.parameters()), torch.device("cpu"))
        return {name: given.examples(number, device) for name, given in self._inputs.items()}

    @property
    def names(self) -> list[str]:
        """The names of the modules."""
        return list(self._feeders)

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return list(self._inputs)

    def leading_to(self, name: str) -> list[str]:
        """Return the modules that lead to a module, and this one."""
        needed = self._needed([name])
        return [other for other in self._feeders if other in needed]

    def _named(self, inputs: Any) -> dict[str, Tensor]:
        if isinstance(inputs, Tensor) and len(self._inputs) == 1:
            return {next(iter(self._inputs)): inputs}
        if isinstance(inputs, Mapping) and set(inputs) & set(self._inputs):
            return {name: inputs[name] for name in self._inputs if name in inputs}
        given = (
            f"a dict of {', '.join(map(str, inputs))}" if isinstance(inputs, Mapping) else f"a {type(inputs).__name__}"
        )
        what = f"the model takes {' and '.join(self._inputs)}, but was given {given}"
        raise InputError(what, name="inputs", cure="give a dict of tensors by these names")

    def _needed(self, names: Iterable[str]) -> set[str]:
        needed: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += self._feeders.get(name, [])
        return needed


def load_model(model_file: str | Path | Mapping[str, Any]) -> FileModel:
    """Make the model that a file describes, with new weights.

    Args:
        model_file: the path of a TOML file, or what such a file says as a dict.

    Raises:
        InputError: all mistakes in the file, with their lines; or a module cannot be made, as one that takes more
            memory than there is.
    """
    source, mistakes = Description.read(model_file, "the model file"), FileMistakes()
    read_model(source.root(mistakes))  # here, where the lines of the file are known
    mistakes.raise_all()
    model = FileModel(source.tree)
    model.source = source
    return model


def read_model(spot: Spot) -> tuple[Net, dict[str, Term]]:
    """Read the modules of a model, with the widths that follow, and its objectives."""
    net, modules = read_net(spot), spot.below("module").value
    terms = read_objectives(spot.below("objective"), list(modules) if TABLE.fits(modules) else [])
    given: dict[str, Tensor | None] = {name: one.examples(EXAMPLES, "meta") for name, one in net.inputs.items()}
    for name, node in net.nodes.items():
        fed = [tensor for feeder in node.feeders if (tensor := given.get(feeder)) is not None]
        given[name] = None
        # A module whose feeder has a mistake cannot be tried: the feeder's mistake says enough.
        if len(fed) == len(node.feeders):
            layers, given[name] = try_layers(name, node.layers, " and ".join(node.feeders), fed)
            net.nodes[name] = node._replace(layers=layers)
    return net, terms
