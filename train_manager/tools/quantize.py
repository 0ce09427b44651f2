"""Linear layers with weights of 8 bits."""

from __future__ import annotations

import copy
from typing import Final

import torch
from torch import nn

from train_manager.data.random_state import preserve_random_state
from train_manager.telling.errors import InputError
from train_manager.tools.extras import import_extra, quiet

DTYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
"""The types of weights that torchao makes int8 weights of."""


def quantize(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose Linear layers have int8 weights, to predict with::

        small = quantize(model)
        torch.save(small.state_dict(), "int8.pt")  # about a quarter of the bytes of these layers

        loaded = quantize(new_model())
        loaded.load_state_dict(torch.load("int8.pt", weights_only=True), assign=True)

    Each row of a weight is rounded to whole numbers from -128 to 127 times a number of its own (torchao's
    ``Int8WeightOnlyConfig``). Biases, inputs and all other layers, convolutions among them, stay as they are. The copy
    cannot be trained.

    Args:
        model: stays as it is.

    Raises:
        ImportError: torchao is not installed: ``pip install "train-manager[quantize]"``.
        InputError: there is no Linear layer, or one has weights of another type than float32, bfloat16 and float16.
    """
    torchao = import_extra("torchao.quantization", "quantize", "quantize")
    _require_linear(model)
    made = copy.deepcopy(model)
    # set_inductor_config would change settings of torch.compile for the whole process.
    with preserve_random_state(), quiet():
        torchao.quantize_(made, torchao.Int8WeightOnlyConfig(set_inductor_config=False))
    return made


def _require_linear(model: nn.Module) -> None:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not layers:
        what = f"quantize makes int8 weights of Linear layers, but the model ({type(model).__name__}) has none"
        raise InputError(what, name="model", cure="leave int8 out")
    for name, layer in layers.items():
        if layer.weight.dtype not in DTYPES:
            what = f"quantize takes weights of float32, but those of {name or 'the model'!r} are {layer.weight.dtype}"
            raise InputError(what, name="model", cure="quantize(copy.deepcopy(model).float())")
