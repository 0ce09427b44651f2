"""The processes that train together, as a TrainManager sees them (``tm.ranks``)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, final

from train_manager.data.passes import Passes
from train_manager.data.shares import Place, gives_own_batches, require_eval_shares, require_shares, sets_in
from train_manager.distribution.process_group import MEETING, ProcessGroup, has_process_group, process_group
from train_manager.loop.ranks import Ranks
from train_manager.model.weighted_loss import WeightedLoss
from train_manager.telling.errors import RankError
from train_manager.telling.source_locations import users_level

T = TypeVar("T")


@final
class Joined(Ranks):
    """The processes that train together; the group is made by the first message.

    Args:
        place: the place of this process.
        timeout: seconds after which a process that does not come is an error.
    """

    def __init__(self, place: Place, timeout: float) -> None:
        self.place, self._timeout = place, timeout
        self.gradients: WeightedLoss | None = None  # set as a run opens
        self.makes_equal_steps = False
        self._warned_of: set[str] = set()  # the names of the sets that are not shared

    @property
    def group(self) -> ProcessGroup:
        """The group of this process."""
        return process_group(self._timeout)

    def sum(self, numbers: Sequence[float]) -> list[float]:
        rows = self.group.gather(list(numbers), "a sum over all processes")
        return [sum(column) for column in zip(*rows, strict=True)]

    def gather(self, value: T) -> list[T]:
        return self.group.gather(value, "a gathering of values")

    def of_first(self, value: T) -> T:
        return self.group.of_first(value, "a value of rank 0")

    def require_data(self, train_data: Iterable[Any] | None, eval_data: Mapping[str, Iterable[Any]]) -> None:
        if train_data is not None:
            require_shares(train_data, "train_data", self.place.number)
        for name, data in eval_data.items():
            require_eval_shares(data, f"eval_data[{name!r}]", self.place.number)

    def counts_in_each(self, data: Iterable[Any], name: str) -> bool:
        if gives_own_batches(data):
            return True
        whole = [inner for inner, one in sets_in(data, name) if not isinstance(one, Passes)]
        is_one_batch = isinstance(data, list) and len(data) == 1  # as eval_on_batch evaluates: nothing to share
        if whole and not (self.place.rank or is_one_batch or name in self._warned_of):
            self._warned_of.add(name)
            what = f"{' and '.join(whole)} cannot be shared by the processes, so rank 0 evaluates all of it"
            warnings.warn(f"{what} (give InMemory, Rows or SeededDataLoader)", stacklevel=users_level())
        return False

    def fail(self, error: BaseException) -> None:
        if isinstance(error, RankError) and not has_process_group():  # the others have not been met
            return
        try:
            group = process_group(self._timeout, min(MEETING, self._timeout))
        except RankError:  # there is no store to report it in: the error itself must come out
            return
        group.fail(error)
