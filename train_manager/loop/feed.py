"""The batches that a run trains and evaluates on, and the place where the last training call has left the data.

Nothing is read ahead, except that ``is_last`` looks one batch ahead if the length of the data is unknown.

A *pass* reads the data once, from its first batch to its last. An *epoch* is one pass; or, if ``steps_per_epoch`` cuts
the epochs, that many batches out of pass after pass.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from time import perf_counter
from typing import Any, Final, NamedTuple, final

from train_manager.data.batch import FromSource
from train_manager.data.loader_position import (
    beginning_of,
    cure_of_order,
    generators_of,
    loader_state,
    order_of,
    other_order,
    put_back,
    read_past,
    repeats_its_order,
    stateful,
    tells_its_ends,
    translate_position_errors,
    warn_of_other_draws,
)
from train_manager.data.random_state import preserve_random_state
from train_manager.data.readable import begin_epoch, is_endless, length_of, no_batch, reset
from train_manager.data.reader import one_pass
from train_manager.data.shares import ALONE, Place, reading_share
from train_manager.loop.ranks import without_share
from train_manager.telling.source_locations import users_level

END: Final[Any] = object()
"""In place of a batch: the epoch's data has ended."""

_kept_until_exit: Final[list[Any]] = []  # see Feed.leave_until_exit


class Taken(NamedTuple):
    """A batch that was taken out of the data, or END."""

    batch: Any
    seconds: float = math.nan  # of waiting for it
    examples: int | None = None  # that count in this process


