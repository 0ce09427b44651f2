"""Pictures inside of pages: pixels of few colours inside of an SVG file, and an SVG file inside of a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from train_manager.reporting.png import png_of

# Ten colours of matplotlib's map viridis, between which the palette interpolates.
VIRIDIS: Final = ("440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725")
MISSING: Final = (128.0, 128.0, 128.0)  # grey


def colour_image(numbers: Sequence[Sequence[int]], left: float, top: float, width: float, height: float) -> str:
    """Return numbers as an image in an SVG file: grey for 0, and from 1 to 255 colours from dark to light.

    People who do not see red or green can distinguish the colours too.
    """
    import numpy

    ends = numpy.array([[*bytes.fromhex(colour)] for colour in VIRIDIS])
    places = numpy.linspace(0, len(ends) - 1, 255)
    colours = numpy.stack([numpy.interp(places, range(len(ends)), channel) for channel in ends.T], axis=1)
    palette = numpy.concatenate([[MISSING], colours]).round().astype(numpy.uint8)
    return image(palette[numpy.array(numbers)], left, top, width, height)


def image(picture: Any, left: float, top: float, width: float, height: float) -> str:
    """Return a picture, as ``png_of`` takes it, as part of an SVG file; its pixels stay sharp."""
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    look = 'preserveAspectRatio="none" image-rendering="pixelated"'
    return f'<image {place} {look} href="{_address(png_of(picture), "png")}"/>'


def embed_svg(text: str, alt: str) -> str:
    """Return the HTML of an SVG file for a notebook."""
    # As an image: the styles of an inline SVG would apply to the whole page of the notebook.
    return f'<img alt="{escape(alt)}" style="max-width: 100%" src="{_address(text.encode(), "svg+xml")}">'


def _address(file: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{b64encode(file).decode()}"
