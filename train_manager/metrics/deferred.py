"""Scalars of many steps that stay on their device and are copied to the host together.

Reading a scalar of a GPU makes Python wait for all work before it. Deferring the read makes a step cost an append, and
one copy brings up to a thousand values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter, mul
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor

from train_manager.telling.errors import InputError, NonFiniteLoss

Totals: TypeAlias = tuple[float, float]
"""The sum of values by their weights, and the sum of the weights."""

_VERSION: Final = attrgetter("_version")

NO_TOTALS: Final[Mapping[str, Totals]] = {}


def must_be_copied(value: Tensor) -> bool:
    """Return whether the next scalar may be written into the same memory, so that this one must be copied.

    CUDA graphs do so on a GPU, and so does code that writes into a tensor that existed before. On the CPU the copy
    would be most of the cost of an append, so ``take`` detects a missing copy instead.
    """
    return not value.is_cpu or value.is_inference() or value._version > 0 or value._is_view()


def detach_scalar(value: Tensor) -> Tensor:
    """Return a scalar without its graph; a copy, if its memory may be written again."""
    return value.detach().clone() if must_be_copied(value) else value.detach()


def numbers(values: Sequence[Any]) -> list[Any]:
    """Return plain numbers, such as batch sizes; if all of them are tensors, with one copy to the host.

    >>> numbers([torch.tensor(16), torch.tensor(8)]), numbers([16, torch.tensor(8)])
    ([16, 8], [16, 8])
    """
    # One copy for all; reading one by one would wait for the device each time.
    if values and all(isinstance(value, Tensor) for value in values):
        return torch.stack(list(values)).tolist()
    return [value.item() if isinstance(value, Tensor) else value for value in values]


def on_host(value: Any) -> Any:
    """Return a tensor in memory of its own on the host, as it is sent to another process; anything else as it is."""
    # A view would be sent with all the memory that it is a part of.
    return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def _is_any_changed(scalars: Sequence[Tensor]) -> bool:
    """Return whether a scalar was changed in place; as they were kept, torch had counted no change of any."""
    try:
        return any(map(_VERSION, scalars))
    except RuntimeError:  # an inference tensor has no count, and was copied
        return any(scalar._version for scalar in scalars if not scalar.is_inference())


def read_scalars(scalars: Sequence[Tensor]) -> list[float]:
    """Return the values of scalars that were kept, with one copy to the host.

    Raises:
        InputError: a scalar that was not copied was changed in place meanwhile, so its value is lost.
    """
    if _is_any_changed(scalars):
        raise InputError(
            "a scalar whose reading was deferred, such as the loss of a step, was changed in place",
            name="loss",
            cure="make a new tensor instead: loss = loss * 2, not loss.mul_(2)",
        )
    return torch.stack(list(scalars)).tolist() if scalars else []


class DeferredScalars:
    """A list of scalar tensors that is read rarely, and then all at once.

    >>> losses = DeferredScalars()
    >>> for value in (.5, .25):
    ...     is_full = losses.append(torch.tensor(value))
    >>> len(losses), losses.take()
    (2, [0.5, 0.25])
    >>> losses.take()
    []
    """

    limit = 1024  # a scalar occupies up to 512 bytes on a GPU

    def __init__(self) -> None:
        self._scalars: list[Tensor] = []  # not read yet
        self._copies = True  # whether scalars are copied as they are kept; decided anew for each list

    def __len__(self) -> int:
        return len(self._scalars)

    def append(self, value: Tensor) -> bool:
        """Keep a scalar, and return whether the list is full, so that it should be taken."""
        self.keep(value)
        return len(self._scalars) >= self.limit

    def keep(self, value: Tensor) -> Tensor:
        """Keep a scalar, without its graph and without waiting for it; return what is kept."""
        scalars = self._scalars
        if not scalars:  # decided once per list, because the scalars of a training come from the same code
            self._copies = must_be_copied(value)
        try:
            # A scalar that was changed before it came here is copied in any case, or `read_scalars` would refuse it.
            copies = self._copies or value._version
        except RuntimeError:  # an inference tensor has no version
            copies = True
        if value.requires_grad:  # in an evaluation no loss has a graph
            value = value.detach()
        if copies:
            value = value.clone()
        scalars.append(value)
        return value

    def take(self) -> list[float]:
        """Return all values, oldest first, with one copy to the host; the list is empty afterwards.

        Raises:
            InputError: a scalar was changed in place after it was appended, so its value is lost.
        """
        scalars, self._scalars = self._scalars, []
        return read_scalars(scalars)


@final
class FiniteLosses:
    """The losses of one epoch, which are checked together: at its end, or as soon as the list is full.

    >>> losses = FiniteLosses(epoch=1)
    >>> is_full = losses.append(torch.tensor(.5), step=1, weight=16)
    >>> is_full = losses.append(torch.tensor(math.nan), step=2, name="generator")
    >>> try:
    ...     losses.check()
    ... except NonFiniteLoss as error:
    ...     print(str(error)[:50])
    the loss of 'generator' was nan in step 2, epoch 1
    """

    def __init__(
        self, epoch: int, total: float = 0.0, examples: float = 0.0, by_optimizer: Mapping[str, Totals] = NO_TOTALS
    ) -> None:
        self.epoch = epoch
        self._total, self._examples = total, examples  # not 0 if an epoch resumes
        self.by_optimizer = dict(by_optimizer)  # the totals of losses with an optimizer and a weight, at the last check
        self._scalars = DeferredScalars()
        self.origins: list[tuple[int, str | None, float]] = []  # since the last check: step, optimizer, weight

    def append(self, value: Tensor, step: int, name: str | None = None, weight: float = 0) -> bool:
        """Keep a loss of a step, and return whether so many are kept that they should be checked.

        Args:
            value: the loss.
            step: the number of the step; its losses are appended between two checks.
            name: the optimizer of the loss, if it is not the loss of the batch; then it counts in a mean of its own.
            weight: the examples of the batch, or 0 if the loss counts in no mean.
        """
        self.keep(value, step, name, weight)
        return len(self.origins) >= DeferredScalars.limit

    def keep(self, value: Tensor, step: int, name: str | None, weight: float) -> Tensor:
        """Keep a loss of a step, and return it without its graph."""
        self.origins.append((step, name, weight))
        return self._scalars.keep(value)

    def totals(self) -> tuple[float, float]:
        """Return the sum of the losses so far, by examples, and the number of examples, when all are checked."""
        self.check()
        return self._total, self._examples

    def check(self) -> None:
        """Check the losses since the last check.

        Raises:
            NonFiniteLoss: with the first step whose loss was nan or infinite.
        """
        # Taken out before they are checked: if the check raises, the next one must not find the same loss again.
        origins, self.origins = self.origins, []
        losses = self._scalars.take()
        broken = [index for index, loss in enumerate(losses) if not math.isfinite(loss)]
        if broken:
            step, name, _ = origins[broken[0]]
            whose = "" if name is None else f" of {name!r}"
            raise NonFiniteLoss(
                f"the loss{whose} was {losses[broken[0]]} in step {step}, epoch {self.epoch}, "
                f"and not finite in {len(broken)} of {len(losses)} losses checked together",
                epoch=self.epoch,
                step=step,
                cure="try a smaller learning rate or clipped gradients, or look at that step's batch; "
                "NonFiniteFinder() names the module",
            )
        self._add(losses, origins)

    def _add(self, losses: Sequence[float], origins: Sequence[tuple[int, str | None, Any]]) -> None:
        """Add losses to their means; the examples of a step count once, with its first loss."""
        if not origins:
            return
        steps, names, sizes = zip(*origins, strict=True)
        weights = numbers(sizes)
        if any(names):
            for loss, name, weight in zip(losses, names, weights, strict=True):
                if name is not None and weight:
                    add_totals(self.by_optimizer, {name: (loss * weight, weight)})
            # A loss of an optimizer is in the mean of the optimizer, not in the mean of the batches.
            weights = [weight if name is None else 0 for name, weight in zip(names, weights, strict=True)]
        for product in map(mul, losses, weights):  # not sum(), whose last bit depends on where it begins
            self._total += product
        # Reversed, so that of several losses of a step the first one is left in the dict.
        self._examples += sum(dict(zip(reversed(steps), reversed(weights), strict=True)).values())


def add_totals(to: dict[str, Totals], more: Mapping[str, Totals]) -> None:
    """Add totals by name to others.

    >>> add_totals(found := {"critic": (1.0, 2.0)}, {"critic": (0.5, 2.0)})
    >>> found
    {'critic': (1.5, 4.0)}
    """
    for name, (total, weight) in more.items():
        before, weight_before = to.get(name, (0, 0))  # not 0.0, with which counts in a tensor would lose digits
        to[name] = before + total, weight_before + weight
