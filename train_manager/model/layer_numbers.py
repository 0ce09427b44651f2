"""The layers of a model, numbered from its inputs to its outputs, for learning rates that decay with the depth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from torch import nn

from train_manager.model.chosen_parameters import NamedParameters, list_parameters, take_parameters
from train_manager.model.modules import plain_name
from train_manager.telling.errors import InputError

Layers = Sequence[str | Sequence[str]]
"""The layers from the inputs to the outputs, each a pattern of names, or several."""

CURE: Final = 'name the layers from inputs to outputs: layers=["stem", "blocks.0", ["blocks.1", "norm"], "head"]'


def layer_numbers(model: nn.Module, named: NamedParameters, layers: Layers) -> dict[nn.Parameter, int]:
    """Return the number of the layer of each parameter.

    Without ``layers``, they are found by the one stack of blocks of the model. What is before it in the order of
    ``model.parameters()`` is layer 0; a block is a layer; norms behind the stack are in the layer of its last block;
    and what follows from the first matrix on, the head, is the last layer. These are the layers of timm.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3))))
    >>> list(layer_numbers(model, {one: [name] for name, one in model.named_parameters()}, ()).values())
    [0, 0, 1, 2, 3]

    Raises:
        InputError: the model has no stack of blocks or several; or a parameter is in none of the layers.
    """
    return _by_patterns(named, layers) if layers else _by_stack(model, named)


def _by_patterns(named: NamedParameters, layers: Layers) -> dict[nn.Parameter, int]:
    left, found = dict(named), dict[nn.Parameter, int]()
    for number, layer in enumerate(layers):
        for pattern in [layer] if isinstance(layer, str) else layer:
            found |= dict.fromkeys(take_parameters(left, pattern, named, f"layer {number} of groups"), number)
    if left:
        what = f"no layer of groups has {list_parameters(left)}"
        raise InputError(what, name="layers", asked_by="groups", cure="add their names, or a pattern, to a layer")
    return found


def _by_stack(model: nn.Module, named: NamedParameters) -> dict[nn.Parameter, int]:
    blocks = _blocks_of(model)
    of_block = {one: number for number, block in enumerate(blocks, start=1) for one in block.parameters()}
    found: dict[nn.Parameter, int] = {}
    number = 0
    for parameter in named:
        if number == len(blocks) and parameter not in of_block and parameter.ndim > 1:
            number += 1  # the head begins
        number = max(number, of_block.get(parameter, 0))
        found[parameter] = number
    return found


def _blocks_of(model: nn.Module) -> list[nn.Module]:
    stacks: dict[str, list[nn.Module]] = {}
    for name, module in model.named_modules():
        is_inside = any(not outer or name.startswith(f"{outer}.") for outer in stacks)
        blocks = [child for child in module.children() if next(child.parameters(), None) is not None]
        if not is_inside and isinstance(module, nn.Sequential | nn.ModuleList) and _are_alike(blocks):
            stacks[name] = blocks
    if len(stacks) == 1:
        return next(iter(stacks.values()))
    names = ", ".join(plain_name(name) for name in stacks)
    which = f"several: {names}" if stacks else "none"
    kind = type(model).__name__
    what = f"layer_decay of groups finds layers by the one stack of blocks of the model, but {kind} has {which}"
    raise InputError(what, name="layer_decay", asked_by="groups", cure=CURE)


def _are_alike(blocks: Iterable[nn.Module]) -> bool:
    kinds = [type(block) for block in blocks]
    return len(kinds) > 1 and len(set(kinds)) == 1
