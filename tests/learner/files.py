"""Small files of a learner, as dicts.

No tensor is made as this module is imported; see ``tests.support.fork_server``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import SGD

from train_manager import Extension, recorded
from train_manager.learner import Learner, create_dataloader, create_learner, load_model

TRUNK: Final = [{"use": "Linear", "out_features": 6}, {"use": "BatchNorm1d"}, {"use": "ReLU"}]
SIMCLR: Final = {"use": "SimCLR", "at": "trunk", "epochs": 2}


@recorded
def spots(number: int) -> dict[str, Tensor]:
    """Points around three centres; each has the number of its centre as its label."""
    generator = torch.Generator().manual_seed(0)
    label = torch.arange(number) % 3
    return {"point": torch.randn(number, 4, generator=generator) + 3 * torch.eye(3, 4)[label], "label": label}


def dataset(**more: Any) -> dict[str, Any]:
    """60 rows: 48 to train on, half of them labelled, 12 to test; six batches without labels, three with them."""
    table: dict[str, Any] = {"use": "spots", "number": 60, "inputs": "point", "targets": "label"}
    table |= {"split": {"train": 0.8, "test": 0.2}, "labelled": 0.5, "batch_size": 8}
    return {"dataset": {"spots": {**table, "augment": [{"use": "noise", "std": 0.1}], **more}}}


def network(**more: Any) -> dict[str, Any]:
    """A trunk with a BatchNorm, and a head with an objective."""
    head = {"from": "trunk", "use": "Linear", "out_features": 3}
    modules = {"trunk": {"from": "point", "layers": TRUNK}, "head": head}
    objectives = {"class": {"use": "cross_entropy", "at": "head"}}
    return {"inputs": {"point": [4]}, "module": modules, "objective": objectives, **more}


def options(train_dir: Path | None = None, **more: Any) -> dict[str, Any]:
    """SimCLR for two epochs; afterwards the trunk is frozen."""
    folder = {} if train_dir is None else {"train_dir": str(train_dir)}
    return {"seed": 7, "freeze": "trunk", "self_supervised": [SIMCLR], **folder, **more}


def learner_of(
    data: dict[str, Any] | None = None, model: dict[str, Any] | None = None, given: dict[str, Any] | None = None
) -> Learner:
    """Make a learner of dicts; those of this module by default."""
    torch.manual_seed(3)
    made = load_model(network() if model is None else model)
    optimizer = SGD(made.parameters(), lr=0.1, momentum=0.5)
    found = options() if given is None else given
    return create_learner(create_dataloader(dataset() if data is None else data), made, optimizer, found)


def train_all(
    given: dict[str, Any], extensions: Mapping[str, Extension] | None = None, between: Callable[[Learner], object] = id
) -> Learner:
    """Make the calls of a program: the phases, and four epochs of three steps.

    Args:
        given: the options.
        extensions: more of them.
        between: is called before the first epoch, and after each.
    """
    learner = learner_of(given=given)
    for name, extension in (extensions or {}).items():
        learner.tm.add_extension(extension, name)
    learner.ss_learn()
    between(learner)
    for _ in range(4):
        learner.train_epoch()
        between(learner)
    return learner


def right(prediction: Tensor, truth: Tensor) -> Tensor:
    """Whether each prediction is right."""
    return prediction.argmax(dim=1) == truth
