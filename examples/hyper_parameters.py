"""Take hyper-parameters from the command line: recorded, compared, overridden.

    python examples/hyper_parameters.py --lr 0.5 --train-dir runs/fast

A value is recorded by the place where it is used, such as ``optimizer.lr``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import nn

from train_manager import InMemory, TrainManager, recorded
from train_manager.extensions import Checkpoints, MetricStore, RunRecord


@dataclass
class HyperParameters:
    lr: float = 0.1
    width: int = 16
    epochs: int = 4


@recorded
class Net(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2))


def data() -> InMemory:
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    return InMemory(x, (x.sum(dim=1) > 1).long(), batch_size=20, shuffle=True)


def manager(chosen: HyperParameters, train_dir: str) -> TrainManager:
    torch.manual_seed(0)
    return TrainManager(
        model=Net(chosen.width),
        loss=nn.functional.cross_entropy,
        optimizer=partial(torch.optim.SGD, lr=chosen.lr),
        train_data=data(),
        epochs=chosen.epochs,
        train_dir=train_dir,
        extensions=[RunRecord(), MetricStore(), Checkpoints()],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the options, or continue a training with others."""
    parser = argparse.ArgumentParser()
    for field in fields(HyperParameters):
        default = field.default
        parser.add_argument(f"--{field.name}", type=type(default), default=default)
    parser.add_argument("--train-dir", required=True)
    parser.add_argument("--checkpoint", metavar="TRAIN_DIR", help="continue it")
    parser.add_argument("--override", nargs="*", default=[], metavar="PATH=VALUE")
    args = parser.parse_args(arguments)
    if args.checkpoint:
        pairs = (text.split("=", 1) for text in args.override)
        tm = TrainManager.from_checkpoint(
            args.checkpoint,
            overrides={path: json.loads(value) for path, value in pairs},
            train_data=data(),
            train_dir=args.train_dir,
        )
    else:
        names = [field.name for field in fields(HyperParameters)]
        given = {name: getattr(args, name) for name in names}
        tm = manager(HyperParameters(**given), args.train_dir)
    print(tm.train())


if __name__ == "__main__":
    main()
