"""A log of the changes of fixtures, weights and learning rates: which hook or body has made each, and when."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ref

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.declarations import priority
from train_manager.core.scope import Caller, Cell, Scope
from train_manager.core.watcher import BEGINS, Watcher
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import FixtureNotFound, did_you_mean, near
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

LOGGER: Final = logging.getLogger("train_manager.changes")

DEFINES, SETS, IN_PLACE = "defines", "sets", "changes in place"

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
        old = "" if self.how == DEFINES else f"{_text(self.old)} -> "
        return f"{step}{self.stage}: {self.who} {self.how}: {self.fixture} {old}{_text(self.new)}"


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
        self._levels: list[_Level] = []  # the open stages, outermost first
        self._names: dict[str, None] = {}  # all that were seen
        self._optimizers: dict[tuple[str, int], _Seen] = {}  # the weights, and the rate of each group, at the last look
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
        found: list[_Found] = []
        levels = self._levels_of(stage, ran)
        for level in levels:
            level.look(found, deep=self.deep)
        tm = None if self._trained is None else self._trained()
        if tm is not None:
            self._look_at(tm.optimizers.values(), found)
        if found:
            self._note(found, levels, _who(stage, ran))

    def _levels_of(self, stage: Scope, ran: Caller | str) -> list[_Level]:
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
                levels[depth:] = [_Level(scope, path, _step_num(levels[:depth]), is_late=is_late)]
        del levels[len(scopes) :]  # stages that have ended
        return levels

    def _look_at(self, optimizers: Iterable[Optimizer], found: list[_Found]) -> None:
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        weights = [weight for group in groups for weight in group["params"]]
        self._compare(WEIGHTS, 0, weights, found)
        for number, group in enumerate(groups):
            self._compare(RATES, number, group["lr"], found)

    def _compare(self, name: str, number: int, value: Any, found: list[_Found]) -> None:
        last = self._optimizers.get((name, number))
        if last is None or not last.is_still(value):
            now = (_SeenWeights if name == WEIGHTS else _see)(value, deep=self.deep)
            self._optimizers[name, number] = now
            # The first look finds them as they were made: nobody has changed them.
            found.append(_Found("" if last is None else now.how(last), name, last and last.shown, now.shown))

    def _note(self, found: list[_Found], levels: list[_Level], who: str) -> None:
        """Add a row for each change that a look has found."""
        path, steps = levels[-1].path, [level.step for level in levels if level.step is not None]
        step = steps[-1] if steps else _step_num(levels)
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


# ---- what was seen at the last look ----------------------------------------------------------------------------------


class _Found(NamedTuple):
    """A change that a look has found; ``how`` is empty for a fixture that is older than the log."""

    how: str
    name: str
    old: Any
    new: Any


class _Other(NamedTuple):
    """What a row has of an object that is not a number, a text or a tensor."""

    kind: type
    id: int

    def __str__(self) -> str:
        return f"<{self.kind.__name__} {self.id:#x}>"


_PLAIN: Final = (int, float, str, type(None))  # kept as they are
_NOTHING: Final = object()
_VALUE, _COMPUTE = attrgetter("value"), attrgetter("compute")


class _Level:
    """The fixtures of one open stage, as they were at the last look."""

    def __init__(self, scope: Scope, path: str, step_num: int | None, *, is_late: bool) -> None:
        self.scope = ref(scope)
        self.path = path
        # The number of the step if the stage is that of a batch; else None, as an epoch has several.
        self.step = step_num + 1 if step_num is not None and scope.name == "train_step_batch" else None
        self.seen: dict[str, _Seen] = {}
        self._is_late = is_late
        self._forget()

    def _forget(self) -> None:
        """Let the next look compare each fixture; the others compare only new ones, unless `_is_still` finds more."""
        self._newest: Cell | None = None
        self._cells: list[Cell] = []  # those with a value
        self._ids: list[int] = []  # of their values
        self._tensors: list[tuple[Cell, _Seen]] = []  # those of them with a tensor
        self._lazy: list[Cell] = []  # a fixture that was not computed has no value, and stays so

    def look(self, found: list[_Found], *, deep: bool) -> None:
        """Compare the fixtures with the last look, and add what has changed; the oldest fixture comes first."""
        scope = self.scope()
        newest = cell = None if scope is None else scope.first
        if not self._is_still():
            self._forget()
        elif newest is self._newest and not self._is_late:  # as at most looks
            return
        new: list[Cell] = []
        while cell is not None and cell is not self._newest:
            new.append(cell)
            cell = cell.next
        for cell in reversed(new):
            value = getattr(cell, "value", _NOTHING) if cell.compute is None else _NOTHING
            if value is _NOTHING:
                self._lazy.append(cell)
            else:
                self._compare(cell, value, found, deep=deep)
        self._newest, self._is_late = newest, False

    def _compare(self, cell: Cell, value: Any, found: list[_Found], *, deep: bool) -> None:
        last = now = self.seen.get(cell.name)
        if last is None or not last.is_still(value):
            now = self.seen[cell.name] = _see(value, deep=deep)
            how = now.how(last) if last is not None else "" if self._is_late else DEFINES
            found.append(_Found(how, cell.name, last and last.shown, now.shown))
        self._cells.append(cell)
        self._ids.append(id(value))
        if isinstance(now, _SeenTensor):
            self._tensors.append((cell, now))

    def _is_still(self) -> bool:
        """Return whether all fixtures that the last look has found are as they were."""
        try:
            ids = [*map(id, map(_VALUE, self._cells))]
        except AttributeError:  # a fixture has died before its stage
            return False
        if ids != self._ids or not all(map(_COMPUTE, self._lazy)):
            return False
        for cell, seen in self._tensors:  # noqa: SIM110 - a generator would cost more than most stages
            if not seen.is_still(cell.value):
                return False
        return True


def _step_num(levels: Sequence[_Level]) -> int | None:
    """Return the number of steps that were done at the last look."""
    seen = [level.seen["step_num"] for level in levels if "step_num" in level.seen]
    return seen[-1].shown if seen else None


class _Seen:
    """A value as it was at the last look: a number or a text, or the id of another object, which is not kept alive."""

    __slots__ = ("_id", "shown")

    def __init__(self, value: Any) -> None:
        self._id = id(value)
        self.shown: Any = value if isinstance(value, _PLAIN) else _Other(type(value), self._id)  # what a row has of it

    def is_still(self, value: Any) -> bool:
        """Return whether a value is the one from the last look."""
        return self._id == id(value) or (type(value) is type(self.shown) and _is_same(value, self.shown))

    def how(self, last: _Seen) -> str:
        """Return how the last value became this one."""
        return SETS


class _SeenTensor(_Seen):
    """A tensor, by its version, which torch counts up with each change in place, and with ``deep`` by its number."""

    __slots__ = ("_deep", "_tensor", "_version")

    def __init__(self, tensor: Tensor, *, deep: bool) -> None:
        self.shown = _shown(_number(tensor), deep=deep)
        self._tensor, self._deep = ref(tensor), deep
        self._version = None if tensor.is_inference() else tensor._version  # for inference torch counts no changes

    def is_still(self, value: Any) -> bool:
        known = self._tensor()
        if known is None or known is not value or (self._version is not None and known._version != self._version):
            return False
        return not self._deep or _is_same(_number(known).item(), self.shown)

    def how(self, last: _Seen) -> str:
        return IN_PLACE if isinstance(last, _SeenTensor) and last._tensor() is self._tensor() else SETS


class _SeenWeights(_Seen):
    """All weights, by their versions, as one number."""

    __slots__ = ("_deep", "_ids", "_versions")

    def __init__(self, weights: list[Tensor], *, deep: bool) -> None:
        self.shown = _shown(_norm(weights), deep=deep)
        self._ids, self._versions, self._deep = [*map(id, weights)], [one._version for one in weights], deep

    def is_still(self, value: list[Tensor]) -> bool:
        if [one._version for one in value] != self._versions:
            return False
        return not self._deep or _is_same(_norm(value).item(), self.shown)

    def how(self, last: _Seen) -> str:
        return IN_PLACE if isinstance(last, _SeenWeights) and last._ids == self._ids else SETS


def _see(value: Any, *, deep: bool) -> _Seen:
    if isinstance(value, Tensor) and _is_measurable(value):
        return _SeenTensor(value, deep=deep)
    return _Seen(value)


def _is_measurable(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def _number(tensor: Tensor) -> Tensor:
    """Return one number of a tensor, on its device: its value, if it has only one, else its norm."""
    values = tensor.detach()
    if values.numel() == 1:
        return values.clone() if values.dim() == 0 else values.reshape(()).clone()
    # Of integers torch has no norm, and the norm of numbers in half precision overflows.
    is_exact = values.dtype in (torch.float32, torch.float64) or values.is_complex()
    norm: Tensor = torch.linalg.vector_norm(values if is_exact else values.to(torch.float32))
    return norm


def _norm(weights: Sequence[Tensor]) -> Tensor:
    """Return the norm of all weights, on the device of the first."""
    filled = [weight.detach() for weight in weights if weight.numel()]
    if not filled:
        return torch.zeros(())
    norms = torch._foreach_norm(filled)  # one kernel for many tensors
    device = norms[0].device
    if any(norm.device != device for norm in norms):  # a model on several devices
        norms = tuple(norm.to(device) for norm in norms)
    whole: Tensor = torch.linalg.vector_norm(torch.stack([*norms]))
    return whole


def _shown(number: Tensor, *, deep: bool) -> Any:
    return number.item() if deep else number


def _read(row: Change) -> Change:
    """Return a row with numbers in place of tensors, which waits for their device."""
    return row._replace(old=_host(row.old), new=_host(row.new))


def _host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return str(value) if isinstance(value, _Other) else value


def _text(value: Any) -> str:
    value = _host(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; nan equals nan."""
    return bool(one == other or (one != one and other != other))
