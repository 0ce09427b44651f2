"""A last batch that is too small for BatchNorm, told before the first step and not as the first epoch ends."""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from train_manager.data.passes import Passes
from train_manager.data.shares import gives_own_batches
from train_manager.telling.findings import Finding


def check_last_batch(model: Any, data: Any, processes: int, frozen: Collection[int] = ()) -> list[Finding]:
    """Return a finding if BatchNorm gets one example of the last batch, as far as the data tell their length.

    >>> import torch
    >>> from train_manager import InMemory
    >>> data, norm = InMemory(torch.zeros(9, 2), batch_size=4), nn.BatchNorm1d(2)
    >>> print(check_last_batch(norm, data, processes=1)[0])
    warning: BatchNorm gets one example of the last batch of an epoch [one-example-for-norm]
      do     give drop_last=True, or another batch_size

    Args:
        model: the model; its modules in eval mode do not count.
        data: the training data.
        processes: how many of them share a batch, unless the data give each of them batches of its own.
        frozen: the ids of parameters that an extension has frozen; BatchNorm with one does not count.
    """
    # A batch of one example may be meant; a last one is not.
    rest, processes = _rest_of(data), 1 if gives_own_batches(data) else processes
    if not 0 < rest < 2 * processes or not isinstance(model, nn.Module):
        return []
    # SyncBatchNorm sees the examples of all processes.
    norms = (one for one in model.modules() if isinstance(one, _BatchNorm) and one.training)
    awake = (one for one in norms if not any(id(parameter) in frozen for parameter in one.parameters()))
    if not any(rest == 1 or not isinstance(one, nn.SyncBatchNorm) for one in awake):
        return []
    what = "BatchNorm gets one example of the last batch of an epoch"
    where = "" if processes == 1 else f"{rest} examples for {processes} processes"
    cure = "give drop_last=True, or another batch_size"
    return [Finding("last batch", "warning", what, where, cure, code="one-example-for-norm")]


def _rest_of(data: Any) -> int:
    """Return the examples of a last batch that is not full; 0 if there is none, or none is known."""
    if isinstance(data, Passes):
        return data.rest
    if not isinstance(data, DataLoader) or data.drop_last or not data.batch_size:
        return 0
    try:
        return len(data.sampler) % data.batch_size if isinstance(data.sampler, Sized) else 0
    except TypeError:  # a stream without a length
        return 0
