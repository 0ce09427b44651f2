"""Running means of fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Final, final

from torch import Tensor

from train_manager.core.decorators import provides
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.schedule import Schedule
from train_manager.core.signature import with_parameters
from train_manager.loop.books import Book
from train_manager.metrics.averages import in_32_bits, mean_of
from train_manager.metrics.deferred import numbers
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    pass

PERS: Final = {"train_step_epoch": "epoch", "train": "phase"}
"""How long the mean over a stage lives; over another stage until that opens again."""

MANAGER: Final = Parameter("train_manager", Parameter.KEYWORD_ONLY, default=None)
COUNTS: Final = [
    Parameter(name, Parameter.KEYWORD_ONLY, default=0) for name in ("batches_done", "start_step", "step_num")
]


@recorded
class Avg(Extension):
    """Provide the running mean of fixtures: of ``loss`` as ``avg_loss``.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> show = Extension.of(post_train_step_epoch=lambda avg_loss: print(f"{avg_loss:.3f}"))
    >>> result = tiny_manager(Avg("loss"), show, epochs=2).train()
    0.704
    0.676

    A step in which a fixture is not alive is left out of its mean, which is nan until there was one. What comes while
    ``over`` is not open is in no mean: ``train_on_batch`` opens no epoch.

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
        self._totals = Book(Totals, per=PERS.get(over, "manager"))
        asked = [*names, *([] if weight is None else [weight])]
        hook = with_parameters([MANAGER], self._renew, seldom=asked)
        setattr(self, f"post_{at}", _Inside(over)(provides(*map("avg_{}".format, names), stage=over)(hook)))
        begin = provides(*map("avg_{}".format, names))(with_parameters([MANAGER, *COUNTS], partial(self._begin, over)))
        setattr(self, f"pre_{over}", begin)

    # ---- the hook before `over`: see __init__ ----------------------------------------------------------------------

    def _begin(self, over: str, values: Mapping[str, Any]) -> Any:
        train_manager, counts = values.get("train_manager"), [values.get(count.name, 0) for count in COUNTS]
        batches_done, start_step, step_num = counts
        goes_on = {"train_step_epoch": batches_done > 0, "train": start_step < step_num}  # as after a checkpoint
        if not goes_on.get(over, False) and not (over == "train_step_epoch" and train_manager is not None):
            self._totals.begin(train_manager)  # an epoch of a TrainManager has a value of its own
        return self._means(self._totals.of(train_manager))

    # ---- the mean --------------------------------------------------------------------------------------------------

    def _renew(self, values: Mapping[str, Any]) -> Any:  # the hook after `at`: see __init__
        totals = self._totals.of(values.get("train_manager"))
        if self.weight is None or self.weight in values:
            weight = 1 if self.weight is None else values[self.weight]
            for name in self.names:
                if name in values:
                    totals.append(name, values[name], weight)
        return self._means(totals)

    def _means(self, totals: Totals) -> Any:
        means = tuple(mean_of(*totals.get(name, (0, 0))) for name in self.names)
        return means if len(means) > 1 else means[0]

    def totals(self) -> dict[str, tuple[Any, Any]]:
        """Return the sum and the weight of each fixture so far; tensors are not read on the host."""
        return {name: self._totals.latest.get(name, (0, 0)) for name in self.names}

    def state_dict(self) -> dict[str, Any]:
        """Return the sum and the weight of each fixture, of what is open."""
        return {**super().state_dict(), "means": self._totals.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        before = {"": state.get("totals", {})}  # of a checkpoint of an earlier version
        self._totals.load_state_dict(state.get("means", before))


@final
class Totals(dict[str, tuple[Any, Any]]):
    """The sum and the weight of each fixture that was alive, by its name."""

    def append(self, name: str, value: Any, weight: Any) -> None:
        """Add a value, without reading it on the host."""
        total, weights = self.get(name, (0, 0))
        found = in_32_bits(value.detach() if hasattr(value, "detach") else value)
        if isinstance(total, Tensor) and isinstance(found, Tensor):
            total = total.to(found.device)  # after a checkpoint, which is loaded on the CPU
        self[name] = total + found * weight, weights + weight

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the sums and the weights, these as numbers."""
        return {name: [total, *numbers([weight])] for name, (total, weight) in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update({name: (total, weight) for name, (total, weight) in state.items()})


class _Inside(Schedule):
    """Let a hook run only while a stage is open."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def should_run(self, fixtures: Fixtures) -> bool:
        return self.stage in fixtures.path
