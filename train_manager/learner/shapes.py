"""The shapes of what the modules of a file give, found on torch's meta device before any memory is taken."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from train_manager.data.randomness import preserve_random_state
from train_manager.learner.description import Mistakes
from train_manager.learner.nodes import FOLLOWING, Net, Node
from train_manager.learner.words import Entry, parameters_of
from train_manager.rebuilding.memory_limit import MemoryLimit
from train_manager.telling.errors import CheckpointError

SIZES: Final = (2, 3)
"""Batches of so many examples are tried, so that a module which mixes the examples shows it by its shape."""

LARGEST: Final = 4 * 10**9
"""The bytes that the parameters of a model may take, unless the program allows more."""

Trial = tuple[Tensor, ...]  # what a module gives for each of SIZES


def widths_of(net: Net, largest: int, mistakes: Mistakes) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the arguments of each layer, with the widths that follow; what does not fit is a mistake.

    Args:
        largest: the bytes that all parameters and results together may take.
    """
    tried: dict[str, Trial | None] = {
        name: tuple(given.examples(size, "meta") for size in SIZES) for name, given in net.inputs.items()
    }
    found: dict[tuple[str, int], dict[str, Any]] = {}
    limit = MemoryLimit(largest)
    for node in net.nodes.values():
        fed = [tried.get(feeder) for feeder in node.feeders]
        whole = [trial for trial in fed if trial is not None]
        # A module whose feeder has a mistake cannot be tried: the feeder's mistake says enough.
        tried[node.name] = _try_node(node, whole, limit, found, mistakes) if len(whole) == len(fed) else None
    return found


def _try_node(
    node: Node,
    fed: Sequence[Trial],
    limit: MemoryLimit,
    found: dict[tuple[str, int], dict[str, Any]],
    mistakes: Mistakes,
) -> Trial | None:
    now, feeder = fed, " and ".join(node.feeders)
    for index, layer in enumerate(node.layers):
        arguments = _with_widths(layer, now[0])
        found[node.name, index] = arguments
        given = _try_layer(layer, arguments, now, feeder, limit, mistakes)
        if given is None:
            return None
        now, feeder = [given], f"{node.name}, layer {index + 1} ({layer.word})"
    return now[0]


def _with_widths(layer: Entry, first: Trial) -> dict[str, Any]:
    """Return the arguments of a layer, with the widths that follow from what feeds it."""
    following = {}
    for name in parameters_of(layer.thing):
        axis = FOLLOWING.get(name)
        if axis is not None and name not in layer.arguments and first[0].dim() > 1:
            following[name] = first[0].shape[axis]
    return {**layer.arguments, **following}


def _try_layer(
    layer: Entry, arguments: dict[str, Any], fed: Sequence[Trial], feeder: str, limit: MemoryLimit, mistakes: Mistakes
) -> Trial | None:
    description, path = layer.description, layer.path
    shapes = " and ".join(_shape(trial[0]) for trial in fed)
    try:
        with limit, preserve_random_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = _results(layer, arguments, fed)
    except CheckpointError as error:
        mistakes.add(description, path, f"is too large: {error.what.partition('tensors of ')[2]}")
        return None
    except Exception as error:
        what = f"{layer.word} does not fit what feeds it: {feeder} gives {shapes}{_weights(layer, arguments)}"
        mistakes.add(description, path, f"{what}; {_first_line(error)}")
        return None
    return _checked(layer, given, mistakes)


def _results(layer: Entry, arguments: dict[str, Any], fed: Sequence[Trial]) -> list[Any]:
    """Call a layer with examples on the meta device, or with real ones if it reads values."""
    with torch.no_grad():
        try:
            with torch.device("meta"):
                module = layer.thing(**arguments).eval()
                return [module(*(trial[index] for trial in fed)) for index in range(len(SIZES))]
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error):
                raise
        module = layer.thing(**arguments).eval()
        real = [tuple(torch.zeros_like(tensor, device="cpu") for tensor in trial) for trial in fed]
        return [module(*(trial[index] for trial in real)).to("meta") for index in range(len(SIZES))]


def _checked(layer: Entry, given: list[Any], mistakes: Mistakes) -> Trial | None:
    if not all(isinstance(tensor, Tensor) for tensor in given):
        cure = "write a module of your own that returns one tensor, with @recorded above it"
        what = f"{layer.word} gives a {type(given[0]).__name__}, but a module must give one tensor"
        mistakes.add(layer.description, layer.path, what, cure=cure)
        return None
    if any(tensor.dim() == 0 or len(tensor) != size for tensor, size in zip(given, SIZES, strict=True)) or (
        given[0].shape[1:] != given[1].shape[1:]
    ):
        shapes = " and ".join(str(list(tensor.shape)) for tensor in given)
        what = f"{layer.word} mixes the examples of a batch: of {SIZES[0]} and {SIZES[1]} examples it makes {shapes}"
        mistakes.add(layer.description, layer.path, what)
        return None
    return tuple(given)


def _weights(layer: Entry, arguments: dict[str, Any]) -> str:
    """Return the shape of the weight of a layer, in words; empty if it has none."""
    try:
        with torch.device("meta"):
            weight = getattr(layer.thing(**arguments), "weight", None)
    except Exception:
        return ""
    return f", and its weight is {list(weight.shape)}" if isinstance(weight, nn.Parameter) else ""


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape[1:]))


def _first_line(error: Exception) -> str:
    return f"torch says: {str(error).strip().splitlines()[0]:.200}" if str(error).strip() else type(error).__name__
