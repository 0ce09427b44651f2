"""Pictures as PNG files, made without Pillow and without matplotlib."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy

COLOURS: Final = {1: 0, 3: 2, 4: 6}  # the colour type of a PNG file for grey, RGB and RGBA, by the number of channels


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
    if hasattr(picture, "savefig"):
        return _draw(picture)
    pixels = pixels_of(picture)
    height, width, channels = pixels.shape
    # The chunks of the PNG specification: 8 bits for a channel; compression, filter and interlacing are 0.
    header = struct.pack(">2I5B", width, height, 8, COLOURS[channels], 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # filter type 0: none
    parts = _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(lines, 6)), _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


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
    if found.ndim != 3 or found.shape[2] not in COLOURS:
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


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _draw(figure: Any) -> bytes:
    from io import BytesIO

    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
