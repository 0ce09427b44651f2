"""What processes do together in tests of arguments, data and own loops; each function runs in every process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.support.rank_trainings import data, loss_with_weights, manager, net, outcome, rows
from train_manager import Endless, Extension, InMemory, Interleaved, Rows, SeededDataLoader, Together, TrainManager
from train_manager.data.shares import Share
from train_manager.distribution.process_group import _made
from train_manager.extensions import Accumulate, ClipGradients, Distributed, FreezeModules
from train_manager.telling.errors import TrainManagerError

# ---- data ------------------------------------------------------------------------------------------------------------


def numbered(n: int, **options: Any) -> Any:
    """Rows whose inputs begin with their numbers."""
    x, y = rows(n)
    x[:, 0] = torch.arange(n)
    return data(n, **options) if not options.pop("plain", False) else (x, y)


class Seen(Extension):
    """Collects which examples of each set count in this process, and those that it is given."""

    def __init__(self) -> None:
        self.counted: dict[str, list[int]] = {}

    def post_eval_step_batch(self, inputs: Any, true_batch_size: int, datasource_name: str) -> None:
        first = inputs["a"] if isinstance(inputs, dict) else inputs
        found = self.counted.setdefault(datasource_name, [])
        if true_batch_size:
            found += first[:, 0].int().tolist()


def own_loader(n: int, batch_size: int, **options: Any) -> DataLoader[Any]:
    dataset, place = TensorDataset(*numbered(n, plain=True)), (int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
    return DataLoader(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset, *place, **options))


def eval_sets() -> dict[str, Iterable[Any]]:
    """Evaluation data of every kind, each with the number of its examples as its name."""

    def whole(n: int) -> TensorDataset:
        return TensorDataset(*numbered(n, plain=True))

    return {
        "51 in memory": Rows(whole(51), batch_size=10),
        "1 in memory": Rows(whole(1), batch_size=10),
        "51 seeded": SeededDataLoader(whole(51), batch_size=10),
        "51 workers": SeededDataLoader(whole(51), batch_size=10, num_workers=1),
        "80 interleaved": Interleaved({"45": Rows(whole(45), batch_size=9), "35": Rows(whole(35), batch_size=7)}),
        "51 loader": DataLoader(whole(51), batch_size=10),
        "51 list": [tuple(part) for part in zip(*(one.split(10) for one in numbered(51, plain=True)), strict=True)],
        "60 own": own_loader(60, 7) if "RANK" in os.environ else DataLoader(whole(60), batch_size=7),
    }


def evaluate() -> dict[str, Any]:
    """Evaluate data of every kind."""
    seen = Seen()
    together = [Distributed()] if "RANK" in os.environ else []
    tm = manager(seen, *together, eval_data=eval_sets())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = tm.eval()
        tm.eval()
    said = [str(one.message) for one in caught if "rank 0" in str(one.message)]
    predictions = tm.predict(data(13, batch_size=5, shuffle=False))
    return {"results": results, "counted": seen.counted, "said": said, "predictions": predictions}


def trained_on(name: str) -> dict[str, Any]:
    """Train on data that are made of others."""
    made: dict[str, Callable[[], Any]] = {
        "Interleaved": lambda: Interleaved({"a": data(45, batch_size=9), "b": data(35, batch_size=7)}, seed=1),
        "Endless": lambda: Endless(data(45)),
        "Together": lambda: Together({"a": data(36), "b": data(24, batch_size=6, drop_last=True)}),
        "Rows": lambda: Rows(TensorDataset(*rows(61)), batch_size=12, shuffle=True),
        "workers": lambda: SeededDataLoader(TensorDataset(*rows(61)), batch_size=12, shuffle=True, num_workers=1),
    }
    together = [Distributed("after")] if "RANK" in os.environ else []
    steps = {"steps_per_epoch": 4} if name == "Endless" else {}
    of = OfBoth if name == "Together" else TrainManager
    eval_data = {} if name == "Endless" else {"same": made[name]()}
    tm = manager(*together, of=of, train_data=made[name](), eval_data=eval_data, **steps)
    return outcome(tm, tm.train())


class OfBoth(TrainManager):
    def unpack_batch(self, batch: Any) -> Any:
        return torch.cat([batch["a"][0], batch["b"][0]]), torch.cat([batch["a"][1], batch["b"][1]])


def with_a_distributed_sampler() -> tuple[Tensor, Tensor, Any]:
    """Train on a process's own batches with Distributed, and by hand with DDP; return the weights of both."""
    tm = manager(Distributed(), train_data=own_loader(30, 4, seed=3), eval_data=None, epochs=2)
    tm.train()
    model = net()
    wrapper = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = own_loader(30, 4, seed=3)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(wrapper(x), y).backward()
            optimizer.step()
    return flat(tm.model), flat(model), tm.samples_seen


