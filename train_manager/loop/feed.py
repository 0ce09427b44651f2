"""The batches that a run trains and evaluates on, and the place where the last call has left the data."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, final

from train_manager.data.batch import FromSource
from train_manager.data.iteration import begin_epoch, length_of, no_batch, reset, unending, walk, walk_steps

Batches = Iterator[tuple[Any, bool]]
"""Of one epoch, each with whether it is the last."""


@final
class Feed:
    """Where the batches come from.

    Attributes:
        datasource_name: which set of ``Interleaved`` data the batch is of; "train" if there is one set only.
        data_name: what errors call the set that the batch is of.
    """

    def __init__(self) -> None:
        self.datasource_name, self.data_name = "train", "train_data"
        self._stream: Generator[Any, None, None] | None = None  # of data that is cut into epochs
        self._unfinished: tuple[Any, Batches] | None = None  # the data, and the rest of an epoch that was left

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled: a pass over data cannot be, so a copy begins the epoch anew."""
        return {**self.__dict__, "_stream": None, "_unfinished": None}

    @property
    def is_unfinished(self) -> bool:
        """Whether an epoch was begun, and left."""
        return self._unfinished is not None

    def is_within(self, data: Iterable[Any] | None) -> bool:
        """Return whether an epoch of this data was begun, and left."""
        return self._unfinished is not None and self._unfinished[0] is data

    def batches(self, data: Iterable[Any], steps_per_epoch: int | None, epoch_num: int) -> Batches:
        """Return one epoch's batches, from where an unfinished epoch was left."""
        if self._unfinished is None or not self.is_within(data):
            self._unfinished = data, self._new_pass(data, steps_per_epoch, epoch_num)
        return self._unfinished[1]

    def leave(self) -> None:
        """Forget an unfinished epoch, which closes the data also while an error is kept."""
        self._unfinished = None

    def take(self, batch: FromSource) -> Any:
        """Return the batch itself, and note which set it is of."""
        self.datasource_name = batch.datasource_name
        self.data_name = f"train_data[{batch.datasource_name!r}]"
        return batch.batch

    def _new_pass(self, data: Iterable[Any], steps_per_epoch: int | None, epoch_num: int) -> Batches:
        self.datasource_name, self.data_name = "train", "train_data"
        if steps_per_epoch is None:
            begin_epoch(data, epoch_num)
            return walk(data, "train_data")
        if self._stream is None or getgeneratorstate(self._stream) == GEN_CLOSED:  # perhaps by an error
            self._stream = unending(data)
        return walk_steps(self._stream, steps_per_epoch)


def epoch_length(data: Iterable[Any] | None, steps_per_epoch: int | None) -> int | None:
    """Return the number of batches of an epoch, or None if it is unknown."""
    return steps_per_epoch if steps_per_epoch is not None else length_of(data)


def eval_batches(data: Iterable[Any], name: str, epoch_num: int) -> Iterator[Any]:
    """Give the batches of one pass over an evaluation set.

    Raises:
        InputError: the set is empty.
    """
    gave_any = False
    reset(data)
    for batch in data:
        gave_any = True
        yield batch.batch if type(batch) is FromSource else batch
    if not gave_any:
        raise no_batch(data, name, f"after epoch {epoch_num}")
