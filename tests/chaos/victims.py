"""What is run in processes that are killed.

No tensor is made as this module is imported; see ``tests.support.fork_server``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # else the first optimizer of each process imports it, which takes three seconds
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import Dataset, get_worker_info

from tests.checkpoints.states import bits
from tests.support.resuming import state_of
from train_manager import Extension, InMemory, SeededDataLoader, TrainManager, every
from train_manager.checkpoints.state_tree import split
from train_manager.extensions import EMA, Accumulate, Checkpoints, ClipGradients, Distributed

# Reads the source of the loop, once for all children: it takes half a second, and no tensor.
TrainManager(model=nn.Identity(), extensions=[Checkpoints(every(1)), EMA(), Accumulate(2)]).check()


class Tell(Extension):
    """Print where the training continues, each step, and each step whose checkpoint the disk has."""

    def post_load_checkpoint(self, train_manager: TrainManager) -> None:
        print("loaded", train_manager.step_num, flush=True)

    def post_train_step_batch(self, step_num: int) -> None:
        print("step", step_num, flush=True)

    def post_save_checkpoint(self, step_num: int) -> None:
        print("saved", step_num, flush=True)


# ---- a training that does nothing but save ---------------------------------------------------------------------------


class Total(nn.Module):
    """Two parameters of so many numbers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.halves = nn.ParameterList([nn.Parameter(torch.zeros(size)) for _ in range(2)])

    def forward(self, inputs: Tensor) -> Tensor:
        total: Tensor = sum(half[0] for half in self.halves) * inputs
        return total


class Stamp(Extension):
    """Write the number of the step into all weights, and into what the optimizer keeps of them."""

    def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        for parameter in train_manager.model.parameters():
            parameter.data.fill_(step_num)
            train_manager.optimizer.state[parameter]["momentum_buffer"].fill_(step_num)


def stamps(state: Mapping[str, Any]) -> set[float]:
    """The numbers of steps that a checkpoint of this training holds: one, if it is whole."""
    buffers = [one["momentum_buffer"] for one in state["optimizers"]["optimizer"]["state"].values()]
    tensors = [*state["model"].values(), *buffers]
    found = {value.item() for tensor in tensors for value in (tensor.min(), tensor.max())}
    return found | {float(state["counts"]["step_num"])}


def saves(folder: str, size: int = 30_000, in_background: bool = False, *more: Extension) -> None:
    """Save each step, without an end; resume from what is there.

    Args:
        size: the numbers in each of two parameters; the optimizer has as many.
        more: further extensions.
    """
    checkpoints = Checkpoints((every(1), "end"), resume=True, in_background=in_background)
    TrainManager(
        model=Total(size),
        loss=lambda prediction: prediction.sum(),
        optimizer=lambda parameters: SGD(parameters, lr=1.0, momentum=0.5),
        train_data=InMemory(torch.ones(1000, 1), batch_size=2) if more else [torch.ones(1)] * 1000,
        epochs=10**9,
        extensions=[Stamp(), checkpoints, Tell(), *more],
        train_dir=folder,
    ).train()


def saves_together(folder: str, size: int) -> None:
    """Do as ``saves`` in one of the processes that train together."""
    saves(folder, size, False, Distributed("after", timeout=20))


# ---- a whole training ------------------------------------------------------------------------------------------------


class Shifted(Dataset[Any]):
    """Small pictures of digits, or of noise, each moved by a random number of pixels; perhaps in a worker that dies."""

    def __init__(self, pictures: Tensor, targets: Tensor, dies_at: int | None = None) -> None:
        self.pictures, self.targets, self.dies_at = pictures, targets, dies_at
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if (self.epoch, row) == (1, self.dies_at) and get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        shift = int(torch.randint(-1, 2, ()))
        return self.pictures[row].roll(shift, dims=-1) + torch.randn(8, 8) * 0.1, self.targets[row]


def pictures(real: bool) -> tuple[Tensor, Tensor]:
    """The digits of sklearn, 1797 of them; or 128 of noise."""
    if real:
        from sklearn.datasets import load_digits

        digits = load_digits()
        return torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(0)
    return torch.rand(128, 8, 8, generator=generator), torch.randint(10, (128,), generator=generator)


def trains(
    folder: str | None, steps: int, save_each: int, real: bool = False, *, dies_at: int | None = None, workers: int = 0
) -> None:
    """Train with all that makes a resume hard, save often, and print the sums of what came of it.

    Args:
        folder: resumes from what is there; None saves nothing.
        steps: of the whole training.
        save_each: so many steps.
        real: whether the data are digits.
        dies_at: the example that a worker of the data dies of, in the second epoch.
        workers: of the data.
    """
    examples = pictures(real)
    torch.manual_seed(0)
    data = SeededDataLoader(Shifted(*examples, dies_at), 32, shuffle=True, drop_last=True, num_workers=workers)
    own = [] if folder is None else [Checkpoints((every(save_each), "epoch"), resume=True), Tell()]
    tm = TrainManager(
        model=nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10)
        ),
        loss=F.cross_entropy,
        optimizer=lambda parameters: AdamW(parameters, lr=3e-3),
        lr_schedule=lambda optimizer: CosineAnnealingLR(optimizer, steps // len(data)),
        epochs=steps // len(data),
        train_data=data,
        eval_data={"valid": [tuple(part[:64] for part in examples)]},
        seed=0,
        extensions=[Accumulate(3), EMA(0.9), ClipGradients(1.0), *own],
        train_dir=folder,
    )
    tm.train()
    print("sums", json.dumps(sums(tm)), flush=True)


def sums(tm: TrainManager) -> dict[str, str]:
    """The SHA-256 of each part of a training's state, without times."""
    state = state_of(tm)
    state["extensions"] = {
        name: one for name, one in state["extensions"].items() if name not in ("checkpoints", "tell")
    }
    return {name: _sum(part) for name, part in state.items()}


def _sum(part: Any) -> str:
    tree, tensors = split({"part": part})
    found = sha256(json.dumps(tree).encode())
    for name in sorted(tensors):
        found.update(name.encode() + bits(tensors[name]))
    return found.hexdigest()


def newest(folder: Path) -> int:
    """The step of the newest checkpoint by its name; 0 if there is none."""
    return max((int(path.name.split("-")[1]) for path in folder.glob("checkpoints/step-*")), default=0)
