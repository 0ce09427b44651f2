"""One set of data, read pass after pass: the training data, and each of the sets that other data are made of.

The set is not read ahead. If its length is known, it has ended with its last batch; otherwise its end is found when the
next batch is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, final

from train_manager.data.landmarks import Landmarks, warn_of_other_batches
from train_manager.data.loader_position import (
    beginning_of,
    generators_of,
    left_as_found,
    loader_state,
    put_back,
    read_past,
    repeats_its_order,
    stateful,
    translate_position_errors,
)
from train_manager.data.random_state import preserve_random_state
from train_manager.data.readable import begin_epoch, is_endless, length_of, no_batch, reset

END: Final[Any] = object()
"""In place of a batch: the data have ended. It is compared with ``is``, because a batch may be anything, also None."""


@final
class Reader:
    """One set of data, read pass after pass.

    Args:
        name: the name of the set in errors.
        data: the set; None if there is nothing to read.
        epoch: the number of its first pass.
        next_pass: the number that is added to ``epoch`` for each further pass; 0 if each pass is an epoch by itself.
        state: the result of `state`, from which to continue; None begins the first pass.
        counts_off_endless: whether batches of an endless set without a state are counted off to find its place; such a
            set begins anew otherwise.
    """

    def __init__(
        self,
        name: str,
        data: Any,
        epoch: int = 0,
        next_pass: int = 0,
        state: Mapping[str, Any] | None = None,
        *,
        counts_off_endless: bool = False,
    ) -> None:
        self.name, self.data, self.epoch, self.next_pass = name, data, epoch, next_pass
        self.is_endless = is_endless(data)
        self._counts_off = counts_off_endless or not self.is_endless
        self.length = None if self.is_endless else length_of(data)
        # The passes that were read to their end, and the batches of the present pass that were given.
        self.passes: int = 0 if state is None else state["passes"]
        self.given: int = 0 if state is None else state["given"]
        self._loaded = state  # until the first batch after loading is given
        # The states of loaders from the last pass, and from the beginning of this one: see `read_past`.
        self._kept: Mapping[str, Any] | None = None if state is None else state["kept"]
        self._beginning: dict[str, Any] | None = None if state is None else state.get("beginning")
        self._landmarks: Landmarks | None = None  # of this pass, unless the data are known to repeat their order
        self._is_told = False  # the data know the number of the present pass
        self._iterator: Iterator[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a pass is being read."""
        return self._iterator is not None

    @property
    def is_resumed(self) -> bool:
        """Whether a state was loaded that the next pass begins with."""
        return self._loaded is not None or self._kept is not None

    @property
    def has_ended(self) -> bool:
        """Whether the first pass has given its last batch, as far as that is known; True of an endless set."""
        has_given_all = self.length is not None and self.given >= self.length
        return self.is_endless or self.passes > 0 or (self.given > 0 and has_given_all)

    # ---- reading -------------------------------------------------------------------------------------------------

    def begin_pass(self) -> None:
        """Tell the data the number of the pass that is read next, unless they know it."""
        if not self._is_told:
            begin_epoch(self.data, self.epoch + self.passes * self.next_pass)
            self._is_told = True
            # Only now: another epoch may have another length, and begins at its start, wherever the data were.
            self.length = None if self.is_endless else length_of(self.data)
            self.given = self.given or getattr(self.data, "batches_done", 0)

    def open(self) -> None:
        """Begin the first pass, or continue one that was left; a pass that was to begin again waits for its turn."""
        if self.given or not self.passes:
            self._iterator = self._begin() if self._loaded is None else self._continue()

    def read(self) -> Any:
        """Return the next batch of the pass; or `END`, after its last one: the next call begins the next pass."""
        iterator = self._prepare() if self._iterator is None or not self.given else self._iterator
        batch = next(iterator, END)
        self._loaded = None
        if batch is END:
            reset(self.data)
            self.passes += 1
            self._forget_pass()
        else:
            self.given += 1
            if self._landmarks is not None:
                self._landmarks.note(self.given, batch)
        return batch

    def read_on(self) -> Any:
        """Return the next batch, if need be of the next pass; or `END`, after a pass without a batch."""
        was_within = self.given > 0
        batch = self.read()
        return self.read() if batch is END and was_within else batch

    def read_of_epoch(self) -> Any:
        """Return the next batch; or `END`, if only this call has found the end of the first pass.

        Raises:
            InputError: a pass has given no batch.
        """
        was_known, was_within = self.has_ended, self.given > 0
        batch = self.read_on() if was_known else self.read()
        if batch is END and (was_known or not was_within):
            raise no_batch(self.data, self.name, f"in pass {self.passes} of an epoch")
        return batch

    def end(self) -> None:
        """Read past the end of a pass that has given its last batch, as a loop over the data does."""
        if self._iterator is not None and self.given == self.length:
            next(self._iterator, END)

    def close(self) -> None:
        """Let the data end a pass that was left: files are closed, and a loader's workers end."""
        self._iterator = None

    def leave(self) -> None:
        """Leave all passes, also a generator that others refer to; the next one is the first again."""
        if callable(close := getattr(self._iterator, "close", None)):
            close()
        self._forget_pass()
        self.passes = 0

    # ---- its place -----------------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, Any]:
        """Return where the set is read, with its own state, if it has one."""
        if self._loaded is not None:  # no batch was given since, so the place is the same
            return self._loaded
        kept = loader_state(self.data) if self._kept is None else self._kept
        state = {"passes": self.passes, "given": self.given, "kept": kept}
        # After the last batch the place is the beginning of the next pass; not with
        # a generator of a loader, which draws when the end of the pass is read.
        if self.next_pass and self.given and self.given == self.length and not generators_of(self.data):
            return {**state, "passes": self.passes + 1, "given": 0}
        if self.given or self._iterator is not None:
            state["beginning"] = self._beginning
        if self._landmarks is not None:
            state["landmarks"] = [*self._landmarks.digests]
        own = self.own_state() if self.given else None  # before the first batch it is the state of an earlier pass
        return state if own is None else {**state, "data": own}

    def own_state(self) -> Any:
        """Return the state of the data themselves, which is their place in the pass; None if they have none."""
        own = stateful(self.data)
        return None if own is None else own.state_dict()

    def _prepare(self) -> Iterator[Any]:
        """Return the iterator of the pass, before its first batch."""
        iterator = self._iterator
        if iterator is None:
            is_rest = self._loaded is not None and self.given > 0
            iterator = self._iterator = self._continue() if is_rest else self._begin()
        # Opening other sets may have moved the random state since this set was opened, and its loader draws only now.
        if not self.given and self._beginning is not None:
            self._beginning["first"] = beginning_of(self.data)
        return iterator

    def _begin(self) -> Iterator[Any]:
        """Begin a pass at its start."""
        self.begin_pass()
        self._load()
        if self._kept is not None:
            put_back(self.data, self._kept)
            self._kept = None
        self._beginning, self._landmarks = beginning_of(self.data), self._new_landmarks()
        return iter(self.data)

    def _continue(self) -> Iterator[Any]:
        """Begin a pass after the batches that were given before the checkpoint."""
        with preserve_random_state():  # the checkpoint has restored the states from after the opening
            self.begin_pass()
            knows_its_place = self._load()
            skipped = self.given if self._counts_off and not knows_its_place else 0
            landmarks = self._landmarks = self._new_landmarks() if skipped == self.given else None
            note = None if landmarks is None else landmarks.note
            batches = read_past(self.data, skipped, self._beginning, self._kept, note)
            self._kept = None
            if landmarks is not None and skipped:
                saved = () if self._loaded is None else self._loaded.get("landmarks", ())
                if not landmarks.are_of_the_pass(saved, skipped):
                    warn_of_other_batches(self.name, self.data, skipped, is_known=bool(saved))
            return batches

    def _new_landmarks(self) -> Landmarks | None:
        is_known = stateful(self.data) is not None or repeats_its_order(self.data)
        return None if is_known else Landmarks()

    def _forget_pass(self) -> None:
        if self.given:  # else the state that was loaded is of the time between two passes, and waits for the next one
            self._loaded = None
        self._iterator, self._is_told, self.given, self._beginning = None, False, 0, None

    def _load(self) -> bool:
        """Give the data their own state, if it was saved; return whether they know their place from it."""
        # Only now: had an evaluation read the data before, its pass would have begun at this place.
        own, state = stateful(self.data), None if self._loaded is None else self._loaded.get("data")
        if own is None or state is None:
            return False
        with translate_position_errors():
            own.load_state_dict(state)
        return True


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