@final
class Feed:
    """Gives the batches of one epoch after the other, from where the last training call has left the data."""

    def __init__(self) -> None:
        self.batch_num = 0  # the number of the present batch in its epoch, from 1
        self.passes = 0  # how many passes over the data have begun, if steps cut the epochs
        # The set of Interleaved data that the batch is of ("train" if there is one set only), and its name in errors.
        self.datasource_name, self.data_name = "train", "train_data"
        # The data that _stream reads. While both are kept, the next training call continues in the same pass.
        self._data: Iterable[Any] | None = None
        self._stream: Generator[Any, None, None] | None = None  # one pass; or pass after pass, if steps cut epochs
        self._is_clocked, self._place = False, ALONE  # see `begin`
        # How long the training has waited for the present batch (nan if no clock ran), and how many of its examples
        # count in this process (None if the data do not say).
        self.data_seconds: float = math.nan
        self.examples_here: int | None = None
        self._length: int | None = None  # how many batches the present epoch has; None if that is unknown
        self._is_cut = False  # steps_per_epoch cuts the epochs
        self._is_within = False  # an epoch was begun, and not ended
        self._given = 0  # how many batches were given in all
        self._pass, self._given_of_pass = 0, 0  # the pass that the present batch is of, and its number there
        self._ahead: list[Taken] = []  # empty, or the one batch (or END) that _peek has taken out of _stream
        self._before_ahead: Any = None  # the state of the data before _peek took that batch, for a checkpoint
        self._beginning: Mapping[str, Any] | None = None  # the random states that the present pass has begun with
        # The following three come with a loaded state, and last until a pass over the data begins.
        self._to_skip: int | None = None  # how many batches of the pass were given before the state was saved
        self._loaded: Any = None  # the data's own state
        self._kept: Mapping[str, Any] | None = None  # generators and datasets, as they were between two passes

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy begins the epoch anew, as a pass over data cannot be copied."""
        return {**self.__dict__, "_data": None, "_stream": None, "_is_within": False, "_ahead": []}

    @property
    def is_unfinished(self) -> bool:
        """Whether an epoch was begun, and left."""
        return self._is_within

    def goes_on_with(self, data: Iterable[Any] | None) -> bool:
        """Return whether the next epoch is the rest of an epoch of this data that was left."""
        return self._is_within and data is self._data

    def is_within(self, data: Iterable[Any] | None) -> bool:
        """Return whether the training is in the middle of a pass over this data."""
        return (self._stream is not None or self._is_within) and data is self._data

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
        self._begin(data, steps_per_epoch, epoch_num)

    def _begin(self, data: Iterable[Any], steps_per_epoch: int | None, epoch_num: int) -> None:
        goes_on = self.goes_on_with(data)
        if goes_on and self._stream is not None:
            return  # the last training call has left this epoch: its stream continues
        if data is not self._data:  # a state that was loaded for the former data is void
            self._stream, self.passes = None, 0
            self._to_skip = self._loaded = self._beginning = self._kept = None
        # The data get their state only now: had an evaluation read them before this epoch, its pass would have begun
        # at the loaded position.
        if self._loaded is not None:
            with translate_position_errors():
                stateful(data).load_state_dict(self._loaded)
            self._loaded = None
        self._data, self._is_within, self._ahead = data, True, []
        self.datasource_name, self.data_name = "train", "train_data"
        if steps_per_epoch is None:
            self._begin_pass(data, epoch_num)
            first = getattr(data, "batches_done", 0)
        else:
            self._begin_cut(data, steps_per_epoch)
            first = 0
        if not goes_on:  # else the epoch continues after a load, at the batch_num that was loaded
            self.batch_num = first
        self._is_cut = steps_per_epoch is not None

    def _begin_pass(self, data: Iterable[Any], epoch_num: int) -> None:
        """Begin an epoch that is one pass over the data."""
        begin_epoch(data, epoch_num)  # before `batches_done` is read, which another epoch sets to 0
        self._stream, self._length = self._next_pass(data), length_of(data)

    def _begin_cut(self, data: Iterable[Any], steps_per_epoch: int) -> None:
        """Begin an epoch of so many batches; the pass that the last one was cut from continues."""
        self._length = steps_per_epoch
        if self._stream is None or not self._is_cut or getgeneratorstate(self._stream) == GEN_CLOSED:
            self._stream = self._pass_after_pass(data)

    @property
    def has_ended(self) -> bool:
        """Whether the epoch has ended, as far as is known without another batch."""
        if self._length is not None and self.batch_num >= self._length:
            # A pass is read until it stops by itself: a generator closes its files after its last batch.
            return self._is_cut or self._peek() is END
        return bool(self._ahead) and self._ahead[0].batch is END

    def is_last(self) -> bool:
        """Return whether the present batch is the last of its epoch; if that is unknown, look one batch ahead."""
        if self._length is not None:
            return self.batch_num == self._length
        return not is_endless(self._data) and self._peek() is END

    def pull(self) -> Any:
        """Return the next batch of the epoch, or ``END``."""
        taken = self._ahead.pop() if self._ahead else self._take()
        batch = taken.batch
        if batch is END:
            self._ahead = [taken]  # so that has_ended knows it
            return END
        self.data_seconds, self.examples_here = taken.seconds, taken.examples
        self._given += 1
        self.batch_num += 1
        if self._pass != self.passes:  # _pass_after_pass has begun another pass for this batch
            self._pass, self._given_of_pass = self.passes, 0
        self._given_of_pass += 1
        if type(batch) is FromSource:
            self.datasource_name = batch.datasource_name
            self.data_name = f"train_data[{batch.datasource_name!r}]"
            return batch.batch
        return batch

    def batches_done(self, data: Iterable[Any] | None, steps_per_epoch: int | None) -> int:
        """Return how many batches of the coming epoch were given already."""
        if self._is_within and data is self._data:
            return self.batch_num
        return 0 if steps_per_epoch is not None else getattr(data, "batches_done", 0)

    def end(self) -> None:
        """End the epoch. If its pass over the data has not ended, the data is reset all the same."""
        if self.has_ended:
            self._warn_of_wrong_length()
        elif not self._is_cut:  # a hook has ended the epoch; a stream that is cut continues in the next epoch
            reset(self._data)
        self.leave()

    def close(self) -> None:
        """Close the pass over the data; a feed is closed when its phase ends."""
        if self._stream is not None:
            self._stream.close()

    def let_another_read(self) -> None:
        """Leave the data to the feed of a phase; the epoch continues at its place afterwards, as after a load."""
        # Data that tell their position have one: without this, it would stay that of the epoch around the phase.
        if self._stream is not None and stateful(self._data) is not None:
            state = self.state_dict(self._data)
            if getgeneratorstate(self._stream) == GEN_CREATED:  # after a load: the place is of this pass, not the next
                with preserve_random_state():
                    next(self._stream, None)
            self.close()
            self.load_state_dict(state, self._data, is_cut=self._is_cut)

    def leave(self) -> None:
        """Forget the epoch. A stream that is cut by steps stays, and the next epoch continues in it."""
        self._is_within = False
        if not self._is_cut:
            # Without a reference the generator closes, and the workers of a DataLoader end, also while a debugger or
            # a notebook keeps the error.
            self._stream, self._ahead = None, []

    def leave_until_exit(self) -> None:
        """Leave an epoch that a signal ends, but keep its stream until the process exits."""
        # The signal may have killed a worker of a DataLoader while the worker held the lock of an event. A loader that
        # is closed waits for this lock: for ever, and the checkpoint would not be written. Python ends the workers
        # without the lock as it exits.
        _kept_until_exit.append(self._stream)
        self.leave()

    def _peek(self) -> Any:
        """Return the batch after the present one, or END; ``pull`` gives the same batch next."""
        if not self._ahead and self._stream is not None:
            # A checkpoint that is written now must not count the batch ahead as given. With a known length, _peek is
            # called at the end of a pass only.
            self._before_ahead = _state_of(self._data) if self._length is None else None
            self._ahead.append(self._take())
        return self._ahead[0].batch if self._ahead else END

    def _take(self) -> Taken:
        assert self._stream is not None, "an epoch was begun"
        if not self._is_clocked and self._place is ALONE:
            return Taken(next(self._stream, END))
        began = perf_counter() if self._is_clocked else math.nan
        with reading_share(self._place):
            batch, examples = without_share(next(self._stream, END))
        return Taken(batch, perf_counter() - began, examples)

    def _next_pass(self, data: Iterable[Any]) -> Generator[Any, None, None]:
        skipped, self._to_skip = self._to_skip, None
        return self._whole_pass(data) if skipped is None else self._rest_of_pass(data, skipped)

    def _whole_pass(self, data: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the batches of one pass, after which the data is reset."""
        if self._kept is not None:
            put_back(data, self._kept)
            self._kept = None
        self._beginning = beginning_of(data)
        yield from data  # no `for batch in data`: the name would keep a batch alive while the next one is made
        reset(data)

    def _rest_of_pass(self, data: Iterable[Any], skipped: int) -> Generator[Any, None, None]:
        """Yield the batches of one pass after the skipped ones; then the data is reset."""
        batches = read_past(data, skipped, self._beginning, self._kept)
        self._kept = None
        yield from batches
        reset(data)

    def _pass_after_pass(self, data: Iterable[Any]) -> Generator[Any, None, None]:
        before = -1  # unlike any count, so that the loop begins
        while self._given != before:  # a pass that gives nothing ends the stream, else this would loop for ever
            # The rest of a pass that is resumed may be empty: it does not count as a pass that gave nothing.
            before = -1 if self._to_skip is not None else self._given
            self.passes += 1
            begin_epoch(data, self.passes - 1)
            yield from self._next_pass(data)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def state_dict(self, data: Iterable[Any] | None) -> dict[str, Any]:
        """Return where the epoch is, and the data's own state if it has one."""
        knows = data is self._data  # else train_data was replaced since, and this feed knows nothing of it
        is_ahead = bool(self._ahead) and self._ahead[0].batch is not END  # _peek has read a batch that nobody was given
        is_within = self._is_within and knows
        batch_num = self.batch_num if is_within else 0
        passed, given = (self._pass, self._given_of_pass) if self._is_cut and knows else (0, batch_num)
        # All batches of the pass were given: then the next pass begins. Not for data with generators: these draw once
        # more as the pass stops by itself, which has not happened yet.
        if self._is_cut and given and given == length_of(data) and not generators_of(data):
            passed, given = passed + 1, 0
        # Data whose order is a function of the epoch need a state within a pass only.
        is_needed = knows and (bool(given) or tells_its_ends(data))
        if self._loaded is not None:  # no epoch has begun since the load, so the data do not have their state yet
            state = self._loaded
        else:
            state = None if not is_needed else self._before_ahead if is_ahead else _state_of(data)
        place = {"is_within": is_within, "batch_num": batch_num, "pass": passed, "given_of_pass": given}
        return {**place, "data": state, "again": None if data is None else self._again(data, given)}

    def _again(self, data: Iterable[Any], given: int) -> dict[str, Any]:
        """Return the states with which a program can read the given batches of a pass again, to find the next one."""
        kept = loader_state(data) if self._kept is None else self._kept
        return {"order": order_of(data), "kept": kept, "beginning": self._beginning if given else None}

    def load_state_dict(self, state: Mapping[str, Any], data: Iterable[Any] | None, *, is_cut: bool) -> bool:
        """Continue where ``state_dict`` was called; if the data cannot, the epoch begins anew, with a warning.

        Returns:
            Whether the epoch continues.
        """
        self._data, self._stream, self._ahead, self._is_cut = data, None, [], is_cut
        self._pass, self._given_of_pass = state["pass"], state["given_of_pass"]
        self.passes = max(0, state["pass"] - 1)  # _pass_after_pass adds 1 as it begins the pass again
        self._is_within, self.batch_num = state["is_within"], int(state["batch_num"])
        again, given = state["again"] or {}, state["given_of_pass"]  # None if there were no data
        self._to_skip, self._beginning, self._kept = None, again.get("beginning"), again.get("kept")
        self._loaded = state["data"] if stateful(data) is not None else None
        if again and data is not None:
            warn_of_other_draws(data, again["order"], is_within=self._loaded is not None)
        if given and misfits_of_position(data, state):
            self._is_within, self.batch_num, self._given_of_pass, self._loaded = False, 0, 0, None
            warn_of_epoch_begun_anew(data, given)
        elif given:
            self._find_position(data, given)
        if is_cut and self._loaded is not None:
            # Data that had ended a pass right before the save count it as done, which `pass` does not say.
            self.passes = max(self.passes, self._loaded.get("epoch", 0))
        return self._is_within

    def _find_position(self, data: Iterable[Any] | None, given: int) -> None:
        """Let the next pass read past the batches that were given, unless the data know their position."""
        self._to_skip = given if self._loaded is None else 0
        if self._to_skip and not repeats_its_order(data):
            warn_of_unknown_order(data, given)

    def _warn_of_wrong_length(self) -> None:
        # Not of an epoch without a batch: the loop raises an error of it.
        if self._length is None or self.batch_num in (0, self._length):
            return
        if self._is_cut:
            what = f"train_data ended after {self.batch_num} of {self._length} batches of an epoch"
        else:
            what = f"train_data says len() = {self._length} but gave {self.batch_num} batches"
        warnings.warn(f"{what}, so `last_batch` was wrong", RuntimeWarning, stacklevel=users_level())


