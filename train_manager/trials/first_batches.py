"""The first batches of data, in place of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, final

from train_manager.checks.batch_leaves import copied
from train_manager.data.batch import without_source
from train_manager.data.readable import no_batch
from train_manager.data.reader import one_pass


@final
class FirstBatches:
    """Copies of the first batches of data, which are read at once, and left where they were.

    >>> first = FirstBatches([10, 11, 12, 13], "train_data", most=2)
    >>> list(first)
    [10, 11]

    Args:
        data: the data.
        name: the name of the data in messages.
        most: the number of the batches, if the data have so many.

    Attributes:
        batches: all of them.

    Raises:
        InputError: there is no batch.
    """

    def __init__(self, data: Iterable[Any], name: str, most: int) -> None:
        with one_pass(data) as batches:
            read = [(copied(one), getattr(data, "example_index", None)) for one in islice(batches, most)]
        if not read:
            raise no_batch(data, name, "to try")
        self.batches = [without_source(batch) for batch, _ in read]
        self._numbers = [numbers for _, numbers in read]
        self._given: Any = None

    @property
    def example_index(self) -> Any:
        """The numbers of the examples in the batch that was given last; None if the data have none."""
        return self._given

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch, numbers in zip(self.batches, self._numbers, strict=True):
            self._given = numbers
            yield batch
