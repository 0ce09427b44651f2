"""The state of a training as a whole: what is saved, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import TrainManager
from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.telling.errors import CheckpointError
from train_manager.testing import tiny_manager

OTHER_FORMAT = """the checkpoint has a state of format 0; this train_manager reads format 1
  load it with the train_manager that wrote it, or take its weights alone: tm.load_weights(path)"""


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(CheckpointError) as refused:
        tiny_manager().load_state_dict({**tiny_manager().state_dict(), "format": 0})
    assert str(refused.value) == OTHER_FORMAT


def test_no_training_is_rebuilt_from_a_state_of_another_format(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, "step-000000000000", {**tiny_manager().state_dict(), "format": 0}, {})
    with pytest.raises(CheckpointError) as refused:
        TrainManager.from_checkpoint(path)
    assert str(refused.value) == OTHER_FORMAT
