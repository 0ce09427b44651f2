"""The tree of the "Proposed Learner Design" (Kyle Daruwalla, 2020), as a class whose stages and callbacks are those.

    Learner
      Epoch Stage                              epoch()
        Fit Stage                              fit()
          Before Batch Callback                Noise
          Fit Batch Stage                      fit_batch()
            Fit Gradient/Loss Stage
              After Gradient Loss Callback 1   ClipGradients
              After Gradient Loss Callback 2   NoteLoss
            Fit Update Model Stage
        Validate Stage                         validate()
          Validate Batch Stage                 validate_batch()
            Validate Loss Stage
          After Validate Callback              PrintValidation

``python examples/learner_of_stages.py`` fits a line to 64 points in five epochs:

    after 8 steps the loss is 0.317
    after 16 steps the loss is 0.163
    after 24 steps the loss is 0.085
    after 32 steps the loss is 0.043
    after 40 steps the loss is 0.022
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from train_manager import Extensible, Extension, modifies

Batch = tuple[Tensor, Tensor]


class Learner(Extensible):
    """A model, its data, and the stages that train it; everything else is a callback."""

    def __init__(self, model: nn.Module, fit_data: Sequence[Batch], valid_data: Sequence[Batch]) -> None:
        super().__init__([Noise(), ClipGradients(), NoteLoss(), PrintValidation()])
        self.model, self.fit_data, self.valid_data = model, fit_data, valid_data
        self.optimizer = SGD(model.parameters(), lr=0.3)

    def epoch(self) -> None:
        with self.staged("epoch"):
            self.fit()
            self.validate()

    def fit(self) -> None:
        with self.staged("fit"):
            for inputs, targets in self.fit_data:
                self.fit_batch(inputs, targets)

    def fit_batch(self, inputs: Tensor, targets: Tensor) -> None:
        with self.staged("fit_batch", {"inputs": inputs, "targets": targets}):
            with self.staged("fit_gradient_loss", {"model": self.model}):
                loss = F.mse_loss(self.model(self.fixtures["inputs"]), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.fixtures["loss"] = loss.detach()
            with self.staged("fit_update_model"):
                self.optimizer.step()

    @torch.no_grad()
    def validate(self) -> None:
        with self.staged("validate"):
            losses = [self.validate_batch(inputs, targets) for inputs, targets in self.valid_data]
            self.fixtures["valid_loss"] = torch.stack(losses).mean()

    def validate_batch(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with self.staged("validate_batch", {"inputs": inputs, "targets": targets}):
            with self.staged("validate_loss"):
                return F.mse_loss(self.model(inputs), targets)


class Noise(Extension):
    @modifies("inputs")
    def pre_fit_batch(self, inputs: Tensor) -> Tensor:
        return inputs + 0.01 * torch.randn_like(inputs)


class ClipGradients(Extension):
    def post_fit_gradient_loss(self, model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


class NoteLoss(Extension):
    def __init__(self) -> None:
        self.losses: list[Tensor] = []

    def post_fit_gradient_loss(self, loss: Tensor) -> None:
        self.losses.append(loss)


class PrintValidation(Extension):
    def post_validate(self, valid_loss: Tensor, extensible: Learner) -> None:
        steps = len(extensible["note_loss"].losses)
        print(f"after {steps} steps the loss is {valid_loss:.3f}")


def new_learner() -> Learner:
    torch.manual_seed(0)
    x = torch.rand(80, 1)
    batches = list(zip(x.split(8), (2 * x + 1).split(8), strict=True))
    return Learner(nn.Linear(1, 1), batches[:8], batches[8:])


if __name__ == "__main__":
    learner = new_learner()
    for _ in range(5):
        learner.epoch()