def flat(model: Any) -> Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


class OwnShares:
    """Data of a user's class, which gives each process a part of its own: of unequal sizes."""

    gives_shares = True

    def __iter__(self) -> Iterator[Any]:
        x, y = rows(24)
        cuts = [(0, 5), (5, 12)] if "RANK" in os.environ else [(0, 12)]
        begin, end = cuts[int(os.environ.get("RANK", 0))]
        for start in (0, 12):
            yield x[start + begin : start + end], y[start + begin : start + end]


def with_own_shares() -> dict[str, Any]:
    together = [Distributed()] if "RANK" in os.environ else []
    tm = manager(*together, train_data=OwnShares(), eval_data={"own": OwnShares()})
    return outcome(tm, tm.train())


# ---- own loops -------------------------------------------------------------------------------------------------------


def by_batches(tm: TrainManager) -> None:
    with tm.run():
        for _ in range(2):
            for batch in tm.train_data or ():
                tm.train_on_batch(batch)
            tm.end_epoch()
            tm.eval()


def by_calls(tm: TrainManager) -> None:
    with tm.run():
        tm.train_steps(4)
        tm.train_epoch()
        tm.train_steps(3)


def by_phases(tm: TrainManager) -> None:
    torch.manual_seed(1)
    other = nn.Sequential(nn.Linear(5, 3))
    with tm.run():
        tm.train_epoch()
        with tm.phase("other", model=other, optimizer=torch.optim.Adam, train_data=data(30), epochs=2):
            tm.train()
            for batch in data(13):
                tm.train_on_batch(batch)
        with tm.phase("head", optimizer=torch.optim.SGD(tm.model[2].parameters(), lr=0.1), steps_per_epoch=2, epochs=1):
            tm.train()
        tm.train_epoch()
    vars(tm)["other"] = flat(other)


def adding(tm: TrainManager) -> None:
    with tm.run():
        tm.train_steps(2)
        tm.add_extension(ClipGradients(0.1))
        tm.add_extension(Accumulate(2))
        tm.train_steps(5)
        tm.remove_extension("accumulate")
        tm.train_steps(2)


def alone(tm: TrainManager) -> None:
    tm.train()


def by_shares(tm: TrainManager) -> None:
    """Give each process a share of its own making: rows from the front."""
    with tm.run():
        for x, y in data(24):
            rank, number = tm.ranks.place
            begin, end = (0, 12) if number == 1 else ((0, 4), (4, 12))[rank]
            tm.train_on_batch(Share((x[begin:end], y[begin:end]), end - begin, 12))


def in_double() -> dict[str, Any]:
    """LBFGS multiplies differences of the last bits, so that float32 cannot show that two trainings are the same."""
    x, y = rows(61)
    optimizer = partial(torch.optim.LBFGS, lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    given = {"model": net().double(), "optimizer": optimizer}
    return given | {"train_data": InMemory(x.double(), y, batch_size=12, shuffle=True), "eval_data": None, "epochs": 1}


LOOPS: dict[str, tuple[Callable[[TrainManager], None], Callable[..., TrainManager]]] = {
    "train_on_batch": (by_batches, manager),
    "train_on_batch of a loader": (
        by_batches,
        lambda *added, **more: manager(
            *added, train_data=SeededDataLoader(TensorDataset(*rows(61)), batch_size=12), **more
        ),
    ),
    "a list of batches": (
        by_batches,
        lambda *added, **more: manager(*added, train_data=list(data(25)), **more),
    ),
    "shares": (by_shares, manager),
    "training calls": (by_calls, manager),
    "steps_per_epoch": (alone, lambda *added, **more: manager(*added, steps_per_epoch=4, **more)),
    "phases": (by_phases, manager),
    "added in the run": (adding, manager),
    "freezing": (alone, lambda *added, **more: manager(FreezeModules("0", until=1), *added, **more)),
    "LBFGS": (alone, lambda *added, **more: manager(*added, **in_double(), **more)),
}


def loop(name: str, strategy: str | None) -> dict[str, Any]:
    """Train in a loop of the program's own, together if a strategy is given."""
    torch.manual_seed(0)
    do, make = LOOPS[name]
    tm = make(*([] if strategy is None else [Distributed(strategy)]))
    do(tm)
    found = outcome(tm, SimpleNamespace(metrics=None, stopped=None, stopped_by=None))
    return found | {"weights": torch.cat([found["weights"], getattr(tm, "other", torch.zeros(0))])}


# ---- arguments -------------------------------------------------------------------------------------------------------


class TrainsItself:
    def train_step(self, batch: Any) -> Tensor:
        raise AssertionError("it is refused before a batch")


class Plus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :3]


