"""The learner: a training that files describe, in the four stages of its life."""

from __future__ import annotations

import atexit
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch.optim import AdamW, Optimizer

from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extension
from train_manager.data.random_state import preserve_random_state
from train_manager.extensions import EMA, Checkpoints, EarlyStopping, FreezeModules, default_extensions
from train_manager.learner.datasets import Datasets
from train_manager.learner.description import FileMistakes
from train_manager.learner.fits import compare_columns, try_examples
from train_manager.learner.model import FileModel
from train_manager.learner.objectives import Objectives
from train_manager.learner.options import INITIALIZERS, Options, Phase, read_options
from train_manager.learner.tasks import Encoder, loss_of_task
from train_manager.manager import TrainManager
from train_manager.reporting.results import TrainResult
from train_manager.telling.errors import StageError


class Learner(Extensible):
    """A training that files describe; made by ``create_learner``.

    Its stages are ``data``, ``model``, ``training`` and ``evaluation``; the run of ``tm`` is open from the first
    training call to ``close``.

    Attributes:
        tm: the TrainManager, with everything that it has.
        options: what the options say.
    """

    def __init__(self, data: Datasets, model: FileModel, optimizer: Optimizer, options: Options) -> None:
        super().__init__()
        self.options, self._data = options, data
        with self.staged("data", {"data": data}), preserve_random_state():
            self._require_fit(data, model)
        with self.staged("model", {"model": model}):
            _initialize(model, options)
        self.tm = TrainManager(
            model=model,
            loss=Objectives(model.description["objective"]),
            optimizer=optimizer,
            train_data=data.train_data,
            eval_data=data.eval_data,
            eval_at=options.eval_at,
            steps_per_epoch=data.steps_per_epoch,
            seed=options.seed,
            device=options.device,
            train_dir=options.train_dir,
            extensions=_extensions(data, options),
        )
        self.tm._warned_of.add("idle calls")  # nor as the program ends: see _resuming_quietly
        self._is_open = self._is_closed = False

    @classmethod
    def of(
        cls, data: Datasets, model: FileModel, optimizer: Optimizer, options: str | Path | Mapping[str, Any] | None
    ) -> Self:
        """Make a learner with the options of a file or a dict, and remember it for the evaluation of its model."""
        learner = cls(data, model, optimizer, read_options(options or {}, model.names))
        model.learner = learner
        return learner

    def ss_learn(self) -> None:
        """Train the self-supervised phases, without a label."""
        self._hold_run_open()
        with self.staged("training"), _resuming_quietly():
            for phase in self.options.phases:
                self._train_phase(phase)

    def train_epoch(self) -> TrainResult:
        """Train one epoch on the labelled data.

        A program that was killed and starts again makes the same calls: an epoch that a checkpoint has is not trained
        again.
        """
        self._hold_run_open()
        with self.staged("training"), _resuming_quietly():
            return self.tm.train_epochs(1)

    def close(self) -> None:
        """End the run; a learner that is closed does not train again."""
        self.tm.close()
        self._is_closed = True

    @contextmanager
    def evaluating(self) -> Iterator[TrainManager]:
        """Hold the stage ``evaluation`` open, and give the TrainManager, whose extensions such as EMA take part."""
        with self.staged("evaluation"):
            yield self.tm

    @contextmanager
    def weights_of_evaluation(self) -> Iterator[None]:
        """Give the model the weights that evaluations use: the average, if there is one."""
        ema = next((extension for extension in self.tm.extensions.values() if isinstance(extension, EMA)), None)
        with nullcontext() if ema is None else ema.applied(self.tm.model):
            yield

    def explain(self, about: str | Extension | None = None, *, all: bool = False, format: str = "text") -> str:
        """Describe the four stages, and below them those of the run; with ``about`` or a format, those of the run."""
        of_run = self.tm.explain(about, all=all, format=format)
        if about is not None or format != "text":
            return of_run
        return f"{super().explain(all=True)}\n\nthe run, which is open in training and evaluation:\n{of_run}"

    def __repr__(self) -> str:
        return f"Learner({self.tm!r})"

    def _require_fit(self, data: Datasets, model: FileModel) -> None:
        mistakes = FileMistakes()
        compare_columns(data, model, mistakes)
        mistakes.raise_all()
        try_examples(data, model, mistakes)
        # The task of each phase is made, so that a wrong argument of the last one is found before the first.
        for phase in self.options.phases:
            phase.task.tried(Encoder(model, phase.at), data.augment, mistakes=mistakes)
        mistakes.raise_all()

    # ---- training --------------------------------------------------------------------------------------------------

    def _hold_run_open(self) -> None:
        """Open the run for the first training; it stays open until ``close``."""
        if self._is_closed:
            what = "the learner is closed, so its run has ended"
            raise StageError(
                what, name="train_epoch", cure="make another: create_learner(...); it resumes in train_dir"
            )
        if not self._is_open:
            self.tm.open()
            self._is_open = True
            # After the hooks that begin a run: what they have registered for the exit is to find the run closed.
            atexit.register(_close_at_exit, weakref.WeakMethod(self.close))

    def _train_phase(self, phase: Phase) -> None:
        task = phase.task.made(Encoder(self.tm.model, phase.at), self._data.augment).to(self.tm.device or "cpu")
        # EarlyStopping: a phase evaluates nothing.
        resting = [
            name
            for name, one in self.tm.extensions.items()
            if name in ("freeze", "augment", "curriculum") or isinstance(one, EarlyStopping)
        ]
        with self.tm.phase(
            f"{phase.task.word} at {phase.at}",
            model=task,
            loss=loss_of_task,
            optimizer=_optimizer(phase),
            train_data=self._data.unlabelled(phase.batch_size),
            eval_data=None,
            epochs=phase.epochs,
            steps_per_epoch=None,
            without=resting,
        ):
            self.tm.train()


