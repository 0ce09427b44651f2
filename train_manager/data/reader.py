"""One set of data, read pass after pass: what ``Endless``, ``Interleaved`` and ``Together`` are made of.

The set is not read ahead. If its length is known, it has ended with its last batch; otherwise its end is found when the
next batch is asked for, and `Reader.read` returns `END` once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from train_manager.data.iteration import begin_epoch, is_endless, length_of, no_batch, reset
from train_manager.data.randomness import preserved_random_state

END: Final[Any] = object()


def read_past(data: Iterable[Any], skipped: int) -> Iterator[Any]:
    """Return a pass without its first batches; reading these leaves the random states as they are."""
    with preserved_random_state():  # that of after these batches was restored already
        batches = iter(data)
        for _ in islice(batches, skipped):
            pass
    return batches


class Reader:
    """One set of data, read pass after pass within an epoch.

    Args:
        name: what errors call it.
        data: the set.
        epoch: the number of its first pass.
        next_pass: what is added to that for each further pass.
        state: where to continue, what `state` returned; None begins the first pass.

    Attributes:
        passes: how many passes have been read to their end.
        given: how many batches of the present pass were given.
        is_over: nobody reads on.
        has_ended: the first pass has given its last batch, as far as that is known; always true of an endless set.
    """

    def __init__(
        self, name: str, data: Iterable[Any], epoch: int, next_pass: int, state: Mapping[str, Any] | None
    ) -> None:
        self.name, self.data, self.epoch, self.next_pass = name, data, epoch, next_pass
        self.is_endless = is_endless(data)
        self.length = None if self.is_endless else length_of(data)
        self.passes, self.given, self.has_ended = 0, 0, self.is_endless
        if state is not None:
            self.passes, self.given, self.has_ended = state["passes"], state["given"], state["has_ended"]
        self.is_over = False
        self._loaded = state
        self._iterator: Iterator[Any] | None = None

    def open(self) -> None:
        """Begin the first pass, or go on with one that was left; a pass that was to begin again waits for its turn."""
        if self.given or not self.passes:
            self._iterator = self._begin(was_open=self._loaded is not None)

    def read(self) -> Any:
        """Return the next batch; or `END`, if only this call has found the end of the first pass."""
        if self._iterator is None:
            self._iterator = self._begin(was_open=self.given > 0)
        batch = next(self._iterator, END)
        self._loaded = None
        if batch is END:
            return self._begin_again()
        self.given += 1
        self.has_ended = self.has_ended or self.given == self.length
        return batch

    def state(self) -> Mapping[str, Any]:
        """Return where the set is read, with its own state, if it has one."""
        if self._loaded is not None:  # no batch was given since
            return self._loaded
        state = {"passes": self.passes, "given": self.given, "has_ended": self.has_ended}
        if self.given == self.length:
            return {**state, "passes": self.passes + 1, "given": 0}
        if not self.given or not hasattr(self.data, "state_dict"):  # before the first batch it is of an earlier pass
            return state
        return {**state, "data": self.data.state_dict()}

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
            return iter(self.data)
        with preserved_random_state():  # that of after the opening was restored already
            if self._loaded is not None and self._loaded.get("data") and hasattr(self.data, "load_state_dict"):
                self.data.load_state_dict(self._loaded["data"])  # only now, so that no other pass begins there
                return iter(self.data)
            begin_epoch(self.data, self.epoch + self.passes * self.next_pass)
            skipped = 0 if self.is_endless else self.given  # these batches were given before the state was loaded
            return read_past(self.data, skipped)

    def _begin_again(self) -> Any:
        if not self.given:
            raise no_batch(self.data, self.name, f"in pass {self.passes + 1} of an epoch")
        reset(self.data)
        was_known, self.has_ended = self.has_ended, True
        self.passes, self.given, self._iterator = self.passes + 1, 0, None
        return self.read() if was_known else END
