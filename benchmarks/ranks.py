"""What training on two processes costs, beside a bare loop with DistributedDataParallel and two messages in each step.

python -m benchmarks ranks
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from benchmarks.measure import ratios, spread
from benchmarks.mlp import LEARNING_RATE, Batch, new_batches, new_model
from benchmarks.section import Claim, Section, table
from train_manager import InMemory, TrainManager
from train_manager.extensions import Distributed

BARE: Final = "a bare loop, with two messages in a step"
DDP: Final = 'Distributed("ddp")'
AFTER: Final = 'Distributed("after")'
WARM_UP: Final = 10
QUICK: dict[str, Any] = {"rounds": 2, "steps": 50}

TEXT: Final = """\
CPU time of two processes on one core that train the MLP with batches of 32 together. A message is 1 KB from each
process to each other one.

{table}
"""


def section(rounds: int = 7, steps: int = 300) -> Section:
    """Measure."""
    measured = _measure(rounds, steps)
    rows = [
        [case, spread(seconds).times(1e6 / steps).shown(0), ratios(seconds, measured[BARE]).shown(2)]
        for case, seconds in measured.items()
    ]
    claims = [
        Claim("a step on 2 processes over a bare DDP loop", ratios(measured[DDP], measured[BARE]).median, 1.2, 1.15),
        Claim('strategy "after" over "ddp", on the CPU', ratios(measured[AFTER], measured[DDP]).median, 1.1, 1.0),
    ]
    text = TEXT.format(table=table(["", "us in a step", "ratio"], rows))
    return Section("Two processes", text, claims, on_page=False)


def _measure(rounds: int, steps: int) -> dict[str, list[float]]:
    """CPU seconds of both processes, by case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.ranks", str(rounds), str(steps)]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    of_ranks = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return {case: [sum(pair) for pair in zip(*(one[case] for one in of_ranks), strict=True)] for case in of_ranks[0]}


def _run_as_rank(rounds: int, steps: int) -> dict[str, list[float]]:
    """Run the cases in turns, in each of the two processes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    tm = _manager("ddp", steps)
    with tm.run():  # makes the groups
        cases: dict[str, Callable[[], Callable[[], object]]] = {
            BARE: lambda: _bare_loop(steps),
            DDP: lambda: _with_distributed("ddp", steps),
            AFTER: lambda: _with_distributed("after", steps),
        }
        found: dict[str, list[float]] = {case: [] for case in cases}
        for number in range(rounds + 1):  # the first one warms up
            for case, make in cases.items():
                train = make()
                dist.barrier()
                before = process_time()
                train()
                if number:
                    found[case].append(process_time() - before)
    return found


def _bare_loop(steps: int) -> Callable[[], object]:
    model = nn.parallel.DistributedDataParallel(new_model(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    rank = dist.get_rank()
    batches = [(x[rank::2], y[rank::2]) for x, y in new_batches(steps + WARM_UP)]
    own, all_of_them = torch.zeros(1024, dtype=torch.uint8), torch.zeros(2048, dtype=torch.uint8)

    def train(batches: list[Batch] = batches[WARM_UP:]) -> None:
        for inputs, targets in batches:
            for _ in range(2):
                dist.all_gather_into_tensor(all_of_them, own)
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    train(batches[:WARM_UP])
    return train


def _with_distributed(strategy: str, steps: int) -> Callable[[], object]:
    tm = _manager(strategy, steps + WARM_UP)
    tm.open()
    tm.train_steps(WARM_UP)

    def train() -> None:
        tm.train_steps(steps)
        tm.close()

    return train


def _manager(strategy: str, steps: int) -> TrainManager:
    x, y = (torch.cat(parts) for parts in zip(*new_batches(steps), strict=True))
    return TrainManager(
        model=new_model(),
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=LEARNING_RATE),
        train_data=InMemory(x, y, batch_size=32),
        extensions=[Distributed(strategy)],
    )


if __name__ == "__main__":
    print(json.dumps(_run_as_rank(*map(int, sys.argv[1:]))))
