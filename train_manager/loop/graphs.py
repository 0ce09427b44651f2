"""The graphs of a training: a batch as one call where no hook looks inside, one graph for each shape of batch.

    whole        forward, loss, gradients and step are one graph
    two graphs   the first ends with the gradients, the second is the step: hooks look at what is between

They belong to the model, the loss and the optimizer of a setup; ``Compiled`` asks them for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.optim import Optimizer

from train_manager.loop.graphs_by_shape import MOST, TIMES, Call, GraphsByShape, Ran, watchers_of
from train_manager.model.arithmetic import Rule, State, Trained, has_hooks, note_step, step, trained_by, why_not
from train_manager.model.clipping import Clipping, Limits, clip
from train_manager.model.graph import Graph, NotMade


@final
class Graphs(GraphsByShape):
    """The graphs of a model, a loss and an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: dict[tuple[Rule, ...], Graph] = {}  # of the step alone
        self._lacking: tuple[int, ...] = ()  # parameters without a state at the last look, such as unused ones
        self._values: list[float] = []
        self._as_tensor = torch.empty(0)  # of them

    def train(
        self, call: Callable[[], Call], optimizer: Optimizer, *, is_whole: bool, limits: Limits | None = None
    ) -> Ran | None:
        """Train on a batch, or compute its gradients; None if the batch must run eagerly.

        Args:
            call: returns how the batch goes through model and loss.
            optimizer: the optimizer.
            is_whole: the graph makes the step.
            limits: how it clips the gradients before the step.
        """
        try:
            return self._train(call(), trained_by(optimizer), optimizer, is_whole=is_whole, limits=limits)
        except NotMade as error:
            self.refused = str(error)
            return None

    def _train(
        self, call: Call, trained: Trained, optimizer: Optimizer, *, is_whole: bool, limits: Limits | None
    ) -> Ran | None:
        self.shape = call.shape
        times = self._shapes.count(self.shape, call.round)
        lacked, self._lacking = self._lacking, trained.lacking
        if is_whole and trained.lacking != lacked:  # an eager step makes the state that lacks, as in the first batch
            return None
        clipping = limits.clipping if limits is not None and is_whole else None
        graph = self._graph_of(clipping, times, trained, call, optimizer, is_whole=is_whole)
        if graph is None:
            return None
        self.resting = self._rests(trained, optimizer)
        if self.resting:
            return None
        parts = (call.model, call.loss, call.args, call.options, call.others, call.named)
        if not is_whole:
            prediction, loss, gradients = graph(*parts, trained.parameters)
            return Ran(prediction, loss, gradients, trained.parameters)
        values = self._tensor_of(trained, () if limits is None else limits.values)
        prediction, loss, norm = graph(*parts, trained.rules, clipping, values, trained.parameters, trained.states)
        note_step(optimizer)
        return Ran(prediction, loss, None, trained.parameters, norm)

    def step(self, optimizer: Optimizer) -> None:
        """Step an optimizer whose gradients are there, by a graph if there is one."""
        trained = trained_by(optimizer)
        gradients = [parameter.grad for parameter in trained.parameters]
        lacks = any(gradients[number] is not None for number in trained.lacking)
        if self.refused or lacks or has_hooks(optimizer):
            optimizer.step()
            return
        graph = self._steps.get(trained.rules)
        if graph is None:
            graph = self._steps[trained.rules] = Graph(run_step)
            self.new += 1
        try:
            graph(trained.rules, self._tensor_of(trained), trained.parameters, gradients, trained.states)
            note_step(optimizer)
        except NotMade as error:
            self.refused = str(error)
            optimizer.step()

    def _graph_of(
        self,
        clipping: Clipping | None,
        times: int,
        trained: Trained,
        call: Call,
        optimizer: Optimizer,
        *,
        is_whole: bool,
    ) -> Graph | None:
        key = self.shape, clipping, trained.rules, is_whole and trained.lacking, is_whole
        graph = self._made.get(key)
        if graph is None:
            if times < TIMES or len(self._made) >= MOST:
                return None
            self._require_all_known(trained, call, optimizer)
            graph = self._made[key] = Graph(run_whole if is_whole else run_to_gradients)
            self.new += 1
        return graph

    def _require_all_known(self, trained: Trained, call: Call, optimizer: Optimizer) -> None:
        """Refuse what an eager step does and a graph does not."""
        modules = call.modules
        known = set(map(id, trained.parameters))
        others = [
            name for one in modules for name, p in one.named_parameters() if p.requires_grad and id(p) not in known
        ]
        if others:
            raise NotMade(f"the parameter {others[0]} gets a gradient, but is in no optimizer")
        if any(getattr(part, "sparse", False) for one in modules for part in one.modules()):
            raise NotMade("an embedding has sparse gradients")
        if reason := why_not(optimizer):
            raise NotMade(reason)
        self._watchers = watchers_of(modules)

    def _rests(self, trained: Trained, optimizer: Optimizer) -> str:
        """Return what an eager step does that a graph does not, perhaps in this step alone; empty if it is nothing."""
        if any(self._watchers):
            return "a module has a hook of torch"
        if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in trained.parameters):
            return "a parameter has a hook of torch"
        if has_hooks(optimizer):
            return "functions are called around optimizer.step()"
        return "autocast is on" if torch._C._is_any_autocast_enabled() else ""

    def _tensor_of(self, trained: Trained, limits: Sequence[float] = ()) -> Tensor:
        values = [*trained.values, *limits]
        if values != self._values:
            self._values, device = values, trained.parameters[0].device
            self._as_tensor = torch.tensor(values, dtype=torch.float64, device=device)
        return self._as_tensor


