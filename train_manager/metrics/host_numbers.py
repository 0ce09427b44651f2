"""Numbers that one thread keeps, without a wait for their device, and that another thread reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import Tensor

from train_manager.metrics.deferred import detach_scalar

if TYPE_CHECKING:
    import numpy

# Torch dtype and numpy layout of each kind of bytes; "<": the lowest byte first.
KINDS: Final = {"f": (torch.float32, "<f4"), "d": (torch.float64, "<f8"), "q": (torch.int64, "<i8")}


@final
class HostNumbers:
    """Keep scalars and tensors as they are now, and make numbers of them later, in any thread.

    >>> numbers = HostNumbers()
    >>> kept = [numbers.keep(value) for value in (torch.tensor(.5), 2, torch.tensor([.25]))]
    >>> numbers(kept)
    [0.5, 2.0, 0.25]
    >>> numbers.blobs([("f", numbers.keep_floats([1, 2]))])
    [b'\\x00\\x00\\x80?\\x00\\x00\\x00@']
    """

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}  # the stream that the training computes on, by device

    def keep(self, value: Any) -> Any:
        """Return a value to keep: of a tensor a scalar that nobody changes, without its graph."""
        self.note_stream(value)
        return detach_scalar(value) if isinstance(value, Tensor) else value

    def keep_floats(self, values: Any) -> Tensor:
        """Return a tensor, an array, numbers or scalars as a copy in float32, without their graph.

        Raises:
            TypeError, ValueError, OverflowError, RuntimeError: they are not numbers, or not of one shape.
        """
        found = tensor_of(values)
        if found.is_complex():
            raise TypeError("complex numbers have no order")
        self.note_stream(found)
        return found.to(torch.float32, copy=True)

    def note_stream(self, value: Any) -> None:
        """Note the stream on which a value is computed."""
        # Only the first value of a device asks for it: the training
        # seldom changes its stream, and the question costs time.
        if isinstance(value, Tensor) and value.device.type == "cuda" and value.device not in self._streams:
            self._streams[value.device] = torch.cuda.current_stream(value.device)

    def look_at_streams(self) -> None:
        """Look again on which stream the training computes, at the next value."""
        self._streams.clear()

    def __call__(self, values: Sequence[Any]) -> list[float]:
        """Return numbers; those of a GPU come with one copy, which waits for it, so this is called in a thread."""
        far: dict[torch.device, list[int]] = {}  # the places of the values on each GPU
        found: list[Any] = list(values)
        for index, value in enumerate(found):
            # The most frequent kind first.
            if type(value) is float:
                continue
            if not isinstance(value, Tensor):
                found[index] = float(value)
            elif value.is_cpu or value.is_mps:  # MPS has no 64-bit floats, which the copy below is made of
                found[index] = float(value.item())
            else:
                far.setdefault(value.device, []).append(index)
        for device, indices in far.items():
            with self._on_stream(device):
                together = torch.stack([found[index].reshape(()).double() for index in indices]).tolist()
            for index, number in zip(indices, together, strict=True):
                found[index] = number
        return found

    def blobs(self, blobs: Sequence[tuple[str, Any]]) -> list[bytes]:
        """Return tensors of any shape as bytes, the lowest byte first; those of a GPU come with one copy for a dtype.

        Args:
            blobs: kind and tensor: "f" for float32, "d" for float64, "q" for int64.
        """
        found: list[Tensor] = [tensor_of(values) for _, values in blobs]
        far: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, tensor in enumerate(found):
            if not tensor.is_cpu:
                far.setdefault((tensor.device, tensor.dtype), []).append(index)
        for (device, _), indices in far.items():
            with self._on_stream(device):
                together = torch.cat([found[index].reshape(-1) for index in indices]).cpu()
            for index, part in zip(indices, together.split([found[index].numel() for index in indices]), strict=True):
                found[index] = part
        return [bytes_of(tensor, kind) for (kind, _), tensor in zip(blobs, found, strict=True)]

    def _on_stream(self, device: torch.device) -> AbstractContextManager[Any]:
        # This runs in a thread, whose stream is another one: a copy on it could come before the value is computed.
        stream = self._streams.get(device)
        return nullcontext() if stream is None else torch.cuda.stream(stream)


def tensor_of(values: Any) -> Tensor:
    """Return a tensor without its graph: of a tensor, an array, numbers, or a list of scalars.

    >>> tensor_of([torch.tensor(0.5), 2])
    tensor([0.5000, 2.0000])

    Raises:
        TypeError, ValueError, OverflowError, RuntimeError: the values are not numbers, or not of one shape.
    """
    if isinstance(values, Tensor):
        return values.detach()
    if (
        isinstance(values, list | tuple)
        and (first := next((one for one in values if isinstance(one, Tensor)), None)) is not None
    ):
        return torch.stack([torch.as_tensor(one, device=first.device).detach() for one in values])
    return torch.from_numpy(array_of(values))


def array_of(values: Any) -> numpy.ndarray[Any, Any]:
    """Return numbers as a new array.

    Raises:
        TypeError: they are not numbers.
        ValueError: they are not of one shape.
    """
    import numpy

    found = numpy.array(values, order="C")
    if found.dtype.kind not in "biuf":
        raise TypeError("these are not numbers")
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def bytes_of(tensor: Tensor, kind: str) -> bytes:
    """Return a tensor of the host as bytes, the lowest byte first."""
    dtype, layout = KINDS[kind]
    return tensor.to(dtype).contiguous().numpy().astype(layout, copy=False).tobytes()
