"""The graphs of evaluations, and of ``predict``: forward pass and loss as one call, one graph for each shape of batch.

They are made in eval mode and without gradients, and are not those of the training. A graph has less to save here: of
a model with few layers it is slower than the eager batch. So the two take turns until their times are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.loop.graphs_by_shape import MOST, TIMES, Call, GraphsByShape, Ran, watchers_of
from train_manager.model.graph import Graph, NotMade

KINDS: Final = ("eval", "predict")


@final
class EvalGraphs(GraphsByShape):
    """The graphs of a model and a loss in evaluations; or of the model alone, in ``predict``."""

    may_not_pay = True

    def __init__(self) -> None:
        super().__init__()
        self._is_turn_of_graph = True

    def run(self, call: Callable[[], Call]) -> Ran | None:
        """Return the prediction and the loss of a batch; None if it must run eagerly."""
        try:
            return self._run(call())
        except NotMade as error:
            self.refused = str(error)
            return None

    def _run(self, call: Call) -> Ran | None:
        shape = self.shape = call.shape
        graph = self._made.get(shape)
        if graph is None:
            if self._shapes.count(shape, call.round) < TIMES or len(self._made) >= MOST:
                return None
            self._watchers = watchers_of(call.modules)
        self.resting = self._rests()
        if self.resting or not self._takes_turn():
            return None
        if graph is None:
            graph = self._made[shape] = Graph(run_forward)
            self.new += 1
        return Ran(*graph(*call[:-1]))

    def _takes_turn(self) -> bool:
        """Return whether the graph of the last batch runs, and not the eager batch that it is compared with."""
        if not self.may_not_pay or self.price is None or self.shape != self.price.shape:
            return True
        self._is_turn_of_graph = not self._is_turn_of_graph
        return self._is_turn_of_graph

    def _rests(self) -> str:
        """Return what an eager batch does that a graph does not, perhaps in this batch alone; empty if nothing."""
        if any(self._watchers):
            return "a module has a hook of torch"
        if torch.is_grad_enabled():
            return "gradients are on"
        return "autocast is on" if torch._C._is_any_autocast_enabled() else ""


def no_eval_graphs() -> dict[str, EvalGraphs]:
    """Return the graphs of each kind of evaluation, of which there are none yet."""
    return {kind: EvalGraphs() for kind in KINDS}


# ---- the function that becomes a graph -------------------------------------------------------------------------------


def run_forward(
    model: nn.Module,
    loss: Callable[..., Tensor] | None,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    others: tuple[Any, ...],
    named: Mapping[str, Any],
) -> tuple[Any, Tensor | None]:
    """Return the prediction and the loss of a batch; None in place of the loss if there is no function of it."""
    prediction = model(*args, **options)
    return prediction, None if loss is None else loss(prediction, *others, **named)
