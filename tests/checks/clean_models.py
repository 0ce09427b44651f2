"""Models that keep the examples of a batch apart, and such that mix them on purpose."""

from __future__ import annotations

from torch import nn

from tests.checks.cases import Case
from tests.checks.models.clean.attention import ATTENTION
from tests.checks.models.clean.layers import LAYERS
from tests.checks.models.clean.sequences import SEQUENCES
from tests.checks.models.clean.special import SPECIAL
from tests.checks.models.clean.structures import STRUCTURES
from tests.checks.models.leaking.reductions import OwnBatchNorm
from tests.checks.models.parts import beside_batch_norm, deep, floats

CLEAN: tuple[Case, ...] = (*LAYERS, *SEQUENCES, *ATTENTION, *STRUCTURES, *SPECIAL)

NOTED: tuple[Case, ...] = (
    Case(
        "a batch norm in train mode",
        lambda: beside_batch_norm(nn.Tanh(), before=True),
        floats(8, 4),
        "norm",
        ("train",),
    ),
    Case(
        "an own batch norm that is allowed",
        lambda: deep(OwnBatchNorm()),
        floats(8, 4),
        "body.block.part",
        options={"allow": ("body.block.part",)},
    ),
)
"""What mixes the examples in a norm, which is told as a note; ``culprit`` is the norm."""
