"""The memory that tensors may take while objects are rebuilt: a few bytes of a file can ask for gigabytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from train_manager.telling.errors import CheckpointError


@final
class MemoryLimit(TorchDispatchMode):
    """Refuse tensors that take more than so many bytes in all, before they take them.

    >>> import torch
    >>> with MemoryLimit(9):
    ...     weights = torch.empty(2, 2)
    Traceback (most recent call last):
    train_manager.errors.CheckpointError: the checkpoint says how to make tensors of 16 bytes, and its files allow for 9
      if you trust it, make the model yourself: from_checkpoint(path, model=...)

    Args:
        limit: the bytes that all tensors together may take.
        operations: how many operations of torch one ``with`` may have: a number in a file can ask for so many layers
            that to make them takes days. None for any number.

    Attributes:
        taken: the bytes that tensors have asked for.
    """

    def __init__(self, limit: int, operations: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.limit, self.taken = limit, 0
        self._most, self._done = operations, 0

    def __enter__(self) -> MemoryLimit:
        self._done = 0
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self._done += 1
        if self._most is not None and self._done > self._most:
            raise CheckpointError(f"more than {self._most:,} operations were needed", name="operations")
        # An operation with an argument `device` makes a tensor. On the meta device it makes one without memory, whose
        # size is known before the real one is made.
        if any(argument.name == "device" for argument in func._schema.arguments):
            planned = func(*args, **{**kwargs, "device": "meta", "pin_memory": None})
            self.taken += planned.nbytes if isinstance(planned, Tensor) else 0
            if self.taken > self.limit:
                raise _too_large(self.taken, self.limit)
        return func(*args, **kwargs)


def _too_large(taken: int, limit: int) -> CheckpointError:
    what = f"the checkpoint says how to make tensors of {taken:,} bytes, and its files allow for {limit:,}"
    cure = "if you trust it, make the model yourself: from_checkpoint(path, model=...)"
    return CheckpointError(what, name="parameters", cure=cure)
