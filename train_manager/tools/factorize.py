"""Layers of low rank: a matrix of weights as the product of two small ones."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

from train_manager.data.random_state import preserve_random_state
from train_manager.telling.errors import InputError
from train_manager.validation import require_count, require_number

CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONTAINERS: Final = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


class Parts(NamedTuple):
    """The singular value decomposition of a layer's weight as a matrix: a row for each output."""

    left: Tensor
    values: Tensor
    right: Tensor

    @property
    def costs(self) -> int:
        """The number of parameters of each rank: a column of the left matrix and a row of the right one."""
        return len(self.left) + self.right.shape[1]

    @property
    def whole(self) -> int:
        """The number of weights of the layer as it is."""
        return len(self.left) * self.right.shape[1]


def factorize(model: nn.Module, share: float = 0.5, *, rank: int | None = None) -> nn.Module:
    """Return a copy of a model with fewer parameters, whose Linear and convolution layers have a low rank.

    >>> model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    >>> small = factorize(model, 0.5)
    >>> count = lambda model: sum(parameter.numel() for parameter in model.parameters())
    >>> count(small) <= 0.5 * count(model)
    True

    A layer becomes two: one from its inputs to as many numbers as its rank, without a bias, and one from there to its
    outputs (``"0"`` becomes ``"0.0"`` and ``"0.1"``). They hold its largest singular values, half of each (as a factor:
    the square root) in either. The outputs of a layer change by at most the largest value that is dropped, times the
    length of its inputs (Eckart and Young 1936). Train some more to make good for it.

    A layer stays as it is where two would not be smaller, where it stands at two places or shares its weight, where it
    has hooks, and inside of a module of PyTorch that reads its weight, such as ``TransformerEncoderLayer``.

    Args:
        model: stays as it is.
        share: the share of the parameters of the whole model that is left at most. The ranks follow from it: a
            singular value is dropped first if its share in the squares of its layer is small for the parameters that
            it takes.
        rank: the rank of all layers, in place of a share.

    Raises:
        InputError: no layer can be split, the share cannot be reached, or a weight is nan or infinite.
    """
    made = copy.deepcopy(model)
    layers = _layers(made)
    for name, layer in layers.items():
        _require_finite(name, layer)
    parts = {name: _parts_of(layer) for name, layer in layers.items()}
    if rank is not None:
        ranks = dict.fromkeys(parts, require_count(rank, "rank", at_least=1))
    else:
        share = require_number(share, "share", above=0.0, below=1.0)
        ranks = _ranks(parts, sum(one.numel() for one in made.parameters()), share) if parts else {}
    ranks = {name: number for name, number in ranks.items() if number * parts[name].costs < parts[name].whole}
    if not ranks:
        what = f"factorize finds no layer in the model ({type(model).__name__}) that two would be smaller than"
        raise InputError(what, name="model", cure="leave low rank out")
    for name, number in ranks.items():
        made = _replace(made, name, number, parts[name])
    return made


