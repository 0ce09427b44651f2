"""57 wrong arguments: what is written, what the message advises, and the same thing written as it advises.

``rows()`` runs each and tells what was said, and when.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from train_manager import Extension, InMemory, Interleaved, Rows, TrainManager
from train_manager.extensions import (
    EMA,
    Accumulate,
    ClipGradients,
    EarlyStopping,
    Log,
    LRSchedule,
    Metrics,
    MixedPrecision,
    WarmUp,
    default_extensions,
)
from train_manager.telling.errors import TrainManagerError
from train_manager.testing import tiny_manager

X = torch.linspace(0, 1, 80).reshape(40, 2)
Y = (X.sum(dim=1) > 1).long()
BATCHES = [(X[:20], Y[:20]), (X[20:], Y[20:])]
CROSS_ENTROPY, MSE = nn.functional.cross_entropy, nn.functional.mse_loss
CONSTRUCTED: Any = TrainManager  # untyped: what is passed is wrong

AS_MADE, AS_OPENED, IN_STEP = "as the object is made", "as the training opens", "in the first step"


class Net(nn.Module):
    """A model that is right."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.layer(inputs)
        return result


class TwoOutputs(Net):
    """A model that returns its hidden numbers too."""

    def forward(self, inputs: Tensor) -> Any:
        return self.layer(inputs), inputs


class UpdatesNumbers(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(CROSS_ENTROPY(model(inputs), targets).item())  # type: ignore[arg-type]


class UpdatesTensors(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(CROSS_ENTROPY(model(inputs), targets))


class Epochs:
    """Data that is read anew for each epoch."""

    def __iter__(self) -> Any:
        return iter(BATCHES)


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def quiet_metrics() -> Metrics:
    return Metrics(accuracy=accuracy)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1)


def step_lr(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.StepLR:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1)


def own(cls: type[TrainManager]) -> TrainManager:
    return cls(model=Net(), optimizer=torch.optim.SGD, train_data=BATCHES)


def one_epoch(tm: TrainManager) -> TrainManager:
    tm.train_steps(2)
    return tm


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(X, Y), batch_size=20)


@dataclass(frozen=True)
class Case:
    """One mistake.

    Attributes:
        written: what is written.
        does: does it; returns a manager to train, if that is when it fails.
        cure: what the advice must name.
        follows: the same as the advice has it; returns a manager to train, or anything else if that is all.
    """

    written: str
    does: Callable[[], object]
    cure: str
    follows: Callable[[], object]


def keyword(name: str, value: Any, cure: str, follows: Callable[[], object]) -> Case:
    """An argument of TrainManager that has another name, or another place."""
    return Case(f"TrainManager(..., {name}=...)", lambda: tiny_manager(**{name: value}), cure, follows)


def tiny(**options: Any) -> Callable[[], TrainManager]:
    return lambda: tiny_manager(**{"eval_data": None, **options})


