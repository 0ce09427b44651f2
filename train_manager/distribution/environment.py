"""The place of this process among those that torchrun has started, from the environment variables that it sets."""

from __future__ import annotations

import os
from typing import NamedTuple

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