def load_factorized(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a model with the layers and the weights of one that ``factorize`` has returned.

    >>> model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    >>> state = factorize(model).state_dict()
    >>> _ = load_factorized(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), state)

    Args:
        model: a model as the one that was given to ``factorize``, with any weights.
        state: the ``state_dict`` of what it returned.
    """
    made = copy.deepcopy(model)
    for name in _layers(made):
        first = state.get(f"{name}.0.weight".removeprefix("."))
        if first is not None and f"{name}.1.weight".removeprefix(".") in state:
            made = _replace(made, name, len(first))
    made.load_state_dict(state)
    return made


def _layers(model: nn.Module) -> dict[str, Layer]:
    """Return the layers that may be split, by name."""
    modules = dict(model.named_modules(remove_duplicate=False))
    places = Counter(map(id, modules.values()))
    users = Counter(id(held) for module in model.modules() for held in module.parameters(recurse=False))
    return {
        name: module
        for name, module in modules.items()
        # Not subclasses: they may compute otherwise, or be read from outside, as in MultiheadAttention.
        if (type(module) is nn.Linear or (type(module) in CONVOLUTIONS and module.groups == 1))
        and places[id(module)] == users[id(module.weight)] == 1
        and not (module._forward_hooks or module._forward_pre_hooks)
        and (not name or _calls_its_modules(modules[name.rpartition(".")[0]]))
    }


def _calls_its_modules(parent: nn.Module) -> bool:
    return type(parent) in CONTAINERS or not type(parent).__module__.startswith("torch.nn.")


def _require_finite(name: str, layer: Layer) -> None:
    """Refuse a weight that has no singular values."""
    if not layer.weight.isfinite().all():
        what = f"factorize: the weight of layer {name!r} has numbers that are nan or infinite"
        raise InputError(what, name="model", cure="load the weights of a training that has not failed")


def _parts_of(layer: Layer) -> Parts:
    # Weights of half precision have no decomposition on the CPU.
    return Parts(*torch.linalg.svd(layer.weight.detach().flatten(1).float(), full_matrices=False))


def _ranks(parts: Mapping[str, Parts], count: int, share: float) -> dict[str, int]:
    """Return the rank of each layer, with which a share of all parameters is left.

    With the same share for each layer instead, the networks of ``examples/smaller_models.py`` lost 22 to 84 points of
    accuracy before further training; so they lose 37 at most.

    Raises:
        InputError: the model has too many other parameters.
    """
    ranks = {name: len(one.values) for name, one in parts.items()}
    others = count - sum(one.whole for one in parts.values())
    least = others + sum(_size(one, 1) for one in parts.values())
    if least > share * count:
        what = f"factorize cannot leave {share:g} of {count:,} parameters: at rank 1, {least:,} of them are left"
        possible = math.ceil(100 * least / count) / 100
        cure = f"give a share of at least {possible:g}" if possible < 1 else "leave low rank out"
        raise InputError(what, name="share", cure=cure)
    tiny = torch.finfo(torch.float).tiny  # keeps a layer of zeros from 0 / 0
    shares = {name: one.values.square() / one.values.square().sum().clamp_min(tiny) for name, one in parts.items()}
    worth = [(value / parts[name].costs, name) for name, of_layer in shares.items() for value in of_layer.tolist()[1:]]
    left = count
    # The values of a layer fall, so the smallest is the last of its layer; the largest of each layer stays.
    for _, name in sorted(worth):
        if left <= share * count:
            break
        left -= _size(parts[name], ranks[name]) - _size(parts[name], ranks[name] - 1)
        ranks[name] -= 1
    return ranks


def _size(parts: Parts, rank: int) -> int:
    """Return the number of weights of a layer at a rank; it stays as it is where two would not be smaller."""
    return min(parts.whole, rank * parts.costs)


def _replace(model: nn.Module, name: str, rank: int, parts: Parts | None = None) -> nn.Module:
    """Return the model with two layers of a rank in the place of one."""
    layer = cast(Layer, model.get_submodule(name))
    with preserve_random_state():  # new layers draw their weights
        pair = _pair(layer, rank).to(layer.weight).train(layer.training)
    if parts is not None:
        _fill(pair, layer, rank, parts)
    if not name:
        return pair
    model.set_submodule(name, pair)
    return model


def _pair(layer: Layer, rank: int) -> nn.Sequential:
    has_bias = layer.bias is not None
    if isinstance(layer, nn.Linear):
        return nn.Sequential(
            nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=has_bias)
        )
    places = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "padding_mode")}
    kind: Any = type(layer)
    return nn.Sequential(
        kind(layer.in_channels, rank, layer.kernel_size, bias=False, **places),
        kind(rank, layer.out_channels, 1, bias=has_bias),
    )


@torch.no_grad()
def _fill(pair: nn.Sequential, layer: Layer, rank: int, parts: Parts) -> None:
    roots = parts.values[:rank].sqrt()
    first, second = (cast(Layer, one).weight for one in pair)
    first.copy_((roots[:, None] * parts.right[:rank]).view_as(first))
    second.copy_((parts.left[:, :rank] * roots).view_as(second))
    for one in (first, second):
        one.requires_grad_(layer.weight.requires_grad)
    if layer.bias is not None:
        cast(Tensor, pair[1].bias).copy_(layer.bias).requires_grad_(layer.bias.requires_grad)
