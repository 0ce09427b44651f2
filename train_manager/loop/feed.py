"""Which batches a TrainManager trains and evaluates on, and where it has left its data. ``manager.py`` has the loop."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from train_manager.data.batch import FromSource, to_device
from train_manager.data.iteration import begin_epoch, length_of, no_batch, reset, unending, walk, walk_steps
from train_manager.loop.run_state import Running

Batches = Iterator[tuple[Any, bool]]
"""Of one epoch, each with whether it is the last."""


class Feeding(Running):
    """What TrainManager takes from its data, batch by batch."""

    def __init__(self) -> None:
        # Where the data was left: of data that is cut into epochs, and of an epoch that was not finished.
        self._stream: Generator[Any, None, None] | None = None
        self._unfinished: tuple[Any, Batches] | None = None
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled; a copy that was made within an epoch begins it anew."""
        return {**super().__getstate__(), "_stream": None, "_unfinished": None}

    def _epoch_length(self) -> int | None:
        """Batches of an epoch, where that is known."""
        return self.steps_per_epoch if self.steps_per_epoch is not None else length_of(self.train_data)

    @property
    def _is_within_epoch(self) -> bool:
        """Whether a pass over this data was begun, and left."""
        return self._unfinished is not None and self._unfinished[0] is self.train_data

    def _train_batches(self) -> Batches:
        """One epoch's batches, from where an unfinished one was left."""
        if self._unfinished is None or not self._is_within_epoch:
            self._unfinished = self.train_data, self._new_train_batches()
        return self._unfinished[1]

    def _new_train_batches(self) -> Batches:
        assert self.train_data is not None, "train() has checked it"
        self.datasource_name, self._train_set_name = "train", "train_data"
        if self.steps_per_epoch is None:
            begin_epoch(self.train_data, self.epoch_num)
            return walk(self.train_data, "train_data")
        if self._stream is None or getgeneratorstate(self._stream) == GEN_CLOSED:  # perhaps by an error
            self._stream = unending(self.train_data)
        return walk_steps(self._stream, self.steps_per_epoch)

    def _of_source(self, batch: FromSource) -> Any:
        """The batch itself, and a note of which set it is."""
        self.datasource_name = batch.datasource_name
        self._train_set_name = f"train_data[{self.datasource_name!r}]"
        return batch.batch

    def _eval_batches(self, name: str, data: Iterable[Any]) -> Iterator[Any]:
        gave_any = False
        reset(data)
        for batch in data:
            gave_any = True
            yield self._on_device(batch.batch if type(batch) is FromSource else batch)
        if not gave_any:
            raise no_batch(data, f"eval_data[{name!r}]", f"after epoch {self.epoch_num}")

    def _on_device(self, batch: Any) -> Any:
        return batch if self.device is None else to_device(batch, self.device)