def add_gradients(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients to those of parameters, as a backward pass does."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


@final
class KnownGradients(torch.autograd.Function):
    """A loss whose gradients a graph has computed: ``backward`` hands them out, times the gradient of the loss."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *parameters: Tensor) -> Tensor:
        """Return the loss."""
        ctx.gradients = gradients
        return loss.view_as(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients."""
        return None, None, *(None if one is None else one * factor for one in ctx.gradients)


def with_gradients(loss: Tensor, gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """Return a loss whose backward pass hands out these gradients."""
    found: Tensor = KnownGradients.apply(loss, gradients, *parameters)  # type: ignore[no-untyped-call]
    return found


# ---- the functions that become graphs --------------------------------------------------------------------------------


def run_to_gradients(
    model: nn.Module,
    loss: Callable[..., Tensor],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    others: tuple[Any, ...],
    named: Mapping[str, Any],
    parameters: list[Tensor],
) -> tuple[Any, Tensor, list[Tensor | None]]:
    """Return the prediction, the loss and the gradients of a batch."""
    prediction = model(*args, **options)
    value = loss(prediction, *others, **named)
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return torch.utils._pytree.tree_map_only(Tensor, Tensor.detach, prediction), value.detach(), list(found)


def run_whole(
    model: nn.Module,
    loss: Callable[..., Tensor],
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    others: tuple[Any, ...],
    named: Mapping[str, Any],
    rules: Sequence[Rule],
    clipping: Clipping | None,
    values: Tensor,
    parameters: list[Tensor],
    states: list[State],
) -> tuple[Any, Tensor, Tensor | None]:
    """Train on a batch; return the prediction, the loss, and the norm of the gradients before they were clipped."""
    prediction, value, gradients = run_to_gradients(model, loss, args, options, others, named, parameters)
    norm = None
    if clipping is not None:
        values, limits = values[:-2], values[-2:]
        gradients, norm = clip(clipping, limits, gradients)
    run_step(rules, values, parameters, gradients, states)
    return prediction, value, norm


def run_step(
    rules: Sequence[Rule],
    values: Tensor,
    parameters: list[Tensor],
    gradients: list[Tensor | None],
    states: list[State],
) -> None:
    """Step as the optimizer would."""
    with torch.no_grad():
        step(rules, values, parameters, gradients, states)
