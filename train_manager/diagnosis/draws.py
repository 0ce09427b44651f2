"""Which random numbers of torch are drawn in a run: other rows may draw as many, in other shapes."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@final
class Draws(TorchFunctionMode):
    """Notes, for a ``with`` block, each function that draws random numbers, and the shape of what it gives.

    >>> with Draws() as draws:
    ...     _ = torch.rand(2) + torch.ones(2)
    >>> draws.seen
    [('rand', (2,))]
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.default_generator.get_state()
        result = func(*args, **(kwargs or {}))
        if not torch.equal(before, torch.default_generator.get_state()):
            shape = tuple(result.shape) if isinstance(result, Tensor) else ()
            self.seen.append((getattr(func, "__name__", ""), shape))
        return result
