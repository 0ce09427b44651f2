"""The weights of a checkpoint, or the mean of several."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.checkpoint_names import folder_in, order_of
from train_manager.checkpoints.hashed_file import Gone
from train_manager.checkpoints.verification import translate_gone_errors
from train_manager.checkpoints.weights_file import read_weights
from train_manager.telling.errors import CheckpointError


def checkpoints_at(path: Path, at: str | int, mode: str | None, count: int) -> list[Path]:
    """Return the file or checkpoint that a path names, or the checkpoints of a ``train_dir``, newest first.

    Args:
        path: a file, a checkpoint, a ``train_dir`` or its folder of checkpoints.
        at: the newest checkpoint to return, as in ``CheckpointFolder.find``; only for a ``train_dir``.
        mode: "min" or "max": which monitored value is the best.
        count: how many: the one at ``at``, and those before it.

    Raises:
        CheckpointError: the folder has fewer checkpoints than ``count``.
    """
    folder = CheckpointFolder(folder_in(path))
    if not path.is_dir() or not folder.checkpoints():
        if count > 1:
            raise CheckpointError(f"{path} is one checkpoint, and not a folder of several", name="mean_of")
        return [path]
    newest = folder.find(at, mode=mode)
    found = folder.checkpoints()
    # A run beside this one may delete checkpoints between the two calls.
    if newest not in found:
        raise Gone(f"{newest} was deleted while it was looked for", name=newest.name)
    upto = found[: found.index(newest) + 1][::-1]
    if len(upto) < count:
        what = f"{folder.path} has {len(upto)} checkpoints up to {newest.name}, fewer than mean_of={count}"
        raise CheckpointError(what, name="mean_of", cure="keep more of them: Checkpoints(keep=...)")
    return upto[:count]


def mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of weights, computed in float64; counters and other integers are those of the first.

    Raises:
        CheckpointError: names or shapes of the weights differ.
    """
    # The result has the dtypes and the order of the first, which is the newest.
    first, *others = map(_read, paths)
    if not others:
        return first
    for path, other in zip(paths[1:], others, strict=True):
        if [(n, t.shape) for n, t in first.items()] != [(n, t.shape) for n, t in other.items()]:
            raise CheckpointError(f"{paths[0].name} and {path.name} are of different models", name="mean_of")
    return {name: _mean([tensor, *(other[name] for other in others)]) for name, tensor in first.items()}


def _read(path: Path) -> dict[str, Tensor]:
    # Only a checkpoint of a training is deleted by its run; a weights file of another program is not.
    with nullcontext() if order_of(path) is None else translate_gone_errors(path):
        return read_weights(path)


def without_prefix(weights: dict[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Return weights without the one prefix that a compiled or wrapped model has put before each name.

    >>> list(without_prefix({"_orig_mod.0.bias": torch.zeros(2)}, ["0.bias"]))
    ['0.bias']
    """
    # The prefix is taken from the first names, and removed only if it explains every name.
    prefix = next(iter(weights), "").removesuffix(next(iter(names), ""))
    if prefix and set(weights) == {prefix + name for name in names}:
        return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


def _mean(tensors: list[Tensor]) -> Tensor:
    if not tensors[0].is_floating_point():
        return tensors[0]
    # In float64: the sum of bfloat16 weights would lose the last bits of each.
    return torch.stack([tensor.double() for tensor in tensors]).mean(dim=0).to(tensors[0].dtype)
