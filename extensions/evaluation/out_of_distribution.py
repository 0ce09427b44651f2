"""How well a classifier notices that examples are not of the kind that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from train_manager.core.decorators import modifies
from train_manager.core.extension import Extension
from train_manager.metrics.outside_scores import SCORES, auroc
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_number, require_one_of

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class OutOfDistribution(Extension):
    """Score the examples of the evaluation sets, and tell how well the score finds those of foreign sets.

    >>> import torch
    >>> from train_manager import InMemory
    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(OutOfDistribution(outside=["noise"]), epochs=20)
    >>> tm.eval_data = {**tm.eval_data, "noise": InMemory(torch.zeros(9, 2), torch.zeros(9).long(), batch_size=9)}
    >>> result = tm.train()
    >>> sorted(tm.eval()["noise"])
    ['auroc_energy', 'loss']

    ``auroc_energy`` is 1 if each example of the foreign set has a higher score than each of the known set, and 0.5 if
    the score tells nothing. It is in the history like any metric, so ``monitor="noise/auroc_energy"`` works. The scores
    themselves are in ``scores``. Foreign sets are evaluated like any other, so they need targets, whatever these are.

    *Runs at:* the start of ``train`` and of ``eval``, and the end of ``eval_step_batch`` and of ``eval_step_epoch``.

    *Asks for:* ``prediction``, ``datasource_name`` and ``eval_result``.

    *Leaves behind:* ``auroc_energy`` or ``auroc_max_softmax`` in ``eval_result`` of each foreign set.

    Args:
        outside: the names of the foreign sets; each comes after ``inside`` in ``eval_data``.
        inside: the name of the known set.
        score: "energy" (Liu et al. 2020), or "max_softmax" (Hendrycks and Gimpel 2017).
        temperature: by which the logits are divided.

    Attributes:
        scores: of the examples of each set, in its last evaluation; higher is more foreign.

    Raises:
        InputError: ``score`` is neither, or ``temperature`` is not above 0; as a training begins, ``eval_data`` lacks a
            set; in an evaluation, the prediction is not a tensor with a column for each class, or a foreign set comes
            before the known one.
    """

    def __init__(
        self, outside: Sequence[str], inside: str = "valid", score: str = "energy", temperature: float = 1.0
    ) -> None:
        self.outside, self.inside = [outside] if isinstance(outside, str) else [*outside], inside
        self.score = require_one_of(score, "score", tuple(SCORES))
        self.temperature = require_number(temperature, "temperature", above=0)
        self._scores: dict[str, list[Tensor]] = {}  # of the evaluation that is open, or was last

    @property
    def scores(self) -> Mapping[str, Tensor]:
        return {name: torch.cat(of_batches) for name, of_batches in self._scores.items()}

    def pre_train(self, train_manager: TrainManager) -> None:
        sets = train_manager.eval_data  # a phase may have none
        missing = next((name for name in (self.inside, *self.outside) if name not in sets), None)
        if sets and missing is not None:
            what = f"OutOfDistribution was given the set {missing!r}, but eval_data has {' and '.join(map(repr, sets))}"
            cure = "name the sets as in eval_data: OutOfDistribution(outside=[...], inside=...)"
            raise InputError(what, name=missing, asked_by="OutOfDistribution", cure=cure)

    def pre_eval(self) -> None:
        self._scores = {}

    def post_eval_step_batch(self, prediction: Any, datasource_name: str) -> None:
        if datasource_name in (self.inside, *self.outside):
            if not (isinstance(prediction, Tensor) and prediction.dim() == 2 and prediction.shape[1] > 1):
                shape = tuple(prediction.shape) if isinstance(prediction, Tensor) else type(prediction).__name__
                what = f"OutOfDistribution needs a prediction with a column for each class, but it is {shape}"
                cure = "let the model return (examples, classes)"
                raise InputError(what, name="prediction", asked_by="OutOfDistribution", cure=cure)
            found = SCORES[self.score](prediction.detach().float(), self.temperature)
            self._scores.setdefault(datasource_name, []).append(found)

    @modifies("eval_result")
    def post_eval_step_epoch(self, datasource_name: str, eval_result: Mapping[str, float]) -> dict[str, float]:
        scores = self._scores
        if datasource_name not in self.outside or datasource_name not in scores:
            return dict(eval_result)
        if self.inside not in scores:
            what = (
                f"OutOfDistribution compares {datasource_name!r} with {self.inside!r}, which was not evaluated before"
            )
            cure = f"let {self.inside!r} be the first set of eval_data, or name another: OutOfDistribution(inside=...)"
            raise InputError(what, name="inside", asked_by="OutOfDistribution", cure=cure)
        found = auroc(torch.cat(scores[self.inside]), torch.cat(scores[datasource_name]))
        return {**eval_result, f"auroc_{self.score}": found}
