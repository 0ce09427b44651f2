"""What objects hold, put back in place: the same objects have the same contents again, whatever was tried with them."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType, SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from train_manager.core.schedule import Schedule

Restore = Callable[[], object]
Taken = tuple[Restore | None, Iterable[object]]
"""What puts the contents of an object back, and the objects in it."""

OF_LIBRARIES: Final = (nn.Module, Optimizer, LRScheduler, ReduceLROnPlateau, Schedule, SimpleNamespace)
"""Classes of others whose objects are looked into, as are those of the user's own classes."""

CLOSED: Final = frozenset({*sys.stdlib_module_names, "torch", "numpy", "train_manager"}) - {"__main__"}
"""Packages whose other objects are not looked into."""

UNCHANGING: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type})
"""Classes whose objects have no contents."""

OF_THREADS: Final = frozenset({"_thread", "threading", "queue", "_queue", "socket", "asyncio", "multiprocessing"})
"""Packages of which an object has something if it is a thread's as well, which goes on with it meanwhile."""


@contextmanager
def preserved_objects(roots: Iterable[object], left_out: Iterable[object] = ()) -> Iterator[None]:
    """Put back what objects hold, and what is in them, as the ``with`` block ends: also after an error.

    It looks into tensors and arrays, generators of random numbers, lists, dicts, sets and deques, what functions
    enclose or name, and objects of the user's own classes; modules, optimizers and schedulers are such objects. Each
    stays the same object.

    >>> seen, model = [1], nn.Linear(1, 1)
    >>> model.calls, weight = {"eval": seen}, model.weight.item()
    >>> with preserved_objects([model]):
    ...     seen.append(2)
    ...     model.eval().weight.data.fill_(9)
    ...     model.more = model.calls.pop("eval")
    tensor([[9.]])
    >>> seen, model.calls["eval"] is seen, model.weight.item() == weight, model.training, hasattr(model, "more")
    ([1], True, True, True, False)

    Args:
        roots: the objects.
        left_out: what is not looked into, where the objects refer to it.
    """
    seen = {id(one): one for one in left_out}  # which keeps them alive, so that no other object has their place
    restores: list[Restore] = []
    ahead = list(roots)
    while ahead:
        one = ahead.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            restore, inner = _taken(one)
            restores += [] if restore is None else [restore]
            ahead += [part for part in inner if type(part) not in UNCHANGING]  # there may be millions of numbers
    try:
        yield
    finally:
        with torch.no_grad():
            for restore in restores:
                restore()


def _taken(one: Any) -> Taken:
    if isinstance(one, Tensor):
        return _of_tensor(one), ()
    if isinstance(one, np.ndarray):
        return (partial(np.copyto, one, one.copy()) if one.flags.writeable else None), ()
    found = random_state_of(one)
    if found is not None:
        return found, ()
    if isinstance(one, dict):
        return partial(_refill, one, dict(one)), one.values()
    if isinstance(one, (list, deque)):
        items = list(one)
        return partial(_extend, one, items), items
    if isinstance(one, set):
        return partial(_refill, one, set(one)), one
    if isinstance(one, (tuple, frozenset)):
        return None, one
    if isinstance(one, (FunctionType, MethodType, partial, CellType, staticmethod)):
        return _of_function(one)
    return _of_object(one) if _is_looked_into(one) else (None, ())


def random_state_of(one: Any) -> Restore | None:
    """Return what puts a generator of random numbers back; None for what is none."""
    if isinstance(one, torch.Generator):
        return partial(one.set_state, one.get_state())
    if isinstance(one, random.Random):
        return partial(one.setstate, one.getstate())
    if isinstance(one, np.random.RandomState):
        return partial(one.set_state, one.get_state())
    if isinstance(one, np.random.Generator):
        return partial(setattr, one.bit_generator, "state", one.bit_generator.state)
    return None


def _of_tensor(one: Tensor) -> Restore | None:
    if is_lazy(one) or one.grad_fn is not None or one.is_inference() or one.is_meta:
        return None
    return partial(_refill_tensor, one, one.data, one.detach().clone(), one.requires_grad)


def _refill_tensor(one: Tensor, memory: Tensor, values: Tensor, requires_grad: bool) -> None:
    if one.data_ptr() != memory.data_ptr() or one.shape != memory.shape or one.dtype != memory.dtype:
        one.data = memory  # ``one.data = ...`` has given it another one
    one.copy_(values)
    if one.requires_grad != requires_grad:
        one.requires_grad_(requires_grad)


def _refill(one: Any, items: Any) -> None:
    one.clear()
    one.update(items)


def _extend(one: Any, items: list[Any]) -> None:
    one.clear()
    one.extend(items)


def _of_function(one: Any) -> Taken:
    if isinstance(one, CellType):
        try:
            inner = one.cell_contents
        except ValueError:  # nothing is assigned yet
            return None, ()
        return partial(setattr, one, "cell_contents", inner), [inner]
    if isinstance(one, MethodType):
        return None, [one.__self__, one.__func__]
    if isinstance(one, staticmethod):
        return None, [one.__func__]
    if isinstance(one, partial):
        return None, [one.func, *one.args, *one.keywords.values()]
    if str(one.__module__).partition(".")[0] in CLOSED - {"train_manager"}:  # as what torch has compiled
        return None, ()
    defaults = [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
    around = _globals_of(one)
    return partial(one.__globals__.update, around), [*(one.__closure__ or ()), *defaults, *around.values()]


def _globals_of(function: FunctionType) -> dict[str, Any]:
    """Return the variables of the user's file that a function names; not tensors, which are the data of a script."""
    if str(function.__module__).startswith("train_manager."):
        return {}
    there = function.__globals__
    named = {name: there[name] for name in function.__code__.co_names if name in there}
    return {name: one for name, one in named.items() if not isinstance(one, (Tensor, np.ndarray))}


def _is_looked_into(one: object) -> bool:
    if isinstance(one, type) or not hasattr(one, "__dict__"):
        return False
    if isinstance(one, OF_LIBRARIES):
        return True
    return _package(one) not in CLOSED and not any(_package(inner) in OF_THREADS for inner in vars(one).values())


def _package(one: object) -> str:
    return type(one).__module__.partition(".")[0]


def _of_object(one: Any) -> Taken:
    attributes = vars(one)
    return partial(_refill, attributes, dict(attributes)), list(attributes.values())
