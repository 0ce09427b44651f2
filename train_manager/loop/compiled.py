"""A batch that graphs train on or evaluate where no hook looks inside, and which hook it is where they are not used.

``CompiledBatch`` is put into a TrainManager by the extension ``Compile``. It takes the place of ``train_batch``, of
``eval_batch`` and of the forward pass of ``predict``, unless they are overridden.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import is_
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple, TextIO, TypeAlias, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.hooks import Hook
from train_manager.core.plan import Plan
from train_manager.data.shares import ALONE
from train_manager.loop.eval_graphs import EvalGraphs
from train_manager.loop.graphs import Call, Graphs, Ran, add_gradients, with_gradients
from train_manager.loop.step import NO_BACKWARD, Backward, Step
from train_manager.model.arithmetic import why_not
from train_manager.model.clipping import Limits
from train_manager.model.graph import NotMade

EVAL_STAGES: Final = ("eval_model_forward", "eval_loss_forward")
KINDS: Final = {"train": "batches", "eval": "batches of evaluations", "predict": "batches of predict"}
"""The kinds of batches, and what a line calls them."""

STAGES: Final = ("train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step")


Mode: TypeAlias = Literal["train", "eval"]


class Way(NamedTuple):
    """How a batch is trained on, as far as the hooks and the components say."""

    name: str  # "whole", "two" or "eager"
    reason: str = ""
    limits: Callable[[], Limits | None] | None = None  # of a clipping that one graph makes before the step


WHOLE: Final = Way("whole")


@final
class CompiledBatch:
    """Train on batches by graphs.

    Args:
        file: where a line says what a graph costs, or why there is none; None is ``sys.stderr`` at that time.
        graph_made: called with "train" or "eval" as a graph is made.

    Attributes:
        round: an object of its own for each evaluation, and each call of ``predict``.
    """

    def __init__(self, file: TextIO | None = None, graph_made: Callable[[Mode], Any] | None = None) -> None:
        self._file, self._graph_made = file, graph_made
        self.round = object()
        self._way_of_parts: tuple[tuple[Any, ...], Way] = (), WHOLE  # the components, and what they allow
        self._way_of_plans: tuple[tuple[Any, ...], Way] = (), WHOLE  # the plans of the stages, and what they allow
        self._way_of_evals: dict[str, tuple[tuple[Any, ...], Way]] = {}  # by kind: the components, and what they allow

    def train(self, manager: Any, step: Step) -> Any:
        """Train on the batch that is open, in place of the method ``train_batch``; return what that returns."""
        way = self.way(manager)
        if way.name == "eager":
            return manager._chosen.train_batch()
        graphs: Graphs = manager._setup.graphs
        was_refused, start = graphs.refused, perf_counter()
        is_graph = self._train(manager, step, way)
        if not was_refused:
            self._tell(graphs, "train", start, is_graph=is_graph)
        return None

    def evaluate(self, manager: Any) -> None:
        """Run the forward pass and the loss of the batch that is open, in place of ``forward``."""
        attempt = self._attempt(manager, "eval")
        if attempt is None:
            manager._eval_model_forward(manager._chosen.eval_model_forward)
            manager._eval_loss_forward(manager._chosen.eval_loss_forward)
            return
        manager._eval_model_forward(attempt.forward)
        # The graph has computed the loss too: no hook can have changed the prediction since.
        manager._eval_loss_forward(manager._chosen.eval_loss_forward if attempt.ran is None else attempt.loss)
        self._tell(attempt.graphs, "eval", attempt.start, is_graph=attempt.ran is not None)

    def predict(self, manager: Any) -> Any:
        """Return the prediction of the batch that is open, in place of ``eval_model_forward``."""
        attempt = self._attempt(manager, "predict")
        if attempt is None:
            return manager._chosen.eval_model_forward()
        prediction = attempt.forward()
        self._tell(attempt.graphs, "predict", attempt.start, is_graph=attempt.ran is not None)
        return prediction

    def _attempt(self, manager: Any, kind: str) -> EvalAttempt | None:
        """Return how a graph is tried for the batch that is open; None if it must run eagerly."""
        if manager._setup.eval_graphs[kind].refused or self.way_of_eval(manager, kind).name == "eager":
            return None
        return EvalAttempt(manager, kind, self.round)

    # ---- what is told --------------------------------------------------------------------------------------------

    def _tell(self, graphs: Graphs | EvalGraphs, kind: str, start: float, *, is_graph: bool) -> None:
        """Tell what a batch has shown that began at a time: why there is no graph, what it costs, that it is new."""
        if graphs.refused:
            self._print(f"{KINDS[kind]} run eagerly: {graphs.refused}")
            return
        if not graphs.price.is_told and (told := graphs.price.sentence(perf_counter() - start, is_graph=is_graph)):
            self._print(told if kind == "train" else f"{KINDS[kind]}: {told}")
        if graphs.new:
            made, graphs.new = graphs.new, 0
            if self._graph_made is not None:
                for _ in range(made):
                    self._graph_made("train" if kind == "train" else "eval")

    def _print(self, line: str) -> None:
        print(f"Compile: {line}", file=self._file or sys.stderr)

    def _train(self, manager: Any, step: Step, way: Way) -> bool:
        """Train on the batch, and return whether a graph has."""
        is_whole = way.name == "whole" and _is_alone(manager)
        attempt = Attempt(manager, is_whole=is_whole, limits=None if way.limits is None else way.limits())
        manager._train_model_forward(attempt.forward)
        if attempt.ran is None:
            manager.update(manager._forward_loss())
        else:
            self._deliver(manager, step, attempt.ran)
        return attempt.ran is not None

    def _deliver(self, manager: Any, step: Step, ran: Ran) -> None:
        name, optimizer = manager._optimizer_in_batch(None, "update")
        graphs: Graphs = manager._setup.graphs
        manager._progress.call.has_updated = True
        loss, known = ran.loss, None
        if ran.gradients is not None:
            if manager._store.plans["train_backward"].pre:  # a hook multiplies the loss, and so the gradients
                loss = with_gradients(loss, ran.gradients, ran.parameters)
            else:
                known = partial(add_gradients, ran.parameters, ran.gradients)
        manager.fixtures.define("loss", loss, stage="train_step_batch")
        step.forward_loss = step.loss_after_hooks = loss
        if ran.gradients is None:
            step.clipped_norm = ran.norm
            step.asked_to_step.add(name)
            step.backwards[name] = NO_BACKWARD
            manager._train_optimizer_step(name, optimizer, _done)
        else:
            manager._train_backward(Backward(loss, manager._forward_again), name, optimizer, False, known)
            manager._step_if_window_ends(name, graphs.step)

    # ---- which way -----------------------------------------------------------------------------------------------

    def way(self, manager: Any) -> Way:
        """Return how the next batch is trained on, and why not as one graph."""
        setup, store = manager._setup, manager._store
        parts = manager._chosen, setup.model, setup.wrapped, setup.loss, setup.optimizer
        if not _are_same(self._way_of_parts[0], parts):
            self._way_of_parts = parts, _way_of_components(manager)
        way = self._way_of_parts[1]
        if way.name == "eager" or store.closed.issuperset(STAGES):
            return way
        plans = tuple([store.plans.get(stage) for stage in STAGES])
        if None in plans or not _are_same(self._way_of_plans[0], plans):
            plans = tuple([manager._registry.plans[stage] for stage in STAGES])
            self._way_of_plans = plans, _way_of_hooks(manager, *plans)
        return self._way_of_plans[1]

    def way_of_eval(self, manager: Any, kind: str) -> Way:
        """Return how the next batch of an evaluation or of ``predict`` is run, and why not as a graph."""
        setup, plans = manager._setup, manager._registry.plans
        parts = manager._chosen, setup.model, setup.wrapped, setup.loss
        known = self._way_of_evals.get(kind)
        if known is None or not _are_same(known[0], parts):
            known = self._way_of_evals[kind] = parts, _way_of_eval_components(manager, kind)
        way = known[1]
        if way.name == "eager" or kind == "predict" or manager._store.closed.issuperset(EVAL_STAGES):
            return way
        return _way_before_gradients(EVAL_STAGES, *(plans[stage] for stage in EVAL_STAGES), is_trained=False) or WHOLE

    def notes(self, manager: Any) -> dict[str, str]:
        """Return how batches are run, for ``explain``, by stage."""
        found = {f"{kind}_step_batch": self._eval_note(manager, kind) for kind in ("eval", "predict")}
        return {"train_step_batch": self._note(manager), **found}

    def _eval_note(self, manager: Any, kind: str) -> str:
        way, graphs = self.way_of_eval(manager, kind), manager._setup.eval_graphs[kind]
        if way.name == "eager" or graphs.refused:
            return f"runs eagerly: {graphs.refused or way.reason}"
        return f"one graph; runs eagerly at present: {graphs.resting}" if graphs.resting else "one graph"

    def _note(self, manager: Any) -> str:
        """Return how a batch is trained on."""
        way, graphs = self.way(manager), manager._setup.graphs
        if way.name == "eager" or graphs.refused:
            return f"runs eagerly: {graphs.refused or way.reason}"
        found = "one graph" if way.name == "whole" else f"two graphs, cut before the step: {way.reason}"
        return f"{found}; runs eagerly at present: {graphs.resting}" if graphs.resting else found


@final
class Attempt:
    """One batch that a graph is tried for; its forward pass takes the place of that of the manager."""

    def __init__(self, manager: Any, *, is_whole: bool, limits: Limits | None) -> None:
        self.manager, self.is_whole, self.limits = manager, is_whole, limits
        self.ran: Ran | None = None

    def forward(self) -> Any:
        """Return the prediction: of the graph, which has done the rest too, or as always."""
        manager = self.manager
        setup, call = manager._setup, partial(_call_of, manager)
        if not setup.graphs.refused:
            self.ran = setup.graphs.train(call, setup.optimizer, is_whole=self.is_whole, limits=self.limits)
        return manager._chosen.train_model_forward() if self.ran is None else self.ran.prediction


@final
class EvalAttempt:
    """One batch of an evaluation that a graph is tried for: a forward pass, and the loss that a graph has computed."""

    def __init__(self, manager: Any, kind: str, round: object) -> None:
        self.manager, self.kind, self.round = manager, kind, round
        self.graphs: EvalGraphs = manager._setup.eval_graphs[kind]
        self.ran: tuple[Any, Tensor | None] | None = None
        self.start = perf_counter()

    def forward(self) -> Any:
        """Return the prediction: of the graph, which has computed the loss too, or as always."""
        manager = self.manager
        self.ran = self.graphs.run(partial(_eval_call_of, manager, self.round, has_loss=self.kind == "eval"))
        return manager._chosen.eval_model_forward() if self.ran is None else self.ran[0]

    def loss(self) -> Tensor | None:
        """Return the loss that the graph has computed."""
        assert self.ran is not None
        return self.ran[1]


def _done(optimizer: Any) -> None:
    """Stand for the step of an optimizer that a graph has made."""


def _is_alone(manager: Any) -> bool:
    """Return whether the batch is a window of its own, whose gradients no other batch has a part in."""
    cells, windows = manager._store.cells, manager._windows
    return cells["update_begins"].value and cells["update_ends"].value and not windows.names()


def _call_of(manager: Any) -> Call:
    """Return how the batch that is trained on goes through model and loss."""
    return _eval_call_of(manager, manager.epoch_num)


def _eval_call_of(manager: Any, round: object, *, has_loss: bool = True) -> Call:
    """Return how the batch goes through model and loss, or through the model alone."""
    setup, fixtures = manager._setup, manager.fixtures
    if manager._model_call[0] is not setup.model:
        manager._read_model()
    args, options = manager._model_call[1].arguments(fixtures["inputs"])
    if not has_loss:
        return Call(setup.model, None, args, options, (), {}, round)
    if manager._named_loss[0] is not setup.loss:
        manager._read_loss()
    by_name = manager._named_loss[1]
    if by_name is None:
        return Call(setup.model, setup.loss, args, options, (fixtures.get("targets"),), {}, round)
    if by_name.takes_rest:
        raise NotMade("the loss takes any fixture")
    named = {name: fixtures[name] for name in by_name.parameters if name != "prediction" and name in fixtures}
    return Call(setup.model, setup.loss, args, options, (), named, round)


def _are_same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _way_of_components(manager: Any) -> Way:
    """Return the way of a batch that is trained on without hooks."""
    setup, reason = manager._setup, ""
    checks = (
        *_checks_of_components(manager, "train"),
        (isinstance(setup.optimizer, dict), "there are several optimizers"),
        (manager.ranks.place is not ALONE, "several processes train together"),
        (isinstance(setup.optimizer, Optimizer) and (reason := why_not(setup.optimizer)), reason),
    )
    return _first_reason(checks)


def _way_of_eval_components(manager: Any, kind: str) -> Way:
    """Return the way of a batch of an evaluation without hooks."""
    return _first_reason(_checks_of_components(manager, kind))


def _checks_of_components(manager: Any, kind: str) -> tuple[tuple[Any, str], ...]:
    """Return of each part that a graph may lack whether it is there, and what it is."""
    setup, own = manager._setup, manager._own_method(kind)
    objective = setup.objective
    return (
        (own, f"{type(manager).__name__} has a {own} of its own"),
        (not isinstance(setup.model, nn.Module), "the model trains itself"),
        (setup.wrapped is not None, "called_model is not the model itself"),
        (objective is not None and not objective.predicts_as_usual, "the objective predicts in its own way"),
        (setup.loss is None and kind != "predict", "the model computes the loss itself"),
    )


def _first_reason(checks: Iterable[tuple[Any, str]]) -> Way:
    return next((Way("eager", reason) for is_so, reason in checks if is_so), WHOLE)


def _way_of_hooks(manager: Any, forward: Plan, loss: Plan, backward: Plan, step: Plan) -> Way:
    """Return the way of a batch into which hooks look."""
    used = [one for name, one in manager.extensions.items() if name not in manager.paused_extensions]
    again = [type(one).__name__ for one in used if getattr(one, "computes_loss_anew", False)]
    # What runs after the step may change the weights.
    if way := _way_before_gradients(STAGES, forward, loss, is_trained=True):
        return way
    if backward.around or backward.providers or not all(map(_only_scales, backward.pre)):
        return _eager(backward, STAGES[2])
    if again:
        return Way("eager", f"{again[0]} computes the loss anew")
    if not backward.is_empty:
        return Way("two", _looking(backward, STAGES[2]))
    return WHOLE if step.run_pre is None and not step.providers else _way_of_step(step)


def _way_of_step(step: Plan) -> Way:
    """Return the way of a batch if hooks run before the step."""
    known = [_in_graph(hook) for hook in step.pre]
    if known and all(known) and not (step.around or step.providers or step.sequences[0].tells):
        clips = [one for one in known if one is not None and one() is not None]
        if len(clips) <= 1:
            return Way("whole", limits=clips[0]) if clips else WHOLE
    return Way("two", _looking(step, STAGES[3]))


def _in_graph(hook: Hook) -> Callable[[], Limits | None] | None:
    """Return what stands for a hook of the step in a graph; None if the hook must run before the step."""
    if hook.schedules or hook.everywhere or hook.ranks is not None:
        return None
    found: Callable[[], Limits | None] | None = getattr(hook.call.function, "in_graph", None)
    return found


def _way_before_gradients(stages: Sequence[str], forward: Plan, loss: Plan, *, is_trained: bool) -> Way | None:
    """Return the way of a batch into whose forward pass or loss hooks look; None if they leave it as it is."""
    # What runs before the forward pass may change the inputs.
    if forward.around or forward.providers or forward.run_post is not None:
        return _eager(forward, stages[0])
    # What runs after the loss of an evaluation needs no graph of autograd.
    if loss.providers or loss.run_pre is not None or (loss.run_post is not None and (is_trained or loss.around)):
        return _eager(loss, stages[1])
    return None


def _eager(plan: Plan, stage: str) -> Way:
    return Way("eager", _looking(plan, stage))


def _looking(plan: Plan, stage: str) -> str:
    return f"{', '.join(plan.lookers)} looks into {stage}"


def _only_scales(hook: Hook) -> bool:
    """Return whether a hook multiplies the loss by a number, and so needs nothing that a graph does not give."""
    function = getattr(hook.call.function, "__func__", None)
    kinds = type(getattr(hook.call.function, "__self__", None)).__mro__
    # Not that of a subclass, which may add a term of the prediction to the loss.
    return any(
        "only_scales_loss" in vars(kind) and vars(kind).get(f"{hook.kind}_{hook.stage}") is function for kind in kinds
    )
