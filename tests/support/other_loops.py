"""A small training in the loop of each of four toolkits, with BatchLeakCheck of ``examples/batch_leaks_elsewhere``.

The toolkits change settings of logging and of warnings, so a training runs in a process of its own.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.support.equal_states import assert_same
from train_manager.data.random_state import random_state

BATCH_SIZE: Final = 8
STEPS: Final = 3

Train = Callable[[nn.Module, Any], nn.Module]
"""Trains a network with a check, or with None, and returns what was trained."""


class Centred(nn.Module):
    """A module that lets the examples leak."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def network(*, leaks: bool) -> nn.Module:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    middle = Centred() if leaks else nn.Tanh()
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), middle, nn.Linear(8, 3))


def examples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(BATCH_SIZE * STEPS, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (len(inputs),), generator=generator))


def with_lightning(net: nn.Module, check: Any) -> nn.Module:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

        def training_step(self, batch: Any) -> Tensor:
            inputs, targets = batch
            return F.cross_entropy(self.net(inputs), targets)

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[check] if check else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(examples(), BATCH_SIZE, shuffle=True))
    return net


def with_ignite(net: nn.Module, check: Any) -> nn.Module:
    from ignite.engine import create_supervised_trainer

    trainer = create_supervised_trainer(net, torch.optim.AdamW(net.parameters(), lr=0.01), F.cross_entropy)
    if check:
        check.attach(trainer)
    trainer.run(DataLoader(examples(), BATCH_SIZE, shuffle=True), max_epochs=1)
    return net


class WithLoss(nn.Module):
    """A network that computes its loss, as a Trainer of transformers asks for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(inputs)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def collate(rows: list[Any]) -> dict[str, Tensor]:
    inputs, labels = zip(*rows, strict=True)
    return {"inputs": torch.stack(inputs), "labels": torch.stack(labels)}


def with_transformers(net: nn.Module, check: Any) -> nn.Module:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        "trained",
        num_train_epochs=1,
        per_device_train_batch_size=BATCH_SIZE,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    callbacks = [check] if check else []
    Trainer(WithLoss(net), arguments, data_collator=collate, train_dataset=examples(), callbacks=callbacks).train()
    return net


def with_keras(net: nn.Module, check: Any) -> nn.Module:
    import keras

    # Layers of Keras stand beside the torch network: they mix examples, and draw random numbers, in ways of their own.
    keras.utils.clear_session()  # names count on from model to model, and the order of the weights is that of the names
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.TorchModuleWrapper(net),
        keras.layers.Dense(8),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5, seed=1),
        keras.layers.Dense(3),
    ]
    model: Any = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", loss=lambda targets, prediction: F.cross_entropy(prediction, targets.long()))
    model.fit(DataLoader(examples(), BATCH_SIZE, shuffle=True), verbose=0, callbacks=[check] if check else [])
    return cast(nn.Module, model)


TRAINS: Final[dict[str, Train]] = {
    "ignite": with_ignite,
    "keras": with_keras,
    "lightning": with_lightning,
    "transformers": with_transformers,
}


def _check(toolkit: str, net: nn.Module) -> Any:
    made = importlib.import_module(f"examples.batch_leaks_elsewhere.with_{toolkit}").BatchLeakCheck
    return made(net) if toolkit == "ignite" else made()


def end_of(toolkit: str, net: nn.Module, check: Any) -> dict[str, Any]:
    """Return the state at the end of a training."""
    trained = TRAINS[toolkit](net, check)
    return {
        "weights": trained.state_dict(),
        "gradients": [one.grad for one in trained.parameters()],
        "modes": [one.training for one in trained.modules()],
        "hooks": [len(one._forward_pre_hooks) for one in trained.modules()],
        "random numbers": random_state(),
    }


def look(toolkit: str) -> None:
    """Train a network that leaks and a clean one, each with a check; print what was found.

    The toolkit shows a finding on stderr.
    """
    clean = network(leaks=False)
    of_clean = _check(toolkit, clean)
    TRAINS[toolkit](clean, of_clean)
    print("clean:", of_clean.findings.is_clean)
    print("these are the warnings of a leak", file=sys.stderr)
    leaky = network(leaks=True)
    of_leaky = _check(toolkit, leaky)
    ends = end_of(toolkit, leaky, of_leaky), end_of(toolkit, network(leaks=True), None)
    print("found:", of_leaky.findings[-1].where)
    assert_same(*ends)
    print("both trainings end in the same state")
