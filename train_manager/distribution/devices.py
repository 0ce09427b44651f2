"""The GPU of a process: that of its number on its machine (``LOCAL_RANK``)."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from train_manager.telling.errors import InputError


def use_own_gpu(local_rank: int) -> None:
    """Let "cuda" mean the GPU of this process; nothing without one."""
    if torch.cuda.is_available() and local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)


def require_own_gpu(device: torch.device | None, model: Any, local_rank: int) -> None:
    """Refuse a device by number, which all processes would share; more processes than GPUs; and a model elsewhere.

    Args:
        device: of the training, if it has one.
        model: the model.
        local_rank: the number of the process on its machine.

    Raises:
        InputError: with the cure.
    """
    what = ""
    if device is not None and device.type == "cuda":
        count, processes = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", local_rank + 1))
        if device.index is not None:
            what = f"device is '{device}', which the processes of a machine would share"
            cure = 'give device="cuda": each process has the GPU of its LOCAL_RANK'
        elif processes > count:
            what = f"this machine has {count} GPUs for {processes} processes"
            cure = f"start as many processes as GPUs: torchrun --nproc-per-node {count}"
    if not what and isinstance(model, nn.Module):
        places = {one.device for one in model.parameters() if one.is_cuda and one.device.index != local_rank}
        if places:
            what = f"the model is on {places.pop()}, but this process has cuda:{local_rank}"
            cure = 'make Distributed() before the model is moved, or give TrainManager device="cuda"'
    if what:
        raise InputError(what, name="device", asked_by="Distributed", cure=cure)
