"""Scalars that one thread keeps, without a wait for their device, and that another thread reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor

from train_manager.metrics.deferred import kept_scalar


@final
class HostNumbers:
    """Keep scalars as they are now, and make numbers of them later, in any thread.

    >>> numbers = HostNumbers()
    >>> kept = [numbers.keep(value) for value in (torch.tensor(.5), 2, torch.tensor([.25]))]
    >>> numbers(kept)
    [0.5, 2.0, 0.25]
    """

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}  # on which the values of a device are computed

    def keep(self, value: Any) -> Any:
        """Return what of a value is kept: a tensor that nobody changes, without its graph."""
        self.note_stream(value)
        return kept_scalar(value) if isinstance(value, Tensor) else value

    def note_stream(self, value: Any) -> None:
        """Note on which stream a value is computed, for a tensor that is kept elsewhere."""
        if isinstance(value, Tensor) and value.device.type == "cuda" and value.device not in self._streams:
            self._streams[value.device] = torch.cuda.current_stream(value.device)

    def look_at_streams(self) -> None:
        """Look again on which stream the training computes, at the next value."""
        self._streams.clear()

    def __call__(self, values: Sequence[Any]) -> list[float]:
        """Return numbers; those of a GPU come with one copy, which waits for it, so this is called in a thread."""
        far: dict[torch.device, list[int]] = {}
        found: list[Any] = list(values)
        for index, value in enumerate(found):
            if type(value) is float:
                continue
            if not isinstance(value, Tensor):
                found[index] = float(value)
            elif value.is_cpu or value.is_mps:  # which has no floats of 64 bits
                found[index] = float(value.item())
            else:
                far.setdefault(value.device, []).append(index)
        for device, indices in far.items():
            with self._on_stream(device):
                together = torch.stack([found[index].reshape(()).double() for index in indices]).tolist()
            for index, number in zip(indices, together, strict=True):
                found[index] = number
        return found

    def _on_stream(self, device: torch.device) -> AbstractContextManager[Any]:
        # A copy on another stream could come before the value is computed.
        stream = self._streams.get(device)
        return nullcontext() if stream is None else torch.cuda.stream(stream)
