from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
import torch

from train_manager.extensions import EMA, Checkpoints
from train_manager.testing import tiny_manager


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as into a pipe, where no line is cut: pytest-xdist gives its processes a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A train_dir with the checkpoints of the steps 3 and 6."""
    train_dir = tmp_path_factory.mktemp("trained") / "digits"
    momentum = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.25, momentum=0.9)}
    tiny_manager(Checkpoints(), EMA(), epochs=2, train_dir=train_dir, seed=0, **momentum).train()
    return train_dir


@pytest.fixture
def train_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return copytree(trained, tmp_path / "digits")
