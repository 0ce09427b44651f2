"""How many messages a training sends: two in each step, and few in each epoch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import manager
from tests.support.ranks import on_ranks
from train_manager.distribution.process_group import ProcessGroup
from train_manager.extensions import Distributed


def collectives_of(examples: int) -> dict[str, int]:
    """Count the messages of a training of three epochs, and what else is exchanged besides gradients."""
    found: Counter[str] = Counter()
    send = ProcessGroup._gather_bytes

    def count(self: ProcessGroup, content: bytes, size: int, at: str) -> list[bytes]:
        found["messages"] += 1
        return send(self, content, size, at)

    def refuse(*args: object, **options: object) -> None:
        found["others"] += 1

    ProcessGroup._gather_bytes = count  # type: ignore[method-assign]
    tm = manager(Distributed("ddp"), n=examples, eval_data=None)
    with tm.run():
        dist.broadcast = dist.all_reduce = refuse
        found.clear()
        tm.train()
        return {**found, "steps": tm.step_num}


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "steps", "messages"), [(61, 18, 49), (48, 12, 37)])
def test_a_step_sends_two_messages_and_an_epoch_four(
    fork_server: ForkServer, tmp_path: Path, examples: int, steps: int, messages: int
) -> None:
    for found in on_ranks(fork_server, 2, collectives_of, examples, folder=tmp_path):
        # The other one gives all processes the weights of rank 0, as the training call begins.
        assert found == {"messages": messages, "others": 1, "steps": steps}
