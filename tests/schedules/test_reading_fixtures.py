"""Schedules of hooks that read the fixtures of the loop, also those that are computed as they are first read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
import torch

from train_manager import Extension, fixture, scheduled, when
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Scope
from train_manager.data.in_memory import InMemory
from train_manager.testing import tiny_manager

HOOKS: Final = [
    "pre_train_step_epoch",
    "pre_train_model_forward",
    "post_train_loss_forward",
    "post_train_backward",
    "pre_train_optimizer_step",
    "post_train_step_batch",
    "post_eval_step_batch",
]


class Reads(Schedule):
    """Runs always, and reads fixtures as the stage opens."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.read: list[dict[str, Any]] = []

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        # loss_parts are kept only for hooks that name them, as they hold the graph.
        names = self.names or [name for name in alive if name != "loss_parts"]
        self.read.append({name: alive[name] for name in names})

    def should_run(self) -> bool:
        return True

    def copy(self) -> Reads:
        return self  # so that a test sees what was read


def data() -> InMemory:
    return InMemory(torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]), batch_size=2)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_schedule_can_read_each_fixture_that_is_alive_and_the_training_stays_the_same(hook: str) -> None:
    reads, weights = Reads(), []
    for schedule in (None, reads):
        extension = Extension.of(**{hook: lambda: None})
        if schedule is not None:
            scheduled(extension, hook, schedule)
        tm = tiny_manager(extension, train_data=data(), eval_data=data())
        tm.train()
        weights.append(tm.model[0].weight.detach())

    assert {"epoch_num", "step_num"} <= reads.read[-1].keys()
    assert torch.equal(*weights)


@pytest.mark.parametrize("name", ["inputs", "targets", "example_index", "loss_parts", "true_batch_size", "prediction"])
def test_a_function_that_decides_reads_what_the_hook_reads(name: str) -> None:
    """``name`` is the parameter of both functions."""
    read: dict[str, list[Any]] = {"schedule": [], "hook": []}
    functions: dict[str, Any] = {}
    exec(f"def decide({name}): return read['schedule'].append({name}) is None", {"read": read}, functions)
    exec(f"def hook({name}): read['hook'].append({name})", {"read": read}, functions)
    extension = Extension.of(post_train_backward=functions["hook"])
    scheduled(extension, "post_train_backward", when(functions["decide"]))

    tiny_manager(extension, train_data=data()).train()

    assert len(read["hook"]) == 3
    assert all(one is other for one, other in zip(read["schedule"], read["hook"], strict=True))


def test_a_schedule_reads_a_fixture_that_an_extension_provides() -> None:
    class Provides(Extension):
        @fixture("train_step_batch")
        def halves(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs / 2

    reads, extension = Reads("halves", "inputs"), Extension.of(pre_train_optimizer_step=lambda: None)
    scheduled(extension, "pre_train_optimizer_step", reads)

    tiny_manager(Provides(), extension).train()

    assert all(torch.equal(one["halves"], one["inputs"] / 2) for one in reads.read)
    assert len(reads.read) == 3
