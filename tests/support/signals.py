"""Hooks that send signals, and note how a training ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.training import At
from train_manager import Extension, TrainManager
from train_manager.signals import stop_on_signals

EXITS = {"SIGTERM": 143, "SIGINT": -signal.SIGINT, "SIGUSR1": 99}  # a shell shows 130 for -SIGINT


MESSAGE = "{}: ending after this step, with a checkpoint; a second one ends at once\n"


each = pytest.mark.parametrize("name", EXITS)


class Stops(Extension):
    """Takes signals for the time of a run, as an extension that saves does."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.raise_if_stopped: Callable[[], None] = lambda: None

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        with stop_on_signals(train_manager, **self.options) as self.raise_if_stopped:
            yield

    def pre_train(self) -> None:
        self.raise_if_stopped()


def at_step(number: int, *actions: Callable[[], object]) -> Extension:
    """Do something in one training step, after the forward pass."""

    def hook(step_num: int) -> None:
        for action in actions if step_num == number - 1 else ():
            action()

    return At("post_train_loss_forward", hook)


def send(name: str) -> Callable[[], None]:
    return lambda: signal.raise_signal(getattr(signal, name))
