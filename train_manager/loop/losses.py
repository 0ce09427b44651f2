"""Losses that a model or an own ``train_batch`` adds, losses of several heads, and losses that updates are made with.

>>> import torch
>>> losses = Losses()
>>> with losses:                                      # the loop collects during each forward pass
...     add_loss(torch.tensor(.25), "balance")        # a model adds in its forward
>>> losses.total(torch.tensor(1.))                    # the argument is what the loss function returned
tensor(1.2500)
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any, final

from torch import Tensor, nn

from train_manager.metrics.averages import in_32_bits
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level


@final
class StepMeans(dict[str, Tensor]):
    """Losses by name: values that are added within one step are summed up, and the mean is taken over steps.

    >>> import torch
    >>> means = StepMeans()
    >>> _ = means.add("policy", torch.tensor(1.)), means.add("policy", torch.tensor(3.))  # two parts of a step
    >>> means.end_step()
    >>> means.add("policy", torch.tensor(8.))
    tensor(6.)
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[str, Tensor] = {}  # over all steps
        self._steps: dict[str, int] = {}  # how many steps each name was added in
        self._open: set[str] = set()  # the names that were added in the present step

    def add(self, name: str, value: Tensor) -> Tensor:
        """Add a value, without its graph, to the present step; return the mean so far."""
        value = value.detach()
        self._sums[name] = in_32_bits(self._sums[name]) + value if name in self._sums else value
        self._steps[name] = self._steps.get(name, 0) + (name not in self._open)
        self._open.add(name)
        # No division by 1: nearly every batch has one step, and on a GPU the division would be a kernel.
        self[name] = self._sums[name] / self._steps[name] if self._steps[name] > 1 else self._sums[name]
        return self[name]

    def end_step(self, name: str | None = None) -> None:
        """End the present step of a name, or of all names."""
        self._open.difference_update(list(self._open) if name is None else [name])


