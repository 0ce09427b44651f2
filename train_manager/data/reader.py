"""One set of data, read pass after pass: ``Endless``, ``Interleaved`` and ``Together`` are made of such sets.

The set is not read ahead. If its length is known, it has ended with its last batch; otherwise its end is found when the
next batch is asked for, and `Reader.read` returns `END` once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from train_manager.data.loader_position import (
    beginning_of,
    generators_of,
    left_as_found,
    loader_state,
    put_back,
    read_past,
    stateful,
)
from train_manager.data.random_state import preserve_random_state
from train_manager.data.readable import begin_epoch, is_endless, length_of, no_batch, reset

END: Final[Any] = object()  # compared with `is`, because a batch may be anything, also None


class Reader:
    """One set of data, read pass after pass within an epoch.

    Args:
        name: the name of the set in errors.
        data: the set.
        epoch: the number of its first pass.
        next_pass: the number that is added to ``epoch`` for each further pass.
        state: the result of `state`, from which to continue; None begins the first pass.
    """

    def __init__(
        self, name: str, data: Iterable[Any], epoch: int, next_pass: int, state: Mapping[str, Any] | None
    ) -> None:
        self.name, self.data, self.epoch, self.next_pass = name, data, epoch, next_pass
        self.is_endless = is_endless(data)
        self.length = None if self.is_endless else length_of(data)
        # The passes that were read to their end, the batches of the present pass that were given, and whether the first
        # pass has given its last batch, as far as that is known; has_ended is always True of an endless set.
        self.passes, self.given, self.has_ended = 0, 0, self.is_endless
        if state is not None:
            self.passes, self.given, self.has_ended = state["passes"], state["given"], state["has_ended"]
        self.is_over = False  # whether the pass over all sets has ended
        self._loaded = state  # until the first batch after loading is given
        # The states of loaders from the last pass, and from the beginning of this one: see read_again.
        self._kept, self._beginning = (None, None) if state is None else (state.get("kept"), state.get("beginning"))
        self._iterator: Iterator[Any] | None = None

    def open(self) -> None:
        """Begin the first pass, or continue one that was left; a pass that was to begin again waits for its turn."""
        if self.given or not self.passes:
            self._iterator = self._begin(was_open=self._loaded is not None)

    def read(self) -> Any:
        """Return the next batch; or `END`, if only this call has found the end of the first pass."""
        if self._iterator is None:
            self._iterator = self._begin(was_open=self.given > 0)
        # Opening other sets may have moved the random state since this set was opened, and its loader draws only now.
        if not self.given and self._beginning is not None:
            self._beginning["first"] = beginning_of(self.data)
        batch = next(self._iterator, END)
        self._loaded = None
        if batch is END:
            return self._begin_again()
        self.given += 1
        self.has_ended = self.has_ended or self.given == self.length
        return batch

    def state(self) -> Mapping[str, Any]:
        """Return where the set is read, with its own state, if it has one."""
        if self._loaded is not None:  # no batch was given since, so the place is the same
            return self._loaded
        kept = loader_state(self.data) if self._kept is None else self._kept
        state = {"passes": self.passes, "given": self.given, "has_ended": self.has_ended, "kept": kept}
        # After the last batch the place is the beginning of the next pass; not with
        # a generator of a loader, which draws when the end of the pass is read.
        if self.given == self.length and not generators_of(self.data):
            return {**state, "passes": self.passes + 1, "given": 0}
        if self._iterator is not None:
            state["beginning"] = self._beginning
        own = stateful(self.data)
        if not self.given or own is None:  # before the first batch the state of the data is of an earlier pass
            return state
        return {**state, "data": own.state_dict()}

    def end(self) -> None:
        """Read past the end of a pass that has given its last batch, as a loop over the data does."""
        if self._iterator is not None and self.given == self.length:
            next(self._iterator, END)

    def close(self) -> None:
        """Let the data end a pass that was left: files are closed, and a loader's workers end."""
        self._iterator, self.is_over = None, True

    def _begin(self, *, was_open: bool) -> Iterator[Any]:
        if not was_open:
            begin_epoch(self.data, self.epoch + self.passes * self.next_pass)
            if self._kept is not None:
                put_back(self.data, self._kept)
                self._kept = None
            self._beginning = beginning_of(self.data)
            return iter(self.data)
        with preserve_random_state():  # the checkpoint has restored the states from after the opening
            state = None if self._loaded is None else self._loaded.get("data")
            if state and stateful(self.data) is not None:
                stateful(self.data).load_state_dict(state)  # only now, so that no evaluation before has begun there
                return iter(self.data)
            begin_epoch(self.data, self.epoch + self.passes * self.next_pass)
            skipped = 0 if self.is_endless else self.given  # batches that were given before the checkpoint
            batches = read_past(self.data, skipped, self._beginning, self._kept)
            self._kept = None
            return batches

    def _begin_again(self) -> Any:
        if not self.given:
            raise no_batch(self.data, self.name, f"in pass {self.passes + 1} of an epoch")
        reset(self.data)
        was_known, self.has_ended = self.has_ended, True
        self.passes, self.given, self._iterator = self.passes + 1, 0, None
        return self.read() if was_known else END


@contextmanager
def one_pass(data: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """Give the batches of one whole pass; at the end of the ``with`` block the data are where they were before.

    >>> import torch
    >>> from train_manager import InMemory
    >>> data = InMemory(torch.arange(4), batch_size=2, shuffle=True)
    >>> training = iter(data)
    >>> first = next(training)
    >>> with one_pass(data) as batches:
    ...     len(list(batches))
    2
    >>> data.state_dict()["batches"], len(list(training))
    (1, 1)

    Random states that do not belong to the data, such as torch's own, are the caller's to put back.

    Args:
        data: an iterable of batches, perhaps with a method ``left_as_found`` that returns a context manager.
    """
    with left_as_found(data):
        yield iter(data)