def _state_of(data: Any) -> Any:
    own = stateful(data)
    return None if own is None else own.state_dict()


def misfits_of_position(data: Any, state: Mapping[str, Any]) -> list[str]:
    """Say why these data cannot leave out the batches of the epoch that were given before the state was saved."""
    again = state["again"]
    if data is None or not again or not state["given_of_pass"]:  # at the start of a pass nothing is left out
        return []
    return [f"train_data, within an epoch: {one}" for one in other_order(data, again["order"])]


def warn_of_epoch_begun_anew(data: object, given: int) -> None:
    """Warn that a training does not resume in the middle of an epoch."""
    why = "gives other batches than those that the checkpoint was written among"
    text = f"train_data ({type(data).__name__}) {why}, so the epoch begins anew"
    warnings.warn(f"{text}: its {given} batches are not counted off", RuntimeWarning, stacklevel=users_level())


def warn_of_unknown_order(data: object, given: int) -> None:
    """Warn that a training resumes where it was only if the data give the same batches again."""
    what = f"train_data ({type(data).__name__}) does not tell its position, so its first {given} batches are read again"
    text = f"{what} and left out: the training resumes where it was only if they are the same ones"
    warnings.warn(f"{text}; {cure_of_order(data)}", RuntimeWarning, stacklevel=users_level())


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
