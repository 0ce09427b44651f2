"""Losses that a model adds in its forward, and losses of several heads.

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
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, Protocol, final

from torch import Tensor, nn

from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError


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

    Attributes:
        added: the sum of the terms that ``add_loss`` has added; None if there is none.
        of_forward: the names of the terms that were collected in a forward pass.
        parts: the terms as they are in the loss: multiplied by their weights, and with their graphs. None if nothing
            asks for the fixture ``loss_parts``, so that no graph is kept.
    """

    added: Tensor | None = None
    parts: dict[str, Tensor] | None = None
    of_forward: frozenset[str] = frozenset()  # frozen: a default of the class must not change for all objects
    _collector: Collector | None = None  # while a `with` block is open

    def __enter__(self) -> Losses:
        self._collector = Collector(self).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._collector is not None, "it was entered"
        self._collector.__exit__(*error)
        self._collector = None

    def forget_added(self) -> None:
        """Forget the terms of the last forward pass, as another forward pass of the same batch begins."""
        for name in self.of_forward:
            self.pop(name, None)
            if self.parts is not None:
                self.parts.pop(name, None)
        self.added, self.of_forward = None, frozenset()

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar to the loss, and keep it under a name."""
        self.added = value if self.added is None else self.added + value
        self.collect(name, value)
        self.keep_part(name, value)

    def collect(self, name: str, value: Tensor) -> None:
        """Keep a scalar under a name; if a term of the forward pass has this name, add the scalar to it."""
        # A term that train_batch has added itself (OwnLosses) may have the name too: it is replaced.
        self[name] = self[name] + value if name in self.of_forward else value
        self.of_forward |= {name}

    def keep_part(self, name: str, value: Tensor, weight: float | Tensor | None = None) -> None:
        """Keep a scalar with its graph, times its weight in the loss, if the parts are asked for and it has a graph."""
        if self.parts is not None and value.requires_grad:
            part = value if weight is None else weight * value
            self.parts[name] = self.parts[name] + part if name in self.parts else part

    def required_parts(self) -> dict[str, Tensor]:
        """Return the parts.

        Raises:
            InputError: nothing has asked for them before the forward pass, so they were not kept.
        """
        if self.parts is None:
            raise InputError(
                "loss_parts was not kept: no hook or provider of a training batch names it",
                name="loss_parts",
                cure="name it as a parameter: def pre_train_backward(self, loss_parts): ...",
            )
        return self.parts

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


class Collecting(Protocol):
    """An object that collects losses."""

    def add(self, name: str, value: Tensor) -> None: ...
    def collect(self, name: str, value: Tensor) -> None: ...
    def keep_part(self, name: str, value: Tensor, weight: float | Tensor | None = None) -> None: ...


@final
class Collector:
    """A ``with`` block in which ``losses`` collects; the loop enters it once and assigns ``losses`` in each step."""

    # A context variable keeps threads and nested runs apart, but is too slow to be set twice in each step: it is set to
    # the collector as a training call begins, and each step sets an attribute of the collector only.

    def __init__(self, losses: Collecting | None = None) -> None:
        # Collects the terms; None outside of forward passes and of an own train_batch, where add_loss does nothing.
        self.losses = losses
        # A list, as the block may be entered inside itself: an evaluation inside a training call.
        self._tokens: list[Token[Collector | None]] = []

    def __enter__(self) -> Collector:
        self._tokens.append(_collecting.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        self.losses = None  # an error may have ended a forward pass half-way
        _collecting.reset(self._tokens.pop())


_collecting: ContextVar[Collector | None] = ContextVar("train_manager_losses", default=None)


def _current_losses() -> Collecting | None:
    collector = _collecting.get()
    return None if collector is None else collector.losses


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
    losses = _current_losses()
    if losses is None:
        return
    losses.add("added" if name is None else name, _mean(value, "add_loss"))


def report_loss(value: Tensor, name: str, weight: float | Tensor | None = None) -> None:
    """Name a loss term that the loss function has in its sum already, so that the term gets a curve.

    Args:
        value: a tensor; if it is not a scalar, its mean is reported.
        name: the name of its curve.
        weight: the factor of the term in the sum, for the fixture ``loss_parts``; None for 1. The curve is without it.

    Raises:
        InputError: ``value`` is not a tensor of floating point numbers.
    """
    losses = _current_losses()
    if losses is not None:
        mean = _mean(value, "report_loss")
        losses.collect(name, mean.detach())
        losses.keep_part(name, mean, weight)


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
