"""Data that read other data pass after pass: ``Endless``, and the base of ``Interleaved`` and ``Together``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, final

from train_manager.data.batch import batches_text
from train_manager.data.loader_position import left_as_found
from train_manager.data.readable import is_endless, is_read_once, length_of, reset
from train_manager.data.reader import END, Reader
from train_manager.data.shares import MadeOfSets
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

NEXT_PASS = 1 << 20  # added to the epoch of a set for each further pass within an epoch, so that no order comes twice


@dataclass
class PassProgress:
    """The progress of one pass."""

    epoch: int
    given: int = 0  # batches, those before a resume included
    loaded: Mapping[str, Any] = field(default_factory=dict)  # the saved states of the sets that it resumes from
    readers: dict[str, Reader] = field(default_factory=dict)  # by set; empty until the pass begins
    is_complete: bool = False  # whether the last batch was given
    is_over: bool = False  # complete, or abandoned

    def open(self) -> None:
        """Open the sets in their order, before a batch is read."""
        # As zip() does: each loader draws its seed from torch as it is opened, so the order of the openings matters.
        for reader in self.readers.values():
            reader.open()

    def finite(self) -> list[bool]:
        """Return whether each set that is not endless has ended."""
        return [reader.has_ended for reader in self.readers.values() if not reader.is_endless]

    def states(self) -> dict[str, Any]:
        """Return the state of each set."""
        return {name: reader.state() for name, reader in self.readers.items()} or dict(self.loaded)


class NamedSets(MadeOfSets):
    """Sets of data by name. ``iter(data)`` begins an epoch: the one that was set, or else the next one."""

    def __init__(self, data: Mapping[str, Iterable[Any]]) -> None:
        kind = type(self).__name__
        if not data:
            raise InputError(
                f"{kind} was given no set of data", name="data", cure=f'give sets by name: {kind}({{"a": data}})'
            )
        self._sets = dict(data)
        self._next = PassProgress(epoch=0)  # of the coming pass
        self._last: PassProgress | None = None  # of the training, also while an evaluation reads the same data
        self._present: str | None = None  # the set of the batch given last

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy; a pass over data cannot be copied."""
        return {**self.__dict__, "_last": None}

    @property
    def sets(self) -> Mapping[Any, object]:
        """The sets, by name."""
        return self._sets

    @property
    def endless(self) -> bool:
        """Whether every set is endless."""
        return all(is_endless(data) for data in self._sets.values())

    @property
    def batches_done(self) -> int:
        """How many batches of the coming pass were given before its state was loaded."""
        return self._next.given

    @property
    @abstractmethod
    def example_index(self) -> Any:
        """The numbers of the examples in the batch that was given last."""

    def __iter__(self) -> Iterator[Any]:
        return self._pass(self._begin())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, counted from 0. A pass of this epoch that was loaded keeps its position."""
        if epoch != self._next.epoch:
            self._next = PassProgress(require_count(epoch, "epoch", at_least=0))

    def reset(self) -> None:
        """Call the ``reset`` of every set that has one."""
        for data in self._sets.values():
            reset(data)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, how many of its batches were given, and the states of the sets.

        A set that is not endless and has no ``state_dict`` is read again up to its place when the state is loaded.
        """
        # Between two passes the state is the beginning of the coming one.
        here = self._next if self._last is None or self._last.is_complete else self._last
        return {"epoch": here.epoch, "given": here.given, "sets": here.states()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the next pass where ``state_dict`` was called.

        Raises:
            InputError: the state was saved with other sets.
        """
        if state["sets"] and set(state["sets"]) != set(self._sets):
            raise InputError(
                f"{type(self).__name__} has the sets {join_names(self._sets)}, "
                f"but its state was saved with {join_names(state['sets'])}",
                name="data",
                cure="give the data that the state was saved with, or leave the state out",
            )
        self._next = PassProgress(state["epoch"], state["given"], state["sets"])
        self._last = None

    @contextmanager
    def left_as_found(self) -> Iterator[None]:
        """Begin the passes in the ``with`` block at their start, and put the position back after it."""
        kept = self._next, self._last, self._present
        self._next = PassProgress(self._next.epoch)
        with ExitStack() as stack:
            for data in self._sets.values():
                stack.enter_context(left_as_found(data))
            try:
                yield
            finally:
                self._next, self._last, self._present = kept

    def _length_of(self, name: str) -> int | None:
        """Return the length of a set, or None if it is endless."""
        data = self._sets[name]
        if is_endless(data):
            return None
        length = length_of(data)
        if length is None:
            raise TypeError(f"{type(self).__name__} has no length, because its set {name!r} has none")
        return length

    def _begin(self) -> PassProgress:
        """Return the progress of the coming pass, with a reader of each set."""
        progress, self._next = self._next, PassProgress(self._next.epoch + 1)
        progress.readers = {
            name: Reader(self._name_of(name), data, progress.epoch, NEXT_PASS, progress.loaded.get(name))
            for name, data in self._sets.items()
        }
        return progress

    def _name_of(self, name: str) -> str:
        """Return the name of a set in errors."""
        return f"set {name!r} of {type(self).__name__}"

    def _pass(self, progress: PassProgress) -> Iterator[Any]:
        # A second pass begun during the first is an evaluation: the state stays that of the first.
        if self._last is None or self._last.is_over:
            self._last = progress
        try:
            yield from self._batches(progress)
            progress.is_complete = True
            # Sets that have given their last batch are read past it, as a loop over each of them would do.
            for reader in progress.readers.values():
                reader.end()
        finally:
            progress.is_over = True
            for reader in progress.readers.values():
                reader.close()

    @abstractmethod
    def _batches(self, progress: PassProgress) -> Iterator[Any]:
        """Yield the batches of one epoch; note each in ``progress`` before it is given."""


def join_names(names: Iterable[str]) -> str:
    """Return names as error texts show them."""
    return ", ".join(map(repr, names))


@final
class Endless(NamedSets):
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

    def __init__(self, data: Iterable[Any]) -> None:
        if is_read_once(data) and not is_endless(data):
            raise InputError(
                f"Endless was given a {type(data).__name__}, which can be read once",
                name="data",
                cure="give a list, a DataLoader, or an object with __iter__",
            )
        super().__init__({"data": data})
        self.data = data

    def _name_of(self, name: str) -> str:
        return f"Endless's {name}"

    def __repr__(self) -> str:
        return f"Endless({batches_text(self.data)})"

    def __iter__(self) -> Iterator[Any]:
        progress = self._begin()
        progress.open()  # now and not with the first batch: Together opens all its sets before it reads one
        return self._pass(progress)

    @property
    def sets(self) -> Mapping[Any, object]:
        """The data that are read."""
        return {None: self.data}

    @property
    def endless(self) -> bool:
        """True: there is always a further pass."""
        return True

    @property
    def example_index(self) -> Any:
        """The numbers of the examples in the batch given last, if the data number them."""
        return self.data.example_index  # type: ignore[attr-defined]  # the AttributeError of data without it is right here too

    def _batches(self, progress: PassProgress) -> Iterator[Any]:
        reader = progress.readers["data"]
        while True:
            batch = reader.read_of_epoch()
            if batch is END:  # of the first pass
                batch = reader.read_of_epoch()
            progress.given += 1
            yield batch
            del batch  # else two batches would be in memory while the next one is read
