"""Trainings whose models, optimizers, schedules and hooks have a state of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, OneCycleLR, ReduceLROnPlateau

from tests.extensions.optimization.gan import GanManager, gan_batches
from tests.resume.trainings import adam, network, training
from train_manager import (
    Extension,
    Objective,
    TrainManager,
    every,
    exponentially,
    groups,
)
from train_manager.extensions import (
    EMA,
    SAM,
    Accumulate,
    ClipGradients,
    EarlyStopping,
    FreezeModules,
    LRSchedule,
    MixedPrecision,
    Mixup,
    WarmUp,
)


@training()
def batch_norm() -> dict[str, Any]:
    return {"model": network(nn.BatchNorm1d(8))}


@training()
def groups_of_two_classes() -> dict[str, Any]:
    """The parts of an optimizer, whose states and rates must come back to them."""
    sgd = partial(SGD, lr=0.1, momentum=0.9)
    made = groups({"*.bias": {"weight_decay": 0}, "0": sgd}, default=partial(AdamW, lr=0.01), layer_decay=0.5)
    extensions = [WarmUp(steps=3), Accumulate(2), EMA(0.5), ClipGradients(1.0)]
    return {"optimizer": made, "lr_schedule": lambda one: ExponentialLR(one, 0.5), "extensions": extensions}


@training()
def average_of_the_weights() -> dict[str, Any]:
    return {"model": network(nn.BatchNorm1d(8)), "extensions": [EMA(0.5)]}


@training()
def average_that_begins_with_the_model() -> dict[str, Any]:
    average = EMA(0.5, begin="model", use_buffers=True)  # killed also before the first step is in it
    return {"model": network(nn.BatchNorm1d(8)), "extensions": [average, Accumulate(3)], "epochs": 3}


@training()
def lr_schedule_per_epoch() -> dict[str, Any]:
    return {"lr_schedule": lambda optimizer: CosineAnnealingLR(optimizer, 3), "epochs": 3}


@training()
def lr_schedule_per_step() -> dict[str, Any]:
    schedule = LRSchedule(lambda optimizer: OneCycleLR(optimizer, 0.5, total_steps=20), per="step")
    return {"extensions": [schedule, WarmUp(3)]}


@training()
def lr_schedule_by_a_metric() -> dict[str, Any]:
    schedule = LRSchedule(
        lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, threshold=0.5), monitor="valid/loss"
    )
    return {"extensions": [schedule], "epochs": 3}


@training()
def lr_schedule_by_a_metric_beside_one_per_epoch() -> dict[str, Any]:
    by_metric = LRSchedule(
        lambda optimizer: ReduceLROnPlateau(optimizer, patience=0), monitor="valid/loss", count_start=True
    )
    per_epoch = lambda optimizer: ExponentialLR(optimizer, 0.9)  # noqa: E731
    return {"extensions": [by_metric], "lr_schedule": per_epoch, "eval_at": "start", "epochs": 3}


@training()
def optimizer_that_calls_a_closure() -> dict[str, Any]:
    return {"model": nn.Linear(4, 2), "optimizer": partial(LBFGS, lr=0.1, max_iter=3)}


@training()
def windows_over_the_ends_of_epochs() -> dict[str, Any]:
    return {"extensions": [Accumulate(3), ClipGradients(0.1)], "epochs": 3}


@training()
def all_recipes_at_once() -> dict[str, Any]:
    average = EMA(0.5, warm_up=True, use_buffers=True)
    recipes = [Accumulate(3), average, ClipGradients(0.1), FreezeModules("0", until=1), Mixup(0.5, num_classes=2)]
    return {"extensions": recipes, "lr_schedule": lambda optimizer: ExponentialLR(optimizer, 0.5), "epochs": 3}


@training()
def half_precision_with_scaled_gradients() -> dict[str, Any]:
    return {"extensions": [MixedPrecision(torch.float16), Accumulate(2)]}


@training()
def sharpness_aware_minimization() -> dict[str, Any]:
    return {"extensions": [SAM(0.05)]}


@training()
def loss_with_weights() -> dict[str, Any]:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction * self.scale, targets)

    return {"loss": Weighted()}


class Classify(Objective):
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"accuracy": (prediction.argmax(dim=1) == targets).float().mean()}


@training()
def objective_with_a_metric() -> dict[str, Any]:
    return {"loss": Classify()}


class NoisyGan(nn.Module):
    """A generator with BatchNorm, and a critic with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))

    def loss_of(self, name: str, real: Tensor, noise: Tensor) -> Tensor:
        if name == "generator":
            return F.softplus(-self.critic(self.generator(noise))).mean()
        fake = self.generator(noise + torch.randn(())).detach()
        return F.softplus(self.critic(fake)).mean() + F.softplus(-self.critic(real)).mean()


@training(kind=GanManager)
def two_optimizers() -> dict[str, Any]:
    optimizers = {"critic": adam, "generator": partial(SGD, lr=0.1, momentum=0.9)}
    schedules = {"critic": lambda optimizer: ExponentialLR(optimizer, 0.5)}
    given = {"model": NoisyGan(), "optimizer": optimizers, "lr_schedule": schedules, "loss": None}
    return {**given, "train_data": gan_batches(), "eval_data": None, "extensions": [Accumulate(2)]}


@training(kind=GanManager)
def two_optimizers_in_half_precision() -> dict[str, Any]:
    given = {"model": NoisyGan(), "optimizer": {"critic": adam, "generator": adam}, "loss": None, "eval_data": None}
    return {**given, "train_data": gan_batches(), "extensions": [MixedPrecision(torch.float16), Accumulate(2)]}


class CriticTwice(TrainManager):
    """Updates the critic with each batch, and the generator with every second one."""

    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        self.update(self.model.loss_of("critic", inputs, targets), "critic")
        if self.step_num % 2:
            self.update(self.model.loss_of("generator", inputs, targets), "generator")


@training(kind=CriticTwice)
def optimizer_that_rests_in_some_batches() -> dict[str, Any]:
    optimizers = {"critic": adam, "generator": adam}
    given = {"model": NoisyGan(), "optimizer": optimizers, "loss": None, "train_data": gan_batches(), "eval_data": None}
    return {**given, "extensions": [EMA(0.5), ClipGradients(0.1)]}


# ---- when evaluations and hooks run ----------------------------------------------------------------------------------


@training()
def evaluation_every_third_step() -> dict[str, Any]:
    return {"eval_at": ("start", every(3), "end")}


@training()
def evaluation_at_rarer_and_rarer_steps() -> dict[str, Any]:
    return {"eval_at": exponentially(1, 2), "epochs": 3}


@training()
def early_stopping_that_restores_the_best() -> dict[str, Any]:
    stopping = EarlyStopping(patience=2, min_delta=0.02, restore_best=True)
    return {"extensions": [stopping, EMA(0.5)], "epochs": 6}


class StopsAt(Extension):
    """Stop the training once, in the middle of an epoch."""

    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == self.step:
            train_manager.stop("enough")


@training()
def stop_within_an_epoch() -> dict[str, Any]:
    return {"extensions": [StopsAt(6)], "epochs": 3}


class EndsEpochs(Extension):
    """End each epoch after two batches."""

    def post_train_step_batch(self, batch_num: int, train_manager: TrainManager) -> None:
        if batch_num == 2:
            train_manager.end_epoch()


@training()
def epochs_that_a_hook_ends() -> dict[str, Any]:
    return {"extensions": [EndsEpochs()], "epochs": 3}
