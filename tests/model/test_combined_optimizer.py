"""One optimizer whose parts are of several classes: what they share, and what a copy of it shares."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam
from torch.optim.lr_scheduler import StepLR

from tests.support.equal_states import assert_same
from train_manager.model.combined_optimizer import CombinedOptimizer


class Pair(nn.Module):
    """Two numbers, each trained by an optimizer of its own class."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(2))
        self.two = nn.Parameter(torch.ones(2))
        self.optimizer = CombinedOptimizer([SGD([self.one], lr=0.5, momentum=0.9), Adam([self.two], lr=0.25)])

    def loss(self) -> Tensor:
        return (self.one**2 + self.two**2).sum()

    def train_steps(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()


def values(pair: Pair) -> list[Any]:
    return [*pair.one.tolist(), *pair.two.tolist()]


def assert_shared(optimizer: CombinedOptimizer) -> None:
    assert all(part.state is optimizer.state for part in optimizer.parts)
    of_parts = [group for part in optimizer.parts for group in part.param_groups]
    assert len(of_parts) == len(optimizer.param_groups)
    assert all(one is other for one, other in zip(of_parts, optimizer.param_groups, strict=True))


def test_it_steps_as_its_parts_would_alone() -> None:
    alone, together = Pair(), Pair()
    together.train_steps(3)
    for _ in range(3):
        alone.zero_grad()
        alone.loss().backward()
        for part in alone.optimizer.parts:
            part.step()

    assert values(together) == values(alone)


def test_a_state_that_is_loaded_reaches_the_parts() -> None:
    first, second = Pair(), Pair()
    first.train_steps(2)
    second.load_state_dict(first.state_dict())
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    assert_shared(second.optimizer)

    first.train_steps(2)
    second.train_steps(2)
    assert values(second) == values(first)
    assert_same(second.optimizer.state_dict(), first.optimizer.state_dict())


def test_a_copy_shares_among_its_own_parts_and_leaves_the_first_alone() -> None:
    first = Pair()
    first.train_steps(2)
    before = values(first)
    for second in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert_shared(second.optimizer)
        second.train_steps(2)
        assert (values(first), values(second)[0] == before[0]) == (before, False)
    first.train_steps(2)
    assert values(first) == values(second)


def test_a_schedule_of_the_whole_changes_the_rates_of_the_parts() -> None:
    pair = Pair()
    schedule = StepLR(pair.optimizer, 1, gamma=0.5)
    pair.train_steps(1)
    schedule.step()

    assert [part.param_groups[0]["lr"] for part in pair.optimizer.parts] == [0.25, 0.125]


def test_a_group_that_is_added_gets_the_options_of_the_last_part_which_steps_it() -> None:
    pair, more = Pair(), nn.Parameter(torch.ones(1))
    pair.optimizer.add_param_group({"params": [more], "lr": 0.125})
    assert_shared(pair.optimizer)
    more.sum().backward()
    pair.optimizer.step()

    assert (more.item(), pair.optimizer.param_groups[-1]["betas"]) == (0.875, (0.9, 0.999))


def test_a_state_from_the_constructor_of_a_part_is_kept() -> None:
    one, two = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = CombinedOptimizer([Adagrad([one], initial_accumulator_value=2.0), SGD([two], lr=0.1)])

    assert optimizer.state[one]["sum"].item() == 2.0


def test_a_closure_is_called_once_with_gradients() -> None:
    pair, calls = Pair(), list[Tensor]()

    def closure() -> Tensor:
        calls.append(pair.loss())
        calls[-1].backward()
        return calls[-1]

    with torch.no_grad():
        assert pair.optimizer.step(closure) is calls[0]
    assert len(calls) == 1
