"""The batches that a run trains and evaluates on, and the place where the last training call has left the data.

Nothing is read ahead, except that ``is_last`` looks one batch ahead if the length of the data is unknown.

A *pass* reads the data once, from its first batch to its last. An *epoch* is one pass; or, if ``steps_per_epoch`` cuts
the epochs, that many batches out of pass after pass.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple, final

from train_manager.data.batch import FromSource
from train_manager.data.loader_position import (
    order_of,
    other_order,
    stateful,
    tells_its_ends,
    warn_of_other_draws,
)
from train_manager.data.readable import length_of, no_batch, reset
from train_manager.data.reader import END, Reader, one_pass
from train_manager.data.shares import ALONE, Place, reading_share
from train_manager.loop.ranks import without_share
from train_manager.telling.source_locations import users_level

_kept_until_exit: Final[list[Any]] = []  # see Feed.leave_until_exit


class Taken(NamedTuple):
    """A batch that was taken out of the data, or END."""

    batch: Any
    seconds: float = math.nan  # of waiting for it
    examples: int | None = None  # that count in this process


class Ahead(NamedTuple):
    """A batch, or END, that was taken before it was asked for; and the state that the data had before."""

    taken: Taken
    own_state: Any = None


@final
class Feed:
    """Gives the batches of one epoch after the other, from where the last training call has left the data."""

    def __init__(self) -> None:
        self.batch_num = 0  # the number of the present batch in its epoch, from 1
        # The set of Interleaved data that the batch is of ("train" if there is one set only), and its name in errors.
        self.datasource_name, self.data_name = "train", "train_data"
        self._reader = _reader_of(
            None
        )  # which stays while the data do, so that a call continues where the last one left
        self._is_clocked, self._place = False, ALONE  # see `begin`
        # How long the training has waited for the present batch (nan if no clock ran), and how many of its examples
        # count in this process (None if the data do not say).
        self.data_seconds: float = math.nan
        self.examples_here: int | None = None
        self._length: int | None = None  # how many batches the present epoch has; None if that is unknown
        self._is_cut = False  # steps_per_epoch cuts the epochs
        self._is_within = False  # an epoch was begun, and not ended
        self._ahead: Ahead | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy begins the epoch anew, as a pass over data cannot be copied."""
        return {**self.__dict__, "_reader": _reader_of(None), "_is_within": False, "_ahead": None}

    @property
    def is_unfinished(self) -> bool:
        """Whether an epoch was begun, and left."""
        return self._is_within

    def goes_on_with(self, data: Iterable[Any] | None) -> bool:
        """Return whether the next epoch is the rest of an epoch of this data that was left."""
        return self._is_within and data is self._reader.data

    def is_within(self, data: Iterable[Any] | None) -> bool:
        """Return whether the training is in the middle of a pass over this data."""
        return data is self._reader.data and (self._reader.is_open or self._is_within)

    def begin(
        self,
        data: Iterable[Any],
        steps_per_epoch: int | None,
        epoch_num: int,
        *,
        is_clocked: bool = False,
        place: Place = ALONE,
    ) -> None:
        """Begin an epoch, or continue with the one that was left; perhaps with a clock for its batches."""
        self._is_clocked, self._place = is_clocked, place
        goes_on, is_cut = self.goes_on_with(data), steps_per_epoch is not None
        if goes_on and self._reader.is_open:
            return  # the last training call has left this epoch in its middle
        # A state that was loaded for former data is void; and epochs of so many steps share no pass with whole passes.
        if data is not self._reader.data or (is_cut != self._is_cut and not self._reader.is_resumed):
            self._reader = _reader_of(data)
        self._is_cut, self._is_within, self._ahead = is_cut, True, None
        self.datasource_name, self.data_name = "train", "train_data"
        self._reader.epoch, self._reader.next_pass = (0, 1) if is_cut else (epoch_num, 0)
        if not is_cut:
            self._reader.begin_pass()  # before `batches_done` is read, which another epoch sets to 0
        self._length = length_of(data) if steps_per_epoch is None else steps_per_epoch
        if not goes_on:  # else the epoch continues after a load, at the batch_num that was loaded
            self.batch_num = 0 if is_cut else self._reader.given

    @property
    def has_ended(self) -> bool:
        """Whether the epoch has ended, as far as is known without another batch."""
        if self._length is not None and self.batch_num >= self._length:
            # A pass is read until it stops by itself: a generator closes its files after its last batch.
            return self._is_cut or self._peek() is END
        return self._ahead is not None and self._ahead.taken.batch is END

    def is_last(self) -> bool:
        """Return whether the present batch is the last of its epoch; if that is unknown, look one batch ahead."""
        if self._length is not None:
            return self.batch_num == self._length
        return not self._reader.is_endless and self._peek() is END

    def pull(self) -> Any:
        """Return the next batch of the epoch, or ``END``."""
        ahead, self._ahead = self._ahead, None
        taken = self._take() if ahead is None else ahead.taken
        batch = taken.batch
        if batch is END:
            self._ahead = Ahead(taken)  # so that has_ended knows it
            return END
        self.data_seconds, self.examples_here = taken.seconds, taken.examples
        self.batch_num += 1
        if type(batch) is FromSource:
            self.datasource_name = batch.datasource_name
            self.data_name = f"train_data[{batch.datasource_name!r}]"
            return batch.batch
        return batch

    def batches_done(self, data: Iterable[Any] | None, steps_per_epoch: int | None) -> int:
        """Return how many batches of the coming epoch were given already."""
        if self.goes_on_with(data):
            return self.batch_num
        return 0 if steps_per_epoch is not None else getattr(data, "batches_done", 0)

    def end(self) -> None:
        """End the epoch. If its pass over the data has not ended, the data is reset all the same."""
        if self.has_ended:
            self._warn_of_wrong_length()
        elif not self._is_cut:  # a hook has ended the epoch; a pass that is cut continues in the next epoch
            reset(self._reader.data)
        self.leave()

    def close(self) -> None:
        """Close the pass over the data; a feed is closed when its phase ends."""
        self._reader.leave()

    def let_another_read(self) -> None:
        """Leave the data to the feed of a phase; the epoch continues at its place afterwards, as after a load."""
        reader = self._reader
        # Data that tell their position have one: without this, it would stay that of the epoch around the phase.
        if stateful(reader.data) is not None:
            state = self._place_of(reader)
            reader.leave()
            self._reader, self._ahead = _reader_of(reader.data, state), None

    def leave(self) -> None:
        """Forget the epoch. A pass that is cut by steps stays open, and the next epoch continues in it."""
        self._is_within = False
        if not self._is_cut:
            # Now, so that the workers of a DataLoader end also while a debugger or a notebook keeps the error.
            self._reader.leave()
            self._ahead = None

    def leave_until_exit(self) -> None:
        """Leave an epoch that a signal ends, but keep its pass open until the process exits."""
        # The signal may have killed a worker of a DataLoader while the worker held the lock of an event. A loader that
        # is closed waits for this lock: for ever, and the checkpoint would not be written. Python ends the workers
        # without the lock as it exits.
        if not self._is_cut:
            _kept_until_exit.append(self._reader)
            self._reader = _reader_of(self._reader.data)
        self.leave()

    def _peek(self) -> Any:
        """Return the batch after the present one, or END; ``pull`` gives the same batch next."""
        if self._ahead is None:
            own_state = self._reader.own_state()  # for a checkpoint that is written while the batch is ahead
            self._ahead = Ahead(self._take(), own_state)
        return self._ahead.taken.batch

    def _take(self) -> Taken:
        # In a cut epoch the data end only where a whole pass has given no batch.
        read = self._reader.read_on if self._is_cut else self._reader.read
        if not self._is_clocked and self._place is ALONE:
            return Taken(read())
        began = perf_counter() if self._is_clocked else math.nan
        with reading_share(self._place):
            batch, examples = without_share(read())
        return Taken(batch, perf_counter() - began, examples)

    def _warn_of_wrong_length(self) -> None:
        # Not of an epoch without a batch: the loop raises an error of it.
        if self._length is None or self.batch_num in (0, self._length):
            return
        if self._is_cut:
            what = f"train_data ended after {self.batch_num} of {self._length} batches of an epoch"
        else:
            what = f"train_data says len() = {self._length} but gave {self.batch_num} batches"
        warnings.warn(f"{what}, so `last_batch` was wrong", RuntimeWarning, stacklevel=users_level())

    # ---- saved state ---------------------------------------------------------------------------------------------

    def state_dict(self, data: Iterable[Any] | None) -> dict[str, Any]:
        """Return where the epoch is, and where its data are read."""
        is_within = self.goes_on_with(data)  # of other data this feed knows nothing: train_data was replaced
        place = {"is_within": is_within, "batch_num": self.batch_num if is_within else 0}
        reader = self._place_of(self._reader) if data is self._reader.data else _reader_of(data).state()
        return {**place, "reader": reader, "order": None if data is None else order_of(data)}

    def _place_of(self, reader: Reader) -> Mapping[str, Any]:
        """Return where the data are read, as if no batch was taken ahead; and their own state between two passes."""
        state = dict(reader.state())
        if self._ahead is not None and self._ahead.taken.batch is not END:
            state |= {"given": reader.given - 1, "data": self._ahead.own_state}
        # Data whose order is a function of the epoch need a state within a pass only.
        elif not state["given"] and not reader.is_resumed and tells_its_ends(reader.data):
            state["data"] = reader.own_state()
        return state

    def load_state_dict(self, state: Mapping[str, Any], data: Iterable[Any] | None, *, is_cut: bool) -> bool:
        """Continue where ``state_dict`` was called; if the data cannot, the epoch begins anew, with a warning.

        Returns:
            Whether the epoch continues.
        """
        self._is_cut, self._ahead = is_cut, None
        self._is_within, self.batch_num = state["is_within"], int(state["batch_num"])
        reader, order = state["reader"], state["order"]
        knows_its_place = reader.get("data") is not None and stateful(data) is not None
        if data is not None and order is not None:
            warn_of_other_draws(data, order, is_within=knows_its_place)
        if misfits_of_position(data, state):
            self._is_within, self.batch_num = False, 0
            warn_of_epoch_begun_anew(data, reader["given"])
            reader = {"passes": reader["passes"], "given": 0, "kept": reader["kept"]}
        self._reader = _reader_of(data, reader)
        return self._is_within


