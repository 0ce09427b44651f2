"""The shapes of what the layers of a module give, found on torch's meta device before any memory is taken."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from train_manager.data.random_state import preserve_random_state
from train_manager.learner.entries import FOLLOWING, Entry, named_error, parameters_of
from train_manager.telling.errors import InputError

EXAMPLES: Final = 3
"""The examples of the batch that is tried: no usual width, so that a layer which mixes them shows it by its shape."""

KEEP: Final = "leave axis 0 as it is: that of the examples"
OWN: Final = "write a module of your own, with @recorded above it, that returns one tensor"


def try_layers(
    name: str, layers: Sequence[Entry], feeder: str, fed: Sequence[Tensor]
) -> tuple[list[Entry], Tensor | None]:
    """Return the layers with the widths that follow, and what the last gives; None if one of them does not fit.

    Args:
        name: of the module that has the layers.
        feeder: what feeds it, for messages.
        fed: what that gives for a batch of ``EXAMPLES``, on the meta device.
    """
    whole: list[Entry] = []
    for number, layer in enumerate(layers, start=1):
        whole.append(_with_widths(layer, fed[0]))
        given = _try_layer(layer, whole[-1].arguments, feeder, fed)
        if given is None:
            return whole, None
        feeder, fed = f"{name}, layer {number} ({layer.word})", [given]
    return whole, fed[0]


def _with_widths(layer: Entry, fed: Tensor) -> Entry:
    """Return a layer with the widths that follow from what feeds it."""
    names = [name for name in parameters_of(layer.thing) if name in FOLLOWING and name not in layer.arguments]
    following = {name: fed.shape[FOLLOWING[name]] for name in names if fed.dim() > 1}
    return layer._replace(arguments={**layer.arguments, **following})


def _try_layer(layer: Entry, arguments: dict[str, Any], feeder: str, fed: Sequence[Tensor]) -> Tensor | None:
    """Return what a layer gives; None if it is a mistake."""
    module: nn.Module | None = None
    try:
        with preserve_random_state(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.device("meta"):
                module = layer.thing(**arguments).eval()
            given = _called(_filled(module), layer, arguments, fed)
    except Exception as error:
        verb = "give" if len(fed) > 1 else "gives"
        what = f"does not fit: {feeder} {verb} {' and '.join(map(_shape, fed))}{_weight(module)}"
        cure = _cure(layer, error)
    else:
        what, cure = _fault(given, feeder, fed)
    if what:
        layer.spot.wrong(f"is {layer.word}, which {what}", cure=cure)
    return None if what else given


def _called(module: nn.Module, layer: Entry, arguments: dict[str, Any], fed: Sequence[Tensor]) -> Any:
    """Call a layer on the meta device, or with real examples if it reads their values."""
    try:
        with torch.device("meta"):
            return module(*fed)
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
    given = layer.thing(**arguments).eval()(*(torch.zeros_like(tensor, device="cpu") for tensor in fed))
    return given.to("meta") if isinstance(given, Tensor) else given


def _filled(module: nn.Module) -> nn.Module:
    empty = next((name for name, parameter in module.named_parameters() if not parameter.numel()), None)
    if empty is not None:
        raise InputError(f"its {empty} has no numbers, since a size is 0", name=empty)
    return module


def _fault(given: Any, feeder: str, fed: Sequence[Tensor]) -> tuple[str, str]:
    """Return what is wrong with the result of a layer, and the cure; empty if nothing is."""
    if not isinstance(given, Tensor):
        return f"returns a {type(given).__name__}, but a module must return one tensor", OWN
    if given.dim() == 0 or len(given) != EXAMPLES:
        return f"mixes the examples: a batch of {EXAMPLES} becomes {list(given.shape)}", KEEP
    if not given.numel():
        shapes = " and ".join(map(_shape, fed))
        return f"leaves nothing: {feeder} gives {shapes}, and it returns {_shape(given)}", "give it larger numbers"
    return "", ""


def _cure(layer: Entry, error: Exception) -> str:
    """Return the error of a layer, and that a width which follows may be left out."""
    own = [name for name in parameters_of(layer.thing) if name in FOLLOWING and name in layer.arguments]
    advice = f"leave {' and '.join(own)} out: it follows; " if own else ""
    return f"{advice}{named_error(error)}"


def _weight(module: nn.Module | None) -> str:
    weight = getattr(module, "weight", None)
    return f", and its weight is {list(weight.shape)}" if isinstance(weight, nn.Parameter) else ""


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape[1:]))
