"""What a look at open stages and at weights has seen, to find at the next look what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from train_manager.core.scope import Cell, Scope

DEFINES, SETS, IN_PLACE = "defines", "sets", "changes in place"


class Found(NamedTuple):
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


class StageLook:
    """The fixtures of one open stage, as they were at the last look."""

    def __init__(self, scope: Scope, path: str, step_num: int | None, *, is_late: bool) -> None:
        self.scope = ref(scope)
        self.path = path
        # The number of the step if the stage is that of a batch; else None, as an epoch has several.
        self.step = step_num + 1 if step_num is not None and scope.name == "train_step_batch" else None
        self.seen: dict[str, Seen] = {}
        self._is_late = is_late
        self._forget()

    def _forget(self) -> None:
        """Let the next look compare each fixture; the others compare only new ones, unless `_is_still` finds more."""
        self._newest: Cell | None = None
        self._cells: list[Cell] = []  # those with a value
        self._ids: list[int] = []  # of their values
        self._tensors: list[tuple[Cell, Seen]] = []  # those of them with a tensor
        self._lazy: list[Cell] = []  # a fixture that was not computed has no value, and stays so

    def look(self, found: list[Found], *, deep: bool) -> None:
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

    def _compare(self, cell: Cell, value: Any, found: list[Found], *, deep: bool) -> None:
        last = now = self.seen.get(cell.name)
        if last is None or not last.is_still(value):
            now = self.seen[cell.name] = see(value, deep=deep)
            how = now.how(last) if last is not None else "" if self._is_late else DEFINES
            found.append(Found(how, cell.name, last and last.shown, now.shown))
        self._cells.append(cell)
        self._ids.append(id(value))
        if isinstance(now, SeenTensor):
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


def step_num_of(levels: Sequence[StageLook]) -> int | None:
    """Return the number of steps that were done at the last look."""
    seen = [level.seen["step_num"] for level in levels if "step_num" in level.seen]
    return seen[-1].shown if seen else None


class Seen:
    """A value as it was at the last look: a number or a text, or the id of another object, which is not kept alive."""

    __slots__ = ("_id", "shown")

    def __init__(self, value: Any) -> None:
        self._id = id(value)
        self.shown: Any = value if isinstance(value, _PLAIN) else _Other(type(value), self._id)  # what a row has of it

    def is_still(self, value: Any) -> bool:
        """Return whether a value is the one from the last look."""
        return self._id == id(value) or (type(value) is type(self.shown) and _is_same(value, self.shown))

    def how(self, last: Seen) -> str:
        """Return how the last value became this one."""
        return SETS


class SeenTensor(Seen):
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

    def how(self, last: Seen) -> str:
        return IN_PLACE if isinstance(last, SeenTensor) and last._tensor() is self._tensor() else SETS


class SeenWeights(Seen):
    """All weights, by their versions, as one number."""

    __slots__ = ("_deep", "_ids", "_versions")

    def __init__(self, weights: list[Tensor], *, deep: bool) -> None:
        self.shown = _shown(_norm(weights), deep=deep)
        self._ids, self._versions, self._deep = [*map(id, weights)], [one._version for one in weights], deep

    def is_still(self, value: list[Tensor]) -> bool:
        if [one._version for one in value] != self._versions:
            return False
        return not self._deep or _is_same(_norm(value).item(), self.shown)

    def how(self, last: Seen) -> str:
        return IN_PLACE if isinstance(last, SeenWeights) and last._ids == self._ids else SETS


def see(value: Any, *, deep: bool) -> Seen:
    if isinstance(value, Tensor) and _is_measurable(value):
        return SeenTensor(value, deep=deep)
    return Seen(value)


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


def as_number(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return str(value) if isinstance(value, _Other) else value


def as_text(value: Any) -> str:
    value = as_number(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; nan equals nan."""
    return bool(one == other or (one != one and other != other))
