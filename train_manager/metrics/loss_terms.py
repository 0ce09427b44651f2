"""The loss terms of ``add_loss``, ``report_loss`` and ``WeightedLosses`` as metrics, one for each name."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Any, Final, final

from torch import Tensor

from train_manager.metrics.history_rows import refuse_names_of_places
from train_manager.metrics.metric import MeanMetric, as_scalar
from train_manager.telling.errors import InputError

LOSSES: Final = "losses"
"""The name of the metric, and of the fixture that it reads."""


@final
class LossTerms(MeanMetric):
    """The means of the loss terms over examples.

    >>> import torch
    >>> terms = LossTerms()
    >>> terms.append({"losses": {"size": torch.tensor(1.0)}}, weight=3)
    >>> terms.append({"losses": {"size": torch.tensor(5.0)}}, weight=1)
    >>> terms.result()
    {'size': 2.0}

    Args:
        taken: the names of other metrics.
    """

    original: Any = LOSSES

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.parameters = [Parameter(LOSSES, Parameter.KEYWORD_ONLY)]
        self._taken = taken | {"loss", "moving_loss"}

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        terms = values[LOSSES]
        for name in self._taken & terms.keys():
            what, cure = f"a loss term and another metric are called {name!r}", "give the loss term another name"
            raise InputError(what, name=name, asked_by="Metrics", cure=cure)
        refuse_names_of_places(terms, "a loss term is called {!r}".format, lambda name: "give it another name")
        return {name: as_scalar(name, value) for name, value in terms.items()}
