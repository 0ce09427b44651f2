"""Data without an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, final

from train_manager.data.batch import batches_text
from train_manager.data.loader_position import left_as_found
from train_manager.data.readable import is_endless, is_read_once, reset
from train_manager.data.reader import Reader
from train_manager.data.shares import MadeOfSets
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

NEXT_EPOCH = 1 << 20  # numbers of passes that each epoch has for itself: pass 3 of epoch 2 is 2 * NEXT_EPOCH + 3


@final
class Endless(MadeOfSets):
    """The batches of some data, pass after pass without an end; for training calls by steps.

    >>> from itertools import islice
    >>> from train_manager import Endless
    >>> list(islice(Endless(["first", "second"]), 5))
    ['first', 'second', 'first', 'second', 'first']

    The attribute ``endless`` makes a TrainManager refuse a training call by epochs, which would never end. Set
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
        self._next_epoch = 0
        self._loaded: Mapping[str, Any] | None = None  # the state that the coming pass begins with
        self._last: Reader | None = None  # of the training, also while an evaluation reads the same data

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy; a pass over data cannot be copied."""
        return {**self.__dict__, "_last": None}

    def __repr__(self) -> str:
        return f"Endless({batches_text(self.data)})"

    def __iter__(self) -> Iterator[Any]:
        epoch, loaded = self._next_epoch, self._loaded
        self._next_epoch, self._loaded = epoch + 1, None
        reader = Reader("Endless's data", self.data, epoch * NEXT_EPOCH, 1, loaded)
        reader.has_ended = True  # so that `read` never returns END: there is no end
        reader.open()  # now and not with the first batch: Together opens all its sets before it reads one
        return self._batches(reader)

    @property
    def example_index(self) -> Any:
        """The numbers of the examples in the batch given last, if the data number them."""
        return self.data.example_index  # type: ignore[attr-defined]  # the AttributeError of data without it is right here too

    @property
    def sets(self) -> Mapping[str | None, object]:
        """The data that are read."""
        return {None: self.data}

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that begins next; the data's passes in it have numbers of their own.

        An epoch that was loaded keeps its position.
        """
        if epoch != self._next_epoch:
            self._next_epoch, self._loaded = require_count(epoch, "epoch", at_least=0), None

    @contextmanager
    def left_as_found(self) -> Iterator[None]:
        """Put the position of the data back after the ``with`` block."""
        kept = self._next_epoch, self._loaded, self._last
        self._loaded = None
        with left_as_found(self.data):
            try:
                yield
            finally:
                self._next_epoch, self._loaded, self._last = kept

    def reset(self) -> None:
        """Call the data's ``reset``, if it has one."""
        reset(self.data)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, and where in it the data are read.

        Data that are not endless themselves and have no ``state_dict`` are read again up to their place when the state
        is loaded.
        """
        if self._last is None:
            return {"epoch": self._next_epoch, "reader": self._loaded}
        return {"epoch": self._last.epoch // NEXT_EPOCH, "reader": dict(self._last.state())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was called."""
        self._next_epoch, self._loaded, self._last = state["epoch"], state["reader"], None

    def _batches(self, reader: Reader) -> Iterator[Any]:
        # A second pass begun during the first is an evaluation: the state stays that of the first.
        if self._last is None or self._last.is_over:
            self._last = reader
        try:
            while True:
                yield reader.read()
        finally:
            reader.close()
