"""The picture that a notebook shows while a run is open: the loss and the first metric, as the text of an SVG.

The picture has no script, because front ends drop scripts, and no colours of its own for text, axes and paper: it takes
the colours of the page, whose theme may differ from the system's. Curves mix their colour with the page's text colour.
The size is always the same, so that nothing below the picture moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from train_manager.metrics.history_rows import is_loss, metrics_of
from train_manager.metrics.windows import GrowingCurve
from train_manager.reporting.panels import TRAINING_LOOK, Line, Look, Panel, Panels, looks, scale_for
from train_manager.reporting.svg import shapes
from train_manager.reporting.values import short_name, text_of
from train_manager.runs.showing.live_losses import MOST, Point, points_by_curve, points_of, shortened, smooth

WIDTH, HEIGHT, PANEL_HEIGHT = 760, 300, 206
MOST_CURVES: Final = 6
"""Curves of a panel: their names fill the two lines of the legend, three beside each other."""
FEW_POINTS: Final = 8  # up to so many points each has a marker
RAW_LOOK: Final = {"linewidth": 1, "alpha": 0.4}  # of the losses of batches, behind their running mean
STYLE: Final = (
    '.tm-live text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:currentColor}'
    ".tm-live .axis{stroke:currentColor;fill:none;opacity:.7}.tm-live .grid{stroke:currentColor;fill:none;opacity:.15}"
    ".tm-live .line{fill:none}"
)
# A grey that is legible on white is lost on black, so each colour takes in 30 % of the text's colour. A viewer without
# `color-mix` ignores these rules, and draws the colour itself.
MIXED: Final = (
    ".tm-live [stroke='{0}']{{stroke:color-mix(in srgb,{0} 70%,currentColor)}}"
    ".tm-live [fill='{0}']{{fill:color-mix(in srgb,{0} 70%,currentColor)}}"
)


def live_svg(
    losses: Mapping[str, GrowingCurve],
    epochs: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Any]],
    label: str = "loss",
) -> tuple[str, str]:
    """Return a run as a line of text and as a picture for HTML.

    >>> text, picture = live_svg({}, [], [{"set": "valid", "step": 3, "loss": 0.5, "accuracy": 0.75}])
    >>> text, picture.startswith("<svg"), ">accuracy</text>" in picture
    ('loss: valid 0.5; accuracy: valid 0.75', True, True)

    Args:
        losses: of the batches.
        epochs: rows of the history, whose metrics are drawn.
        evaluations: rows of the history.
        label: of the axis of the losses.
    """
    # The first metric that is not a loss gets the second panel.
    metric = next((name for row in [*evaluations, *epochs] for name in metrics_of(row) if not is_loss(name)), None)
    sets = points_by_curve(evaluations, is_loss)
    measured = points_by_curve([*epochs, *evaluations], lambda name: name == metric)
    batches = {name: points_of(curve) for name, curve in losses.items()}
    names = list(dict.fromkeys([*losses, *sets, *measured]))[:MOST_CURVES]
    others = [name for name in names if name != "training"]
    look_of: dict[str, Look] = {"training": TRAINING_LOOK, **dict(zip(others, looks(), strict=False))}
    panels = [_loss_panel({name: batches[name] for name in names if name in losses}, sets, look_of, label)]
    if metric is not None:
        lines = [_short_line(look_of[name], points) for name, points in measured.items() if name in look_of]
        panels.append(Panel("steps", metric, "linear", lines))
    text = "loss: " + _latest({**batches, **sets})
    text += f"; {metric}: {_latest(measured)}" if metric is not None else ""
    legend = [(short_name(name, 20), look_of[name]) for name in names]
    return text, _picture(Panels([(PANEL_HEIGHT, panels)], legend, WIDTH), text)


def _loss_panel(
    losses: Mapping[str, Sequence[Point]], sets: Mapping[str, Sequence[Point]], look_of: Mapping[str, Look], label: str
) -> Panel:
    """Return a panel with the losses of batches, pale behind their running means, and the losses of the sets."""
    raw, means = [], []
    for name, points in losses.items():
        raw.append(_line({**look_of[name], **RAW_LOOK}, points))
        means.append(_line(look_of[name], smooth(points)))
    evaluated = [_short_line(look_of[name], points) for name, points in sets.items() if name in look_of]
    deciding = [y for line in [*means, *evaluated] for y in line.y]
    lines = [*raw, *means, *evaluated]
    return Panel("steps", label, scale_for(deciding, [y for line in lines for y in line.y]), lines)


def _line(look: Look, points: Sequence[Point]) -> Line:
    """Return a curve, with markers while it has few points."""
    shown = {name: look[name] for name in look if name != "marker" or len(points) <= FEW_POINTS}
    return Line(shown, [point.step for point in points], [point.value for point in points])


def _short_line(look: Look, points: Sequence[Point]) -> Line:
    """Return a smooth curve; of many points, the means of neighbouring ones."""
    return _line(look, shortened(points, MOST // 2))


def _latest(curves: Mapping[str, Sequence[Point]]) -> str:
    return ", ".join(f"{name} {text_of(points[-1].value)}" for name, points in curves.items())


def _picture(picture: Panels, text: str) -> str:
    """Return the SVG, on the page's own paper; a narrow page makes it smaller as a whole."""
    head = (
        f'<svg class="tm-live" role="img" aria-label={quoteattr(text)} viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" style="max-width:100%;height:auto" xmlns="http://www.w3.org/2000/svg">'
    )
    style = STYLE + "".join(map(MIXED.format, dict.fromkeys(look["color"] for _, look in picture.legend)))
    return "\n".join([head, f"<style>{style}</style>", *shapes(picture), "</svg>"])
