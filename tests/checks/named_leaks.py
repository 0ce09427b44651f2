"""A model that mixes its examples, and the modules that the check names."""

from __future__ import annotations

from torch import Tensor, nn

from train_manager.telling.findings import Findings


def named(found: Findings) -> str:
    name = found[0].where.rpartition(" (")[0]
    return "" if name == "the model itself" else name


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)
