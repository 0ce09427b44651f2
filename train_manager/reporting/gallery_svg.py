"""Examples with the predictions of a model, as one SVG file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

import torch
from torch import Tensor

from train_manager.reporting.embedded import image
from train_manager.reporting.svg_figure import NARROW, svg_file
from train_manager.reporting.values import short_name

IN_A_ROW: Final = 4
IN_A_ROW_OF_GRID: Final = 8
SIZE: Final = 130  # pixels of the longer side of a picture
TEXT: Final = 44  # pixels below a picture, for two lines of text
Examples = Mapping[str, Tensor]
"""``inputs``, ``said``, ``true``, ``sure`` and ``place`` of examples."""


def gallery_svg(sets: Mapping[str, Examples], names: Sequence[str]) -> str:
    """Return the examples of evaluation sets below each other; ``names`` has the names of the classes, or none."""
    if not any(sets.values()):
        return svg_file(['<text x="24" y="32">there was no evaluation so far</text>'], 52, NARROW)
    parts: list[str] = []
    top = 0.0
    for name, examples in sets.items():
        mistakes = int((examples["said"] != examples["true"]).sum())
        shown = f"{name}: the surest mistakes, then random examples" if mistakes else f"{name}: random examples"
        parts.append(f'<text x="14" y="{top + 20}">{escape(shown)}</text>')
        pictures = pictures_of(examples["inputs"])
        high = _size(pictures)[1]
        parts += _examples(pictures, examples, names, top + 34)
        top += 34 + (high + TEXT) * -(-len(pictures) // IN_A_ROW)
    return svg_file(parts, top, NARROW)


def _examples(pictures: Tensor, examples: Examples, names: Sequence[str], top: float) -> Iterator[str]:
    step = NARROW / IN_A_ROW
    wide, high = _size(pictures)
    for number, picture in enumerate(pictures):
        left, above = number % IN_A_ROW * step, top + number // IN_A_ROW * (high + TEXT)
        yield image(picture, left + (step - wide) / 2, above, wide, high)
        for line, text in enumerate(caption(examples, number, names)):
            y = above + high + 14 + 15 * line
            yield f'<text x="{left + step / 2:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _size(pictures: Tensor) -> tuple[float, float]:
    """Return the drawn width and height of each picture; a picture of one line is drawn at least 16 pixels high."""
    height, width = pictures.shape[-2:]
    scale = SIZE / max(height, width)
    return width * scale, max(16.0, height * scale)


def caption(examples: Examples, number: int, names: Sequence[str]) -> list[str]:
    """Return the prediction for an example and its confidence, and the true class.

    >>> import torch
    >>> examples = {name: torch.tensor([value]) for name, value in (("said", 1), ("true", 0), ("sure", 0.75))}
    >>> caption(examples, 0, ["cat", "dog"])
    ['dog, 75%', 'is cat']
    """
    said, true = (int(examples[which][number]) for which in ("said", "true"))
    texts = [short_name(names[one], 16) if 0 <= one < len(names) else str(one) for one in (said, true)]
    sure = f"{texts[0]}, {float(examples['sure'][number]):.0%}"
    return [sure, "of no class" if true < 0 else "right" if said == true else f"is {texts[1]}"]


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
    empty = -len(found) % IN_A_ROW_OF_GRID
    padded = torch.cat([found, found.new_zeros(empty, *found.shape[1:])])
    rows = padded.unflatten(0, (-1, IN_A_ROW_OF_GRID))  # row, column, channel, y, x
    grid: Tensor = rows.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)
    return grid
