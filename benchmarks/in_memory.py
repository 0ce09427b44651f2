"""What one batch costs: InMemory beside a DataLoader over a TensorDataset, batches of 64 pictures of 28x28.

    python benchmarks/in_memory.py [rounds]

One thread; CPU time per batch. The cases are interleaved and shuffled, the ratio is taken inside each round; medians
and quartiles over the rounds. Of InMemory's share about 5 us are calls, the rest is the copying of 200 kB: a batch in
order is copied at the speed of the memory, rows that lie apart at half of it.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from train_manager import InMemory

BATCH = 64
BASE = "DataLoader(TensorDataset)"
Data = dict[str, Iterable[Any]]


def cases(examples: int) -> dict[str, Data]:
    """The same data in each form, for each order."""
    x, y = torch.rand(examples, 28, 28), torch.randint(10, (examples,))
    dataset = TensorDataset(x, y)
    return {
        order: {
            BASE: DataLoader(dataset, batch_size=BATCH, shuffle=shuffle),
            "InMemory": InMemory(x, y, batch_size=BATCH, shuffle=shuffle),
        }
        for order, shuffle in (("shuffled", True), ("in order", False))
    }


def checked(data: Data) -> Data:
    """The data, if all forms give the same examples."""
    targets = [torch.cat([target for _, target in batches]).sort().values for batches in data.values()]
    assert all(found.equal(targets[0]) for found in targets)
    return data


def seconds_per_batch(data: Iterable[Any]) -> float:
    """CPU seconds per batch of one pass."""
    before = time.process_time()
    batches = 0
    for _ in data:
        batches += 1
    return (time.process_time() - before) / batches


def measure(data: Data, rounds: int) -> dict[str, list[float]]:
    """Seconds per batch of each form, in each round but the first, which warms up."""
    measured: dict[str, list[float]] = {form: [] for form in data}
    for _ in range(rounds + 1):
        for form in random.sample(list(data), len(data)):
            measured[form].append(seconds_per_batch(data[form]))
    return {form: values[1:] for form, values in measured.items()}


def quartiles(values: list[float], write: Callable[[float], str]) -> str:
    """The median, with the quartiles beside it."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{write(middle)} [{write(low)}, {write(high)}]"


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    gc.freeze()
    print(f"{'':34} {'us per batch':>24} {'times as fast':>22}")
    for examples in (2_000, 10_000, 60_000):
        for order, data in cases(examples).items():
            measured = measure(checked(data), rounds)
            for form, values in measured.items():
                ratios = [base / value for base, value in zip(measured[BASE], values, strict=True)]
                micros = quartiles(values, lambda value: f"{value * 1e6:.1f}")
                times = "" if form == BASE else quartiles(ratios, lambda value: f"{value:.1f}")
                print(f"{examples:6} {order:9} {form.split('(')[0]:17} {micros:>24} {times:>22}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
