from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from train_manager.model.buffers import preserve_buffers


class Moving(nn.Module):
    """Puts a new tensor in the place of its buffer, as hand-written moving averages do."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("unused", None)

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return x


def test_buffers_are_as_before_and_the_same_tensors() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Flatten(), Moving())
    before = dict(net.named_buffers())
    values = {name: buffer.clone() for name, buffer in before.items()}
    with preserve_buffers(net):
        net(torch.rand(4, 2))
        assert any(not values[name].equal(buffer) for name, buffer in net.named_buffers())
    for name, buffer in net.named_buffers():
        assert buffer is before[name]
        assert buffer.equal(values[name])


def test_buffers_are_put_back_after_an_error_too() -> None:
    norm = nn.BatchNorm1d(2)
    assert norm.running_mean is not None
    with pytest.raises(ValueError, match="on purpose"), preserve_buffers(norm):
        norm(torch.rand(4, 2))
        raise ValueError("on purpose")
    assert norm.running_mean.equal(torch.zeros(2))
