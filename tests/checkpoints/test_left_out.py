from __future__ import annotations

import torch
from torch import nn

from train_manager.checkpoints.left_out import changed_values, left_out_values


def test_a_buffer_in_the_place_of_a_freed_one_has_changed() -> None:
    module = nn.Module()
    module.register_buffer("seen", torch.zeros(1), persistent=False)
    before = left_out_values(module)

    del module.seen
    module.register_buffer("seen", torch.ones(1), persistent=False)  # usually at the address of the first one

    assert changed_values(module, before) == {"seen": torch.ones(1)}
