"""Which stages of a batch stay closed: what looks into them, and what the first batch has shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, ClassVar, Final

from torch import Tensor

from train_manager.loop.interface import Chosen, Interface, Model
from train_manager.loop.region import INNER, Region, Watch, opened_for

FORWARDS: Final = ("model_forward", "train_model_forward", "loss_forward", "train_loss_forward")
"""The methods that a region calls; the common ones first, which the others call."""

SELDOM: Final = ("inputs", "targets", "true_batch_size", "global_batch_size", "prediction")
"""The fixtures of a batch that wait until something asks for them, if the batch has a region."""


class ClosedStages(Interface[Model]):
    """The part of a TrainManager that decides whether a batch has a region."""

    _trained_by: ClassVar[Mapping[str, FunctionType]] = {}  # the library's own methods that a region takes the place of

    def _region(self) -> Region | None:
        """Return what trains on a batch without its inner stages; None if this batch opens them."""
        region = self._setup.region
        if region is None or region.version != self._store.version:
            region = self._setup.region = self._new_region()
        return region if region.is_watched and not self._windows.is_any_open else None

    def _opened_for(self) -> str:
        """Return what needs the inner stages of a batch; empty if nothing does."""
        setup = self._setup
        return opened_for(self._registry.plans.__getitem__, setup.model, setup.optimizer, self._own_parts())

    def _asks_in_batches(self, fixture: str) -> bool:
        """Return whether a hook or a provider of a batch asks for a fixture, however seldom it runs."""
        plans = [self._registry.plans[stage] for stage in ("train_step_batch", *INNER)]
        asked = [hook.parameters for plan in plans for hook in (*plan.around, *plan.pre, *plan.post)]
        asked += [provider.call.parameters for plan in plans for provider in plan.providers.values()]
        return any(fixture in names for names in asked)

    def _notes_on_stages(self) -> Mapping[str, str]:
        region = self._setup.region
        is_known = region is not None and region.version == self._store.version
        needs = region.opened_for if region is not None and is_known else self._opened_for()
        return dict.fromkeys(INNER, f"opened for {needs}" if needs else "stays closed: nothing looks into it")

    def _new_region(self) -> Region:
        setup, needs = self._setup, self._opened_for()
        if not needs:  # seldom from the next batch on, for the plan of the present stage does not look for them
            self._store.meet("train_step_batch", SELDOM)
        held = self._store, self._windows, self._collector, self._counts
        collects = any(self._function_of(name) is not function for name, function in self._trained_by.items())
        return Region(needs, setup.model, setup.optimizer, *held, self._methods(), collects)

    def _methods(self) -> tuple[Any, ...]:
        """Return the functions behind the methods that a region takes the place of."""
        return tuple(self._function_of(name) for name in (*self._trained_by, *FORWARDS))

    def _choose(self) -> Chosen:
        region = self._setup.region
        if region is not None and region.methods != self._methods():
            self._setup.region = None  # a method was replaced, on the object or its class
        return super()._choose()

    @contextmanager
    def _watched(self, region: Region) -> Iterator[None]:
        """Watch the first batch of a region."""
        before, watch = self._chosen, Watch(self._store)
        forward, loss_forward = watch.of(before.train_model_forward), watch.of(before.train_loss_forward)
        self._chosen = before._replace(train_model_forward=forward, train_loss_forward=loss_forward)
        try:
            yield
            region.opened_for = "code that writes fixtures or opens stages" if watch.has_seen else ""
            region.is_watched = not watch.has_seen and not self._setup.idle
            if self._chosen.unpacks_as_usual and not any(self._overrides(name, Interface) for name in FORWARDS):
                region.calls(self.called_model, self._loss_by_position())
        finally:
            self._chosen = before

    def _loss_by_position(self) -> Callable[..., Tensor] | None:
        """Return the loss if it takes ``(prediction, targets)`` as PyTorch's do; the model is called as usual then."""
        objective, loss = self.objective, self.loss
        is_usual = objective is None or objective.predicts_as_usual
        named, call = self._named_loss
        return loss if is_usual and named is loss and call is None else None

    def _own_parts(self) -> Iterator[str]:
        """Yield the methods of this class or object that the stages must be open for."""
        from train_manager.checker.effects import leaves_stages_alone  # here: it comes with the check of the first run

        for name, function in self._trained_by.items():
            if self._function_of(name) is not function:
                yield name
        for name in FORWARDS:
            function = self._function_of(name)
            if function is None or not leaves_stages_alone(function, type(self)):
                yield name
