"""Trainings with sharded parameters in tests, and the same in one process; each returns numbers to be compared."""

from __future__ import annotations

import copy
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.nn import functional as F

from tests.support.rank_trainings import ByParts, data, manager, net, rows, whole
from train_manager import Extension, InMemory, TrainManager, modifies
from train_manager.distribution.sharded import full_state
from train_manager.extensions import (
    EMA,
    Accumulate,
    ClipGradients,
    Distributed,
    EarlyStopping,
    FreezeModules,
)


def together(strategy: str | None) -> list[Extension]:
    torch.manual_seed(0)
    return [] if strategy is None else [Distributed(strategy)]


def runs_after_each_other(strategy: str | None) -> list[Any]:
    stopping = EarlyStopping("odd/loss", patience=9, restore_best=True)
    tm = manager(EMA(0.9), Accumulate(2), stopping, *together(strategy))
    found = [tm.train().metrics, whole(tm), tm.train_epochs(2).metrics, whole(tm)]
    return [*found, tm.predict(rows(7)[0]), tm.eval(), tm.train_steps(4).steps, whole(tm)]


def evaluations(strategy: str | None) -> list[Any]:
    sets = {"first": data(45, shuffle=False), "second": data(35, batch_size=8, shuffle=False)}
    tm = manager(*together(strategy), eval_data=sets, epochs=1)
    return [tm.train().metrics, tm.eval(data(51)), tm.eval(data(1))]


def submodules_called_before_the_model(strategy: str | None) -> list[Any]:
    tm = manager(*together(strategy), of=ByParts, eval_at="end", epochs=1)
    return [tm.train().metrics, whole(tm)]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def encode(self, x: Tensor) -> Tensor:
        return self.inner[1](self.inner[0](x))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.inner[2](self.encode(x))  # type: ignore[no-any-return]