@final
class Losses(dict[str, Tensor]):
    """The losses of one batch by name, filled by ``add_loss`` and ``report_loss`` inside its ``with`` blocks.

    If the blocks of two objects nest, only the inner one collects.

    >>> import torch
    >>> losses = Losses()
    >>> with losses:
    ...     add_loss(torch.tensor([1., 3.]), "balance")
    ...     add_loss(torch.tensor(.5))
    >>> losses
    {'balance': tensor(2.), 'added': tensor(0.5000)}
    >>> losses.total(torch.tensor(10.))
    tensor(12.5000)

    What an own ``train_batch`` adds beside ``forward`` waits, and a loss that is given as a tensor takes it, once:

        add_loss(penalty)       the penalty waits
        update(loss)            differentiates loss + penalty, and nothing waits any more
        update(loss)            differentiates this loss alone

    >>> losses.add_beside("penalty", torch.tensor(.5, requires_grad=True))
    >>> losses.take(torch.tensor(1.)).item(), losses.take(torch.tensor(2.)).item()
    (1.5, 2.0)

    A term that the forward pass has added has its graph until the batch ends; whoever keeps it longer detaches it.

    Attributes:
        added: the sum of the terms that ``add_loss`` has added in a forward pass; None if there is none.
        of_forward: the names of the terms that were collected in a forward pass.
        terms: name, value and weight of each term that has a graph.
        waiting: by name: what was added beside the forward pass with a graph, and taken by no update yet.
        by_optimizer: the losses that each optimizer was updated with; None if they are that of ``forward()``.
        is_shown_apart: the loss is only the sum over several optimizers: tables show the loss of each.
    """

    # Of the class, as a Losses is made for each batch, and few have more than the first two; they are replaced, and
    # never changed in place.
    added: Tensor | None = None
    of_forward: frozenset[str] = frozenset()
    terms: tuple[tuple[str, Tensor, float | Tensor | None], ...] = ()
    waiting: Mapping[str, Tensor] = MappingProxyType({})
    by_optimizer: StepMeans | None = None
    is_shown_apart = False
    _parts: dict[str, Tensor] | None = None  # made as a hook asks for them
    _taken: tuple[Tensor, Tensor] | None = None  # the last loss that took something, and the total it became
    _beside: StepMeans | None = None  # what was added beside the forward pass, for the curves
    _collector: Collector | None = None  # while a `with` block is open

    def __enter__(self) -> Losses:
        self._collector = Collector(self).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._collector is not None, "it was entered"
        self._collector.__exit__(*error)
        self._collector = None

    # ---- in the forward pass -----------------------------------------------------------------------------------------

    def forget_added(self) -> None:
        """Forget the terms of the last forward pass, as another forward pass of the same batch begins."""
        for name in self.of_forward:
            self.pop(name, None)
            if self._parts is not None:
                self._parts.pop(name, None)
        self.terms = tuple(term for term in self.terms if term[0] not in self.of_forward)
        self.added, self.of_forward = None, frozenset()

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar to the loss, and keep it under a name."""
        self.added = value if self.added is None else self.added + value
        self.collect(name, value)

    def collect(self, name: str, value: Tensor, weight: float | Tensor | None = None) -> None:
        """Keep a scalar under a name; if a term of the forward pass has this name, add the scalar to it."""
        # A term that train_batch has added itself may have the name too: it is replaced.
        self[name] = self[name] + value if name in self.of_forward else value
        self.of_forward |= {name}
        self._note(name, value, weight)

    def total(self, loss: Tensor | None) -> Tensor:
        """Return the loss to train on: the loss of the loss function, plus all that was added.

        Args:
            loss: the value that the loss function returned; may be None.

        Raises:
            InputError: ``loss`` is None, and nothing was added.
        """
        if loss is not None:
            return loss if self.added is None else loss + self.added
        if self.added is not None:
            return self.added
        raise InputError(
            "there is no loss: none was returned, and the model has added none",
            name="loss",
            cure="pass loss=F.cross_entropy, return one from it or from loss_forward(self, ...), return a dict of "
            "scalar losses from the model, or call add_loss(value) in its forward; beside an own train_batch, "
            "override eval_batch too, or give eval_data=None; an evaluation with Metrics needs no loss",
        )

    # ---- beside the forward pass, in an own train_batch --------------------------------------------------------------

    def add_beside(self, name: str, value: Tensor) -> None:
        """Keep a scalar for the next update, and give it a curve; without a graph (``no_grad``) it has a curve only."""
        if value.requires_grad:
            self.waiting = {**self.waiting, name: self.waiting[name] + value if name in self.waiting else value}
        self.collect_beside(name, value)

    def collect_beside(self, name: str, value: Tensor, weight: float | Tensor | None = None) -> None:
        """Give a scalar a curve; a term that ``forward`` has added keeps its name."""
        self._beside = self._beside or StepMeans()
        if name not in self.of_forward:
            self[name] = self._beside.add(name, value)
        self._note(name, value, weight)

    def take(self, loss: Tensor) -> Tensor:
        """Return the sum of a loss and of all that waits."""
        # Two optimizers that are updated with the same loss object get the same total: by now nothing waits any more.
        total = self._taken[1] if self._taken is not None and self._taken[0] is loss else loss
        if self.waiting:
            total = functools.reduce(operator.add, self.waiting.values(), total)
            self.waiting, self._taken = {}, (loss, total)
        return total

    def add_update(self, name: str, loss: Tensor) -> None:
        """Note the loss that an optimizer is updated with."""
        self.by_optimizer = self.by_optimizer or StepMeans()
        self[name] = self.by_optimizer.add(name, loss)

    def sum_of_updates(self) -> Tensor | None:
        """Return the sum of the losses of the optimizers; None if none was updated with a loss of its own."""
        return functools.reduce(operator.add, self.by_optimizer.values()) if self.by_optimizer else None

    def end_step(self, name: str) -> None:
        """Note that an optimizer has done a step."""
        if self.by_optimizer is not None:
            self.by_optimizer.end_step(name)
        if self._beside is not None:
            self._beside.end_step()

    def warn_of_waiting(self, warned_of: set[str]) -> None:
        """Warn of terms that no update has taken, once for each name: ``warned_of`` keeps the names."""
        names = [name for name in self.waiting if name not in warned_of]
        warned_of.update(names)
        if names:
            what = f"no update or backward came after train_batch added {' and '.join(map(repr, names))} by add_loss"
            cure = "call the model, or add_loss, before self.update(loss), or else under torch.no_grad()"
            warnings.warn(f"{what}, so it is not trained on ({cure})", stacklevel=users_level())

    # ---- the parts of the loss ---------------------------------------------------------------------------------------

    def parts(self) -> dict[str, Tensor]:
        """Return the terms by name as they are in the loss: multiplied by their weights, and with their graphs.

        The dict has the terms of the batch that are added later, too.
        """
        if self._parts is None:
            self._parts = {}
            for term in self.terms:
                self._add_part(*term)
        return self._parts

    def _note(self, name: str, value: Tensor, weight: float | Tensor | None) -> None:
        if value.requires_grad:
            self.terms = (*self.terms, (name, value, weight))
            if self._parts is not None:
                self._add_part(name, value, weight)

    def _add_part(self, name: str, value: Tensor, weight: float | Tensor | None) -> None:
        assert self._parts is not None, "the callers look"
        part = value if weight is None else weight * value
        self._parts[name] = self._parts[name] + part if name in self._parts else part


def _never() -> bool:
    return False


@final
class Collector:
    """A ``with`` block in which ``losses`` collects; the loop enters it once and assigns ``losses`` in each step."""

    # A context variable keeps threads and nested runs apart, but is too slow to be set twice in each step: it is set to
    # the collector as a training call begins, and each step sets an attribute of the collector only.

    def __init__(self, losses: Losses | None = None) -> None:
        # Collects the terms of the forward pass that runs; None outside of forward passes.
        self.losses = losses
        # Collects the terms of an own train_batch or eval_batch outside of its forward passes; without either, add_loss
        # does nothing there.
        self.beside: Losses | None = None
        self.is_resting: Callable[[], bool] = _never  # whether nothing is collected beside a forward pass
        # A list, as the block may be entered inside itself: an evaluation inside a training call.
        self._tokens: list[Token[Collector | None]] = []

    def __enter__(self) -> Collector:
        self._tokens.append(_collecting.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        self.losses = self.beside = None  # an error may have ended a forward pass half-way
        _collecting.reset(self._tokens.pop())

    @property
    def is_collecting(self) -> bool:
        """Whether a batch collects the terms that its forward pass or its method adds."""
        return self.losses is not None or self.beside is not None

    def add(self, name: str, value: Tensor) -> None:
        """Collect a scalar that is added to the loss."""
        if self.losses is not None:
            self.losses.add(name, value)
        elif self.beside is not None and not self.is_resting():
            self.beside.add_beside(name, value)

    def collect(self, name: str, value: Tensor, weight: float | Tensor | None) -> None:
        """Collect a scalar that the loss has in its sum already."""
        if self.losses is not None:
            self.losses.collect(name, value, weight)
        elif self.beside is not None and not self.is_resting():
            self.beside.collect_beside(name, value, weight)

    @contextmanager
    def collecting_beside(self, losses: Losses, is_resting: Callable[[], bool] = _never) -> Iterator[None]:
        """Let ``losses`` collect outside of forward passes in a ``with`` block.

        Args:
            losses: the losses of the batch, or of a function that computes a loss.
            is_resting: returns whether nothing is collected: hooks run, or a backward pass that runs submodules again.
        """
        before = self.losses, self.beside, self.is_resting
        self.losses, self.beside, self.is_resting = None, losses, is_resting
        try:
            yield
        finally:
            self.losses, self.beside, self.is_resting = before


_collecting: ContextVar[Collector | None] = ContextVar("train_manager_losses", default=None)


def add_loss(value: Tensor, name: str | None = None) -> None:
    """Add to the loss inside a model's forward: a penalty, a balance of experts, a loss of a hidden layer.

    >>> class Sparse(nn.Linear):
    ...     def forward(self, inputs):
    ...         outputs = super().forward(inputs)
    ...         add_loss(1e-3 * outputs.abs(), "sparsity")
    ...         return outputs

    Several calls are summed up, also under one name. In an own ``train_batch`` or ``update`` that calls the model
    itself, or this function, the next ``update`` or ``backward`` of a tensor takes what was added since the last one,
    whichever optimizer it is of; what has no graph, as under ``no_grad``, is in no loss. A loss that is given as a
    function takes what is added while it runs. A warning names what nothing takes. The curve of a name is the mean over
    the steps of the batch. In an own ``eval_batch`` it is kept by name, and added to no loss.

    Outside of training and evaluation it does nothing, so a model that calls it can be used like any other. It also
    does nothing in hooks of ``forward`` and ``update``, in threads that the model starts (``nn.DataParallel``), and in
    the second forward of activation checkpoints, where the loss would count twice; with ``use_reentrant=True`` the
    first forward has no gradients, and neither has what is added there.

    Args:
        value: a tensor; if it is not a scalar, its mean is added.
        name: the name of its curve; "added" if it is None.

    Raises:
        InputError: ``value`` is not a tensor of floating point numbers.
    """
    collector = _collecting.get()
    if collector is not None and collector.is_collecting:
        collector.add("added" if name is None else name, _mean(value, "add_loss"))


def report_loss(value: Tensor, name: str, weight: float | Tensor | None = None) -> None:
    """Name a loss term that the loss function has in its sum already, so that the term gets a curve.

    Args:
        value: a tensor; if it is not a scalar, its mean is reported.
        name: the name of its curve.
        weight: the factor of the term in the sum, for the fixture ``loss_parts``; None for 1. The curve is without it.

    Raises:
        InputError: ``value`` is not a tensor of floating point numbers.
    """
    collector = _collecting.get()
    if collector is not None and collector.is_collecting:
        collector.collect(name, _mean(value, "report_loss"), weight)


def sum_of_losses(losses: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of scalars, and report each of them by its name."""
    for name, value in losses.items():
        report_loss(value, name)
    return functools.reduce(operator.add, losses.values())


