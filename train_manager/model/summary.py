"""The layers of a model: their parameters, and the shapes that went in and out of them in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

MOST_SHOWN = 3  # entries of a tuple or dict

Shapes = dict[nn.Module, tuple[str, str, int]]
"""For each module that was called, its inputs and outputs in the first call, and the number of calls."""


@final
@dataclass
class Layer:
    """A module of a model, or several alike in a row."""

    name: str  # in the module around it; "0 … 11" for several in a row that are alike
    kind: str  # the name of the class
    parameters: int = 0  # how many numbers its own parameters have, without the ones of modules inside it
    trainable: int = 0  # how many of these numbers are trained
    input: str = ""  # the shapes that went into it; empty if they are unknown
    output: str = ""  # the shapes that came out of it
    note: str = ""  # unusual facts about it: "frozen", "called 3 times"
    count: int = 1  # how many alike it stands for
    layers: list[Layer] = field(default_factory=list)  # the modules inside it

    def is_like(self, other: Layer) -> bool:
        """Return whether two layers differ in their own names only; the layers inside must have the same names."""
        return (
            (self.kind, self.parameters, self.trainable, self.input, self.output, self.note)
            == (other.kind, other.parameters, other.trainable, other.input, other.output, other.note)
            and len(self.layers) == len(other.layers)
            and all(
                one.name == another.name and one.count == another.count and one.is_like(another)
                for one, another in zip(self.layers, other.layers, strict=True)
            )
        )


def shapes_of(model: nn.Module, forward: Callable[[], Any]) -> Shapes:
    """Return the shapes that went in and out of each module of a model while a function called the model."""
    seen: Shapes = {}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = [text for text in map(shape_of, (*args, *kwargs.values())) if text]
        # The shapes of the first call stay; later ones are only counted.
        inputs, outputs, calls = seen.get(module, (", ".join(given[:MOST_SHOWN]), shape_of(output), 0))
        seen[module] = inputs, outputs, calls + 1

    with ExitStack() as stack:  # removes the hooks, also after an error
        for module in model.modules():
            stack.callback(module.register_forward_hook(note, with_kwargs=True).remove)
        forward()
    return seen


def layer_of(model: nn.Module, seen: Shapes) -> Layer:
    """Return a model as a layer with the layers inside it; layers in a row that are alike are joined."""
    return _layer("", model, seen, {}, {})


def total(layer: Layer) -> tuple[int, int]:
    """Return how many parameters a layer has with those inside it, and how many of them are trained."""
    inside = [total(inner) for inner in layer.layers]
    parameters = layer.parameters + sum(numbers for numbers, _ in inside)
    return layer.count * parameters, layer.count * (layer.trainable + sum(trainable for _, trainable in inside))


def _layer(
    name: str,
    module: nn.Module,
    seen: Shapes,
    modules: dict[nn.Module, str],  # the paths of the modules so far; grows
    parameters: dict[int, str],  # the paths of the parameters so far, by id; grows
    path: str = "",
) -> Layer:
    """Return a module as a layer; a module or a parameter that comes again is described where it came first."""
    if module in modules:
        return Layer(name, type(module).__name__, note=f"the same as {modules[module]}")
    modules[module] = path or "the model"
    layer = Layer(name, type(module).__name__)
    notes = _count_parameters(layer, module, parameters, path)
    if module in seen:
        layer.input, layer.output, calls = seen[module]
        notes += [f"called {calls} times"] if calls > 1 else []
    elif seen and (layer.parameters or not list(module.children())):  # a ModuleList is never called
        notes.append("not called")
    layer.note = ", ".join(notes)
    for inner_name, inner in module._modules.items():
        if inner is not None:
            inner_path = f"{path}.{inner_name}" if path else inner_name
            _append(layer.layers, _layer(inner_name, inner, seen, modules, parameters, inner_path))
    return layer


def _count_parameters(layer: Layer, module: nn.Module, known: dict[int, str], path: str) -> list[str]:
    """Count the parameters that no module so far has had, and return notes on unusual ones."""
    notes = []
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        if is_lazy(parameter):
            notes.append(f"{name} has no shape yet")
        elif id(parameter) in known:
            notes.append(f"{name} is {known[id(parameter)]}")
        else:
            known[id(parameter)] = f"{path}.{name}" if path else name
            layer.parameters += parameter.numel()
            layer.trainable += parameter.numel() * parameter.requires_grad
    if layer.parameters and not layer.trainable:
        notes.append("frozen")
    elif layer.parameters != layer.trainable:
        notes.append(f"{layer.parameters - layer.trainable:,} frozen")
    return notes


def _append(layers: list[Layer], layer: Layer) -> None:
    """Add a layer, or count it as one more of the layer before if both are alike."""
    # Only blocks with layers inside them are joined: a layer without has one line, and its shapes may matter.
    if layers and layers[-1].layers and layers[-1].is_like(layer):
        layers[-1].count += 1
        layers[-1].name = f"{layers[-1].name.partition(' ')[0]} … {layer.name}"
    else:
        layers.append(layer)


def shape_of(value: Any) -> str:
    """Return the shapes of tensors as text.

    >>> import torch
    >>> shape_of(torch.ones(16, 2)), shape_of(torch.arange(3)), shape_of((torch.ones(2, 1), {"a": torch.ones(())}))
    ('16x2', '3 int64', '(2x1, {a: scalar})')
    """
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" {value.dtype}".replace("torch.", "")
        return ("x".join(map(str, value.shape)) or "scalar") + kind
    if isinstance(value, Mapping):
        return f"{{{_some(f'{key}: {shape_of(one)}' for key, one in value.items() if shape_of(one))}}}"
    if isinstance(value, (tuple, list)):
        return f"({_some(text for one in value if (text := shape_of(one)))})"
    return ""


def _some(texts: Iterable[str]) -> str:
    found = list(texts)
    return ", ".join(found if len(found) <= MOST_SHOWN else [*found[: MOST_SHOWN - 1], f"… {len(found)} in all"])