CASES: list[Case] = [
    # ---- the names of arguments --------------------------------------------------------------------------------------
    keyword("epoch", 3, "did you mean 'epochs'?", tiny(epochs=3)),
    keyword("max_epochs", 3, "it is called 'epochs' here", tiny(epochs=3)),
    keyword("num_epochs", 3, "it is called 'epochs' here", tiny(epochs=3)),
    keyword("max_steps", 2, "tm.train_steps(...)", lambda: one_epoch(tiny_manager(eval_data=None))),
    keyword("callbacks", [], "it is called 'extensions' here", tiny(extensions=[])),
    keyword(
        "metrics",
        [accuracy],
        "extensions=[Metrics('accuracy')], or Metrics(name=function)",
        tiny(extensions=[quiet_metrics()]),
    ),
    keyword("lr", 0.1, "optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=...)", tiny(optimizer=adam)),
    keyword("criterion", CROSS_ENTROPY, "it is called 'loss' here", tiny(loss=CROSS_ENTROPY)),
    keyword("loss_fn", CROSS_ENTROPY, "it is called 'loss' here", tiny(loss=CROSS_ENTROPY)),
    keyword("train_loader", BATCHES, "it is called 'train_data' here", tiny(train_data=BATCHES)),
    keyword("train_dataloaders", BATCHES, "it is called 'train_data' here", tiny(train_data=BATCHES)),
    keyword("validation_data", BATCHES, "it is called 'eval_data' here", tiny(eval_data=BATCHES)),
    keyword("test_data", BATCHES, "tm.eval(test_data)", lambda: tiny_manager().eval(BATCHES)),
    keyword("batch_size", 16, "InMemory(x, y, batch_size=...)", tiny(train_data=InMemory(X, Y, batch_size=16))),
    keyword("scheduler", step_lr, "it is called 'lr_schedule' here", tiny(lr_schedule=step_lr)),
    keyword("accelerator", "cpu", "it is called 'device' here", tiny(device="cpu")),
    keyword("gpus", 1, 'device="cuda"', tiny(device="cuda" if torch.cuda.is_available() else "cpu")),
    keyword("precision", 16, "extensions=[MixedPrecision()]", tiny(extensions=[MixedPrecision()])),
    keyword("gradient_clip_val", 1, "[ClipGradients(max_norm=...)]", tiny(extensions=[ClipGradients(max_norm=1)])),
    keyword("accumulate_grad_batches", 3, "extensions=[Accumulate(...)]", tiny(extensions=[Accumulate(3)])),
    keyword("patience", 3, "extensions=[EarlyStopping(patience=...)]", lambda: EarlyStopping(patience=3)),
    keyword("logger", True, "extensions=[Log()]", tiny(extensions=[Log()])),
    keyword("log_dir", None, "it is called 'train_dir' here", tiny(train_dir=None)),
    Case(
        "TrainManager(net=..., loss_function=...)",
        lambda: CONSTRUCTED(net=Net(), loss_function=CROSS_ENTROPY),
        "net: it is called 'model' here\n  loss_function: it is called 'loss' here",
        lambda: TrainManager(model=Net(), loss=CROSS_ENTROPY, optimizer=torch.optim.SGD, train_data=BATCHES),
    ),
    Case(
        "TrainManager(net, loss)",
        lambda: CONSTRUCTED(Net(), CROSS_ENTROPY),
        "TrainManager(model=..., loss=...)",
        lambda: TrainManager(model=Net(), loss=CROSS_ENTROPY, optimizer=torch.optim.SGD, train_data=BATCHES),
    ),
    Case(
        'EarlyStopping("valid/loss", patiance=3)',
        lambda: EarlyStopping("valid/loss", patiance=3),  # type: ignore[call-arg]
        "did you mean 'patience'?",
        lambda: EarlyStopping("valid/loss", patience=3),
    ),
    Case(
        'EarlyStopping("valid/loss", 3)',
        lambda: EarlyStopping("valid/loss", 3),  # type: ignore[call-arg]
        "EarlyStopping(monitor, patience=...",
        lambda: EarlyStopping("valid/loss", patience=3),
    ),
    Case(
        "ClipGradients(max_nrom=1.0)",
        lambda: ClipGradients(max_nrom=1.0),  # type: ignore[call-arg]
        "did you mean 'max_norm'?",
        lambda: ClipGradients(max_norm=1.0),
    ),
    Case(
        "Accumulate(steps=4)",
        lambda: Accumulate(steps=4),  # type: ignore[call-arg]
        "its arguments are batches",
        lambda: Accumulate(batches=4),
    ),
    Case(
        "LRSchedule(make, warmup=5)",
        lambda: LRSchedule(step_lr, warmup=5),  # type: ignore[call-arg]
        "extensions=[WarmUp(steps=...)]",
        tiny(extensions=[WarmUp(steps=5), LRSchedule(step_lr)]),
    ),
    Case(
        'MixedPrecision("bf16")',
        lambda: MixedPrecision("bf16"),  # type: ignore[arg-type]
        "MixedPrecision(torch.bfloat16)",
        tiny(extensions=[MixedPrecision(torch.bfloat16)]),
    ),
    # ---- extensions --------------------------------------------------------------------------------------------------
    Case("extensions=EMA()", tiny(extensions=EMA()), "extensions=[EMA()]", tiny(extensions=[EMA()])),
    Case("extensions=[EMA]", tiny(extensions=[EMA]), "add an instance: EMA()", tiny(extensions=[EMA()])),
    Case(
        "extensions=default_extensions",
        tiny(extensions=default_extensions),
        "if it returns extensions, call it",
        tiny(extensions=default_extensions(files=False)),
    ),
    Case(
        "extensions=[lambda loss: None]",
        tiny(extensions=[lambda loss: None]),
        "Extension.of(post_train_step_batch=lambda ...: ...)",
        tiny(extensions=[Extension.of(post_train_step_batch=lambda loss: None)]),
    ),
    Case('extensions="ema"', tiny(extensions="ema"), "extensions=[EMA()]", tiny(extensions=[EMA()])),
    Case(
        "extensions=[Log(), Log(every=5)]",
        tiny(extensions=[Log(), Log(every=5)]),
        "keep one of the two",
        tiny(extensions=[Log(every=5)]),
    ),
    Case("extensions=[None]", tiny(extensions=[None]), "leave it out", tiny(extensions=[])),
    # ---- data --------------------------------------------------------------------------------------------------------
    Case("train_data=(x, y)", tiny(train_data=(X, Y)), "InMemory(x, y,", tiny(train_data=InMemory(X, Y, batch_size=8))),
    Case("eval_data=[x, y]", tiny(eval_data=[X, Y]), "InMemory(x, y,", tiny(eval_data=InMemory(X, Y, batch_size=8))),
    Case("train_data=x", tiny(train_data=X), "InMemory(x, y,", tiny(train_data=InMemory(X, Y, batch_size=8))),
    Case(
        "train_data=[train_loader, valid_loader]",
        tiny(train_data=[loader(), loader()]),
        'train_data=loader, eval_data={"valid": other}',
        tiny(train_data=loader(), eval_data={"valid": loader()}),
    ),
    Case(
        "train_data=dataset",
        tiny(train_data=TensorDataset(X, Y)),
        "Rows(data, batch_size=64, shuffle=True)",
        tiny(train_data=Rows(TensorDataset(X, Y), batch_size=64, shuffle=True)),
    ),
    Case(
        "train_data=list(zip(x, y))",
        tiny(train_data=list(zip(X, Y, strict=True))),
        "Rows(data, batch_size=64)",
        tiny(train_data=Rows(list(zip(X, Y, strict=True)), batch_size=64)),
    ),
    Case(
        "batches of numpy arrays",
        tiny(train_data=[(X.numpy(), Y.numpy())]),
        "torch.from_numpy(x)",
        tiny(train_data=[(torch.from_numpy(X.numpy()), torch.from_numpy(Y.numpy()))]),
    ),
    Case(
        "a generator for two epochs",
        tiny(train_data=(batch for batch in BATCHES), epochs=2),
        "an object with __iter__",
        tiny(train_data=Epochs(), epochs=2),
    ),
    Case(
        'train_data={"a": loader}',
        tiny(train_data={"a": loader()}),
        "several sets by name: Interleaved(sets)",
        tiny(train_data=Interleaved({"a": loader()})),
    ),
    Case('train_data="data/digits"', tiny(train_data="data/digits"), "DataLoader(", tiny(train_data=loader())),
    Case(
        "a batch without targets after one with them",
        tiny(train_data=[(X, Y), X]),
        "give each as (inputs, targets)",
        tiny(train_data=[(X, Y), (X, Y)]),
    ),
    # ---- the model, the loss, the device -----------------------------------------------------------------------------
    Case("model=Net", tiny(model=Net), "model=Net()", tiny(model=Net())),
    Case(
        "a model that returns a tuple",
        tiny(model=TwoOutputs()),
        "loss=lambda prediction, targets: loss(prediction[0], targets)",
        tiny(model=TwoOutputs(), loss=lambda prediction, targets: CROSS_ENTROPY(prediction[0], targets)),
    ),
    Case("inputs of float64", tiny(train_data=[(X.double(), Y)]), "inputs.float()", tiny(train_data=[(X, Y)])),
    Case("labels of float32", tiny(train_data=[(X, Y.float())]), "targets.long()", tiny(train_data=[(X, Y)])),
    Case(
        "mse_loss of (20, 1) against (20,)",
        tiny(model=nn.Linear(2, 1), loss=MSE, train_data=[(X, X.sum(dim=1))]),
        "loss=lambda prediction, targets: mse_loss(prediction, targets.view_as(prediction))",
        tiny(
            model=nn.Linear(2, 1),
            loss=lambda prediction, targets: MSE(prediction, targets.view_as(prediction)),
            train_data=[(X, X.sum(dim=1))],
        ),
    ),
    Case(
        "a batch on another device",
        tiny(train_data=[(X.to("meta"), Y.to("meta"))]),
        'the model is on cpu, the batch on meta; pass device="cpu"',
        tiny(train_data=[(X, Y)], device="cpu"),
    ),
    Case('device="gpu"', tiny(device="gpu"), '"cuda" for a GPU', tiny(device="cpu")),
    Case("self.update(loss.item())", lambda: own(UpdatesNumbers), "without .item()", lambda: own(UpdatesTensors)),
]


@functools.cache
def said(case: Case) -> tuple[str, str, str]:
    """Do what is wrong; return the first line of the error, its advice, and when it was raised."""
    when, batches = AS_MADE, []
    try:
        made = case.does()
        when = AS_OPENED
        if isinstance(made, TrainManager):
            made.add_extension(
                pre_train_step_batch=lambda batch: batches.append(1), pre_eval_step_batch=lambda: batches.append(1)
            )
            made.train()
    except Exception as error:
        first, *rest = str(error).splitlines()
        advice = error.cure if isinstance(error, TrainManagerError) else "\n".join([*rest, *error.__notes__])
        when = {0: when, 1: IN_STEP}.get(len(batches), f"in step {len(batches)}")
        return first, advice, when
    raise AssertionError(f"nothing was said about {case.written}")


def rows() -> list[tuple[str, str, str]]:
    """Return what was written, the first line and the last line of what was said, and when it was said."""
    found = []
    for case in CASES:
        first, advice, when = said(case)
        lines = [line.strip() for line in advice.splitlines()]
        shown = lines if when == AS_MADE else lines[-1:]  # below an error of torch stand the shapes first
        found.append((case.written, "\n".join([first, *shown]), when))
    return found