@recorded
class WeightedLosses(nn.Module):
    """The weighted sum of the losses of several heads, for a model that returns a dict of predictions.

    >>> import torch
    >>> from torch.nn import functional as F
    >>> loss = WeightedLosses({"digit": (F.cross_entropy, 1.0), "slant": (F.mse_loss, 0.5)})
    >>> prediction = {"digit": torch.zeros(2, 10), "slant": torch.tensor([1., 3.])}
    >>> targets = {"digit": torch.tensor([7, 1]), "slant": torch.tensor([0., 0.])}
    >>> loss(prediction, targets)
    tensor(4.8026)
    >>> loss.weights["slant"] = 0.0
    >>> loss(prediction, targets)
    tensor(2.3026)

    If the targets are a dict that lacks a head, the loss of this head is called with its prediction alone: a penalty on
    a hidden layer, for example. Targets that are not a dict are those of every head. In a run, the fixture
    ``losses`` has the loss of each head by name, without its weight, and ``loss_parts`` with it.

    Args:
        losses: name of the head -> its loss function, of weight 1, or a pair of a function and its weight.

    Attributes:
        weights: name of the head -> its weight; may be changed at any time.

    Raises:
        InputError: ``losses`` is empty, or an entry is neither a function nor a pair; in a call, the prediction is
            not a dict, or lacks a head.
    """

    def __init__(self, losses: Mapping[str, Callable[..., Tensor] | tuple[Callable[..., Tensor], float]]) -> None:
        super().__init__()
        if not isinstance(losses, Mapping) or not losses:
            what = f"losses must be a dict with a function for each head, but is {losses!r:.60}"
            raise InputError(what, name="losses", cure='give a dict: {"digit": (F.cross_entropy, 1.0)}')
        pairs = {name: _function_and_weight(name, entry) for name, entry in losses.items()}
        self.functions = {name: function for name, (function, _) in pairs.items()}
        self.weights = {name: weight for name, (_, weight) in pairs.items()}
        # Registered, so that losses with weights or buffers go to the device and are trained.
        self.modules_of_losses = nn.ModuleList(f for f in self.functions.values() if isinstance(f, nn.Module))

    def forward(self, prediction: Mapping[str, Any], targets: Any) -> Tensor:
        """Return the weighted sum."""
        if not isinstance(prediction, Mapping):
            heads = " and ".join(map(repr, self.functions))
            what = f"the prediction must be a dict with the heads {heads}, but is a {type(prediction).__name__}"
            cure = f"return a dict from the model's forward: {{{next(iter(self.functions))!r}: ...}}"
            raise InputError(what, name="prediction", asked_by="WeightedLosses", cure=cure)
        weighted: list[Tensor] = []
        for name, function in self.functions.items():
            if name not in prediction:
                what = f"the prediction must have the head {name!r}, but has {', '.join(map(repr, prediction))}"
                cure = "return a dict from the model's forward, with the names of the losses"
                raise InputError(what, name=name, cure=cure)
            if not isinstance(targets, Mapping):
                term = function(prediction[name], targets)
            elif name in targets:
                term = function(prediction[name], targets[name])
            else:
                term = function(prediction[name])
            report_loss(term, name, self.weights[name])
            weighted.append(self.weights[name] * term)
        return functools.reduce(operator.add, weighted)  # sum() would add the first term to 0: one kernel more on a GPU


