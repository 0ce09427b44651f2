"""Running means of fixtures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from inspect import Parameter
from typing import Any, Final, final

from torch import Tensor

from train_manager.core.calls import sometimes, with_parameters
from train_manager.core.declarations import provides
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.stage import Stage
from train_manager.data.shares import is_stand_in
from train_manager.loop.books import Book
from train_manager.loop.ranks import ranks_of, sum_totals
from train_manager.metrics.averages import add_means, in_32_bits, mean_of
from train_manager.metrics.deferred import numbers, on_host
from train_manager.rebuilding.recorded import recorded
from train_manager.schedules import when
from train_manager.telling.errors import InputError

PERS: Final = {"train_step_epoch": "epoch", "train": "phase"}
"""The lifetime of the mean over a stage. The mean over any other stage lives until that stage opens again."""

SHARED: Final = ("train_step_epoch", "train", "eval_step_epoch", "eval", "phase", "run")
"""Stages that all processes that train together open alike, and seldom."""

# The hooks ask for it with a default, because a loop other than a TrainManager does not define it.
MANAGER: Final = Parameter("train_manager", Parameter.KEYWORD_ONLY, default=None)


@recorded
class Avg(Extension):
    """Provide the running mean of fixtures: of ``loss`` as ``avg_loss``.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> show = Extension.of(post_train_step_epoch=lambda avg_loss: print(f"{avg_loss:.3f}"))
    >>> result = tiny_manager(Avg("loss"), show, epochs=2).train()
    0.704
    0.676

    A step in which a fixture is not alive is left out of the mean of the fixture, which is nan until there was a step
    with it. Values that come while ``over`` is not open are in no mean; but those of ``train_on_batch`` are in the mean
    of the epoch that ``end_epoch`` ends.

    Where several processes train together, the mean is over the rows of this process until ``over`` ends, and then over
    those of all. For the mean of one process, a value counts as much as the process has of the examples of the step; in
    an evaluation, give ``weight="true_batch_size"``.

    *Runs at:* the end of ``at``, by default ``train_step_batch``, and the start and the end of ``over``, by default
    ``train_step_epoch``.

    *Asks for:* the fixtures ``names``, and ``weight`` if it is given.

    *Leaves behind:* a fixture ``avg_<name>`` of ``over`` for each name, renewed at the end of every ``at``. The mean of
    tensors is a tensor, of at least 32 bits; it is not read on the host.

    Args:
        names: fixtures that are numbers or tensors.
        at: the stage at whose end the fixtures are read.
        over: the stage around ``at`` over which the mean is taken.
        weight: a fixture that weights each value, such as ``true_batch_size``; None weights all values equally.

    Raises:
        InputError: no fixture is named, or one is not a number or a tensor.
    """

    def __init__(
        self, *names: str, at: str = "train_step_batch", over: str = "train_step_epoch", weight: str | None = None
    ) -> None:
        if not names:
            what = "Avg needs the name of a fixture, but was given none"
            raise InputError(what, name="names", cure='name one: Avg("loss")')
        self.names = names
        self.weight = weight
        self._totals = Book(Totals, per=PERS.get(over, "manager"), add=add_means)
        # The two hooks are made here, because the arguments name their stages and their fixtures. `sometimes`: a
        # fixture that is not alive is left out of `values`, where a parameter would be an error.
        asked = [*names, *([] if weight is None else [weight])]
        hook = with_parameters([MANAGER, *map(sometimes, asked)], self._renew)
        setattr(
            self, f"post_{at}", when(partial(is_inside, over))(provides(*map("avg_{}".format, names), stage=over)(hook))
        )
        if over == "train_step_epoch":
            setattr(self, f"around_{at}", self._count_own_batch)
        # Without a mean from the start of `over`, a hook that asks for it in the first step would find no fixture.
        begin = provides(*map("avg_{}".format, names))(with_parameters([MANAGER], partial(self._begin, over)))
        setattr(self, f"pre_{over}", begin)
        if over in SHARED:
            finish = with_parameters([MANAGER], self._finish)
            setattr(self, f"post_{over}", provides(*map("avg_{}".format, names), stage=over)(finish))

    # ---- the hook before `over`: see __init__ ----------------------------------------------------------------------

    def _begin(self, over: str, values: Mapping[str, Any]) -> Any:
        train_manager = values.get("train_manager")
        # A Book gives each epoch of a TrainManager a value of its own, and a training call that resumes from a
        # checkpoint keeps its mean. Of all other stages, each opening begins the mean anew.
        is_resumed = over == "train" and train_manager is not None and train_manager.start_step < train_manager.step_num
        if not (is_resumed or (over == "train_step_epoch" and train_manager is not None)):
            self._totals.begin(train_manager)
        return self._means(self._totals.of(train_manager))

    # ---- the mean --------------------------------------------------------------------------------------------------

    def _renew(self, values: Mapping[str, Any]) -> Any:  # the hook after `at`: see __init__
        train_manager: Any = values.get("train_manager")
        totals = self._totals.of(train_manager)
        weight = 1 if self.weight is None else values.get(self.weight)
        if weight is not None and getattr(train_manager, "_decides", False):  # perhaps one of several processes
            part = part_of_step(train_manager.fixtures)
            weight = part if part is None or self.weight is None else weight
        if weight is not None:
            for name in self.names:
                if name in values:
                    totals.append(name, values[name], weight)
        return self._means(totals)

    def _count_own_batch(self, fixtures: Fixtures, train_manager: Any = None) -> Iterator[None]:
        """Count a batch of ``train_on_batch``: its epoch opens only as it ends, so no mean can be provided here."""
        yield
        if "train_step_batch" in fixtures.path and "train_step_epoch" not in fixtures.path:
            asked = [*self.names, *([] if self.weight is None else [self.weight])]
            alive = {name: fixtures[name] for name in asked if name in fixtures}
            self._renew({"train_manager": train_manager, **alive})

    def _finish(self, values: Mapping[str, Any]) -> Any:  # the hook at the end of `over`: see __init__
        train_manager = values.get("train_manager")
        return self._means(sum_totals(ranks_of(train_manager), self._totals.of(train_manager)))

    def _means(self, totals: Mapping[str, tuple[Any, Any]]) -> Any:
        means = tuple(mean_of(*totals.get(name, (0, 0))) for name in self.names)
        # The values of the fixtures: a tuple if there are several, else the value itself.
        return means if len(means) > 1 else means[0]

    def totals(self) -> dict[str, tuple[Any, Any]]:
        """Return the sum and the weight of each fixture so far; tensors are not read on the host."""
        return {name: self._totals.latest.get(name, (0, 0)) for name in self.names}

    def state_dict(self) -> dict[str, Any]:
        """Return the sum and the weight of each fixture, of the stages that are open."""
        return {**super().state_dict(), "means": self._totals.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._totals.load_state_dict(state["means"])


@final
class Totals(dict[str, tuple[Any, Any]]):
    """The sum and the weight of each fixture that was alive, by its name."""

    def append(self, name: str, value: Any, weight: Any) -> None:
        """Add a value, without reading it on the host."""
        total, weights = self.get(name, (0, 0))
        found = in_32_bits(value.detach() if hasattr(value, "detach") else value)
        if isinstance(total, Tensor) and isinstance(found, Tensor):
            total = total.to(found.device)  # a loaded checkpoint has its tensors on the CPU
        try:
            self[name] = total + found * weight, weights + weight
        except TypeError as error:
            what = f"Avg takes the mean of numbers and tensors, but {name!r} is a {type(value).__name__}"
            entries = f'Metrics("{name}") takes the mean of each entry'
            cure = entries if isinstance(value, Mapping) else "name a fixture that is a number or a tensor"
            raise InputError(what, name=name, asked_by="Avg", cure=cure) from error

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the sums, and the weights as plain numbers."""
        found = self.items()
        return {name: {"sum": on_host(total), "weight": numbers([weight])[0]} for name, (total, weight) in found}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update({name: (saved["sum"], saved["weight"]) for name, saved in state.items()})


def part_of_step(fixtures: Fixtures) -> Any:
    """Return which part of a step's examples this process has; None if it has none."""
    size = fixtures.get("true_batch_size", 1)
    of = fixtures.get("global_batch_size", 1)  # in training
    return None if is_stand_in(size) else size / of


def is_inside(over: str, stage: Stage) -> bool:
    """Return whether the stage ``over`` is open around another one."""
    return over in stage.path
