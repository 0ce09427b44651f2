"""Several sets of data, one batch of each at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, final

from train_manager.data.batch import sets_text, without_source
from train_manager.data.named_sets import NamedSets, PassProgress
from train_manager.data.reader import END
from train_manager.data.shares import Share, join_shares
from train_manager.validation import require_one_of


@final
class Together(NamedSets):
    """Batches of several sets of data at once: a dict with one batch of each set.

    >>> from train_manager import Together
    >>> data = Together({"labeled": ["a", "b"], "unlabeled": ["u", "v", "w"]})
    >>> for batch in data:
    ...     print(batch)
    {'labeled': 'a', 'unlabeled': 'u'}
    {'labeled': 'b', 'unlabeled': 'v'}
    {'labeled': 'a', 'unlabeled': 'w'}

    By default an epoch is as long as the longest set that has an end; a shorter set starts again, as a new epoch of its
    own. If all sets are endless, so is the epoch. Each epoch reads every set from its start.

    As the first batch of an epoch is asked for, all sets are opened in their order, and each batch is read in it: two
    shuffled DataLoaders of the same length give what ``zip`` gives, bit for bit. A set that has given its last batch
    is read to its end at its next turn, or at the end of the epoch, after the last batch was trained on.

    No set is read ahead, but where an end is found only by reading on (the length is unknown, and
    ``until="shortest"``), the batches of other sets that were read with it are lost, as in ``zip``.

    In a run the dict as a whole is ``inputs``, so that a model with ``forward(self, labeled, unlabeled)`` is
    called by these names, and the true batch size is that of the first set: the weight of a mean, and what
    ``samples_seen`` counts. Give the set first that your loss is a mean over, or override ``get_true_batch_size``.

    Args:
        data: iterables of batches, by name.
        until: ``"longest"`` or ``"shortest"``: which set with an end determines the length of an epoch.

    Raises:
        InputError: there is no set, or ``until`` is another word; while reading, a set gives no batch.
    """

    def __init__(self, data: Mapping[str, Iterable[Any]], *, until: Literal["longest", "shortest"] = "longest") -> None:
        super().__init__(data)
        self.data: Mapping[str, Iterable[Any]] = self._sets
        self.until: str = require_one_of(until, "Together's until", ("longest", "shortest"))

    def __repr__(self) -> str:
        return f"Together({sets_text(self.data)}, until={self.until!r})"

    @property
    def example_index(self) -> dict[str, Any]:
        """The numbers of the examples in the batch given last, of each set that numbers them."""
        return {name: data.example_index for name, data in self.data.items() if hasattr(data, "example_index")}

    def __len__(self) -> int:
        lengths = [length for name in self.data if (length := self._length_of(name)) is not None]
        if not lengths:
            raise TypeError("Together has no length, because it has no end")
        return max(lengths) if self.until == "longest" else min(lengths)

    def _batches(self, progress: PassProgress) -> Iterator[dict[str, Any] | Share]:
        progress.open()
        while not progress.is_complete and (batches := self._round(progress)):
            progress.given += 1
            progress.is_complete = self._is_end(progress.finite())
            yield batches
            del batches  # else two rounds would be in memory while the next one is read

    def _round(self, progress: PassProgress) -> dict[str, Any] | Share:
        """Return a batch of each set; an empty dict if only reading has found that the epoch has ended."""
        readers = progress.readers
        # The sets that decide the end of the epoch, and whether their ends are known from their lengths.
        unended = [name for name, reader in readers.items() if not reader.has_ended]
        knows_end = all(readers[name].length is not None for name in unended)
        # If only reading can find that the epoch has ended, these sets are read first: a set that would begin its next
        # pass for this round must not lose a batch to an epoch that is over.
        batches = {name: readers[name].read_of_epoch() for name in (readers if knows_end else unended)}
        if self._is_end([batches[name] is END for name in unended]):
            return {}
        found = {
            name: without_source(reader.read_of_epoch() if batches.get(name, END) is END else batches[name])
            for name, reader in readers.items()
        }
        return join_shares(found)

    def _is_end(self, ended: list[bool]) -> bool:
        return bool(ended) and (all(ended) if self.until == "longest" else any(ended))
