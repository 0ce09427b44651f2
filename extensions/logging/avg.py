"""Running means of fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from train_manager.core.decorators import provides
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.schedule import Schedule
from train_manager.core.signature import with_parameters
from train_manager.metrics.averages import in_32_bits, mean_of
from train_manager.metrics.deferred import numbers
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError


@recorded
class Avg(Extension):
    """Provide the running mean of fixtures: of ``loss`` as ``avg_loss``.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> show = Extension.of(post_train_step_epoch=lambda avg_loss: print(f"{avg_loss:.3f}"))
    >>> result = tiny_manager(Avg("loss"), show, epochs=2).train()
    0.704
    0.676

    A step in which a fixture is not alive is left out of its mean, which is nan until there was one. If ``over`` is not
    open (``train_on_batch`` opens no epoch), it does nothing.

    *Runs at:* the end of ``at``, by default ``train_step_batch``, and the start of ``over``, by default
    ``train_step_epoch``.

    *Asks for:* the fixtures ``names``, and ``weight`` if it is given.

    *Leaves behind:* a fixture ``avg_<name>`` of ``over`` for each name, renewed at the end of every ``at``. The mean of
    tensors is a tensor, of at least 32 bits; it is not read on the host.

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
        asked = [*names, *([] if weight is None else [weight])]
        hook = with_parameters([], self._renew, seldom=asked)
        setattr(self, f"post_{at}", _Inside(over)(provides(*map("avg_{}".format, names), stage=over)(hook)))
        begins = {"train_step_epoch": self._begin_epoch, "train": self._begin_call}
        setattr(self, f"pre_{over}", begins.get(over, self._begin))

    # ---- the hook before `over`: see __init__ ----------------------------------------------------------------------

    def _begin(self) -> None:
        self._totals: dict[str, tuple[Any, Any]] = {}  # sum and weight of each fixture that was alive

    def _begin_epoch(self, batches_done: int = 0) -> None:
        if not batches_done:  # else the epoch goes on
            self._begin()

    def _begin_call(self, start_step: int = 0, step_num: int = 0) -> None:
        if start_step == step_num:  # else the call goes on from a checkpoint
            self._begin()

    # ---- the mean --------------------------------------------------------------------------------------------------

    def _renew(self, values: Mapping[str, Any]) -> Any:  # the hook after `at`: see __init__
        if self.weight is None or self.weight in values:
            weight = 1 if self.weight is None else values[self.weight]
            for name in self.names:
                if name in values:
                    self._add(name, values[name], weight)
        means = tuple(map(self._mean, self.names))
        return means if len(means) > 1 else means[0]

    def _add(self, name: str, value: Any, weight: Any) -> None:
        total, weights = self._totals.get(name, (0, 0))
        found = in_32_bits(value.detach() if hasattr(value, "detach") else value)
        if isinstance(total, Tensor) and isinstance(found, Tensor):
            total = total.to(found.device)  # after a checkpoint, which is loaded on the CPU
        self._totals[name] = total + found * weight, weights + weight

    def _mean(self, name: str) -> Any:
        return mean_of(*self._totals.get(name, (0, 0)))

    def totals(self) -> dict[str, tuple[Any, Any]]:
        """Return the sum and the weight of each fixture so far; tensors are not read on the host."""
        return {name: self._totals.get(name, (0, 0)) for name in self.names}

    def state_dict(self) -> dict[str, Any]:
        """Return the sum and the weight of each fixture, of what is open."""
        totals = {name: [total, *numbers([weight])] for name, (total, weight) in self._totals.items()}
        return {**super().state_dict(), "totals": totals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._totals = {name: (total, weight) for name, (total, weight) in state["totals"].items()}


class _Inside(Schedule):
    """Let a hook run only while a stage is open."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def should_run(self, fixtures: Fixtures) -> bool:
        return self.stage in fixtures.path
