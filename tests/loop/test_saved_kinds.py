"""Values of another kind in files whose hashes are right are refused as they are loaded, not steps later."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from train_manager import CheckpointError, InMemory
from train_manager.extensions import EMA
from train_manager.testing import tiny_manager


def manager() -> Any:
    data = InMemory(torch.rand(12, 2), torch.arange(12) % 2, batch_size=4, shuffle=True)
    schedule = {"lr_schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1)}
    return tiny_manager(EMA(), train_data=data, epochs=2, **schedule)


def saved() -> dict[str, Any]:
    tm = manager()
    tm.train_steps(2)
    state: dict[str, Any] = tm.state_dict()
    return state


def edited(state: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    first, _, rest = place.partition(".")
    return {**state, first: edited(state[first], rest, value) if rest else value}


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("counts.step_num", "x", "counts > step_num is a number here, but a text in the checkpoint"),
        ("counts.step_num", None, "counts > step_num is a number here, but None in the checkpoint"),
        ("counts.step_num", float("nan"), "counts > step_num is 0 here, but nan in the checkpoint"),
        ("data.batch_num", torch.zeros(3), "data > batch_num is a number here, but a tensor of 3 numbers in the"),
        ("epoch", [1], "epoch is a dict here, but a list in the checkpoint"),
        ("extensions.ema.updates", {}, "extensions > ema > updates is a number here, but a dict in the checkpoint"),
        ("lr_schedule.optimizer.gamma", "x", "lr_schedule > optimizer > gamma is a number here, but a text in the"),
    ],
)
def test_a_value_of_another_kind_is_refused_and_named(place: str, value: Any, told: str) -> None:
    tm = manager()

    with pytest.raises(CheckpointError) as refused:
        tm.load_state_dict(edited(saved(), place, value))
    assert str(refused.value).startswith(f"the checkpoint does not fit this training: {told}")
    assert str(refused.value).endswith("\n  it was edited, or is of another program; take another checkpoint")
    assert tm.step_num == 0


def test_the_state_of_a_pass_over_a_loader_that_is_malformed_is_told_as_it_is_read() -> None:
    x, y = torch.rand(12, 2), torch.arange(12) % 2
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=True)
    first, tm = tiny_manager(train_data=data), tiny_manager(train_data=data)
    first.train_steps(2)
    tm.load_state_dict(edited(first.state_dict(), "data.again.beginning.random", 1.5))

    with pytest.raises(CheckpointError, match="the position in the data cannot be restored"):
        tm.train()
