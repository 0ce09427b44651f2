"""What a model that the checker is tried on consists of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn


class Case(NamedTuple):
    """A model and a batch, and what must be found.

    Attributes:
        name: what the model does, in a few words; no other case has it.
        make: builds the model; the test sets the seed.
        batch: draws the batch, after the model: a tensor, a tuple or list (``model(*batch)``) or a dict
            (``model(**batch)``).
        culprit: the module, by its name in ``named_modules``, that must be named; empty is the model itself, or none.
        modes: those in which it leaks, or in which a clean one must pass.
        options: of ``check_batch_leak``; ``call`` is given the model and the batch, ``shared`` has keys of a dict.
        way: ``"forward"`` if outputs show it, ``"backward"`` if gradients alone do.
    """

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], Any]
    culprit: str = ""
    modes: tuple[str, ...] = ("train", "eval")
    options: dict[str, Any] = {}
    way: str = "forward"
