"""The picture: which scale it has, and that all of it can be read."""

from __future__ import annotations

import math
from collections.abc import Callable

import matplotlib
import pytest
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from train_manager.reporting.curves import Curves, new_curves
from train_manager.reporting.loss_figure import draw, legend_columns, render_figure, scale_for
from train_manager.reporting.values import short_name

LONG = [f"validation set of the year 2024, {part}, web pages in German" for part in ("first half", "second half")]


def curves_of(values: list[float]) -> Curves:
    curves = new_curves()
    for x, value in enumerate(values):
        for curve in curves.values():
            curve.append(x, value)
    return curves


def panels_of(figure: Figure) -> list[tuple[str, str]]:
    return [(axes.get_xlabel(), axes.get_yscale()) for axes in figure.axes]


@pytest.mark.parametrize(
    ("deciding", "drawn", "scale"),
    [
        ([2.3, 0.05], [2.3, 0.01], "log"),
        ([2.3, 0.5], [2.3, 0.01], "linear"),  # the noise of single batches does not decide
        ([2.3, 0.05], [2.3, 0.0], "linear"),  # a loss of 0 could not be drawn
        ([2.3, -5.0], [2.3, -5.0], "linear"),
        ([2.3, math.nan, 0.05], [2.3, math.nan], "log"),
        ([math.inf, 1.0], [1.0], "linear"),
        ([math.nan], [math.nan], "linear"),
        ([], [], "linear"),
    ],
)
def test_the_scale_is_logarithmic_where_losses_span_a_wide_range(
    deciding: list[float], drawn: list[float], scale: str
) -> None:
    assert scale_for(deciding, drawn) == scale


def test_a_figure_has_three_panels_of_one_scale() -> None:
    figure = draw(curves_of([2.3, 0.3, 0.01]), {"valid": curves_of([2.3, 0.2, 0.02])})
    assert panels_of(figure) == [("epochs", "log"), ("batches", "log"), ("examples seen", "log")]


def test_a_long_name_keeps_its_start_and_its_end() -> None:
    assert short_name("a" * 50 + "b" * 50, most=11) == "aaaaa…bbbbb"
    assert short_name("valid") == "valid"
    assert short_name("two\nlines") == "two lines"


def test_long_names_stand_below_each_other() -> None:
    assert legend_columns(["training", *LONG]) == 1
    assert legend_columns(["training", "valid", "test"]) == 3


def is_in_view(axis: Axis, place: float) -> bool:
    low, high = sorted(axis.get_view_interval())
    return bool(low <= place <= high)


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other, and texts that are cut off at the edge."""
    figure.draw_without_rendering()
    axes_of = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    texts = [tick.label1 for axis in axes_of for tick in axis.get_major_ticks() if is_in_view(axis, tick.get_loc())]
    texts += [axis.label for axis in axes_of]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    inside = [(a, b) for i, (a, box) in enumerate(boxes) for b, other in boxes[:i] if box.overlaps(other)]
    width, height = figure.bbox.size
    cut = [(a, "edge") for a, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]
    return inside + cut


def one_epoch() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([2.3]), {"valid": curves_of([2.3, 0.5])}


def many_sets() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([2.3, 0.01]), {f"{name} {i}": curves_of([2.3, 0.02]) for i in range(7) for name in LONG}


def large_numbers() -> tuple[Curves, dict[str, Curves]]:
    curves = new_curves()
    for x in range(1, 6):
        for curve in curves.values():
            curve.append(x * 987_654_321, 123456.0 - x)
    return curves, {}


def small_numbers() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([1.00001e-5, 1.00002e-5, 0.0]), {}


def nothing() -> tuple[Curves, dict[str, Curves]]:
    return new_curves(), {}


def only_gaps() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([math.nan, math.inf]), {"valid": curves_of([math.nan])}


@pytest.mark.parametrize(
    "case", [one_epoch, many_sets, large_numbers, small_numbers, nothing, only_gaps], ids=lambda case: case.__name__
)
def test_no_text_covers_another_or_is_cut_off(case: Callable[[], tuple[Curves, dict[str, Curves]]]) -> None:
    figure = draw(*case())
    assert overlaps(figure) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_metrics_have_panels_below_the_losses(count: int) -> None:
    training, sets = one_epoch()
    curve = training["epoch"]
    figure = draw(training, sets, {f"$metric {i}": {"training": curve, "valid": curve} for i in range(count)})
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss"] * 3 + [f"$metric {i}" for i in range(count)]
    assert overlaps(figure) == []


def test_two_sets_never_look_alike() -> None:
    figure = draw(curves_of([1, 2]), {str(i): curves_of([1, 2]) for i in range(12)})
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len(looks) == 13


def test_the_legend_names_every_curve_as_it_is() -> None:
    names = ["_hidden", "a $ and a $", "中文"]
    figure = draw(curves_of([1, 2]), {name: curves_of([1, 2]) for name in names})
    render_figure(figure, "png")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["training", *names]


def test_the_settings_of_the_user_do_not_change_the_picture() -> None:
    curves = curves_of([2, 1])
    usual = render_figure(draw(curves, {}), "png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9}):
        assert render_figure(draw(curves, {}), "png") == usual
