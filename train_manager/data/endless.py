"""Data without an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, final

from train_manager.core.errors import InputError
from train_manager.data.iteration import is_endless, is_read_once, reset, unending


@final
class Endless:
    """The batches of some data, pass after pass without an end; for trainings that count steps.

    >>> from itertools import islice
    >>> from train_manager import Endless
    >>> list(islice(Endless(["first", "second"]), 5))
    ['first', 'second', 'first', 'second', 'first']

    Its attribute ``endless`` says that it has no end, so that a training by epochs is refused and does not hang. Data
    of your own that never ends says the same: ``endless = True`` in its class.

    Args:
        data: batches that can be read more than once.

    Raises:
        InputError: the data can be read once only.
    """

    endless: Final = True

    def __init__(self, data: Iterable[Any]) -> None:
        if is_read_once(data) and not is_endless(data):
            raise InputError(
                f"Endless was given a {type(data).__name__}, which can be read once",
                name="data",
                cure="give a list, a DataLoader, or an object with __iter__",
            )
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return unending(self.data)

    def reset(self) -> None:
        """Let the data go back to its start, where it has a ``reset``."""
        reset(self.data)

    def state_dict(self) -> dict[str, Any]:
        """Where the data is, if it can tell."""
        return {"data": self.data.state_dict()} if hasattr(self.data, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was asked."""
        if "data" in state and hasattr(self.data, "load_state_dict"):
            self.data.load_state_dict(state["data"])
