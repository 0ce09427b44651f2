"""Any iterable continues within an epoch with the batches of an uninterrupted training, or is told that it may not."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from tests.resume.of_data import Wrapper
from tests.support.training import At
from train_manager import TrainManager, every
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager

Batch = tuple[Tensor, Tensor]
ROWS = TensorDataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2)


def shuffled(**options: Any) -> DataLoader[Any]:
    return DataLoader(ROWS, batch_size=4, shuffle=True, **options)


class Sized(Wrapper):
    def __len__(self) -> int:
        return len(self.inner)


class Hidden:
    """Has its loader in no attribute."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


class Drawn:
    """Draws the order of a pass as it begins."""

    def __init__(self, permutation: Callable[[int], Any]) -> None:
        self.permutation = permutation

    def __iter__(self) -> Iterator[Batch]:
        for row in self.permutation(9):
            yield ROWS[int(row) : int(row) + 4]


def once() -> Iterator[Any]:
    yield from shuffled()


def by_torch(rows: int) -> Any:
    return torch.randperm(rows)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


EXACT: dict[str, Callable[[], Any]] = {
    "a class that wraps": lambda: Wrapper(shuffled()),
    "one with a length": lambda: Sized(shuffled()),
    "a bar": lambda: tqdm(shuffled(), disable=True),
    "a bar around a class": lambda: tqdm(Wrapper(shuffled()), disable=True),
    "a wrapper of two": lambda: Wrapper(Sized(shuffled())),
    "a loader with a generator": lambda: Wrapper(shuffled(generator=seeded())),
    "one below a bar": lambda: Wrapper(tqdm(shuffled(generator=seeded()), disable=True)),
    "a loader in a function": lambda: Hidden(shuffled),
    "a loader made each time": lambda: Hidden(functools.partial(shuffled, drop_last=True)),
    "torch": lambda: Drawn(by_torch),
    "numpy": lambda: Drawn(np.random.permutation),
    "python": lambda: Drawn(lambda rows: random.sample(range(rows), rows)),
    "a range": lambda: Drawn(range),
}


def training(data: Any, *extensions: Any, **options: Any) -> TrainManager:
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(), nn.Linear(8, 2))
    return tiny_manager(*extensions, model=model, train_data=data, epochs=options.pop("epochs", 3), seed=7, **options)


def trained(make: Callable[[], Any], *extensions: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Train, and return the inputs of each batch, and the weights."""
    torch.manual_seed(7)
    tm, seen = training(make(), *extensions, **options), list[Any]()
    tm.add_extension(pre_train_step_batch=lambda batch: seen.append(batch[0].tolist()))
    with contextlib.suppress(ZeroDivisionError):
        tm.train()
    return seen, [one.tolist() for one in tm.model.parameters()]


def resumed(
    make: Callable[[], Any], folder: Path, at: int, before: Callable[[], Any] | None = None, **options: Any
) -> Any:
    """Stop at a step, and return what a new training reads from the checkpoint of each second step on."""
    fails = At("pre_train_step_batch", lambda step_num: 1 // (step_num != at))
    trained(before or make, fails, Checkpoints(every(2), keep=None), train_dir=folder, **options)
    return trained(make, Checkpoints((), resume=True), train_dir=folder, **options)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("at", [14, *(pytest.param(n, marks=pytest.mark.whole) for n in (3, 19, 24))])
def test_the_rest_of_the_epoch_is_that_of_an_uninterrupted_training(name: str, at: int, tmp_path: Path) -> None:
    whole, weights = trained(EXACT[name])
    seen, end = resumed(EXACT[name], tmp_path, at)

    assert seen == whole[-len(seen) :]
    assert (len(whole) - len(seen), end) == (at // 2 * 2, weights)


class OwnOrder(Drawn):
    """Draws with a state that no checkpoint holds."""

    def __init__(self) -> None:
        own = random.Random(3)
        super().__init__(lambda rows: own.sample(range(rows), rows))


class Counting:
    """Has another order in each pass, by its own count of them."""

    passes = 0

    def __iter__(self) -> Iterator[Batch]:
        self.passes += 1
        order = torch.randperm(9, generator=torch.Generator().manual_seed(self.passes))
        return iter([ROWS[row : row + 4] for row in order.tolist()])


class Buffered:
    """Draws again within a pass, between the draws of the dropout."""

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(3):
            yield from (ROWS[row : row + 4] for row in torch.randperm(36)[:3].tolist())


TOLD: dict[str, tuple[Callable[[], Any], int]] = {
    "a state of its own": (OwnOrder, 14),
    "a count of its passes": (Counting, 14),
    "draws within the pass": (Buffered, 14),
}


@pytest.mark.parametrize("name", TOLD)
def test_an_order_that_cannot_be_had_is_told(name: str, tmp_path: Path) -> None:
    make, at = TOLD[name]
    with pytest.warns(RuntimeWarning) as found:
        resumed(make, tmp_path, at)

    kind = make.__name__
    assert [str(one.message) for one in found] == [
        f"train_data ({kind}) does not tell its position, so its first {at - 9} batches are read again and left out, "
        "but they were others before the checkpoint: the rest of the epoch may have some of them once more; "
        "give it state_dict() and load_state_dict(), or set_epoch() if its order depends on the epoch alone"
    ]


def test_so_is_a_generator_that_has_given_other_batches(tmp_path: Path) -> None:
    def other() -> Iterator[Batch]:
        return (ROWS[row : row + 4] for row in range(20, 30))

    with pytest.warns(RuntimeWarning, match=r"train_data \(generator\) does not .* but they were others before"):
        resumed(other, tmp_path, 4, before=once, epochs=1)


def test_a_generator_that_begins_again_goes_on(tmp_path: Path) -> None:
    whole, weights = trained(once, epochs=1)
    seen, end = resumed(once, tmp_path, 4, epochs=1)

    assert (seen, end) == (whole[4:], weights)


def test_batches_of_a_checkpoint_of_other_data_may_be_others(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="but they may have been others before the checkpoint"):
        resumed(lambda: Sized([*shuffled()]), tmp_path, 4, before=lambda: [*shuffled()], epochs=1)
