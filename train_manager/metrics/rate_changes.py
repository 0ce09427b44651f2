"""Learning rates as the optimizers step with them, and whether they have changed since they were taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, final

from torch import Tensor
from torch.optim import Optimizer


@final
class RateChanges:
    """Watch the learning rates that optimizers step with, and report when they change.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=.5)
    >>> rates = RateChanges(lambda: print(rates.take()))
    >>> rates.look({"optimizer": optimizer})
    >>> optimizer.step()
    {'lr': 0.5}
    >>> optimizer.param_groups[0]["lr"] = .1
    >>> optimizer.step()
    {'lr': 0.1}
    >>> rates.end()

    The rates count that the optimizer has in its step, also if a hook sets them for the step alone, as ``WarmUp`` does;
    so the rates of an optimizer that has not stepped yet are not known.

    Args:
        changed: called before the step of an optimizer whose rates have changed.
    """

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._changed = changed
        self._watched: list[_Watched] = []
        self._taken: list[Any] = []  # the marks of the rates that `take` has returned last

    def look(self, optimizers: Mapping[str, Optimizer]) -> None:
        """Watch these optimizers from now on, and no others."""
        # Called at every epoch and phase; nearly always the optimizers are the same, and their hooks stay.
        ids = {name: id(optimizer) for name, optimizer in optimizers.items()}
        if ids != {watched.name: id(watched.optimizer) for watched in self._watched}:
            self.end()
            self._watched = [_Watched(name, optimizer, self._note) for name, optimizer in optimizers.items()]

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers that are watched, by name."""
        return {watched.name: watched.optimizer for watched in self._watched}

    def end(self) -> None:
        """Stop watching, and remove the hooks from the optimizers."""
        for watched in self._watched:
            watched.end()
        self._watched = []

    def forget(self) -> None:
        """Let the present rates count as changed."""
        self._taken = []

    @property
    def have_changed(self) -> bool:
        """Whether the rates differ from those that ``take`` returned last."""
        marks = self._marks()
        return bool(marks) and marks != self._taken

    def take(self) -> dict[str, Any]:
        """Return the rates: "lr", or "lr/<optimizer>/<group>" where there are several, with the name of each group."""
        self._taken = self._marks()
        found = {}
        for watched in self._watched:
            name = f"lr/{watched.name}" if len(self._watched) > 1 else "lr"
            for group, rate in zip(watched.groups, watched.rates, strict=True):
                found[name if len(watched.rates) == 1 else f"{name}/{group}"] = rate
        return found

    def _marks(self) -> list[Any]:
        return [mark for watched in self._watched for mark in watched.marks]

    def _note(self) -> None:
        if self.have_changed:
            self._changed()


class _Watched:
    """The rates of one optimizer in its last step."""

    only_reads_rates = True  # of its hook: a graph may make the step, and call the hook beside it

    def __init__(self, name: str, optimizer: Optimizer, note: Callable[[], None]) -> None:
        self.name, self.optimizer, self._note = name, optimizer, note
        # The lists are empty before the first step. A mark differs if its rate does: it is the number itself, or the
        # identity and the counter of changes of a tensor, which must not be read on the host in each step.
        self.marks: list[Any] = []
        self.rates: list[Any] = []  # numbers, and copies of tensors
        self.groups: list[str] = []  # the names of the groups, or their numbers
        self._has_tensors = False  # whether marks must be made; numbers are their own marks
        # torch calls the hook within step(), when all hooks of this library have set the rates.
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    def end(self) -> None:
        """Leave the optimizer."""
        self._handle.remove()

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        rates = list(map(_rate_of, optimizer.param_groups))  # without a comprehension, which costs a call in each step
        if (list(map(_mark_of, rates)) if self._has_tensors else rates) != self.marks:
            self._read()
            self._note()

    def _read(self) -> None:
        rates = list(map(_rate_of, self.optimizer.param_groups))
        self._has_tensors = any(isinstance(rate, Tensor) for rate in rates)
        self.marks = list(map(_mark_of, rates))
        self.groups = _names_of(self.optimizer)
        self.rates = [rate.detach().clone() if isinstance(rate, Tensor) else rate for rate in rates]


_rate_of: Final = itemgetter("lr")


def _mark_of(rate: Any) -> Any:
    return (id(rate), rate._version) if isinstance(rate, Tensor) else rate


def _names_of(optimizer: Optimizer) -> list[str]:
    """Return the names of the groups of an optimizer; their numbers if one has no name, or two have the same."""
    names = [str(group.get("name", "")) for group in optimizer.param_groups]
    return names if all(names) and len({*names}) == len(names) else [*map(str, range(len(names)))]
