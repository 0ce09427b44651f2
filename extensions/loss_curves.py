"""The loss as curves: by epoch, by batch and by example seen, in one picture that is renewed as the training goes on.

The training's losses are recorded without waiting for the device. What a curve looks like (how it is thinned, which
scale it gets) is decided by small functions below, which know nothing of extensions.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

from torch import Tensor

from train_manager.core.extension import Extension
from train_manager.core.hook import always
from train_manager.held import HeldScalars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "loss_curves"
MOST_POINTS = 2000  # per curve: more than a panel has pixels
FEW_POINTS = 30  # up to here each gets a marker, without which a single one could not be seen
LOG_FROM = 20.0  # largest loss over smallest from which a linear scale would flatten the rest of the training


class LossCurves(Extension):
    """Draws the loss of the training and of every evaluation set: by epoch, by batch, and by example seen.

    >>> import pathlib, tempfile
    >>> from train_manager.testing import tiny_manager
    >>> curves = LossCurves()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tiny_manager(curves, epochs=2, train_dir=folder).train()
    ...     sorted(file.name for file in pathlib.Path(folder, "plots").iterdir())
    ['loss_curves.png', 'loss_curves.svg']
    >>> curves.eval_sets["valid"]["epoch"].x
    [0.0, 1.0, 2.0]

    In a notebook, ``curves`` as the last line of a cell shows them.

    *Runs at:* ``train``, ``train_step_epoch``, ``train_step_batch`` and ``eval``. An evaluation in the middle of an
    epoch is a point by batch and by example; one that is a run of its own is left out.

    *Asks for:* ``loss``, ``true_batch_size``, ``step_num``, ``epoch_num``, ``eval_results``, ``standalone_eval`` and
    ``train_dir``, without which it is refused.

    *Leaves behind:* ``train_dir/plots/loss_curves.png`` and ``.svg``, renewed after every evaluation, or after every
    epoch where nothing is evaluated. Above some thousand points a curve shows means of neighbours.

    Attributes:
        training: the curve of the training by "epoch", by "batch" and by "example".
        eval_sets: the same for each evaluation set.

    Raises:
        ImportError: matplotlib is missing.
    """

    def __init__(self) -> None:
        require_matplotlib()
        self.training = new_curves()
        self.eval_sets: dict[str, Curves] = {}
        self._losses = HeldScalars()  # of the steps that are not in the curves yet
        self._steps: list[tuple[int, int]] = []  # step_num and batch size of each of them
        self._examples = 0
        self._epoch_sum = self._epoch_weight = 0.0
        self._epoch: int | None = None  # the one that is being trained, counted from 1
        self._is_drawn = True

    # ---- recording -------------------------------------------------------------------------------------------------

    def pre_train_step_epoch(self, epoch_num: int, train_dir: Path) -> None:
        self._draw_once(train_dir)  # the last epoch, where nothing was evaluated after it
        self._epoch_sum = self._epoch_weight = 0.0
        self._epoch = epoch_num + 1

    def post_train_step_batch(self, loss: Tensor, step_num: int, true_batch_size: int) -> None:
        self._losses.append(loss)
        self._steps.append((step_num, true_batch_size))
        self._is_drawn = False
        if self._losses.is_full:
            self._take_losses()

    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._take_losses()
        is_whole = epoch_num == self._epoch  # not where the run was stopped within it
        self._epoch = None
        if is_whole and self._epoch_weight:
            self.training["epoch"].append(epoch_num, self._epoch_sum / self._epoch_weight)

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        epoch_num: int,
        step_num: int,
        standalone_eval: bool,
        train_dir: Path,
    ) -> None:
        if standalone_eval:  # no part of the training: a picture that is there stays as it is
            return
        self._take_losses()
        for name, result in eval_results.items():
            curves = self.eval_sets.setdefault(name, new_curves())
            if self._epoch is None:
                curves["epoch"].append(epoch_num, result["loss"])
            curves["batch"].append(step_num, result["loss"])
            curves["example"].append(self._examples, result["loss"])
        self._is_drawn = False
        self._draw_once(train_dir)

    @always
    def post_train(self, train_dir: Path) -> None:
        self._epoch = None
        self._draw_once(train_dir)

    def _take_losses(self) -> None:
        """Move what is held into the curves: one copy from the device for all of it."""
        steps, self._steps = self._steps, []
        for loss, (step, examples) in zip(self._losses.take(), steps, strict=True):
            self._examples += examples
            self._epoch_sum += loss * examples
            self._epoch_weight += examples
            self.training["batch"].append(step, loss)
            self.training["example"].append(self._examples, loss)

    # ---- showing ---------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """The curves so far, as a figure of matplotlib."""
        self._take_losses()
        return draw(self.training, self.eval_sets)

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        return rendered(self.figure(), "png")

    def _draw_once(self, train_dir: Path) -> None:
        if self._is_drawn:
            return
        for kind in ("png", "svg"):
            replace_file(train_dir / "plots" / f"{NAME}.{kind}", rendered(self.figure(), kind))
        self._is_drawn = True

    # ---- surviving -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that is recorded, as plain lists and numbers."""
        self._take_losses()
        return {
            "training": {by: curve.state_dict() for by, curve in self.training.items()},
            "eval_sets": {
                name: {by: curve.state_dict() for by, curve in curves.items()}
                for name, curves in self.eval_sets.items()
            },
            "examples": self._examples,
            "epoch_sum": self._epoch_sum,
            "epoch_weight": self._epoch_weight,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._losses.take()
        self._steps.clear()
        self.training = loaded_curves(state["training"])
        self.eval_sets = {name: loaded_curves(curves) for name, curves in state["eval_sets"].items()}
        self._examples = state["examples"]
        self._epoch_sum, self._epoch_weight = state["epoch_sum"], state["epoch_weight"]


# ---- curves: points, and how many of them ----------------------------------------------------------------------------


@final
class Curve:
    """Points of a curve that grows and yet stays short: each is the mean of some neighbours, of more as it grows.

    >>> curve = Curve(most=4)
    >>> for x in range(1, 7):
    ...     curve.append(x, 2 * x)
    >>> curve.x, curve.y
    ([1.5, 3.5, 5.5], [3.0, 7.0, 11.0])

    Args:
        most: never more points than this.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._points: list[tuple[float, float]] = []
        self._width = 1  # how many that were appended make one point
        self._rest: list[tuple[float, float]] = []  # fewer than that

    def append(self, x: float, y: float) -> None:
        """Add a point at the end."""
        self._rest.append((x, y))
        if len(self._rest) == self._width:
            self._points.append(mean_point(self._rest))
            self._rest.clear()
        if len(self._points) == self._most:
            self._points = halved(self._points)
            self._width *= 2

    @property
    def x(self) -> list[float]:
        """Where the points are."""
        return [x for x, _ in self._shown()]

    @property
    def y(self) -> list[float]:
        """How high they are."""
        return [y for _, y in self._shown()]

    def state_dict(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {
            "points": [list(point) for point in self._points],
            "width": self._width,
            "rest": [list(point) for point in self._rest],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self._points = [(x, y) for x, y in state["points"]]
        self._width = state["width"]
        self._rest = [(x, y) for x, y in state["rest"]]

    def _shown(self) -> list[tuple[float, float]]:
        return [*self._points, mean_point(self._rest)] if self._rest else self._points


Curves = dict[str, Curve]
"""One curve over three axes: by "epoch", by "batch" and by "example"."""


def new_curves() -> Curves:
    """Curves without a point."""
    return {"epoch": Curve(), "batch": Curve(), "example": Curve()}


def loaded_curves(state: Mapping[str, Mapping[str, Any]]) -> Curves:
    """Curves with the points of a state."""
    curves = new_curves()
    for by, curve in curves.items():
        curve.load_state_dict(state[by])
    return curves


def halved(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Half as many points: the means of pairs; an odd last one stays as it is.

    >>> halved([(1, .2), (2, .4), (3, .9)])
    [(1.5, 0.30000000000000004), (3.0, 0.9)]
    """
    return [mean_point(points[i : i + 2]) for i in range(0, len(points), 2)]


def mean_point(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The middle of some points. One that is not finite is left out, unless all are: then there is a gap.

    >>> mean_point([(1, .5), (2, math.nan), (3, 1.5)]), mean_point([(1, math.inf)])
    ((2.0, 1.0), (1.0, nan))
    """
    heights = [y for _, y in points if math.isfinite(y)]
    return sum(x for x, _ in points) / len(points), sum(heights) / len(heights) if heights else math.nan


# ---- the picture ---------------------------------------------------------------------------------------------------

AXES = {"epoch": "epochs", "batch": "batches", "example": "examples seen"}
TRAINING_COLOUR = "#707070"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: for all kinds of eyes
MARKERS = ("o", "s", "^", "D", "v", "P")
LINE_STYLES = ("-", "--", ":", "-.")  # for the sets beyond the sixth
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.alpha": 0.3,
    "svg.hashsalt": NAME,  # the same curves make the same file
}


def draw(training: Curves, eval_sets: Mapping[str, Curves]) -> Figure:
    """A figure of three panels: the same losses by epoch, by batch and by example.

    Args:
        training: the curve of the training.
        eval_sets: the curves of the evaluation sets, by name.
    """
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.style.context(STYLE, after_reset=True):  # whatever the user's own style is
        names = [short_name(name) for name in ("training", *eval_sets)]
        columns = legend_columns(names)
        below = 0.7 + 0.25 * math.ceil(len(names) / columns)  # inches for what stands below the panels
        height = 3.75 + below
        figure = Figure(figsize=(13, height))
        # Fixed margins: what a layout engine would find out here takes as long again as all the rest.
        figure.subplots_adjust(left=0.065, right=0.985, top=1 - 0.12 / height, bottom=below / height, wspace=0.22)
        panels = figure.subplots(1, 3)
        everything = [training, *eval_sets.values()]
        smooth = [y for curves in everything for y in curves["epoch"].y]
        all_values = [y for curves in everything for curve in curves.values() for y in curve.y]
        scale = scale_for(smooth or all_values, all_values)
        for axes, by in zip(panels, AXES, strict=True):
            _draw_panel(axes, by, scale, training, eval_sets)
        # One legend for all panels, below them, where it covers nothing.
        place = (0.5, (below - 0.5) / height)
        legend = figure.legend(
            panels[0].lines, names, loc="upper center", bbox_to_anchor=place, ncols=columns, frameon=False
        )
        for text in legend.get_texts():
            text.set_parse_math(False)  # a `$` in a name is a `$`
    return figure


def scale_for(deciding: Iterable[float], drawn: Iterable[float]) -> str:
    """The scale on which losses read better: "log" where they span a wide range, and all can be drawn on it.

    >>> scale_for([2.3, .02], [2.3, .5, .02]), scale_for([2.3, .5], [2.3, .5]), scale_for([2.3, .02], [2.3, 0.])
    ('log', 'linear', 'linear')

    Args:
        deciding: losses without the noise of single batches.
        drawn: all of them.
    """
    finite = [value for value in deciding if math.isfinite(value)]
    if not finite or any(value <= 0 for value in (*finite, *drawn)):
        return "linear"
    return "log" if max(finite) >= LOG_FROM * min(finite) else "linear"


def short_name(name: str, most: int = 90) -> str:
    """A name that fits into a legend: of a longer one the start and the end, by which names differ.

    >>> short_name("validation set of the year 2024, second half", most=20)
    'validation…cond half'
    """
    name = " ".join(name.split())
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - half]}…{name[-half:]}"


def legend_columns(names: Sequence[str]) -> int:
    """How many entries of a legend fit beside each other.

    >>> legend_columns(["training", "valid"]), legend_columns(["training", "a set with a name " * 5])
    (2, 1)
    """
    return max(1, min(len(names), 140 // (max(map(len, names)) + 10)))


def _draw_panel(axes: Axes, by: str, scale: str, training: Curves, eval_sets: Mapping[str, Curves]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_yscale(scale)
    axes.set_xlabel(AXES[by])
    axes.set_ylabel("loss")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2.5M rather than an offset somewhere else
    if scale == "log":
        axes.yaxis.set_major_formatter("{x:g}")
    noisy = {"linewidth": 0.8, "alpha": 0.8} if by != "epoch" else {}
    _draw_curve(axes, training[by], color=TRAINING_COLOUR, marker="x", **noisy)
    for curves, look in zip(eval_sets.values(), _looks(), strict=False):
        _draw_curve(axes, curves[by], **look)
    if not any(x > 0 for curves in (training, *eval_sets.values()) for x in curves[by].x):
        axes.set_xlim(-0.05, 1.05)  # before the first batch: matplotlib would zoom into the point at 0


def _draw_curve(axes: Axes, curve: Curve, **look: Any) -> None:
    x, y = curve.x, curve.y
    if len(x) > FEW_POINTS:
        look["marker"] = ""
    axes.plot(x, y, markersize=5, **look)


def _looks() -> Iterator[dict[str, Any]]:
    """Colours, markers and lines that can be told apart, one after the other."""
    number = 0
    while True:
        lap, place = divmod(number, len(COLOURS))
        yield {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINE_STYLES[lap % len(LINE_STYLES)]}
        number += 1


def rendered(figure: Figure, kind: str) -> bytes:
    """The picture as "png" or "svg"; the same curves give the same bytes, if the figure is new."""
    file = io.BytesIO()
    matplotlib = require_matplotlib()
    with matplotlib.style.context(STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a set may have a Chinese name
        figure.savefig(file, format=kind, dpi=100, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


# ---- files and imports ---------------------------------------------------------------------------------------------


def replace_file(path: Path, content: bytes) -> None:
    """Write a file such that who reads it finds the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def require_matplotlib() -> ModuleType:
    """The module matplotlib.

    Raises:
        ImportError: it is not there; how to get it.
    """
    try:
        import matplotlib
        import matplotlib.style
    except ImportError as error:
        raise ImportError(f'LossCurves needs matplotlib ({error}): pip install "train-manager[viz]"') from error
    return matplotlib