def _reader_of(data: Any, state: Mapping[str, Any] | None = None) -> Reader:
    return Reader("train_data", data, state=state, counts_off_endless=True)


def misfits_of_position(data: Any, state: Mapping[str, Any]) -> list[str]:
    """Say why these data cannot leave out the batches of the epoch that were given before the state was saved."""
    order = state["order"]
    if data is None or order is None or not state["reader"]["given"]:  # at the start of a pass nothing is left out
        return []
    return [f"train_data, within an epoch: {one}" for one in other_order(data, order)]


def warn_of_epoch_begun_anew(data: object, given: int) -> None:
    """Warn that a training does not resume in the middle of an epoch."""
    why = "gives other batches than those that the checkpoint was written among"
    text = f"train_data ({type(data).__name__}) {why}, so the epoch begins anew"
    warnings.warn(f"{text}: its {given} batches are not counted off", RuntimeWarning, stacklevel=users_level())


def epoch_length(data: Iterable[Any] | None, steps_per_epoch: int | None) -> int | None:
    """Return the number of batches of an epoch, or None if it is unknown."""
    return steps_per_epoch if steps_per_epoch is not None else length_of(data)


def eval_batches(data: Iterable[Any], name: str, epoch_num: int, *, is_within: bool) -> Iterator[Any]:
    """Give the batches of one pass over an evaluation set, which may be the training data.

    Args:
        data: the set.
        name: the name of the set in errors.
        epoch_num: epochs completed, for the error.
        is_within: the training is in the middle of a pass over this set, so that the set must not be reset.

    Raises:
        InputError: the set is empty.
    """
    gave_any = False
    if not is_within:
        reset(data)
    with one_pass(data) as batches:
        for batch in batches:
            gave_any = True
            yield batch.batch if type(batch) is FromSource else batch
    if not gave_any:
        raise no_batch(data, name, f"after epoch {epoch_num}")
