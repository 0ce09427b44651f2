"""Modes are set for a block, per submodule, and restored however it ends."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.training import modes
from train_manager.loop.modes import mode, preserve_modes


def net() -> nn.Sequential:
    """Return Dropout in train mode, and a frozen BatchNorm in eval mode."""
    return nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())


def test_modes_nest() -> None:
    model = net()
    with mode(model, training=False):
        with mode(model, training=True):
            pass
        assert modes(model) == [False, False, False]
        assert not torch.is_grad_enabled()


def test_preserved_modes_changes_nothing_itself() -> None:
    model = net()
    with preserve_modes(model):
        assert modes(model) == [True, True, False]
        assert torch.is_grad_enabled()


def test_preserved_modes_undoes_what_was_changed_inside() -> None:
    model = net()
    with preserve_modes(model):
        model.eval()
        torch.set_grad_enabled(False)

    assert modes(model) == [True, True, False]
    assert torch.is_grad_enabled()


def test_a_model_whose_train_method_keeps_a_part_frozen_is_obeyed() -> None:
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[1].eval()
            return self

    model = Frozen(nn.Dropout(), nn.BatchNorm1d(2))
    with mode(model, training=True):
        assert modes(model) == [True, True, False]
