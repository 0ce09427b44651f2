"""What the tests of mixed precision look at: the types of the numbers in a training."""

from __future__ import annotations

import torch
from torch import Tensor

from train_manager import Extension


class Dtypes(Extension):
    """Record the precision of each computation."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, torch.dtype]] = set()

    def post_train_step_batch(self, prediction: Tensor, loss: Tensor) -> None:
        self.seen |= {("prediction", prediction.dtype), ("loss", loss.dtype)}

    def post_eval_step_batch(self, prediction: Tensor, loss: Tensor) -> None:
        self.seen |= {("eval prediction", prediction.dtype), ("eval loss", loss.dtype)}
