"""What the tests of extensions that work on one of several optimizers share: a loop with two of them."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import SGD

from train_manager import Extensible, SkipStage


class TwoOptimizers(Extensible):
    """A loop whose batches are written as the names of the optimizers that step in them: "g", "d" or "dg".

    Attributes:
        optimizers: each has one weight, a rate of 0.5, and no gradient.
        update_num: the steps of both.
    """

    def __init__(self, *extensions: Any) -> None:
        super().__init__(list(extensions))
        self.optimizers = {name: SGD([torch.zeros(1, requires_grad=True)], lr=0.5) for name in "gd"}
        self.update_num = 0
        self.epochs_done = 0

    def train(self, *batches: str) -> None:
        """Train one epoch of these batches, as a run."""
        counts = {"update_num": self.update_num, "epoch_num": self.epochs_done, "train_manager": self}
        with self.staged("run", counts), self.staged("train"), self.staged("train_step_epoch"):
            for batch in batches:
                with self.staged("train_step_batch", {"batch": batch}):
                    for name in batch:
                        self.step(name)
            self.epochs_done += 1
            self.fixtures.modify("epoch_num", self.epochs_done)

    def step(self, name: str) -> None:
        optimizer = self.optimizers[name]
        try:
            with self.staged("train_optimizer_step", {"optimizer": optimizer, "optimizer_name": name}):
                optimizer.step()
                self.update_num += 1
                self.fixtures.modify("update_num", self.update_num)
        except SkipStage:
            pass

    def rate(self, name: str) -> float:
        return float(self.optimizers[name].param_groups[0]["lr"])