class ByMethod(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(F.cross_entropy(model(inputs), targets) + model.encode(inputs).square().mean())


def a_method_beside_forward(strategy: str | None) -> Tensor:
    def register(train_manager: TrainManager) -> None:
        register_fsdp_forward_method(train_manager.model, "encode")

    shards = [] if strategy is None else [Distributed(strategy, shard=["inner.0", "inner.2"])]
    tm = manager(*shards, Extension.of(pre_train=register), model=Encoder(), of=ByMethod, epochs=1)
    tm.train()
    return whole(tm)


class Wide(nn.Module):
    """Has a container without forward(), tied and frozen weights, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.tied = (nn.Linear(5, 8, bias=False) for _ in range(2))
        self.tied.weight = self.embed.weight
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + 0.5 * self.tied(x)
        for block in self.blocks:
            h = torch.tanh(block(h))
        return self.head(self.frozen(h) * self.scale)  # type: ignore[no-any-return]


def unusual_modules(strategy: str | None) -> list[Any]:
    norms: list[Tensor] = []
    watch = Extension.of(post_train_step_batch=lambda grad_norm: norms.append(grad_norm))
    tm = manager(EMA(0.9, begin="model"), ClipGradients(0.5), *together(strategy), watch, model=Wide(), epochs=1)
    metrics = tm.train().metrics
    assert tm.model.embed.weight is tm.model.tied.weight
    return [whole(tm), torch.stack(norms), metrics]


class Pair(TrainManager):
    """Trains two modules in a container that is not called."""

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(F.cross_entropy(model["last"](model["first"](inputs)), targets), "first")
        self.update(F.cross_entropy(model["last"](model["first"](inputs).detach()), targets), "last")

    def eval_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.fixtures["loss"] = F.cross_entropy(model["last"](model["first"](inputs)), targets)


def windows_of_two_optimizers(strategy: str | None) -> Tensor:
    model = nn.ModuleDict({"first": net()[:2], "last": nn.Linear(8, 3)})
    optimizer = {"first": torch.optim.Adam, "last": torch.optim.Adam}
    tm = manager(Accumulate(3), *together(strategy), of=Pair, model=model, optimizer=optimizer)
    tm.train()
    return whole(tm)


def phases(strategy: str | None) -> list[Tensor]:
    tm, found = manager(EMA(0.9), *together(strategy)), list[Tensor]()
    with tm.run():
        with tm.phase("all", optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), epochs=1):
            tm.train()
        with tm.phase("another model", model=net(), epochs=1):
            with tm.phase("inside", optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)):
                tm.train()
            tm.train()
            found.append(whole(tm))
        with tm.phase("a submodule", model=tm.model[2:], train_data=hidden(), eval_data=None, epochs=1):
            tm.train()
        found.append(whole(tm))
        tm.train()
    return [*found, whole(tm)]


def hidden() -> Any:
    x, y = rows(24)
    return InMemory(x.repeat(1, 2)[:, :8], y, batch_size=12)


class Keep(Extension):
    @modifies("update_ends")
    def pre_train_step_batch(self, update_ends: bool) -> bool:
        return False


def a_window_that_is_dropped(strategy: str | None) -> Tensor:
    tm = manager(*together(strategy))
    tm.add_extension(Keep(), "keep")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of gradients that no step has used
        tm.train_steps(2)
    tm.remove_extension("keep")
    tm.train_steps(3)
    return whole(tm)


def joined_after_an_epoch(strategy: str | None) -> Tensor:
    tm = manager(EMA(0.9))
    tm.train_epochs(1)
    for extension in together(strategy):
        tm.add_extension(extension)
    tm.train()
    return whole(tm)


def modules_that_thaw(strategy: str | None) -> Tensor:
    tm = manager(FreezeModules("0", until=1), EMA(0.9), *together(strategy))
    tm.train()
    return whole(tm)


SCENES = {
    function.__name__: function
    for function in (
        runs_after_each_other,
        evaluations,
        submodules_called_before_the_model,
        a_method_beside_forward,
        unusual_modules,
        windows_of_two_optimizers,
        phases,
        a_window_that_is_dropped,
        joined_after_an_epoch,
        modules_that_thaw,
    )
}


def play(name: str, strategy: str | None) -> Any:
    return SCENES[name](strategy)


# ---- counted, saved and loaded -------------------------------------------------------------------------------------


def reductions() -> tuple[int, int]:
    """The updates of a training, and how often the gradients of a group of parameters were summed."""
    groups: Any = import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group")
    tm = manager(Accumulate(3), *together("fsdp"))
    with mock.patch.object(groups, "foreach_reduce", wraps=groups.foreach_reduce) as counted:
        tm.train()
    return tm.update_num, counted.call_count


class Take(Extension):
    """Takes the state of a training after its 8th step, in an open window."""

    state: Any = None

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == 8:
            train_manager.save_soon()

    def pre_save_checkpoint(self, train_manager: TrainManager) -> None:
        self.state = copy.deepcopy(full_state(train_manager.state_dict()))


def save_and_resume(strategy: str | None, state: Any = None, *, is_sharded: bool = False) -> tuple[Tensor, Any]:
    """Train to the end, from a state if there is one; return the weights, and the state that was taken on the way."""
    # "max": the best weights are those of the first epoch, which are in the state.
    stopping = EarlyStopping("odd/loss", patience=9, mode="max", restore_best=True)
    take = Take()
    tm = manager(EMA(0.9), Accumulate(3), stopping, *together(strategy), take)
    if is_sharded:
        tm.eval()
    if state is not None:
        tm.load_state_dict(copy.deepcopy(state))
    tm.train()
    return whole(tm), take.state


def load_and_train(strategy: str | None, path: Path, is_sharded: bool) -> Tensor:
    tm = manager(*together(strategy), epochs=1)
    if is_sharded:
        tm.eval()
    tm.load_weights(path)
    tm.train()
    return whole(tm)


# ---- refused -------------------------------------------------------------------------------------------------------


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.last = inner, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x))  # type: ignore[no-any-return]


class Inside(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(F.cross_entropy(model.inner[2](model.inner[0](inputs)), targets))


def train_inside() -> None:
    manager(*together("fsdp"), model=Outer(net()), of=Inside).train()


def train_around() -> None:
    tm = manager(*together("fsdp"))
    with tm.run(), tm.phase("around", model=Outer(tm.model)):
        tm.train()