def create_learner(
    dataloader: Datasets,
    model: FileModel,
    optimizer: Optimizer,
    options: str | Path | Mapping[str, Any] | None = None,
) -> Learner:
    """Make the learner of data and a model that files describe.

    Args:
        dataloader: the result of ``create_dataloader``.
        model: the result of ``load_model``.
        optimizer: an optimizer of PyTorch with the parameters of the model.
        options: the path of a TOML file, or what such a file says as a dict.

    Raises:
        InputError: all mistakes in the options, or the data do not fit the model.
    """
    return Learner.of(dataloader, model, optimizer, options)


@contextmanager
def _resuming_quietly() -> Iterator[None]:
    """Leave out the warning of a program that resumes and makes the calls again that its checkpoint has completed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"train(_epochs)?\(1?\) has nothing to do")
        yield


def _close_at_exit(reference: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Close the run of a program that ends without ``close``; after an error the run stays recorded as left."""
    close = reference()
    if close is not None and not hasattr(sys, "last_value"):
        close()


def _extensions(data: Datasets, options: Options) -> dict[str, Extension]:
    found = default_extensions(files=options.train_dir is not None)
    if "checkpoints" in found:
        found["checkpoints"] = Checkpoints(resume=True)
    if data.augment is not None:
        found["augment"] = data.augment
    if data.curriculum is not None:
        found["curriculum"] = data.curriculum
    if options.freeze:
        found["freeze"] = FreezeModules(options.freeze)
    return found | options.extensions


def _optimizer(phase: Phase) -> Callable[[Any], Optimizer]:
    if phase.optimizer is None:
        return partial(AdamW, lr=3e-3)
    return partial(phase.optimizer.thing, **phase.optimizer.arguments)


def _initialize(model: FileModel, options: Options) -> None:
    """Draw the weights anew, by the seed; biases become 0, and the vectors of norms stay."""
    if options.initialize is None:
        return
    with preserve_random_state():
        if options.seed is not None:
            torch.manual_seed(options.seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    INITIALIZERS[options.initialize](parameter)
                elif "bias" in name.rpartition(".")[2]:  # also bias_hh_l0
                    parameter.zero_()
