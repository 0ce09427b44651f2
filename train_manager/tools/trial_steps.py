"""Steps of a training that are put back: what they show, and what checks look at in the middle of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, final

import torch
from torch import Tensor

from train_manager.core.extension import Extension
from train_manager.data.batch import parts_of
from train_manager.data.randomness import random_state
from train_manager.diagnosis.batch_leaves import leaves_of, put_together
from train_manager.diagnosis.inputs import Scale, scale_at_first_layer
from train_manager.diagnosis.loss_calls import LossCall, LossCalls
from train_manager.manager import TrainManager
from train_manager.metrics.deferred import FiniteLosses
from train_manager.telling.errors import TrainManagerError
from train_manager.tools.preserve import preserved_training


class StepFailed(Exception):
    """A training step has failed, or shows nothing; the text tells why a check could not look."""


@final
class FirstStep:
    """What the first training step shows, without what it has changed.

    Attributes:
        batch: as it was trained on.
        parts: the ``inputs``, ``targets``, ``prediction`` and ``loss`` of it, as far as there are any.
        added: the names of the losses that the model has added.
        calls: those of torch's losses.
        scale: what has reached the first layer.
        draws: the step has drawn random numbers.
        seconds: how long it took.
        error: why it failed.
    """

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.parts: dict[str, Any] = dict(parts_of(batch))
        self.added: list[str] = []
        self.calls: list[LossCall] = []
        self.scale: Scale | None = None
        self.draws = False
        self.seconds = 0.0
        self.error: StepFailed | None = None

    def look(self, train_manager: TrainManager) -> None:
        """Keep the fixtures of the batch, at the end of its step."""
        fixtures = train_manager.fixtures
        self.batch = fixtures["batch"]
        names = ("inputs", "targets", "prediction", "loss")
        self.parts = {name: fixtures[name] for name in names if name in fixtures}
        losses = fixtures["losses"]
        self.added = sorted(losses.of_forward) if losses.added is not None else []


@final
class TrialSteps:
    """Trains on some batches, and puts everything back.

    Args:
        train_manager: what will train.
        keep: the names of extensions that do not pause.
        batches: the batches, at least one.

    Attributes:
        batches: the same.
        first: what the first step shows.
    """

    def __init__(self, train_manager: TrainManager, keep: Sequence[str], batches: Sequence[Any]) -> None:
        self._tm, self._keep, self.batches = train_manager, keep, batches
        self.first = self._first_step()

    @contextmanager
    def training(self, **hooks: Callable[..., Any]) -> Iterator[Callable[[Any], float]]:
        """Give what trains on a batch and returns its loss; after the ``with`` block nothing has been trained."""
        tm = self._tm
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the training itself will warn of the same
            folders = [] if tm.train_dir is None else [tm.train_dir, *tm.train_dir.parents]
            stack.callback(_remove_empty, [folder for folder in folders if not folder.exists()])
            stack.enter_context(preserved_training(tm, self._keep, "diagnose"))
            if "torch._dynamo" in sys.modules:  # a compiled model would be compiled anew, with what looks into it
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(tm._adding([Extension.of(**hooks)] if hooks else None))
            stack.enter_context(tm.run())
            yield self._step

    def after(self, steps: int, **hooks: Callable[..., Any]) -> None:
        """Train for some steps, with hooks in the last one alone."""
        with self.training() as step:
            for number in range(1, steps):
                step(self.batches[number % len(self.batches)])
            with self._tm._adding([Extension.of(**hooks)]):
                step(self.batches[0])

    def probe(self, batch: Any) -> Any:
        """Return the prediction for another batch, in a hook of a step.

        Raises:
            StepFailed: there is none.
        """
        try:
            return self._tm.probe(batch)
        except Exception as error:
            is_own = "prediction" not in self.first.parts
            cure = ", while train_batch calls the model in another way: override model_forward too" if is_own else ""
            raise StepFailed(f"model_forward failed with {in_a_line(error)}{cure}") from error

    def _step(self, batch: Any) -> float:
        tm = self._tm
        try:
            loss = tm.train_on_batch(_copied(batch))
        except StepFailed:
            raise
        except Exception as error:
            raise StepFailed(f"a training step failed with {in_a_line(error)}") from error
        progress = tm._progress
        progress.own, progress.losses = None, FiniteLosses(1)  # one that is not finite is an answer
        if loss is None:
            raise StepFailed("train_batch has no loss: set fixtures['loss'] in it, or call self.update(loss)")
        return loss.item()

    def _first_step(self) -> FirstStep:
        first, batch = FirstStep(self.batches[0]), self.batches[0]
        with self.training(post_train_step_batch=first.look) as step:
            with LossCalls() as calls, scale_at_first_layer(self._tm.model) as scales:
                before, began = _random_states(), perf_counter()
                try:
                    step(batch)
                    first.draws = not all(map(torch.equal, before, _random_states()))
                except StepFailed as error:
                    first.error = error
            if first.error is None and perf_counter() - began > 1:  # it may have made much that the next one has
                began = perf_counter()
                step(batch)
            first.seconds = perf_counter() - began
        first.calls, first.scale = calls.noted, next(iter(scales), None)
        return first


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that opening a run has made, the innermost first."""
    for folder in folders:
        with suppress(OSError):  # it was not made, or an extension that was kept has written a file
            folder.rmdir()


def in_a_line(error: Exception) -> str:
    """Return the kind of an error and what it says, without its cure."""
    what = error.what if isinstance(error, TrainManagerError) else str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {what}"


def _random_states() -> list[Tensor]:
    state = random_state()
    return [state["torch"], *state["cuda"]]


def _copied(batch: Any) -> Any:
    """Return a batch with copies of its tensors, as a step may write into them."""
    return put_together(batch, {path: one.clone() for path, one in leaves_of(batch) if isinstance(one, Tensor)})
