"""How fast a run is, as one SVG file: a panel for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from train_manager.reporting.loss_figure import looks
from train_manager.reporting.svg_figure import NARROW, Line, Panel, svg, svg_file

HEIGHT: Final = 240
LABELS: Final = {
    "examples_per_second": ("examples per second", 1.0),
    "waiting_share": ("waiting for data, %", 100.0),
    "peak_memory": ("peak of memory, GB", 1e-9),
}


def speed_svg(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Return the panels; each curve has steps and values."""
    if not curves:
        return svg_file(['<text x="24" y="32">nothing was measured so far</text>'], 52, NARROW)
    look = next(looks())
    panels = []
    for name, (steps, values) in curves.items():
        label, factor = LABELS.get(name, (name, 1.0))
        panels.append(Panel("steps", label, "linear", [Line(look, steps, [factor * value for value in values])]))
    return svg([(HEIGHT, [panel]) for panel in panels], [], 1, NARROW)
