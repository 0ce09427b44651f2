"""A model that a file describes: modules, and which of them feed which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from train_manager.learner.description import Description, Mistakes
from train_manager.learner.keys import TABLE
from train_manager.learner.nodes import Net, Node, read_net
from train_manager.learner.objectives import Term, read_objectives
from train_manager.learner.shapes import LARGEST, widths_of
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError


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
        largest: the bytes that all parameters may take.

    Raises:
        InputError: all mistakes in the description.
    """

    def __init__(self, description: dict[str, Any], largest: int = LARGEST) -> None:
        super().__init__()
        mistakes = Mistakes()
        read = Description.read(description, "the description of a model")
        net, widths, terms = _checked(read, largest, mistakes)
        mistakes.raise_all()
        self.description, self.source = read.tree, read
        self.learner: Any = None
        for node in net.nodes.values():
            self.add_module(node.name, _made(node, widths))
        self._inputs = net.inputs
        self._feeders = {name: node.feeders for name, node in net.nodes.items()}
        self.objectives = terms
        at = [name for term in terms.values() for name in term.modules]
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


def load_model(model_file: str | Path | Mapping[str, Any], *, largest: int = LARGEST) -> FileModel:
    """Make the model that a file describes, with new weights.

    Args:
        model_file: the path of a TOML file, or what such a file says as a dict.
        largest: the bytes that all parameters may take.

    Raises:
        InputError: all mistakes in the file, with their lines.
    """
    description, mistakes = Description.read(model_file, "the model file"), Mistakes()
    _checked(description, largest, mistakes)  # here, where the lines of the file are known
    mistakes.raise_all()
    model = FileModel(description.tree, largest)
    model.source = description
    return model


def _checked(
    description: Description, largest: int, mistakes: Mistakes
) -> tuple[Net, dict[tuple[str, int], dict[str, Any]], dict[str, Term]]:
    net = read_net(description, mistakes)
    modules = description.tree.get("module", {})
    terms = read_objectives(description, list(modules) if TABLE.fits(modules) else [], mistakes)
    return net, widths_of(net, largest, mistakes), terms


def _made(node: Node, widths: Mapping[tuple[str, int], dict[str, Any]]) -> nn.Module:
    layers: list[nn.Module] = [layer.thing(**widths[node.name, index]) for index, layer in enumerate(node.layers)]
    return nn.Sequential(*layers) if node.is_list else layers[0]
