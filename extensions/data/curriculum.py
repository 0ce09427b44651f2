"""A curriculum: a teacher chooses the set of each batch by how much the model still learns from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np

from train_manager.core.declarations import modifies, priority
from train_manager.core.extension import Extension
from train_manager.data.interleaved import Interleaved
from train_manager.data.named_sets import join_names
from train_manager.data.random_state import preserve_random_state
from train_manager.loop.books import Book
from train_manager.loop.probe import probe_loss
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class Curriculum(Extension):
    """Choose the set of each batch: most often those on which the loss of other examples falls fastest.

    >>> from train_manager import Interleaved
    >>> from train_manager.testing import tiny_manager
    >>> easy = tiny_manager().train_data
    >>> noise = [(inputs, targets.roll(1)) for inputs, targets in easy]
    >>> curriculum = Curriculum(probe={"easy": easy[0], "noise": noise[0]})  # these are not trained on
    >>> data = Interleaved({"easy": easy[1:], "noise": noise[1:]}, choose=curriculum.choose)
    >>> tm = tiny_manager(curriculum, train_data=data, steps_per_epoch=60)
    >>> result = tm.train()
    >>> tm.history.epochs[-1]["share/easy"] > 0.7
    True

    It is the online algorithm of Matiisen et al. 2017, "Teacher-Student Curriculum Learning" (arXiv:1707.00183). After
    each step on a set, the loss of the set's probe is compared with what it was after the last step on that set. The
    sets' values are moving averages of how much it fell, and the next set is drawn with the probabilities
    ``softmax(value / (temperature * largest size of a value))``. The probe has examples that are not trained on: the
    loss of the batch itself falls on noise too, by heart. A set that gets worse is avoided, not sought out as in the
    paper, which takes the size of the value.

    It costs a forward pass on a probe in each step, whose loss the host reads. Nothing promises a better model than
    sets in turns: measure it. Once the model has learned what it can, the values are noise, and so are the choices.

    *Runs at:* the start of ``train``; the start and the end of ``train_step_batch``; the end of ``train_step_epoch``.

    *Asks for:* ``datasource_name``, ``train_result`` and the model, with the loss of evaluations.

    *Leaves behind:* the share of each set in the batches of the epoch, as ``share/easy``, in ``train_result``.

    Args:
        probe: for each set of the data a batch of examples that are not trained on.
        rate: the weight of a new value in the moving averages.
        temperature: the smaller, the more often the set with the largest value.
        explore: the probability with which a set is drawn whatever the values are.
        seed: determines the choices, with the values.

    Attributes:
        values: of each set, by how much its loss falls from one step on it to the next.

    Raises:
        InputError: an argument is invalid; or, as a training call begins, ``train_data`` are not ``Interleaved`` with
            ``choose=curriculum.choose``, or have other sets than ``probe``; in training, the loss of a probe is not
            finite.
    """

    needs_whole_model = True  # it calls the model by itself, which strategy "fsdp" of Distributed refuses

    def __init__(
        self,
        probe: Mapping[str, Any],
        rate: float = 0.05,
        temperature: float = 0.25,
        explore: float = 0.05,
        seed: int = 0,
    ) -> None:
        if not probe:
            cure = 'give a batch for each set: Curriculum(probe={"easy": (inputs, targets), ...})'
            raise InputError("Curriculum was given no probe", name="probe", asked_by="Curriculum", cure=cure)
        self.probe = dict(probe)
        self.rate = require_number(rate, "rate", above=0, at_most=1)
        self.temperature = require_number(temperature, "temperature", above=0)
        self.explore = require_number(explore, "explore", at_least=0, at_most=1)
        self.seed = require_count(seed, "seed", at_least=0)
        self.values = dict.fromkeys(self.probe, 0.0)
        self._losses: dict[str, float] = {}  # of each probe, after the last step on its set
        self._begun = 0  # batches that were begun
        self._of_epoch = Book(Shares)

    def choose(self) -> str:
        """Return the name of the set of the next batch: the same one until a batch begins."""
        # A function of the state alone, so that a look at the data by other code moves no choice.
        draw = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, self._begun)))).random()
        return next(name for name, until in self._cumulated().items() if draw < until)

    def probabilities(self) -> dict[str, float]:
        """Return the probability of each set to be the next."""
        values = np.array([*self.values.values()])
        weights = np.exp((values - values.max()) / (self.temperature * (np.abs(values).max() or 1.0)))
        found = (1 - self.explore) * weights / weights.sum() + self.explore / len(values)
        return dict(zip(self.values, found.tolist(), strict=True))

    def pre_train(self, train_manager: TrainManager) -> None:
        data = train_manager.train_data
        if not isinstance(data, Interleaved) or data.choose != self.choose:
            found = f"{data!r:.80}" if isinstance(data, Interleaved) else f"a {type(data).__name__}"
            what = f"Curriculum does not choose what is trained on: train_data are {found}"
            cure = "give train_data=Interleaved(sets, choose=curriculum.choose); in a phase, without=[...] pauses it"
            raise InputError(what, name="train_data", asked_by="Curriculum", cure=cure)
        if set(data.data) != set(self.probe):
            what = f"Curriculum has probes of {join_names(self.probe)}, but train_data have {join_names(data.data)}"
            raise InputError(what, name="probe", asked_by="Curriculum", cure="give a batch for each set")

    def pre_train_step_batch(self, train_manager: TrainManager) -> None:
        self._begun += 1  # as the batch begins: a set whose batches a hook skips is not chosen for ever
        if not self._losses:
            self._losses = {name: self._loss_of(train_manager, name) for name in self.probe}

    def post_train_step_batch(self, datasource_name: str, train_manager: TrainManager) -> None:
        if datasource_name in self.probe:  # a batch of train_on_batch is of none
            loss = self._loss_of(train_manager, datasource_name)
            fall = self._losses[datasource_name] - loss
            self._losses[datasource_name] = loss
            self.values[datasource_name] += self.rate * (fall - self.values[datasource_name])
            self._of_epoch.of(train_manager).batches[datasource_name] += 1

    @modifies("train_result")
    @priority(1)  # after Metrics, which modifies it too
    def post_train_step_epoch(
        self, train_result: Mapping[str, float], train_manager: TrainManager | None = None
    ) -> dict[str, float]:
        batches = self._of_epoch.of(train_manager).batches
        total = batches.total() or 1
        return {**train_result, **{f"share/{name}": batches[name] / total for name in self.probe}}

    def state_dict(self) -> dict[str, Any]:
        """Return the values, the losses that they came from, and how many batches were begun."""
        own = {"values": dict(self.values), "losses": dict(self._losses), "begun": self._begun}
        return {**super().state_dict(), **own, "shares": self._of_epoch.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self.values, self._losses, self._begun = dict(state["values"]), dict(state["losses"]), state["begun"]
        self._of_epoch.load_state_dict(state["shares"])

    def _cumulated(self) -> dict[str, float]:
        sums = np.cumsum([*self.probabilities().values()])
        return dict(zip(self.values, (sums / sums[-1]).tolist(), strict=True))  # the last is 1, above any draw

    def _loss_of(self, train_manager: TrainManager, name: str) -> float:
        """Return the loss of a probe as an evaluation has it."""
        batch = train_manager._setup.on_device(self.probe[name])
        with train_manager.mode(training=False), preserve_random_state():
            loss = probe_loss(train_manager._store, "train", batch).item()
        loss = train_manager.ranks.of_first(loss)  # so that all processes choose alike
        if not math.isfinite(loss):  # one such number would stay in the moving average, and so in the probabilities
            what = f"the loss of the probe of {name!r} is {loss}, so it says nothing about what the model learns"
            cure = "look for values that are not finite in the probe and in the model (a smaller learning rate)"
            raise InputError(what, name="probe", asked_by="Curriculum", cure=cure)
        return loss


@final
class Shares:
    """How many batches of an epoch were of each set."""

    def __init__(self) -> None:
        self.batches: Counter[str] = Counter()

    def state_dict(self) -> dict[str, int]:
        return dict(self.batches)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.batches = Counter(state)
