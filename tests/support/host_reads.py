"""What the tests of extensions share: a count of what is read on the host, for which a GPU would be waited for."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class HostReads(TorchDispatchMode):
    """Counts how often a number is read off a tensor, as ``.item()`` and ``float()`` do.

    Attributes:
        count: numbers that were read.
        stacks: how often values were collected to be read together.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = self.stacks = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        self.stacks += func is torch.ops.aten.stack.default
        return func(*args, **(kwargs or {}))
