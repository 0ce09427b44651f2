"""What one batch costs: InMemory beside a DataLoader over a TensorDataset, batches of 64 pictures of 28x28.

python -m benchmarks in_memory
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measure import interleaved, ratios, seconds_each, spread
from benchmarks.section import Claim, Section, table
from train_manager import InMemory

BATCH: Final = 64
BASE: Final = "DataLoader(TensorDataset)"
SIZES: Final = (2_000, 10_000, 60_000)
QUICK: dict[str, Any] = {"rounds": 1, "sizes": (1_000,)}

TEXT: Final = """\
CPU time of one batch of {batch} pictures of 28x28 with their targets, of `InMemory` and of a `DataLoader` over a
`TensorDataset`.

{table}

`InMemory` spends most of its time on the copy of 200 kB. In order and with `copy=False` it gives parts of the arrays:
{parts} us a batch.
"""


def section(rounds: int = 9, sizes: tuple[int, ...] = SIZES) -> Section:
    """Measure."""
    rows, times_as_fast = [], []
    for examples in sizes:
        for order, shuffle in (("shuffled", True), ("in order", False)):
            forms = both(examples, shuffle)
            cases = {form: partial(seconds_per_batch, data) for form, data in forms.items()}
            measured = interleaved(cases, rounds)
            faster = ratios(measured[BASE], measured["InMemory"])
            costs = (spread([1e6 * seconds for seconds in measured[form]]).shown(1) for form in forms)
            rows.append([f"{examples} {order}", *costs, faster.shown(1)])
            times_as_fast.append(faster.median)
    heads = ["examples", f"{BASE}, us", "InMemory, us", "times as fast"]
    claim = Claim("InMemory over DataLoader, the least of all", min(times_as_fast), must=5, goal=20, at_least=True)
    seconds = interleaved({"parts": partial(seconds_per_batch, parts_of(sizes[-1]))}, rounds)["parts"]
    text = TEXT.format(batch=BATCH, table=table(heads, rows), parts=spread(seconds).times(1e6).shown(1))
    return Section("Batches from memory", text, [claim], on_page=False)


def parts_of(examples: int) -> InMemory:
    """The data in order, without copies."""
    return InMemory(torch.rand(examples, 28, 28), torch.randint(10, (examples,)), batch_size=BATCH, copy=False)


def both(examples: int, shuffle: bool) -> dict[str, Iterable[Any]]:
    """The same data in both forms."""
    x, y = torch.rand(examples, 28, 28), torch.randint(10, (examples,))
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=shuffle)
    forms: dict[str, Iterable[Any]] = {BASE: loader, "InMemory": InMemory(x, y, batch_size=BATCH, shuffle=shuffle)}
    targets = [torch.cat([target for _, target in data]).sort().values for data in forms.values()]
    assert targets[0].equal(targets[1]), "they give different examples"
    return forms


def seconds_per_batch(data: Iterable[Any]) -> float:
    """CPU seconds per batch of one pass."""
    batches = -(-len(data.dataset) // BATCH) if isinstance(data, DataLoader) else len(data)  # type: ignore[arg-type]
    return seconds_each(pass_over(data), 1) / batches


def pass_over(data: Iterable[Any]) -> Callable[[int], None]:
    """One pass, as ``seconds_each`` calls it."""

    def run(times: int) -> None:
        for _ in range(times):
            for _ in data:
                pass

    return run
