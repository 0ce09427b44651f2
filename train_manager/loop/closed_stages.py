"""Decides whether the inner stages of a batch stay closed.

A manager begins with open inner stages. The first batch of a setup is watched (``region.Watch``); if nothing looks into
the inner stages, and the model and the loss only compute, the batches after it are trained on in a ``Region``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, ClassVar, Final

from torch import Tensor

from train_manager.loop.attributes import Model
from train_manager.loop.overridable import Chosen, Overridable
from train_manager.loop.region import INNER, Region, Watch, reason_to_open
from train_manager.loop.run import Run

FORWARDS: Final = ("model_forward", "train_model_forward", "loss_forward", "train_loss_forward")
"""The methods that a region calls; each common method stands before the method that calls it by default."""

SELDOM: Final = ("inputs", "targets", "true_batch_size", "global_batch_size", "prediction")
"""The fixtures that wait until a hook or a method asks for them, if the batch has a region."""


class ClosedStages(Run[Model]):
    """The part of a TrainManager that decides whether a batch has a region."""

    # The library's own methods that a region takes the place of; InnerStages fills it, where they are defined.
    _trained_by: ClassVar[Mapping[str, FunctionType]] = {}

    def _region(self) -> Region | None:
        """Return the region that trains on a batch without its inner stages; None if this batch opens them."""
        region = self._setup.region
        if region is None or region.version != self._store.version:  # a hook came or went since it was made
            region = self._setup.region = self._new_region()
        # A window that is open from a batch before this one (Accumulate) is continued and ended by the inner stages.
        return region if region.is_watched and not self._windows.is_any_open else None

    def _reason_to_open(self) -> str:
        """Return the reason why a batch opens its inner stages; empty if there is none."""
        setup = self._setup
        return reason_to_open(self._registry.plans.__getitem__, setup.model, setup.optimizer, self._own_methods())

    def _asks_in_batches(self, fixture: str) -> bool:
        """Return whether a hook or a provider of a batch asks for a fixture, however seldom it runs."""
        plans = [self._registry.plans[stage] for stage in ("train_step_batch", *INNER)]
        asked = [hook.parameters for plan in plans for hook in (*plan.around, *plan.pre, *plan.post)]
        asked += [provider.call.parameters for plan in plans for provider in plan.providers.values()]
        return any(fixture in names for names in asked)

    def _notes_on_stages(self) -> Mapping[str, str]:
        region = self._setup.region
        is_known = region is not None and region.version == self._store.version
        needs = region.reason_to_open if region is not None and is_known else self._reason_to_open()
        return dict.fromkeys(INNER, f"opened for {needs}" if needs else "stays closed: nothing looks into it")

    def _new_region(self) -> Region:
        setup, needs = self._setup, self._reason_to_open()
        if not needs:
            # Counts from the next batch on: the plan of the present stage was made before, and would not find them.
            self._store.meet("train_step_batch", SELDOM)
        held = self._store, self._windows, self._collector, self._counts
        collects = any(self._function_of(name) is not own for name, own in self._trained_by.items())
        return Region(needs, setup.model, setup.optimizer, *held, self._methods(), collects)

    def _methods(self) -> tuple[Any, ...]:
        """Return the functions behind the methods that a region takes the place of."""
        return tuple(self._function_of(name) for name in (*self._trained_by, *FORWARDS))

    def _choose(self) -> Chosen:
        region = self._setup.region
        # A method of the object or its class was replaced since the last training call: the region calls the old one.
        if region is not None and region.methods != self._methods():
            self._setup.region = None
        return super()._choose()

    @contextmanager
    def _watch_first_batch(self, region: Region) -> Iterator[None]:
        """Watch the model and the loss in a batch, and let the region train on the next one if they only compute."""
        before, watch = self._chosen, Watch(self._store)
        forward, loss_forward = watch.of(before.train_model_forward), watch.of(before.train_loss_forward)
        self._chosen = before._replace(train_model_forward=forward, train_loss_forward=loss_forward)
        try:
            yield
            region.reason_to_open = "code that writes fixtures or opens stages" if watch.has_seen else ""
            # While parameters without a gradient are looked at (in up to ten windows), the batches keep being watched.
            region.is_watched = not watch.has_seen and not self._setup.idle
            if self._chosen.unpacks_as_usual and not any(self._overrides(name, Overridable) for name in FORWARDS):
                region.call_directly(self.called_model, self._loss_by_position())
        finally:
            self._chosen = before

    def _loss_by_position(self) -> Callable[..., Tensor] | None:
        """Return the loss if it takes ``(prediction, targets)`` as PyTorch's do; None if it is called by names."""
        objective, loss = self.objective, self.loss
        is_usual = objective is None or objective.predicts_as_usual  # else `predict` stands around the model
        named, call = self._named_loss  # as loss_forward has found it in the watched batch
        return loss if is_usual and named is loss and call is None else None

    def _own_methods(self) -> Iterator[str]:
        """Yield the methods of this class or object that need the stages to be open."""
        # Imported here: the checker is loaded for the check of the first run, and not with `import train_manager`.
        from train_manager.checker.effects import leaves_stages_alone

        # An own train_batch, forward, update, backward or step may do anything; an own model_forward or loss_forward
        # only if its source may write fixtures or open stages.
        for name, function in self._trained_by.items():
            if self._function_of(name) is not function:
                yield name
        for name in FORWARDS:
            function = self._function_of(name)
            if function is None or not leaves_stages_alone(function, type(self)):
                yield name
