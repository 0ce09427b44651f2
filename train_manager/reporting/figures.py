"""Panels as figures of matplotlib, which is imported only when a figure is drawn, and the style of all figures.

A figure that a user gets is dark on white. A picture of layers or of an evaluation, which a notebook shows as SVG, has
no paper, and colours that can be read on a light and on a dark page.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from train_manager.reporting.panels import (
    FEW_POINTS,
    LABEL_LETTERS,
    NARROW,
    Line,
    Panel,
    Panels,
    legend_columns,
    looks,
    tick_text,
)
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Style = Mapping[str, Any]
"""Settings of matplotlib by their names."""

STYLE: Final = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "font.size": 11,
    "grid.alpha": 0.3,
    "svg.fonttype": "none",  # letters and not their outlines: a browser finds them, and has those of all scripts
    "svg.hashsalt": "train_manager",  # fixed, because matplotlib's ids in the file are random otherwise
    "text.parse_math": False,  # a `$` in a name is not mathematics
}
GREY: Final = "#7a7a7a"  # its contrast is 4.3 to white, and 4.3 to the dark paper of notebooks
ON_ANY_PAPER: Final = {
    **STYLE,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "none"),
    "axes.titlesize": "medium",
    "font.size": 10,
    "grid.color": GREY,
}
INCH: Final = 100  # pixels
MOST_FOR_THREE: Final = 1e3  # ratio of the ends of an axis up to which each decade has ticks at 1, 2 and 5
ROUND: Final = (1, 2, 5, 10)  # ticks are multiples of these times a power of ten
LINE: Final = 16  # pixels of the height of a line of text
SPEED_HEIGHT: Final = 240  # pixels of a panel
SPEEDS: Final = {
    "examples_per_second": ("examples per second", 1.0),
    "waiting_share": ("waiting for data, %", 100.0),
    "peak_memory": ("peak of memory, GB", 1e-9),
}


def panels_figure(picture: Panels, style: Style = STYLE) -> Figure:
    """Return panels of lines, and below them one legend for all."""
    from matplotlib.lines import Line2D

    with styled(style):
        figure = new_figure(picture.width, picture.height)
        heights = [height for height, _ in picture.rows]
        grid = figure.add_gridspec(max(1, len(heights)), 6, height_ratios=heights or None)  # 6: for 1, 2 or 3 panels
        for row, (_, panels) in enumerate(picture.rows):
            width = 6 // len(panels)
            for number, panel in enumerate(panels):
                _draw_panel(figure.add_subplot(grid[row, width * number : width * (number + 1)]), panel)
        names = [name for name, _ in picture.legend]
        lines = [Line2D([], [], markersize=5, **look) for _, look in picture.legend]
        if names:
            columns = legend_columns(names, picture.width)
            figure.legend(lines, names, ncols=columns, frameon=False, loc="outside lower center")
    return figure


def speed_figure(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Return a panel for each metric of the speed; each curve has steps and values."""
    if not curves:
        return sentence_figure("nothing was measured so far")
    look = next(looks())
    rows = []
    for name, (steps, values) in curves.items():
        label, factor = SPEEDS.get(name, (name, 1.0))
        line = Line(look, steps, [factor * value for value in values])
        rows.append((SPEED_HEIGHT, [Panel("steps", label, "linear", [line])]))
    return panels_figure(Panels(rows, [], NARROW), ON_ANY_PAPER)


def set_log_ticks(axis: Axis) -> None:
    """Give a logarithmic axis plain numbers: those of matplotlib are mathematics, and one in a decade at most."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < MOST_FOR_THREE * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: tick_text(value))
    axis.set_minor_formatter(NullFormatter())


def for_notebook(figure: Figure) -> Figure:
    """Return the figure, which a notebook shows from now on without pyplot."""
    # IPython calls this method of an object that a cell returns.
    figure._repr_png_ = partial(render_figure, figure, "png")  # type: ignore[attr-defined]
    return figure


def render_figure(figure: Figure, kind: str) -> bytes:
    """Return the figure as "png" or "svg". The same content gives the same bytes if the figure is new."""
    file = BytesIO()
    with styled(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names may be in any script
        metadata = {"Date": None, "Creator": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=INCH, metadata=metadata)
    return file.getvalue()


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """Make figures in a style."""
    import matplotlib.style

    with matplotlib.style.context({**style}, after_reset=True):  # the user's own style must not change the picture
        yield


def new_figure(width: float, height: float, layout: Any = "constrained") -> Figure:
    """Return an empty figure of so many pixels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / INCH, height / INCH), layout=layout)


def sentence_figure(text: str) -> Figure:
    """Return a text in place of a picture."""
    with styled(ON_ANY_PAPER):
        figure = new_figure(NARROW, 52, layout=None)
        figure.text(24 / NARROW, 0.5, text, va="center")
    return figure


def draw_image(axes: Axes, values: Any, **options: Any) -> Any:
    """Draw values as colours, which people can distinguish who do not see red or green; nan is grey."""
    import matplotlib

    colours = matplotlib.colormaps["viridis"].with_extremes(bad="#808080")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colours, interpolation="none", **{"aspect": "auto", **options})


def _draw_panel(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in panel.lines:
        look = dict(line.look)
        if len(line.x) > FEW_POINTS:
            look["marker"] = ""
        axes.plot(line.x, line.y, markersize=5, **look)
    if panel.scale == "log":
        axes.set_yscale("log", nonpositive="mask")  # a gap where a value is 0
        set_log_ticks(axes.yaxis)
    axes.set(xlabel=panel.x_label, ylabel=short_name(panel.y_label, LABEL_LETTERS))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=ROUND, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: tick_text(value))
