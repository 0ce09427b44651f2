"""Weights from a file of any program: a checkpoint, a .safetensors file, or a file of ``torch.save``.

A file of ``torch.save`` is a pickle in a zip file. A pickle is a program; ``torch.load(weights_only=True)`` runs only
what makes tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.hashed_file import open_file
from train_manager.checkpoints.tensors import read_tensors
from train_manager.telling.errors import CheckpointError

NESTED = ("state_dict", "model_state_dict", "model")  # keys under which training scripts save the weights
ZIP, OLD = b"PK\x03\x04", b"\x80"  # the first bytes of a file of torch >= 1.6, and of an older torch


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Return the weights in a file, on the CPU. Nothing in the file is run.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "weights.pt")
    >>> torch.save({"epoch": 3, "state_dict": torch.nn.Linear(2, 1).state_dict()}, path)
    >>> sorted(read_weights(path))
    ['bias', 'weight']

    Args:
        path: a checkpoint's folder, of which the model is read; a ``.safetensors`` file; or a file of ``torch.save``:
            a state_dict, or a dict that has one as ``state_dict``, ``model_state_dict`` or ``model``.

    Returns:
        The tensors by their names, for ``load_state_dict``; values of a module's ``get_extra_state`` are among them.

    Raises:
        CheckpointError: it is none of these, is damaged, or is more than weights.
    """
    path = Path(path)
    if path.is_dir():
        return _weights(read_checkpoint(path, ["model"]), path)
    with open_file(path, follow=True) as file:
        # The first bytes decide, not the name: .pt, .pth and .bin are given to files of every kind.
        start = file.read(9)
        file.seek(0)
        if start.startswith(ZIP):
            return _weights(_from_torch(file, path), path)
        # A safetensors file has the length of its header in 8 bytes, then the header in JSON.
        if start[8:] == b"{":
            return read_tensors(file.read(), path)
    if start.startswith(OLD):
        raise CheckpointError(
            f"{path} was written by a torch before 1.6, or by pickle",
            name=path.name,
            cure=f"if you trust it: torch.save(torch.load({path.name!r}, weights_only=True), {path.name!r})",
        )
    raise CheckpointError(f"{path} has no weights: it is not a checkpoint, a .safetensors file or a file of torch.save")


def _weights(found: Any, path: Path) -> dict[str, Tensor]:
    """Return the state_dict itself, or the one inside it."""
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{path} holds a {type(found).__name__}, not a dict of tensors", name=path.name)
    nested = [found[key] for key in NESTED if key in found and not isinstance(found[key], Tensor)]
    # The nested dict comes first, because the outer one may hold single tensors beside it, such as the best loss.
    for weights in (*nested, found):
        if isinstance(weights, Mapping) and any(isinstance(value, Tensor) for value in weights.values()):
            return {name: _weight(name, value, path) for name, value in weights.items()}
    raise CheckpointError(
        f"{path} has no weights: it holds {', '.join(map(str, found))!s:.200}",
        name=path.name,
        cure=f"they must be at its top, or in one of {', '.join(NESTED)}",
    )


def _weight(name: str, value: Any, path: Path) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    # get_extra_state() may return any value, which load_state_dict hands to set_extra_state().
    if str(name).endswith("_extra_state"):
        return value
    raise CheckpointError(f"{name!r} in {path} is of type {type(value).__name__}, not a tensor", name=str(name))


def _from_torch(file: BufferedReader, path: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        # torch names the forbidden import in its text only.
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise CheckpointError(
            f"{path} {f'would import {named[1]}' if named else 'has instructions'}, which weights do not need",
            name=path.name,
            cure="nothing of it was run; if you trust it: load it with torch, and save its state_dict() alone",
        ) from None
    except Exception as error:  # torch raises errors of any type for a file of another form
        what = f"{path} is damaged, or is not a file of torch.save: {error!s:.200}"
        raise CheckpointError(what, name=path.name) from None
