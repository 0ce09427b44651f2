"""The shapes of what the modules of a file give, found on torch's meta device before any memory is taken."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from inspect import signature
from typing import Any, Final

import torch
from torch import Tensor, nn

from train_manager.data.random_state import preserve_random_state
from train_manager.learner.description import Mistakes
from train_manager.learner.nodes import FOLLOWING, Net, Node
from train_manager.learner.words import Entry, named_error, parameters_of
from train_manager.rebuilding.memory_limit import MemoryLimit
from train_manager.telling.errors import CheckpointError, InputError

SIZES: Final = (2, 3)
"""Batches of so many examples are tried, so that a module which mixes the examples shows it by its shape."""

LARGEST: Final = 4 * 10**9
"""The bytes that the parameters of a model may take, unless the program allows more."""

MOST_OPERATIONS: Final = 10_000
"""The operations that a trial of a layer may take: a number of layers in a file can ask for any number of them."""

KEEP: Final = "leave axis 0 as it is: that of the examples"
OWN: Final = "write a module of your own, with @recorded above it"
MORE: Final = "give it smaller numbers; if the model is meant to be so large: load_model(..., largest=...)"

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
    limit = MemoryLimit(largest, operations=MOST_OPERATIONS)
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
        given, arguments = None, _with_widths(layer, now[0])
        found[node.name, index] = arguments
        if _takes_so_many(layer, len(now), mistakes) and _has_widths(layer, arguments, feeder, now[0][0], mistakes):
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
    except CheckpointError:
        mistakes.add(
            description, path, f"is {layer.word}, with which the model is too large: {_excess(limit)}", cure=MORE
        )
        return None
    except Exception as error:
        verb = "give" if len(fed) > 1 else "gives"
        what = f"is {layer.word}, which does not fit: {feeder} {verb} {shapes}{_weights(layer, arguments)}"
        mistakes.add(description, path, what, cure=_cure(layer, error))
        return None
    return _checked(layer, given, feeder, shapes, limit.limit, mistakes)


def _results(layer: Entry, arguments: dict[str, Any], fed: Sequence[Trial]) -> list[Any]:
    """Call a layer with examples on the meta device, or with real ones if it reads values."""
    with torch.no_grad():
        try:
            with torch.device("meta"):
                module = _filled(layer.thing(**arguments).eval())
                return [module(*(trial[index] for trial in fed)) for index in range(len(SIZES))]
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error):
                raise
        module = layer.thing(**arguments).eval()
        real = [tuple(torch.zeros_like(tensor, device="cpu") for tensor in trial) for trial in fed]
        return [module(*(trial[index] for trial in real)).to("meta") for index in range(len(SIZES))]


def _filled(module: nn.Module) -> nn.Module:
    empty = next((name for name, parameter in module.named_parameters() if not parameter.numel()), None)
    if empty is not None:
        raise InputError(f"its {empty} has no numbers, since a size is 0", name=empty)
    return module


def _checked(
    layer: Entry, given: list[Any], feeder: str, shapes: str, largest: int, mistakes: Mistakes
) -> Trial | None:
    if not all(isinstance(tensor, Tensor) for tensor in given):
        cure = f"{OWN}, that returns one tensor"
        what = f"is {layer.word}, which returns a {type(given[0]).__name__}, but a module must return one tensor"
        mistakes.add(layer.description, layer.path, what, cure=cure)
        return None
    if any(tensor.dim() == 0 or len(tensor) != size for tensor, size in zip(given, SIZES, strict=True)) or (
        given[0].shape[1:] != given[1].shape[1:]
    ):
        made = " and ".join(str(list(tensor.shape)) for tensor in given)
        what = f"is {layer.word}, which mixes the examples: batches of {SIZES[0]} and {SIZES[1]} become {made}"
        mistakes.add(layer.description, layer.path, what, cure=KEEP)
        return None
    if not given[0].numel():
        what = f"is {layer.word}, which leaves nothing: {feeder} gives {shapes}, and it returns {_shape(given[0])}"
        mistakes.add(layer.description, layer.path, what, cure="its numbers must be 1 or more")
        return None
    if given[-1].nbytes > largest:
        what = f"is {layer.word}, whose result for {SIZES[-1]} examples takes {given[-1].nbytes:,} bytes"
        mistakes.add(layer.description, layer.path, what, cure=MORE)
        return None
    return tuple(given)


def _takes_so_many(layer: Entry, number: int, mistakes: Mistakes) -> bool:
    """Compare the number of feeders with the tensors that a module is called with."""
    parameters = signature(layer.thing.forward).parameters.values()
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:]
    needed = [p.name for p in by_position if p.default is p.empty]
    if number < len(needed):
        what = f"is {layer.word}, which takes {' and '.join(needed)}, but one module or input feeds it"
        mistakes.add(layer.description, layer.path, what, cure=f"give from a list of {len(needed)} names, or {OWN}")
    elif number > len(by_position) and all(p.kind is not p.VAR_POSITIONAL for p in parameters):
        what = f"is {layer.word}, which takes {' and '.join(needed)}, but {number} modules or inputs feed it"
        cure = 'join them first, in a module with use = "Concatenate" or use = "Sum"'
        mistakes.add(layer.description, layer.path, what, cure=cure)
    else:
        return True
    return False


def _has_widths(layer: Entry, arguments: dict[str, Any], feeder: str, fed: Tensor, mistakes: Mistakes) -> bool:
    """Require the widths that could not follow, as those of a feeder without an axis for them."""
    lacking = [name for name, p in parameters_of(layer.thing).items() if name in FOLLOWING and p.default is p.empty]
    lacking = [name for name in lacking if name not in arguments]
    for name in lacking:
        what = f"lacks {name}, which does not follow: {feeder} gives {_shape(fed)}"
        mistakes.add(layer.description, layer.path, what)
    return not lacking


def _cure(layer: Entry, error: Exception) -> str:
    """Return the reason, and that a width which follows may be left out."""
    own = [name for name in FOLLOWING if name in layer.arguments and name in parameters_of(layer.thing)]
    advice = f"leave {' and '.join(own)} out: it follows; " if own else ""
    return f"{advice}{named_error(error)}"


def _excess(limit: MemoryLimit) -> str:
    if limit.taken > limit.limit:
        return f"it takes {limit.taken:,} bytes, of {limit.limit:,} at most"
    return f"to make it takes more than {MOST_OPERATIONS:,} operations"


def _weights(layer: Entry, arguments: dict[str, Any]) -> str:
    """Return the shape of the weight of a layer, in words; empty if it has none."""
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weight = getattr(layer.thing(**arguments), "weight", None)
    except Exception:
        return ""
    return f", and its weight is {list(weight.shape)}" if isinstance(weight, nn.Parameter) else ""


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape[1:]))
