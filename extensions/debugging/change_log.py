"""A log of the changes of fixtures, weights and learning rates: which hook or body has made each, and when."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ref

from torch.optim import Optimizer

from train_manager.checks.seen import DEFINES, Found, Seen, SeenWeights, StageLook, as_number, as_text, see, step_num_of
from train_manager.core.declarations import priority
from train_manager.core.scope import Caller, Scope
from train_manager.core.watcher import BEGINS, Watcher
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import FixtureNotFound, did_you_mean, near
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

LOGGER: Final = logging.getLogger("train_manager.changes")

WEIGHTS, RATES = "weights", "lr"
"""Names of rows beside the fixtures: of the parameters that the optimizers have, and of their learning rates."""

FIRST: Final = -1_000_000  # earlier than all other hooks, whose changes of weights are seen then


class Change(NamedTuple):
    """A row of a ``ChangeLog``; as text, a line of the log.

    Attributes:
        step: the training step, counted from 1; outside of steps the last one; None without a fixture ``step_num``.
        stage: the path of the stage.
        who: the hook or the provider, as ``EMA.post_train_optimizer_step``; or "body of train_backward".
        how: "defines" or "sets" a fixture; or "changes in place", of a tensor that stays the same object.
        fixture: its name; or "weights" or "lr".
        old: the value before it. Of a tensor one number: its value or, of several numbers, their norm. Of an object
            that is not a number or a text its type and id, as a text.
        new: the value after it.
    """

    step: int | None
    stage: str
    who: str
    how: str
    fixture: str
    old: Any
    new: Any

    def __str__(self) -> str:
        step = "" if self.step is None else f"step {self.step}, "
        old = "" if self.how == DEFINES else f"{as_text(self.old)} -> "
        return f"{step}{self.stage}: {self.who} {self.how}: {self.fixture} {old}{as_text(self.new)}"


@recorded
class ChangeLog(Watcher):
    """Log each change of a fixture, of the weights and of the learning rates, with the hook or body that has made it.

    >>> from train_manager import Extension, modifies
    >>> from train_manager.testing import tiny_manager
    >>> class Doubled(Extension):
    ...     @modifies("backward_loss")
    ...     def pre_train_backward(self, backward_loss):
    ...         return 2 * backward_loss
    >>> tm = tiny_manager(Doubled(), log := ChangeLog())
    >>> result = tm.train()
    >>> for change in log.why("backward_loss", step=2):
    ...     print(change.who, change.how, f"{change.new:.1f}")
    body of train_step_batch defines 0.7
    Doubled.pre_train_backward sets 1.4
    >>> [change.who for change in log.why("weights", step=2)]
    ['body of train_optimizer_step']

    ``print(change)`` shows a line of it. ``logging.getLogger("train_manager.changes")`` gets the lines too, at DEBUG.

    After each hook, and as each stage opens and its body ends, it looks at the live fixtures, and in a TrainManager at
    ``weights``, which are the parameters that the optimizers have, and at the ``lr`` of each group of them. Of a tensor
    it keeps one number, which stays on the device until it is shown, so that no step waits. It computes no lazy
    fixture. **It adds three quarters to a step of a tiny model, and opens all stages.**

    *Not seen:* what is inside of a list, a dict, an array or another object; buffers and gradients; without ``deep``
    all that torch does not count as a change: writes through ``.data`` and numpy, and fused optimizers.

    *Runs at:* the start of ``run``, before other hooks (priority -1,000,000); it looks at every stage.

    *Asks for:* ``train_manager``.

    *Leaves behind:* its rows, in memory.

    Args:
        keep: how many rows are kept; the oldest go.
        deep: compare the norm of each tensor at every look, which waits for the device. A change that keeps the norm is
            not seen.

    Raises:
        InputError: ``keep`` is not a whole number of at least 1; or, in a run, several processes train with strategy
            "fsdp".
    """

    needs_whole_model = True  # it measures the weights, which strategy "fsdp" of Distributed shards
    _checked_before_run = False  # other Extensibles than a TrainManager have no stage `run`

    def __init__(self, keep: int = 10_000, *, deep: bool = False) -> None:
        self.keep: int = require_count(keep, "keep", at_least=1)
        self.deep = deep
        self._rows: deque[Change] = deque(maxlen=self.keep)
        self._levels: list[StageLook] = []  # the open stages, outermost first
        self._names: dict[str, None] = {}  # all that were seen
        self._optimizers: dict[tuple[str, int], Seen] = {}  # the weights, and the rate of each group, at the last look
        self._trained: ref[TrainManager] | None = None  # weakly: it holds its extensions

    def __getstate__(self) -> dict[str, Any]:
        # The rest is of the open stages, and is found anew; weak references cannot be pickled.
        return {**vars(self), "_levels": [], "_optimizers": {}, "_trained": None}

    @property
    def changes(self) -> tuple[Change, ...]:
        """All rows that are kept, the oldest first."""
        return tuple(map(_read, self._rows))

    def why(self, name: str, step: int | None = None) -> tuple[Change, ...]:
        """Return the changes of a fixture, or of "weights" or "lr", the oldest first.

        Args:
            name: the fixture's name.
            step: only the changes in this step.

        Raises:
            FixtureNotFound: the log has seen no fixture of this name.
        """
        if name not in self._names:
            nearest = near(name, self._names)
            cure = did_you_mean(nearest) or f"it has seen {', '.join(self._names) or 'nothing yet'}"
            what = f"the ChangeLog has never seen a fixture {name!r}"
            raise FixtureNotFound(what, name=name, nearest=nearest, cure=cure)
        return tuple(_read(row) for row in self._rows if row.fixture == name and step in (None, row.step))

    @priority(FIRST)
    def pre_run(self, train_manager: TrainManager) -> None:
        self._trained = ref(train_manager)
        # Joining an open run, it may have missed changes, which are nobody's.
        self._levels.clear()
        self._optimizers.clear()

    def saw(self, stage: Scope, ran: Caller | str) -> None:
        found: list[Found] = []
        levels = self._levels_of(stage, ran)
        for level in levels:
            level.look(found, deep=self.deep)
        tm = None if self._trained is None else self._trained()
        if tm is not None:
            self._look_at(tm.optimizers.values(), found)
        if found:
            self._note(found, levels, _who(stage, ran))

    def _levels_of(self, stage: Scope, ran: Caller | str) -> list[StageLook]:
        """Return what was seen of each open stage, outermost first."""
        levels = self._levels
        if levels and levels[-1].scope() is stage:
            return levels
        scopes = [stage]
        while (parent := scopes[-1].parent) is not None:
            scopes.append(parent)
        for depth, scope in enumerate(reversed(scopes)):
            if depth >= len(levels) or levels[depth].scope() is not scope:
                path = f"{levels[depth - 1].path} > {scope.name}" if depth else scope.name
                # A stage that was open before the log came: what is alive in it was defined earlier.
                is_late = scope is not stage or ran != BEGINS
                levels[depth:] = [StageLook(scope, path, step_num_of(levels[:depth]), is_late=is_late)]
        del levels[len(scopes) :]  # stages that have ended
        return levels

    def _look_at(self, optimizers: Iterable[Optimizer], found: list[Found]) -> None:
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        weights = [weight for group in groups for weight in group["params"]]
        self._compare(WEIGHTS, 0, weights, found)
        for number, group in enumerate(groups):
            self._compare(RATES, number, group["lr"], found)

    def _compare(self, name: str, number: int, value: Any, found: list[Found]) -> None:
        last = self._optimizers.get((name, number))
        if last is None or not last.is_still(value):
            now = (SeenWeights if name == WEIGHTS else see)(value, deep=self.deep)
            self._optimizers[name, number] = now
            # The first look finds them as they were made: nobody has changed them.
            found.append(Found("" if last is None else now.how(last), name, last and last.shown, now.shown))

    def _note(self, found: list[Found], levels: list[StageLook], who: str) -> None:
        """Add a row for each change that a look has found."""
        path, steps = levels[-1].path, [level.step for level in levels if level.step is not None]
        step = steps[-1] if steps else step_num_of(levels)
        shows = LOGGER.isEnabledFor(logging.DEBUG)
        for how, name, old, new in found:
            self._names[name] = None
            if how:
                row = Change(step, path, who, how, name, old, new)
                self._rows.append(row)
                if shows:
                    LOGGER.debug("%s", row)


def _who(stage: Scope, ran: Caller | str) -> str:
    """Return the name of the hook or provider that has run, or of the body."""
    if isinstance(ran, Caller):
        return ran.label
    body = stage.parent if ran == BEGINS else stage
    return f"code around {stage.name}" if body is None else f"body of {body.name}"


def _read(row: Change) -> Change:
    """Return a row with numbers in place of tensors, which waits for their device."""
    return row._replace(old=as_number(row.old), new=as_number(row.new))
