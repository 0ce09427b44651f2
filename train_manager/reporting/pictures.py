"""Pictures as pixels: PNG files, and the inputs of a model as pictures."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy

IN_A_ROW: Final = 8


def png_of(picture: Any) -> bytes:
    """Return a picture as a PNG file.

    >>> import torch
    >>> png_of(torch.rand(3, 8, 8))[:4]
    b'\\x89PNG'

    Args:
        picture: a tensor with the channels first, an array with the channels last, one of these without channels, or a
            figure of matplotlib. Channels are grey, RGB or RGBA; numbers are bytes, bools, or floats from 0 to 1,
            beyond which they are cut.

    Raises:
        ValueError: it is not a picture; the text says why.
    """
    file = BytesIO()
    if hasattr(picture, "savefig"):
        picture.savefig(file, format="png")
    else:
        from PIL import Image  # matplotlib requires Pillow

        pixels = pixels_of(picture)
        Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, format="PNG")
    return file.getvalue()


def pixels_of(picture: Any) -> numpy.ndarray[Any, Any]:
    """Return the bytes of a picture by line, column and channel.

    Raises:
        ValueError: it is not a picture; the text says why.
    """
    import numpy

    is_tensor = hasattr(picture, "detach")
    if is_tensor:
        picture = picture.detach()
        # numpy lacks bfloat16, and half precision would round the bytes below.
        picture = (picture.float() if picture.is_floating_point() else picture).cpu()
    found = numpy.asarray(picture)
    shape, kind = found.shape, found.dtype
    if found.ndim == 2:
        found = found[:, :, None]
    elif found.ndim == 3 and is_tensor:
        found = found.transpose(1, 2, 0)
    if kind not in (numpy.uint8, numpy.bool_) and kind.kind != "f":
        raise ValueError(f"has numbers of type {kind}, not bytes (uint8), bools or floats from 0 to 1")
    if found.ndim != 3 or found.shape[2] not in (1, 3, 4):
        where = "first" if is_tensor else "last"
        raise ValueError(f"is of shape {shape}, not of height and width, with 1, 3 or 4 channels {where}")
    if not found.size:
        raise ValueError(f"is of shape {shape}, which has no pixel")
    if kind.kind != "f":
        return numpy.ascontiguousarray(found if kind == numpy.uint8 else found * numpy.uint8(255))
    if not numpy.isfinite(found).all():
        raise ValueError("has numbers that are not finite")
    # Adding a half rounds to the nearest byte; `astype` alone would round down.
    return numpy.ascontiguousarray((found.clip(0, 1) * 255 + 0.5).astype(numpy.uint8))


def pictures_of(inputs: Tensor) -> Tensor:
    """Return inputs as pictures of one or three channels; vectors become strips, other channels are averaged.

    The darkest number of all is black, and the brightest white.
    """
    found = inputs.float().nan_to_num()
    # Vectors become pictures of one line; then pictures without a channel get one.
    found = found.reshape(len(found), 1, 1, -1) if found.dim() < 3 else found
    found = found.unsqueeze(1) if found.dim() == 3 else found
    # Volumes: their slices are stacked below each other.
    found = found.flatten(2, -2) if found.dim() > 4 else found
    found = found if found.shape[1] in (1, 3) else found.mean(1, keepdim=True)
    low, high = found.amin(), found.amax()
    pictures: Tensor = (found - low) / (high - low).clamp(min=1e-12)
    return pictures


def grid_of(inputs: Tensor) -> Tensor:
    """Return inputs as one picture, side by side in rows."""
    found = pictures_of(inputs)
    empty = -len(found) % IN_A_ROW
    padded = torch.cat([found, found.new_zeros(empty, *found.shape[1:])])
    rows = padded.unflatten(0, (-1, IN_A_ROW))  # row, column, channel, y, x
    grid: Tensor = rows.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)
    return grid
