"""The layers of a model, numbered from its inputs to its outputs, for learning rates that decay with the depth."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from train_manager.model.modules import plain_name
from train_manager.telling.errors import InputError


def layer_numbers(model: nn.Module, parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, int]:
    """Return the number of the layer of each parameter, by the one stack of blocks of the model.

    What is before the stack in the order of ``model.parameters()`` is layer 0; a block is a layer; norms behind the
    stack are in the layer of its last block; and what follows from the first matrix on, the head, is the last layer.
    These are the layers of timm.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3))))
    >>> list(layer_numbers(model, model.parameters()).values())
    [0, 0, 1, 2, 3]

    Args:
        model: the model.
        parameters: its parameters in their order, and those of a loss after them.

    Raises:
        InputError: the model has no stack of blocks, or several.
    """
    blocks = _blocks_of(model)
    of_block = {one: number for number, block in enumerate(blocks, start=1) for one in block.parameters()}
    found: dict[nn.Parameter, int] = {}
    number = 0
    for parameter in parameters:
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
        are_alike = len(blocks) > 1 and len({type(block) for block in blocks}) == 1
        if not is_inside and isinstance(module, nn.Sequential | nn.ModuleList) and are_alike:
            stacks[name] = blocks
    if len(stacks) == 1:
        return next(iter(stacks.values()))
    which = f"several: {', '.join(map(plain_name, stacks))}" if stacks else "none"
    kind = type(model).__name__
    what = f"layer_decay of groups finds layers by the one stack of blocks of the model, but {kind} has {which}"
    cure = 'leave layer_decay out, and give rates by patterns: groups({"stem": {"lr": 1e-4}, ...}, default=AdamW)'
    raise InputError(what, name="layer_decay", asked_by="groups", cure=cure)
