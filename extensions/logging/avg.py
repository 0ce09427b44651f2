"""Running means of fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train_manager.core.decorators import provides
from train_manager.core.errors import InputError
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.schedule import Schedule
from train_manager.core.signature import with_parameters


class Avg(Extension):
    """Provide the running mean of fixtures: of ``loss`` as ``avg_loss``.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> show = Extension.of(post_train_step_epoch=lambda avg_loss: print(f"{avg_loss:.3f}"))
    >>> result = tiny_manager(Avg("loss"), show, epochs=2).train()
    0.704
    0.676

    If ``over`` is not open (``train_on_batch`` opens no epoch), it does nothing.

    *Runs at:* the end of ``at``, by default ``train_step_batch``, and the start of ``over``, by default
    ``train_step_epoch``.

    *Asks for:* the fixtures ``names``, and ``weight`` if it is given.

    *Leaves behind:* a fixture ``avg_<name>`` of ``over`` for each name, renewed at the end of every ``at``. The mean of
    tensors is a tensor; it is not read on the host.

    Args:
        names: fixtures that are numbers or tensors.
        at: the stage at whose end the fixtures are read.
        over: the enclosing stage that the mean is taken over.
        weight: a fixture that weights each value, such as ``true_batch_size``; None weights all values equally.

    Raises:
        InputError: no fixture is named.
    """

    def __init__(
        self, *names: str, at: str = "train_step_batch", over: str = "train_step_epoch", weight: str | None = None
    ) -> None:
        if not names:
            what = "Avg needs the name of a fixture, but was given none"
            raise InputError(what, name="names", cure='name one: Avg("loss")')
        self.names = names
        self.weight = weight
        self._begin()
        averages = [f"avg_{name}" for name in names]
        hook = with_parameters([*names, *([] if weight is None else [weight])], self._renew)
        setattr(self, f"post_{at}", _Inside(over)(provides(*averages, stage=over)(hook)))
        setattr(self, f"pre_{over}", self._begin)

    def _begin(self) -> None:  # the hook before `over`: see __init__
        self._sums: list[Any] = []
        self._weights: Any = 0

    def _renew(self, values: Mapping[str, Any]) -> Any:  # the hook after `at`: see __init__
        weight = 1 if self.weight is None else values[self.weight]
        found = [getattr(values[name], "detach", lambda value=values[name]: value)() * weight for name in self.names]
        self._sums = [total + value for total, value in zip(self._sums, found, strict=True)] if self._sums else found
        self._weights = self._weights + weight
        means = tuple(total / self._weights for total in self._sums)
        return means if len(means) > 1 else means[0]


class _Inside(Schedule):
    """Let a hook run only while a stage is open."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def should_run(self, fixtures: Fixtures) -> bool:
        return self.stage in fixtures.path
