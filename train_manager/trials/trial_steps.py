"""Steps of a training that are put back: their fixtures, and the looks of checks in the middle of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeVar, final

import torch
from torch import Tensor

from train_manager.checks.batch_leaves import copied
from train_manager.checks.inputs import inputs_of_first_layer
from train_manager.checks.loss_calls import LossCall, LossCalls
from train_manager.core.extension import Extension
from train_manager.data.batch import unpack, without_source
from train_manager.data.random_state import random_state
from train_manager.data.reader import one_pass
from train_manager.manager import TrainManager
from train_manager.telling.errors import TrainManagerError
from train_manager.trials.preserve import preserve_training

Value = TypeVar("Value")

LIMIT: Final = 60.0  # seconds that all checks take together, roughly
BATCHES: Final = 20  # first batches of the training data, which the steps use in turn
READ: Final = 1000  # batches of a set that are read, at most


class CouldNotLook(Exception):
    """A check could not look; the text is the reason."""


@final
class TrialSteps:
    """Trains on the first batches of a training, and puts everything back.

    Args:
        train_manager: the manager that will train.
        keep: the names of extensions that do not pause.

    Raises:
        CouldNotLook: there is no batch, or the data fail.
    """

    def __init__(self, train_manager: TrainManager, keep: Sequence[str]) -> None:
        # The names of the extensions that pause.
        self.paused = {*train_manager.extensions}.difference(keep)
        self.tm, self._keep, self._ends = train_manager, keep, perf_counter() + LIMIT
        data: Any = train_manager.train_data
        with self.preserved():
            try:
                with one_pass(data) as batches:
                    self.batches = list(self.some(batches, BATCHES))
            except Exception as error:
                raise CouldNotLook(f"train_data failed with {in_a_line(error)}") from error
        if not self.batches:
            raise CouldNotLook("train_data has no batch")
        self.failed: Exception | None = None  # the error of the first step; then no other step is done
        self.seconds, self.draws = 0.0, False  # the time of the second step; whether the first drew random numbers
        # Of the first step: batch, inputs, targets, prediction, loss and losses, as far as it has them.
        self.fixtures: dict[str, Any] = {"batch": self.batches[0], **unpack(self.batches[0])}
        self.calls: list[LossCall] = []  # the calls of torch's losses in the first step
        self.layers: list[tuple[str, Tensor]] = []  # the first layer with weights and its input; one at most
        try:
            self._do_first_steps()
        except Exception as error:  # the training itself would raise it too
            self.failed = error

    def left(self) -> float:
        """Return the seconds that are left for all checks."""
        return self._ends - perf_counter()

    def preserved(self) -> AbstractContextManager[object]:
        """Return a ``with`` block after which the training is as it was."""
        return preserve_training(self.tm, self._keep, "diagnose")

    def some(self, batches: Iterator[Any], most: int = READ) -> Iterator[Any]:
        """Yield batches, at least one, for an eighth of the time that is left."""
        until = perf_counter() + self.left() / 8
        for batch in islice(batches, most):
            yield without_source(batch)
            if perf_counter() > until:
                break

    @contextmanager
    def training(self) -> Iterator[Callable[[Any], float]]:
        """Give a function that trains on a batch and returns its loss; the ``with`` block puts the training back."""
        if self.failed is not None:
            raise self.failed
        tm = self.tm
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the training itself will give the same warnings
            # The run makes its train_dir, which must not stay: it is removed after everything else is put back.
            folders = [] if tm.train_dir is None else [tm.train_dir, *tm.train_dir.parents]
            stack.callback(_remove_empty, [folder for folder in folders if not folder.exists()])
            stack.enter_context(self.preserved())
            # The hooks and modes of the checks would make a compiled model compile anew, for minutes.
            if "torch._dynamo" in sys.modules:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(tm.run())
            stack.enter_context(tm.mode(training=True))  # train_on_batch() sets no mode: train() does
            yield self._step

    def looking(self, **hooks: Callable[..., Any]) -> AbstractContextManager[object]:
        """Return a ``with`` block in which the steps call these hooks too."""
        return self.tm._adding([Extension.of(**hooks)])

    def within(self, look: Callable[[], Value], *, steps: int = 1, costs: int = 0) -> Value:
        """Train for some steps, and return the result of ``look``, which is called at the end of the last one.

        Args:
            look: the look.
            steps: how many steps to train.
            costs: the time of the look, in training steps.

        Raises:
            CouldNotLook: there is not enough time.
        """
        seen, expected = list[Value](), costs * self.seconds
        if expected > self.left():
            raise CouldNotLook(f"left out: it would take about {expected:.0f} seconds")
        with self.training() as step:
            # The last step is on the first batch, whose fixtures the checks know.
            for number in range(1, steps):
                step(self.batches[number % len(self.batches)])
            with self.looking(post_train_step_batch=lambda: seen.append(look())):
                step(self.batches[0])
        return seen[0]

    def probe(self, batch: Any) -> Any:
        """Return the prediction for another batch, within a step.

        Raises:
            CouldNotLook: an own ``train_batch`` calls the model in another way, in which the usual one fails.
        """
        try:
            return self.tm.probe(batch)
        except Exception as error:
            if "prediction" in self.fixtures:
                raise
            cure = "train_batch calls the model in another way: override model_forward too"
            raise CouldNotLook(f"model_forward failed with {in_a_line(error)}, while {cure}") from error

    def _step(self, batch: Any) -> float:
        tm = self.tm
        # A copy, because train_batch may change a batch in place.
        loss = tm.train_on_batch(copied(batch))
        tm._progress.own = None  # a loss that is not finite must not raise: it is judged
        if loss is None:
            raise CouldNotLook("train_batch has no loss: set fixtures['loss'] in it, or call self.update(loss)")
        return loss.item()

    def _do_first_steps(self) -> None:
        with self.training() as step:
            looking = self.looking(post_train_step_batch=self._look)
            with LossCalls() as calls, inputs_of_first_layer(self.tm.model) as self.layers, looking:
                self.calls, before = calls.noted, _random_states()
                step(self.batches[0])
                self.draws = not all(map(torch.equal, before, _random_states()))
            began = perf_counter()  # the first step also allocates and initializes, so the second one is timed
            step(self.batches[0])
            self.seconds = perf_counter() - began

    def _look(self) -> None:
        names, fixtures = ("batch", "inputs", "targets", "prediction", "loss", "losses"), self.tm.fixtures
        self.fixtures = {name: fixtures[name] for name in names if name in fixtures}


def in_a_line(error: Exception) -> str:
    """Return the type and the text of an error, without its cure."""
    what = error.what if isinstance(error, TrainManagerError) else str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {what}"


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that opening a run has made, the innermost first."""
    for folder in folders:
        with suppress(OSError):  # the folder was not made, or has a file of an extension that did not pause
            folder.rmdir()


def _random_states() -> list[Tensor]:
    state = random_state()
    return [state["torch"], *state["cuda"]]
