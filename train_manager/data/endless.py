"""Data without an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, final

from train_manager.core.errors import InputError
from train_manager.data.description import batches_text
from train_manager.data.iteration import begin_epoch, is_endless, is_read_once, reset, unending
from train_manager.data.one_pass import left_as_found

NEXT_EPOCH = 1 << 20  # the numbers of the passes in one epoch: no epoch has as many


@final
class Endless:
    """The batches of some data, pass after pass without an end; for trainings by steps.

    >>> from itertools import islice
    >>> from train_manager import Endless
    >>> list(islice(Endless(["first", "second"]), 5))
    ['first', 'second', 'first', 'second', 'first']

    The attribute ``endless`` makes a TrainManager refuse a training by epochs, which would never end. Set
    ``endless = True`` in a class of your own whose data never ends.

    Args:
        data: an iterable of batches that can be read more than once.

    Raises:
        InputError: the data can be read only once.
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

    def __repr__(self) -> str:
        return f"Endless({batches_text(self.data)})"

    def __iter__(self) -> Iterator[Any]:
        return unending(self.data)

    @property
    def example_index(self) -> Any:
        """The numbers of the examples in the batch given last, if the data number them."""
        return self.data.example_index  # type: ignore[attr-defined]  # if it is missing, so is this

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the data's next pass; those that follow within ``epoch`` have numbers of their own."""
        begin_epoch(self.data, epoch * NEXT_EPOCH)

    def left_as_found(self) -> AbstractContextManager[None]:
        """Put the position of the data back after the ``with`` block."""
        return left_as_found(self.data)

    def reset(self) -> None:
        """Call the data's ``reset``, if it has one."""
        reset(self.data)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the data, if it has one."""
        return {"data": self.data.state_dict()} if hasattr(self.data, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was called."""
        if "data" in state and hasattr(self.data, "load_state_dict"):
            self.data.load_state_dict(state["data"])
