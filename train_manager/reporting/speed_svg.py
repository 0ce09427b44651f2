"""How fast a training is, as one SVG file: a panel for each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from train_manager.reporting.loss_figure import looks
from train_manager.reporting.svg_figure import Line, Panel, svg, svg_file

HEIGHT: Final = 240


def speed_svg(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Return the panels; each curve has steps and values."""
    if not curves:
        return svg_file(['<text x="24" y="32">nothing was measured so far</text>'], 52)
    look = next(looks())
    lines = [(name.replace("_", " "), Line(look, *curve)) for name, curve in curves.items()]
    return svg([(HEIGHT, [Panel("steps", name, "linear", [line]) for name, line in lines])], [], 1)
