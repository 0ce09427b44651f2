"""Scores of how well a classifier separates its own kind of examples from foreign ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from train_manager.core.declarations import always, modifies, priority
from train_manager.core.extension import Extension
from train_manager.core.outcome import SkipStage
from train_manager.data.shares import ALONE, in_row_order, is_stand_in
from train_manager.loop.ranks import ranks_of
from train_manager.metrics.deferred import on_host
from train_manager.metrics.outside_scores import SCORES, auroc
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_number, require_one_of

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

NO_ENERGY: Final = 1e-4  # the energy of logarithms of probabilities is 0, but for rounding
WITHOUT: Final = object()  # in place of targets that a batch does not have


@recorded
class OutOfDistribution(Extension):
    """Score the examples of the evaluation sets, and measure how well the score separates foreign sets.

    >>> import torch
    >>> from train_manager import InMemory
    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(OutOfDistribution(outside=["noise"]), epochs=20)
    >>> tm.eval_data = {**tm.eval_data, "noise": InMemory(torch.zeros(9, 2), torch.zeros(9).long(), batch_size=9)}
    >>> result = tm.train()
    >>> sorted(tm.eval()["noise"])
    ['auroc_energy', 'loss']

    ``auroc_energy`` is 1 if each example of the foreign set has a higher score than each of the known set, and 0.5 if
    the score does not separate the sets. It is in the history like any metric, so ``monitor="noise/auroc_energy"``
    works. The scores themselves are in ``scores``. A foreign set may come without targets, as ``InMemory(x,
    batch_size=64)``, and then has no loss. ``Metrics`` and others that compare with targets need some: any class.

    The energy is that of logits: a model that ends in LogSoftmax has one of 0 for all examples, and is refused.
    ``score="max_softmax"`` is right for it.

    *Runs at:* the start of ``train`` and of ``eval``; the start and the end of ``eval_loss_forward``; and the end of
    ``eval_step_batch`` and of ``eval_step_epoch``.

    *Asks for:* ``prediction``, ``true_batch_size``, ``datasource_name``, ``eval_result`` and ``exc_value``; ``targets``
    if there are any.

    *Leaves behind:* ``auroc_energy`` or ``auroc_max_softmax`` in ``eval_result`` of each foreign set.

    Args:
        outside: the names of the foreign sets; each comes after ``inside`` in ``eval_data``.
        inside: the name of the known set.
        score: "energy" (Liu et al. 2020), or "max_softmax" (Hendrycks and Gimpel 2017).
        temperature: the number that divides the logits.

    Attributes:
        scores: of the examples of each set, in its last evaluation; higher is more foreign.

    Raises:
        InputError: ``score`` is neither, or ``temperature`` is not above 0; as a training call begins, ``eval_data``
            lacks a set; in an evaluation, the prediction is not a tensor with a column for each class, a foreign set
            comes before the known one, or each energy of a set is 0.
    """

    def __init__(
        self, outside: Sequence[str], inside: str = "valid", score: str = "energy", temperature: float = 1.0
    ) -> None:
        self.outside, self.inside = [outside] if isinstance(outside, str) else [*outside], inside
        self.score = require_one_of(score, "score", tuple(SCORES))
        self.temperature = require_number(temperature, "temperature", above=0)
        self._scores: dict[str, list[Tensor]] = {}  # by set and batch, of the evaluation that is open, or was last

    @property
    def scores(self) -> Mapping[str, Tensor]:
        return {name: torch.cat(of_batches) for name, of_batches in self._scores.items()}

    def pre_train(self, train_manager: TrainManager) -> None:
        sets = train_manager.eval_data  # empty in a phase that does not evaluate
        # A name that is spelt wrongly is an error before the first epoch, not at the first evaluation.
        missing = next((name for name in (self.inside, *self.outside) if name not in sets), None)
        if sets and missing is not None:
            what = f"OutOfDistribution was given the set {missing!r}, but eval_data has {' and '.join(map(repr, sets))}"
            cure = "name the sets as in eval_data: OutOfDistribution(outside=[...], inside=...)"
            raise InputError(what, name=missing, asked_by="OutOfDistribution", cure=cure)

    def pre_eval(self) -> None:
        self._scores = {}

    def pre_eval_loss_forward(self, datasource_name: str, targets: Any = WITHOUT) -> None:
        if targets is WITHOUT and datasource_name in self.outside:
            raise SkipStage

    @always
    def post_eval_loss_forward(self, datasource_name: str, exc_value: BaseException | None = None) -> None:
        # Raised by torch for a label that is not a class of the outputs.
        if isinstance(exc_value, IndexError) and datasource_name in self.outside:
            exc_value.add_note(f"leave out the targets of the foreign set {datasource_name!r}: it needs no loss")

    def post_eval_step_batch(self, prediction: Any, datasource_name: str, true_batch_size: int | Tensor = 1) -> None:
        if datasource_name in (self.inside, *self.outside) and not is_stand_in(true_batch_size):
            if not (isinstance(prediction, Tensor) and prediction.dim() == 2 and prediction.shape[1] > 1):
                shape = tuple(prediction.shape) if isinstance(prediction, Tensor) else type(prediction).__name__
                what = f"OutOfDistribution needs a prediction with a column for each class, but it is {shape}"
                cure = "let the model return (examples, classes)"
                raise InputError(what, name="prediction", asked_by="OutOfDistribution", cure=cure)
            # In 32 bits: a logsumexp of bfloat16 logits has few digits, so that many scores would tie.
            found = SCORES[self.score](prediction.detach().float(), self.temperature)
            self._scores.setdefault(datasource_name, []).append(found)

    @modifies("eval_result")
    @priority(1)  # after Metrics, which modifies it too
    def post_eval_step_epoch(
        self, datasource_name: str, eval_result: Mapping[str, float], train_manager: TrainManager | None = None
    ) -> dict[str, float]:
        scores, ranks = self._scores, ranks_of(train_manager)
        if ranks.place is not ALONE and datasource_name in (self.inside, *self.outside):
            of_all = in_row_order(ranks.gather([on_host(one) for one in scores.get(datasource_name, [])]))
            scores.update({datasource_name: of_all} if of_all else {})
        if self.score == "energy" and datasource_name in scores:
            self._refuse_no_energy(datasource_name)
        if datasource_name not in self.outside or datasource_name not in scores:
            return dict(eval_result)
        # Sets are evaluated in the order of eval_data, and a foreign set needs the scores of the known one.
        if self.inside not in scores:
            what = (
                f"OutOfDistribution compares {datasource_name!r} with {self.inside!r}, which was not evaluated before"
            )
            cure = f"let {self.inside!r} be the first set of eval_data, or name another: OutOfDistribution(inside=...)"
            raise InputError(what, name="inside", asked_by="OutOfDistribution", cure=cure)
        found = auroc(torch.cat(scores[self.inside]), torch.cat(scores[datasource_name]))
        return {**eval_result, f"auroc_{self.score}": found}

    def _refuse_no_energy(self, name: str) -> None:
        if torch.cat(self._scores[name]).abs().max() < NO_ENERGY:
            what = f"OutOfDistribution needs logits, but each energy of {name!r} is 0, as of a model with LogSoftmax"
            cure = 'give OutOfDistribution(score="max_softmax"), or let the model return logits'
            raise InputError(what, name="score", asked_by="OutOfDistribution", cure=cure)
