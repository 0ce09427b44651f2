"""The losses of the batches, handed to all readers: one row for each batch, made once.

A hook of every batch costs a call and the fixtures that it names; a reader costs an append, and looks at rows later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from time import time
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from torch import Tensor

from train_manager.core.extension import Extension
from train_manager.core.schedule import schedules_of
from train_manager.metrics.deferred import detach_scalar

MOST: Final = 1000
"""After this number of batches all readers are asked to look: a scalar occupies up to 512 bytes of a GPU."""

HOOK: Final = "post_train_step_batch"
"""The hook of each batch of an extension that does without rows in some loops."""

# A plain tuple, as one is made in each step, and a NamedTuple takes longer.
BatchRow: TypeAlias = tuple[Tensor | None, int, Any, float, str, Mapping[str, Tensor] | None]
"""The loss of a batch, without its graph, or None; its step, its examples, the time (seconds since 1970), the name of
the data set, and the loss terms by name, or None."""


class RowList(Protocol):
    """An object that rows are appended to: a list, a deque."""

    def append(self, row: BatchRow, /) -> object: ...


class LossReader(NamedTuple):
    """A reader of the losses, and how it gets them."""

    of: object  # the object that reads, as an extension
    append: Callable[[BatchRow], object]  # takes each row
    look: Callable[[], object]  # asks the reader to read its rows and to take them out


@final
class BatchLosses:
    """The fixture ``batch_losses`` of a run: each reader gets a row for each batch that is counted.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> class Last(Extension):
    ...     def __init__(self):
    ...         self.rows = []
    ...     def pre_run(self, batch_losses):
    ...         batch_losses.read(self, self.rows)
    ...     def post_train_step_epoch(self):
    ...         print([step for _, step, *_ in self.rows])
    >>> result = tiny_manager(Last()).train()
    [1, 2, 3]

    It is made with the run, and dies with it. Without a reader nothing is kept.

    Attributes:
        appends: functions of the readers that each row is given to.
        latest: the row of the last batch; None if nobody has read it.
    """

    __slots__ = ("_readers", "_resting", "appends", "latest")

    def __init__(self) -> None:
        # Tuples that are replaced: a reader may be added while `add` walks over them.
        self.appends: tuple[Callable[[BatchRow], object], ...] = ()
        self.latest: BatchRow | None = None
        self._readers: tuple[LossReader, ...] = ()
        self._resting: tuple[object, ...] = ()  # readers that get no rows, while their extensions pause

    def read(self, reader: object, rows: RowList, look: Callable[[], object] = lambda: None) -> None:
        """Append each row to ``rows`` from the next batch on, in place of where this reader's rows went before.

        Args:
            reader: the object that reads, as an extension; one that pauses gets no rows.
            rows: a list, or another object with ``append``.
            look: called after every 1,000 batches, when the rows should be read and taken out of ``rows``.
        """
        others = [other for other in self._readers if other.of is not reader]
        self._use([*others, LossReader(reader, rows.append, look)], self._resting)

    def end(self, reader: object) -> None:
        """Append no further row for this reader, if it is one."""
        self._use([other for other in self._readers if other.of is not reader], self._resting)

    def rest(self, resting: Collection[object]) -> None:
        """Leave out these readers alone, as long as their extensions pause."""
        self._use(self._readers, resting)

    def add(
        self, loss: Tensor | None, step: int, examples: Any, datasource: str, terms: Mapping[str, Tensor] | None
    ) -> None:
        """Hand out the row of a batch.

        Args:
            loss: the loss, without its graph, and in memory that nobody writes to; None if the batch has none.
            step: the number of the batch.
            examples: the number of its examples.
            datasource: the name of the data set.
            terms: the loss terms, as they are in the batch.
        """
        row = loss, step, examples, time(), datasource, detach_terms(terms) if terms else None
        self.latest = row
        for append in self.appends:
            append(row)
        if not step % MOST:
            self.look()

    def look(self) -> None:
        """Ask all readers to look at their rows: there are many, or the next rows belong to another phase."""
        for reader in self._present():
            reader.look()

    def _use(self, readers: Collection[LossReader], resting: Collection[object]) -> None:
        self._readers, self._resting = tuple(readers), tuple(resting)
        self.appends = tuple(reader.append for reader in self._present())

    def _present(self) -> list[LossReader]:
        # By identity: an extension may define `==`.
        return [reader for reader in self._readers if not any(reader.of is one for one in self._resting)]


def picks_batches(extension: Extension, of: type[Extension]) -> bool:
    """Return whether an extension picks the batches by its own hook, so that rows of all of them are too many.

    Args:
        extension: an object of the class, or of a subclass.
        of: the class whose hook of each batch appends what a row has.
    """
    return getattr(type(extension), HOOK) is not getattr(of, HOOK) or bool(schedules_of(extension, HOOK))


def detach_terms(terms: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return loss terms without their graphs."""
    return {name: detach_scalar(term) for name, term in terms.items()}
