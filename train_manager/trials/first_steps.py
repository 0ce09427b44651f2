"""The first steps of a training, which the checks of ``diagnose`` share: their batches, fixtures and time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from time import perf_counter
from typing import Any, Final, TypeVar, final

import torch
from torch import Tensor

from train_manager.checks.first_loss import LossCall, LossCalls
from train_manager.checks.inputs import inputs_of_first_layer
from train_manager.core.extension import Extension
from train_manager.data.batch import unpack, without_source
from train_manager.data.random_state import random_state
from train_manager.data.reader import one_pass
from train_manager.manager import TrainManager
from train_manager.trials.trial import Trial, in_a_line

Value = TypeVar("Value")

LIMIT: Final = 60.0  # seconds that all checks take together, roughly
BATCHES: Final = 20  # first batches of the training data, which the steps use in turn
READ: Final = 1000  # batches of a set that are read, at most


class CouldNotLook(Exception):
    """A check could not look; the text is the reason."""


@final
class FirstSteps:
    """The first steps of a training, which are tried again for each check.

    Args:
        train_manager: the manager that will train.
        keep: the names of extensions that do not pause.

    Attributes:
        batches: the first batches.
        failed: the error of the first step, after which no other one is done; None if there is none.
        seconds: the time of the second step.
        draws: whether the first step has drawn random numbers.
        fixtures: of the first step: batch, inputs, targets, prediction, loss and losses, as far as it has them.
        calls: the calls of torch's losses in the first step.
        layers: the first layer with weights and its input, if the first step has called one.

    Raises:
        CouldNotLook: there is no batch, or the data fail.
    """

    def __init__(self, train_manager: TrainManager, keep: Sequence[str]) -> None:
        self.tm, self._keep, self._ends = train_manager, keep, perf_counter() + LIMIT
        self.batches = self._read_batches()
        self.failed: Exception | None = None
        self.seconds, self.draws = 0.0, False
        self.fixtures: dict[str, Any] = {"batch": self.batches[0], **unpack(self.batches[0])}
        self.calls: list[LossCall] = []
        self.layers: list[tuple[str, Tensor]] = []
        try:
            self._do_first_steps()
        except Exception as error:  # the training itself would raise it too
            self.failed = error

    def left(self) -> float:
        """Return the seconds that are left for all checks."""
        return self._ends - perf_counter()

    def trial(self) -> Trial:
        """Return a ``with`` block after which the training is as it was."""
        return Trial(self.tm, "diagnose", keep=self._keep)

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
        with (
            self.trial() as trial,
            # The hooks and modes of the checks would make a compiled model compile anew, for minutes.
            torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext(),
            trial.run() as step,
        ):
            yield step

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

    def loss_calls(self) -> list[LossCall]:
        """Return the calls of the loss; one that is written out, without torch's function, is known by its value."""
        usual = LossCall.usual(*(self.fixtures.get(name) for name in ("prediction", "targets", "loss")))
        return self.calls or [one for one in [usual] if one is not None]

    def _read_batches(self) -> list[Any]:
        data: Any = self.tm.train_data
        with self.trial():
            try:
                with one_pass(data) as batches:
                    found = list(self.some(batches, BATCHES))
            except Exception as error:
                raise CouldNotLook(f"train_data failed with {in_a_line(error)}") from error
        if not found:
            raise CouldNotLook("train_data has no batch")
        return found

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


def _random_states() -> list[Tensor]:
    state = random_state()
    return [state["torch"], *state["cuda"]]
