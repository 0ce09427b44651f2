"""Weights from a file of any program: a checkpoint, a .safetensors file, or a file of ``torch.save``.

A file of ``torch.save`` is a pickle in a zip file. The zip file is checked first: its checksums, which torch does not
compare, and its sizes. A pickle is a program; ``torch.load(weights_only=True)`` runs only what makes tensors.
"""

from __future__ import annotations

import re
import zipfile
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
LARGEST_PICKLE = 100_000_000  # bytes of the pickle, which are beside the tensors
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
            f"{path} was written by an old torch, or by pickle; its sums cannot be compared",
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
        _look_through(file, path)
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except UnpicklingError as error:
        # torch names the forbidden import in its text only.
        named = re.search(r"GLOBAL (\S+)", str(error))
        raise CheckpointError(
            f"{path} {f'would import {named[1]}' if named else 'has instructions'}, which weights do not need",
            name=path.name,
            cure="nothing of it was run; if you trust it: load it with torch, and save its state_dict() alone",
        ) from None
    except Exception as error:  # torch and zipfile raise errors of any type for a file of another form
        raise CheckpointError(f"{path} is damaged: {error!s:.200}", name=path.name) from None


def _look_through(file: BufferedReader, path: Path) -> None:
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        # A small compressed file can grow to any size in memory (a zip bomb); torch.save never compresses.
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise CheckpointError(f"{path} is compressed, which torch.save does not do", name=path.name)
        # Entries that overlap are the other way to make a small file large.
        if sum(entry.file_size for entry in entries) > size:
            raise CheckpointError(f"{path} is damaged: its entries are larger than the file", name=path.name)
        folders = {entry.filename.partition("/")[0] for entry in entries}
        names = {entry.filename.partition("/")[2]: entry.file_size for entry in entries}
        # torch.save puts all entries into one folder. Names that differ only in case could stand for each other.
        if len(folders) != 1 or len({name.lower() for name in names}) != len(entries) or "data.pkl" not in names:
            raise CheckpointError(f"{path} is a zip file, but not one of torch.save", name=path.name)
        if "constants.pkl" in names:
            raise CheckpointError(f"{path} is a TorchScript program, not weights", name=path.name)
        if names["data.pkl"] > LARGEST_PICKLE:
            raise CheckpointError(
                f"{path} has a pickle of {names['data.pkl']} bytes beside its tensors", name=path.name
            )
        # torch.save writes a checksum of each entry, but torch.load never compares them.
        if damaged := archive.testzip():
            raise CheckpointError(f"{path} is damaged: {damaged} has changed since it was written", name=path.name)
