"""The place of this process among those that torchrun has started, from the variables that it sets; and its GPU."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import nn

from train_manager.data.shares import Place
from train_manager.telling.errors import InputError


class Environment(NamedTuple):
    """What torchrun, or a tool that sets the same variables (Ray Train), says of this process."""

    place: Place
    local_rank: int  # among the processes of this machine
    attempt: str  # how often torchrun has started the processes anew
    address: tuple[str, int]  # of the store of all processes
    is_of_torchrun: bool  # the store, which else is rank 0's

    @property
    def hosts_store(self) -> bool:
        """Whether the store of all processes ends with this one."""
        return not self.place.rank and not self.is_of_torchrun

    @property
    def store_ends_with(self) -> str:
        """What has ended if the store has."""
        return "torchrun" if self.is_of_torchrun else "rank 0"


def read_environment() -> Environment | None:
    """Return the place of this process; None if it trains alone.

    Raises:
        InputError: a variable is missing, or is not a number where it must be one.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return None
    numbers = {name: _number(name) for name in ("RANK", "WORLD_SIZE")}
    local = _number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else 0
    place = Place(numbers["RANK"], numbers["WORLD_SIZE"])
    address = _text("MASTER_ADDR"), _number("MASTER_PORT")
    is_of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    return Environment(place, local, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), address, is_of_torchrun)


def _number(name: str) -> int:
    value = os.environ.get(name)
    if value is None or not value.isdecimal():
        raise _variable_error(name, f"must be a whole number, but is {value!r}")
    return int(value)


def _text(name: str) -> str:
    if not os.environ.get(name):
        raise _variable_error(name, "is not set")
    return os.environ[name]


def _variable_error(name: str, what: str) -> InputError:
    cure = "start the program with torchrun, or leave WORLD_SIZE unset"
    return InputError(f"the environment variable {name} {what}", name=name, asked_by="Distributed", cure=cure)


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
