"""Modes are set for a block, per submodule, and restored however it ends."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import nn

from train_manager.loop.modes import mode, preserve_modes


def net() -> nn.Sequential:
    """Return Dropout in train mode, and a frozen BatchNorm in eval mode."""
    return nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_eval_mode_is_without_gradients() -> None:
    with mode(net(), training=False):
        assert not torch.is_grad_enabled()


def test_train_mode_is_with_gradients_also_inside_no_grad() -> None:
    with torch.no_grad(), mode(net(), training=True):
        assert torch.is_grad_enabled()


def test_every_submodule_is_in_the_mode_inside_the_block() -> None:
    model = net()
    with mode(model, training=True):
        assert modes(model) == [True, True, True]


def test_a_frozen_submodule_is_in_eval_mode_again_afterwards() -> None:
    model = net()
    with mode(model, training=True):
        pass

    assert modes(model) == [True, True, False]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_modes_are_restored_after_an_exception(error: type[BaseException]) -> None:
    model = net()
    with suppress(error), mode(model, training=False):
        raise error

    assert modes(model) == [True, True, False]
    assert torch.is_grad_enabled()


def test_no_grad_around_it_is_restored() -> None:
    with torch.no_grad():
        with mode(net(), training=True):
            pass
        assert not torch.is_grad_enabled()


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
