"""The state of a training as a whole: what is saved, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from train_manager import InMemory, TrainManager
from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.telling.errors import CheckpointError
from train_manager.testing import tiny_manager

NO_STATE = r"a part of the state cannot be loaded \((AttributeError|RuntimeError|TypeError|ValueError): "
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


def edited(state: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    first, _, rest = place.partition(".")
    return {**state, first: edited(state[first], rest, value) if rest else value}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("counts.step_num", "x"),
        ("counts.step_num", None),
        ("counts.step_num", float("nan")),
        ("epoch_num", "x"),
        ("data.batch_num", torch.zeros(3)),
        ("epoch", [1]),
    ],
)
def test_a_value_of_another_kind_is_told_as_the_state_is_loaded(place: str, value: Any) -> None:
    data = InMemory(torch.rand(12, 2), torch.arange(12) % 2, batch_size=4)
    first, tm = tiny_manager(train_data=data), tiny_manager(train_data=data)
    first.train_steps(2)

    with pytest.raises(CheckpointError, match=NO_STATE):
        tm.load_state_dict(edited(first.state_dict(), place, value))


def test_the_state_of_a_pass_over_a_loader_that_is_malformed_is_told_as_it_is_read() -> None:
    x, y = torch.rand(12, 2), torch.arange(12) % 2
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=True)
    first, tm = tiny_manager(train_data=data), tiny_manager(train_data=data)
    first.train_steps(2)
    tm.load_state_dict(edited(first.state_dict(), "data.reader.beginning.random", 1.5))

    with pytest.raises(CheckpointError, match="the position in the data cannot be restored"):
        tm.train()