def require_hooks_of_loss(train_manager: Any, asked_by: str) -> None:
    """Refuse an extension that changes the loss beside one that computes the loss anew, without hooks, for its steps.

    Raises:
        InputError: there is such an extension, and it does not pause.
    """
    for name, extension in train_manager.extensions.items():
        if getattr(extension, "computes_loss_anew", False) and name not in train_manager.paused_extensions:
            kind = type(extension).__name__
            what = f"{kind} computes the loss anew without hooks, so its steps would lack what {asked_by} adds to it"
            raise InputError(what, name=name, asked_by=asked_by, cure=f"leave out {kind} or {asked_by}")


def _function_and_weight(name: str, entry: Any) -> tuple[Callable[..., Tensor], float]:
    function, weight = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, 1.0)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not callable(function) or isinstance(function, type) or not is_number:
        what = f"the loss of head {name!r} must be a function or a pair, but is {entry!r:.60}"
        cure = "give a function, or a pair of a function and a number: (F.cross_entropy, 0.5)"
        raise InputError(what, name=name, cure=cure)
    return function, float(weight)


def _mean(value: Tensor, asked_by: str) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        found = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        what = f"{asked_by}'s value must be a tensor of floating point numbers, but is {found}"
        raise InputError(what, name="loss", asked_by=asked_by, cure="convert it: torch.as_tensor(value).float()")
    return value.mean() if value.dim() else value


def display_values(values: Mapping[str, Any], by_optimizer: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Return fixtures as lines and bars show them: with the loss of each optimizer in place of a sum over several.

    >>> display_values({"loss": 3.0, "lr": 0.5}, {"losses/critic": 1.0, "losses/generator": 2.0})
    {'loss': {'losses/critic': 1.0, 'losses/generator': 2.0}, 'lr': 0.5}
    """
    return {**values, "loss": by_optimizer} if by_optimizer and "loss" in values else values
