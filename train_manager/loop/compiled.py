"""The batches that graphs train on or evaluate, where no hook looks inside, while the extension ``Compile`` is there.

A graph takes the place of ``train_batch``, of ``eval_batch`` and of the forward pass of ``predict``, unless they are
overridden; the stages around it, and the counts after it, are those of an eager batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO, cast

from torch import nn
from torch.optim import Optimizer

from train_manager.core.plan import Plan
from train_manager.data.shares import ALONE
from train_manager.loop.attributes import Model
from train_manager.loop.batch import Batch
from train_manager.loop.compiling import Compiling, Mode, how_it_runs
from train_manager.loop.graphs import add_gradients, with_gradients
from train_manager.loop.graphs_by_shape import Attempt, Call, Ran
from train_manager.loop.step import NO_BACKWARD, Backward, Step
from train_manager.loop.ways import STAGES, WHOLE, Way, way_of_hooks
from train_manager.model.arithmetic import why_not
from train_manager.model.graph import NotMade


class Compiled(Batch[Model]):
    """The methods that run a batch by graphs."""

    _compiling: Compiling | None = None  # while an extension Compile is there

    @contextmanager
    def _with_graphs(self, file: TextIO | None, graph_made: Callable[[Mode], Any] | None) -> Iterator[None]:
        """Let graphs run the batches of a ``with`` block; for the extension ``Compile``."""
        self._compiling = Compiling(file, graph_made)
        try:
            yield
        finally:
            self._compiling = None

    # ---- training ----------------------------------------------------------------------------------------------------

    def _train_on_unpacked(self, step: Step) -> None:
        compiling, graphs = self._compiling, self._setup.graphs
        if compiling is None or graphs.refused or (way := self._way(compiling, "train")).name == "eager":
            super()._train_on_unpacked(step)
            return
        optimizer, limits = cast(Optimizer, self._setup.optimizer), None if way.limits is None else way.limits()
        is_whole = way.name == "whole" and self._is_alone()
        call = partial(self._graph_call, self.epoch_num)
        run = partial(graphs.train, call, optimizer, is_whole=is_whole, limits=limits)
        attempt = Attempt("train", graphs, run, self._chosen.train_model_forward, self._setup.wait)
        self._train_model_forward(attempt.forward)
        if attempt.ran is None:
            self.update(self._forward_loss())
        else:
            self._deliver(step, attempt.ran)
        compiling.tell(attempt)

    def _is_alone(self) -> bool:
        """Return whether the batch is a window of its own, whose gradients no other batch has a part in."""
        cells = self._store.cells
        return cells["update_begins"].value and cells["update_ends"].value and not self._windows.names()

    def _deliver(self, step: Step, ran: Ran) -> None:
        """Do what is left of a batch that a graph has run: backward pass and step, of which it has made one or both."""
        name, optimizer = self._optimizer_in_batch(None, "update")
        self._progress.call.has_updated = True
        loss, known = ran.loss, None
        if ran.gradients is not None:
            if self._store.plans["train_backward"].pre:  # a hook multiplies the loss, and so the gradients
                loss = with_gradients(loss, ran.gradients, ran.parameters)
            else:
                known = partial(add_gradients, ran.parameters, ran.gradients)
        self.fixtures.define("loss", loss, stage="train_step_batch")
        step.forward_loss = step.loss_after_hooks = loss
        if ran.gradients is None:
            step.clipped_norm = ran.norm
            step.asked_to_step.add(name)
            step.backwards[name] = NO_BACKWARD
            self._train_optimizer_step(name, optimizer, _done)
        else:
            self._train_backward(Backward(loss, self._forward_again), name, optimizer, False, known)
            self._step_if_window_ends(name, self._setup.graphs.step)

    # ---- evaluations and predict -------------------------------------------------------------------------------------

    def _eval_forward(self) -> None:
        """Open the stages inside a batch, as the ``eval_batch`` and ``forward`` of the library do, in fewer calls."""
        compiling = self._compiling
        if compiling is None or (attempt := self._eval_attempt(compiling, "eval")) is None:
            self._eval_model_forward(self._chosen.eval_model_forward)
            self._eval_loss_forward(self._chosen.eval_loss_forward)
            return
        self._eval_model_forward(attempt.forward)
        # The graph has computed the loss too: no hook can have changed the prediction since.
        self._eval_loss_forward(self._chosen.eval_loss_forward if attempt.ran is None else attempt.loss)
        compiling.tell(attempt)

    def _predict_forward(self) -> Any:
        """Return the prediction of a batch that is open."""
        compiling = self._compiling
        if compiling is None or (attempt := self._eval_attempt(compiling, "predict")) is None:
            return self._chosen.eval_model_forward()
        prediction = attempt.forward()
        compiling.tell(attempt)
        return prediction

    def _eval_attempt(self, compiling: Compiling, kind: str) -> Attempt | None:
        """Return how a graph is tried for the batch that is open; None if it must run eagerly."""
        graphs = self._setup.eval_graphs[kind]
        if graphs.refused or self._way(compiling, kind).name == "eager":
            return None
        call = partial(self._graph_call, compiling.round, has_loss=kind == "eval")
        return Attempt(kind, graphs, partial(graphs.run, call), self._chosen.eval_model_forward, self._setup.wait)

    # ---- how a batch goes through model and loss, and which way it runs ----------------------------------------------

    def _graph_call(self, round: object, *, has_loss: bool = True) -> Call:
        """Return how the batch goes through model and loss, or through the model alone."""
        setup, fixtures = self._setup, self.fixtures
        if self._model_call[0] is not setup.model:
            self._read_model()
        args, options = self._model_call[1].arguments(fixtures["inputs"])
        if not has_loss:
            return Call(setup.model, None, args, options, (), {}, round)
        if self._named_loss[0] is not setup.loss:
            self._read_loss()
        by_name = self._named_loss[1]
        if by_name is None:
            return Call(setup.model, setup.loss, args, options, (fixtures.get("targets"),), {}, round)
        if by_name.takes_rest:
            raise NotMade("the loss takes any fixture")
        named = {name: fixtures[name] for name in by_name.parameters if name != "prediction" and name in fixtures}
        return Call(setup.model, setup.loss, args, options, (), named, round)

    def _way(self, compiling: Compiling, kind: str) -> Way:
        """Return how the next batch of a kind runs, and why not as one graph."""
        setup, store, stages = self._setup, self._store, STAGES[kind]
        parts = self._chosen, setup.model, setup.wrapped, setup.loss, setup.optimizer
        way = compiling.way(kind, "components", parts, self._way_of_components)
        if way.name == "eager" or store.closed.issuperset(stages):
            return way
        plans = tuple([store.plans.get(stage) or self._registry.plans[stage] for stage in stages])
        return compiling.way(kind, "hooks", plans, self._way_of_hooks)

    def _way_of_components(self, kind: str, parts: tuple[Any, ...]) -> Way:
        """Return the way of a batch without hooks."""
        setup, own = self._setup, self._own_method(kind)
        objective, optimizer, lacks = setup.objective, setup.optimizer, ""
        checks = [
            (own, f"{type(self).__name__} has a {own} of its own"),
            (not isinstance(setup.model, nn.Module), "the model trains itself"),
            (setup.wrapped is not None, "called_model is not the model itself"),
            (objective is not None and not objective.predicts_as_usual, "the objective predicts in its own way"),
            (setup.loss is None and kind != "predict", "the model computes the loss itself"),
        ]
        if kind == "train":
            lacks = why_not(optimizer) if isinstance(optimizer, Optimizer) else ""
            checks += [
                (isinstance(optimizer, dict), "there are several optimizers"),
                (self.ranks.place is not ALONE, "several processes train together"),
                (lacks, lacks),
            ]
        return next((Way("eager", reason) for is_so, reason in checks if is_so), WHOLE)

    def _way_of_hooks(self, kind: str, plans: tuple[Plan, ...]) -> Way:
        """Return the way of a batch into which hooks look."""
        used = [one for name, one in self.extensions.items() if name not in self.paused_extensions]
        again = [type(one).__name__ for one in used if getattr(one, "computes_loss_anew", False)]
        return way_of_hooks(kind, plans, again)

    def _notes_on_stages(self) -> Mapping[str, str]:
        notes = super()._notes_on_stages()
        if not any(getattr(one, "compiles", False) for one in self.extensions.values()):
            return notes
        compiling, graphs = self._compiling or Compiling(), {"train": self._setup.graphs, **self._setup.eval_graphs}
        return {
            **notes,
            **{f"{kind}_step_batch": how_it_runs(self._way(compiling, kind), graphs[kind]) for kind in STAGES},
        }


def _done(optimizer: Optimizer) -> None:
    """Take the place of the step that a graph has made."""
