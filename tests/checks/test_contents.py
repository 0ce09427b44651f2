from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from threading import local
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from train_manager.checks.contents import Contents
from train_manager.loop.counts import Counts


class Holder(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


def shown(value: Any) -> Any:
    """What a value holds now, to be compared with later."""
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return str(value.get_state())
    return repr(value)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "a list": (lambda: [1, [2]], lambda held: held[1].append(3)),
    "a dict": (lambda: {"a": {"b": 1}}, lambda held: held["a"].clear()),
    "a set": (lambda: {1}, lambda held: held.add(2)),
    "a deque": (lambda: deque([1, 2], maxlen=2), lambda held: held.append(3)),
    "a tensor": (lambda: torch.zeros(2), lambda held: held.add_(1)),
    "a tensor by its data": (lambda: torch.zeros(2), lambda held: held.data.add_(1)),
    "an array": (lambda: np.zeros(2), lambda held: held.fill(1)),
    "an object": (lambda: SimpleNamespace(count=0), lambda held: vars(held).update(count=1)),
    "a generator of torch": (lambda: torch.Generator(), lambda held: torch.rand(2, generator=held)),
    "a generator of python": (lambda: random.Random(1), lambda held: held.random()),
    "a generator of numpy": (lambda: np.random.default_rng(1), lambda held: held.random()),
    "an old generator of numpy": (lambda: np.random.RandomState(1), lambda held: held.rand()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_module_holds_is_put_back_in_place(name: str) -> None:
    make, change = CHANGES[name]
    module = Holder(make())
    held, before = module.held, shown(module.held)
    kept = Contents([module])

    for _ in range(2):
        change(module.held)
        assert shown(module.held) != before
        kept.put_back()
        assert shown(module.held) == before
    assert module.held is held


def test_a_frozen_dict_is_left_as_it_is() -> None:
    class Frozen(dict[str, int]):
        def clear(self) -> None:
            raise TypeError("frozen")

    Contents([Holder(Frozen(width=3))]).put_back()


def test_an_expanded_tensor_is_left_as_it_is() -> None:
    Contents([Holder(torch.ones(1).expand(3))]).put_back()


def test_a_module_that_holds_itself_ends() -> None:
    held: dict[str, Any] = {}
    held["self"] = held
    Contents([Holder(held)]).put_back()

    assert held["self"] is held


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


def test_objects_that_are_looked_into_have_their_attributes_put_back_whatever_their_class() -> None:
    slotted, thread_local = Slotted([1]), local()  # of neither are the attributes looked into otherwise
    thread_local.count = 1
    kept = Contents([], looked_into=[slotted, thread_local])

    slotted.held.append(2)
    slotted.held, thread_local.count = [], 2
    kept.put_back()

    assert (slotted.held, thread_local.count) == ([1], 1)


def test_objects_of_closed_packages_stay_as_they_are() -> None:
    counted = Counts(step_num=1)
    closed, opened = Contents([counted]), Contents([counted], closed=())

    counted.step_num = 2
    closed.put_back()
    assert counted.step_num == 2

    opened.put_back()
    assert counted.step_num == 1
