"""Losses from anywhere: what a model adds to the loss while it computes its prediction, and losses of several heads.

>>> import torch
>>> losses = Losses()
>>> with losses:                                      # as the loop does around each forward pass
...     add_loss(torch.tensor(.25), "balance")        # what a model does in its forward
>>> losses.total(torch.tensor(1.))                    # of what the loss function returned
tensor(1.2500)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, final

from torch import Tensor, nn

from train_manager.core.errors import InputError

UNNAMED = "added"


@final
class Losses(dict[str, Tensor]):
    """The losses of one batch by name, filled by ``add_loss`` and ``report_loss`` inside of its ``with`` blocks.

    An inner ``with`` of another one collects for itself.

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
        added: the sum of what was added; None where nothing was.
    """

    added: Tensor | None = None
    _collector: Collector | None = None

    def __enter__(self) -> Losses:
        self._collector = Collector(self).__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._collector is not None, "it was entered"
        self._collector.__exit__(exc_type, error, traceback)
        self._collector = None

    def collect(self, name: str, value: Tensor) -> None:
        """Keep a scalar under a name; what is there already is added to."""
        self[name] = self[name] + value if name in self else value

    def total(self, loss: Tensor | None) -> Tensor:
        """The loss to be trained on: that of the loss function, plus all that was added.

        Args:
            loss: of the loss function; None where there is none.

        Raises:
            InputError: there is neither.
        """
        if loss is None and self.added is None:
            raise InputError(
                "there is no loss: none was returned, and the model has added none",
                name="loss",
                cure="pass loss=F.cross_entropy, return one from loss_forward(self, ...), "
                "or call add_loss(value) in the model's forward",
            )
        if loss is None or self.added is None:
            return self.added if loss is None else loss  # type: ignore[return-value]  # one is there, as seen above
        return loss + self.added


@final
class Collector:
    """What the loop enters once, to say then before each forward pass with an assignment what is filled.

    A context variable knows which of several nested ones it is, and is too slow to be set twice in each step.

    Attributes:
        losses: where what is added goes; None while nothing is to be collected.
    """

    def __init__(self, losses: Losses | None = None) -> None:
        self.losses = losses
        self._tokens: list[Token[Collector | None]] = []

    def __enter__(self) -> Collector:
        self._tokens.append(_collecting.set(self))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.losses = None
        _collecting.reset(self._tokens.pop())


_collecting: ContextVar[Collector | None] = ContextVar("train_manager_losses", default=None)


def _losses_here() -> Losses | None:
    collector = _collecting.get()
    return None if collector is None else collector.losses


def add_loss(value: Tensor, name: str | None = None) -> None:
    """Add to the loss, from inside a model's forward: a penalty, a balance of experts, a loss of a hidden layer.

    >>> class Sparse(nn.Linear):
    ...     def forward(self, inputs):
    ...         outputs = super().forward(inputs)
    ...         add_loss(1e-3 * outputs.abs(), "sparsity")
    ...         return outputs

    May be called several times; all is summed up, also under one name. Outside of training and evaluation nobody
    collects it and nothing happens, so a model that calls it can be used like any other. That is so in threads of the
    model's own, too (``nn.DataParallel``), and in the second forward of activation checkpoints, where it would count
    twice; with ``use_reentrant=True`` the first one knows no gradients, and what is added there has none.

    Args:
        value: a tensor; the mean of it, if it is no scalar.
        name: what its curve is called; all that comes without a name is called "added".

    Raises:
        InputError: ``value`` is no tensor of floating point numbers.
    """
    losses = _losses_here()
    if losses is None:
        return
    scalar = _mean(value, "add_loss")
    losses.added = scalar if losses.added is None else losses.added + scalar
    losses.collect(UNNAMED if name is None else name, scalar)


def report_loss(value: Tensor, name: str) -> None:
    """Name a part of the loss that the loss function has in its sum already, so that it gets a curve of its own.

    Args:
        value: a tensor; the mean of it, if it is no scalar.
        name: what its curve is called.

    Raises:
        InputError: ``value`` is no tensor of floating point numbers.
    """
    losses = _losses_here()
    if losses is not None:
        losses.collect(name, _mean(value, "report_loss").detach())


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

    Where the targets are a dict, a head that is not in it is called with its prediction alone: a penalty on a hidden
    layer, say. Targets that are no dict are those of every head. In a training each head's loss, without its weight, is
    in the fixture ``losses`` under its name.

    Args:
        losses: name of the head -> its loss function, or a pair of that and its weight, else 1.

    Attributes:
        weights: name of the head -> its weight; may be changed at any time.

    Raises:
        InputError: ``losses`` is empty, or an entry is no function or pair; in a call, the prediction lacks a head.
    """

    def __init__(self, losses: Mapping[str, Callable[..., Tensor] | tuple[Callable[..., Tensor], float]]) -> None:
        super().__init__()
        if not isinstance(losses, Mapping) or not losses:
            raise InputError(
                f"losses is {losses!r:.60}", name="losses", cure='give a dict: {"digit": (F.cross_entropy, 1.0)}'
            )
        pairs = {name: _function_and_weight(name, entry) for name, entry in losses.items()}
        self.functions = {name: function for name, (function, _) in pairs.items()}
        self.weights = {name: weight for name, (_, weight) in pairs.items()}
        # Registered, so that those with weights or buffers of their own move along and are trained.
        self.modules_of_losses = nn.ModuleList(f for f in self.functions.values() if isinstance(f, nn.Module))

    def forward(self, prediction: Mapping[str, Any], targets: Any) -> Tensor:
        """The weighted sum."""
        total: Tensor | None = None
        for name, function in self.functions.items():
            if name not in prediction:
                raise InputError(
                    f"there is a loss for head {name!r}, but the prediction has {', '.join(map(repr, prediction))}",
                    name=name,
                    cure="return a dict from the model's forward, with the names that the losses have",
                )
            if not isinstance(targets, Mapping):
                part = function(prediction[name], targets)
            elif name in targets:
                part = function(prediction[name], targets[name])
            else:
                part = function(prediction[name])
            report_loss(part, name)
            weighted = self.weights[name] * part
            total = weighted if total is None else total + weighted
        assert total is not None, "there is at least one head"
        return total


def _function_and_weight(name: str, entry: Any) -> tuple[Callable[..., Tensor], float]:
    function, weight = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, 1.0)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not callable(function) or isinstance(function, type) or not is_number:
        raise InputError(
            f"the loss of head {name!r} is {entry!r:.60}",
            name=name,
            cure="give a function, or a pair of a function and a number: (F.cross_entropy, 0.5)",
        )
    return function, float(weight)


def _mean(value: Tensor, who: str) -> Tensor:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        what = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputError(
            f"{who} was given {what}", name="loss", asked_by=who, cure="give a tensor of floating point numbers"
        )
    return value.mean() if value.dim() else value
