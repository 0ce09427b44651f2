"""The contents of objects, put back in place: the same objects have the same contents again after a trial."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import partial
from types import FunctionType, NoneType, SimpleNamespace
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from train_manager.core.schedule import Schedule

Restore = Callable[[], object]

OF_LIBRARIES: Final = (nn.Module, Optimizer, LRScheduler, ReduceLROnPlateau, GradScaler, Schedule, SimpleNamespace)
"""Classes of libraries whose objects are looked into, as are objects of the user's own classes."""

CLOSED: Final = frozenset({*sys.stdlib_module_names, "torch", "numpy", "train_manager"}) - {"__main__"}
"""Packages whose other objects are not looked into."""

OF_THREADS: Final = frozenset({"_thread", "threading", "queue", "_queue", "socket", "asyncio", "multiprocessing"})
"""Packages of threads: an object that refers to a lock or a queue is not looked into, as a thread may be using it."""

UNCHANGING: Final = (int, float, str, NoneType, FunctionType, type)
"""Classes of objects that cannot change, and of functions and classes, which are not looked into."""

GENERATORS: Final = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
"""Classes of random generators."""


@final
class Contents:
    """The contents of objects, and of all objects in them, which can be put back in place.

    ``Contents`` looks into tensors, arrays, random generators, lists, dicts, sets and deques, and objects of the user's
    own classes; modules, optimizers and schedulers are such objects. Variables that functions enclose are not found.

    >>> seen, model = [1], nn.Linear(1, 1)
    >>> model.calls, weight = {"eval": seen}, model.weight.item()
    >>> before = Contents([model])
    >>> seen.append(2)
    >>> model.eval().weight.data.fill_(9)
    tensor([[9.]])
    >>> model.more = model.calls.pop("eval")
    >>> before.put_back()
    >>> seen, model.calls["eval"] is seen, model.weight.item() == weight, model.training, hasattr(model, "more")
    ([1], True, True, True, False)

    Args:
        roots: the objects.
        left_out: objects that are not looked into, even if the roots refer to them.
        looked_into: further roots, whose attributes are put back whatever their class.
        closed: the packages whose objects are not looked into, but for those in ``OF_LIBRARIES``.

    Attributes:
        objects: the roots, all objects to which they refer, and those that were left out.
    """

    def __init__(
        self,
        roots: Iterable[object],
        left_out: Iterable[object] = (),
        looked_into: Iterable[object] = (),
        closed: Container[str] = CLOSED,
    ) -> None:
        # The values keep the objects alive, so that no new object can get one of their ids.
        seen = {id(one): one for one in left_out}
        self._restores: list[Restore] = []
        opened = {id(one): one for one in looked_into}
        ahead = [*roots, *opened.values()]  # a stack in place of recursion, which long linked objects would exceed
        while ahead:
            one = ahead.pop()
            if id(one) not in seen:
                seen[id(one)] = one
                ahead += self._keep(*_taken(one, closed))
                if id(one) in opened:
                    ahead += self._keep(*_attributes_of(one))
        self.objects = list(seen.values())

    def _keep(self, restore: Restore | None, inner: Collection[object]) -> Collection[object]:
        """Keep what puts an object back, and return the objects in it that can change."""
        if restore is not None:
            self._restores.append(restore)
        # A list of a million numbers is put back as a whole; its items cannot change.
        return [part for part in inner if not isinstance(part, UNCHANGING)] if inner else ()

    def put_back(self) -> None:
        """Put all contents back, also if Ctrl-C comes meanwhile."""
        with torch.no_grad():
            try:
                for restore in self._restores:
                    restore()
            except KeyboardInterrupt:  # a restore may have been cut off in the middle, so all are done again
                for restore in self._restores:
                    restore()
                raise


def refill(one: Any, items: Any) -> None:
    """Replace the contents of a dict, a set, a list or a deque in place."""
    if _ids(one) != _ids(items):  # written only if changed: a frozen dict, as a configuration, cannot be
        one.clear()
        (one.extend if isinstance(one, (list, deque)) else one.update)(items)


def _ids(items: Any) -> list[int]:
    return [*map(id, items), *map(id, items.values() if isinstance(items, dict) else ())]


def _taken(one: Any, closed: Container[str]) -> tuple[Restore | None, Collection[object]]:
    """Return the function that puts the contents of an object back, or None, and the objects in it."""
    # Most objects are dicts, of which a module alone has a dozen: the question whether they are a tensor takes longer.
    if isinstance(one, dict):
        return partial(refill, one, dict(one)), one.values() if one else ()
    if isinstance(one, (tuple, frozenset)):
        return None, one
    if isinstance(one, (list, deque, set)):
        return partial(refill, one, list(one)), one
    if isinstance(one, Tensor):
        return _of_tensor(one), ()
    if isinstance(one, np.ndarray):
        return (partial(np.copyto, one, one.copy()) if one.flags.writeable else None), ()
    if isinstance(one, GENERATORS):
        return _of_generator(one), ()
    if _is_looked_into(one, closed):
        return _attributes_of(one)
    return None, ()


def _attributes_of(one: Any) -> tuple[Restore, Collection[object]]:
    """Return the function that sets the attributes of an object again, and their values."""
    if hasattr(one, "__dict__"):
        return partial(refill, vars(one), dict(vars(one))), vars(one).values()
    values = {name: getattr(one, name) for name in type(one).__slots__}
    return partial(_set_attributes, one, values), values.values()


def _set_attributes(one: object, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(one, name, value)


def _of_generator(one: Any) -> Restore:
    if isinstance(one, np.random.Generator):
        return partial(setattr, one.bit_generator, "state", one.bit_generator.state)
    if isinstance(one, random.Random):
        return partial(one.setstate, one.getstate())
    return partial(one.set_state, one.get_state())


def _of_tensor(one: Tensor) -> Restore | None:
    # A lazy or meta tensor has no values, a result of autograd belongs to a graph, an inference tensor is read-only.
    if is_lazy(one) or one.grad_fn is not None or one.is_inference() or one.is_meta:
        return None
    return partial(_refill_tensor, one, one.data, one.detach().clone(), one.requires_grad)


def _refill_tensor(one: Tensor, memory: Tensor, values: Tensor, requires_grad: bool) -> None:
    if one.grad_fn is not None:
        one.detach_()  # a buffer that a step has written to belongs to the graph of that step
    one.data = memory  # a trial may have replaced the memory, by `.to()` or `.data = ...`
    if not torch.equal(memory, values):  # written only if changed: an expanded one cannot be
        memory.copy_(values)
    one.requires_grad_(requires_grad)


def _is_looked_into(one: object, closed: Container[str]) -> bool:
    if isinstance(one, OF_LIBRARIES):
        return True
    if isinstance(one, type) or not hasattr(one, "__dict__") or _package(one) in closed:
        return False
    return not any(_package(inner) in OF_THREADS for inner in vars(one).values())


def _package(one: object) -> str:
    return type(one).__module__.partition(".")[0]