def put_on(device: str) -> TrainManager:
    tm = manager(Distributed())
    tm.device = torch.device(device)
    return tm


def on_one_gpu() -> None:
    tm = put_on("cuda")
    torch.cuda.device_count = lambda: 1
    tm.train()


def hold(tm: TrainManager, do: Callable[[TrainManager], Any]) -> None:
    with tm.run():
        do(tm)


MISTAKES: dict[str, Callable[[], Any]] = {
    "strategy": lambda: Distributed("dpp"),
    "device by number": lambda: put_on("cuda:1").train(),
    "fewer GPUs": lambda: on_one_gpu(),
    "batch_size": lambda: manager(Distributed(), train_data=data(61, batch_size=1)).train(),
    "batch_size of a set": lambda: manager(
        Distributed(), train_data=Interleaved({"a": data(61), "b": data(8, batch_size=1)})
    ).train(),
    "batch_size of an evaluation": lambda: manager(Distributed(), eval_data={"odd": data(5, batch_size=1)}).train(),
    "batch_size in eval": lambda: manager(Distributed()).eval({"odd": data(5, batch_size=1)}),
    "loss with weights": lambda: manager(Distributed(), **loss_with_weights()).train(),
    "loss with weights in an own loop": lambda: hold(
        manager(Distributed(), **loss_with_weights()), lambda tm: tm.train_on_batch(rows(12))
    ),
    "no shares": lambda: manager(Distributed(), train_data=[rows(12)]).train(),
    "no shares in a set": lambda: manager(Distributed(), train_data=Together({"a": data(61), "b": [rows(12)]})).train(),
    "duplicates": lambda: manager(Distributed(), eval_data={"odd": own_loader(51, 10)}).train(),
    "own and whole": lambda: manager(
        Distributed(), eval_data={"odd": Interleaved({"a": own_loader(60, 10), "b": data(5)})}
    ).train(),
    "trains itself in an own loop": lambda: hold(
        TrainManager(model=TrainsItself(), extensions=[Distributed("after")]), lambda tm: tm.train_on_batch(rows(12))
    ),
    "trains itself": lambda: TrainManager(
        model=TrainsItself(), train_data=data(24), extensions=[Distributed("after")]
    ).train(),
    "no parameters": lambda: manager(Distributed(), **{**loss_with_weights(), "model": Plus()}).train(),
    "rows": lambda: hold(manager(Distributed()), lambda tm: tm.train_on_batch((rows(12)[0], torch.zeros(3)))),
    "an object": lambda: hold(
        manager(Distributed()), lambda tm: tm.train_on_batch({"x": rows(12)[0], "y": pack_sequence([rows(12)[0]])})
    ),
    "own batches": lambda: hold(
        manager(Distributed(), train_data=own_loader(30, 4)), lambda tm: tm.train_on_batch(rows(12))
    ),
    "added in a run": lambda: hold(manager(), lambda tm: tm.add_extension(Distributed())),
    "paused": lambda: hold(manager(Distributed()), lambda tm: tm.phase("x", without=["distributed"]).__enter__()),
}


def mistake(name: str) -> tuple[str, str, int]:
    """Make a mistake, and return the error's class and text, and how many messages went before."""
    try:
        MISTAKES[name]()
    except TrainManagerError as error:
        return type(error).__name__, str(error), sum(group._messages is not None for group in _made)
    return "no error", "", 0
