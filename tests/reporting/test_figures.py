"""Figures of panels, and what all figures have in common."""

from __future__ import annotations

import math
from collections.abc import Callable

import matplotlib
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.support.figures import columns_of, contrast, examples_of, overlaps
from train_manager.reporting.curves import Curves, new_curves
from train_manager.reporting.evaluation_figures import confusion_figure, gallery_figure
from train_manager.reporting.figures import GREY, panels_figure, render_figure, speed_figure
from train_manager.reporting.layer_figures import histograms_figure, layers_figure
from train_manager.reporting.loss_panels import loss_panels

LONG = [f"validation set of the year 2024, {part}, web pages in German" for part in ("first half", "second half")]


def curves_of(values: list[float]) -> Curves:
    curves = new_curves()
    for x, value in enumerate(values):
        for curve in curves.values():
            curve.append(x, value)
    return curves


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
    figure = panels_figure(loss_panels(*case()))
    assert overlaps(figure) == []


@pytest.mark.parametrize("count", [1, 4])
def test_metrics_have_panels_below_the_losses(count: int) -> None:
    training, sets = one_epoch()
    curve = training["epoch"]
    figure = panels_figure(
        loss_panels(training, sets, {f"$metric {i}": {"training": curve, "valid": curve} for i in range(count)})
    )
    assert [axes.get_ylabel() for axes in figure.axes] == ["epoch loss", "batch loss", "batch loss"] + [
        f"$metric {i}" for i in range(count)
    ]
    assert overlaps(figure) == []


def test_the_legend_names_every_curve_as_it_is() -> None:
    names = ["_hidden", "a $ and a $", "中文"]
    figure = panels_figure(loss_panels(curves_of([1, 2]), {name: curves_of([1, 2]) for name in names}))
    render_figure(figure, "png")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["training", *names]


def test_the_settings_of_the_user_do_not_change_the_picture() -> None:
    curves = curves_of([2, 1])
    usual = render_figure(panels_figure(loss_panels(curves, {})), "png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9}):
        assert render_figure(panels_figure(loss_panels(curves, {})), "png") == usual


# ---- all pictures that a notebook shows ------------------------------------------------------------------------------

NAME = "</text><script>alert(1)</script> & $x_1$"
SHOWN: dict[str, Callable[[], Figure]] = {
    "lines": lambda: layers_figure({"n": columns_of(2, label="{}." + NAME)}, "none"),
    "heat map": lambda: layers_figure({"n": columns_of(20, label="{}." + NAME)}, "none"),
    "histograms": lambda: histograms_figure({f"weights/{NAME}": ([0.0, 1.0], [3])}, "none"),
    "matrix": lambda: confusion_figure({NAME: [[1, 0], [0, 1]]}, [NAME, NAME]),
    "gallery": lambda: gallery_figure({NAME: examples_of(torch.eye(4))}, [NAME] * 3),
    "speed": lambda: speed_figure({NAME: ([1, 2], [3.0, 4.0])}),
    "sentence": lambda: gallery_figure({}, []),
}


@pytest.mark.parametrize("made", SHOWN.values(), ids=SHOWN)
def test_names_of_any_kind_are_texts_and_the_same_content_gives_the_same_file(made: Callable[[], Figure]) -> None:
    drawn = render_figure(made(), "svg")

    assert b"<script" not in drawn
    assert render_figure(made(), "svg") == drawn


@pytest.mark.parametrize("made", SHOWN.values(), ids=SHOWN)
def test_a_picture_in_a_notebook_is_legible_on_light_and_on_dark_paper(made: Callable[[], Figure]) -> None:
    figure = made()
    axes_of = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    texts = [part for axes in figure.axes for part in axes.get_children() if isinstance(part, Text) and not axes.images]
    texts += [axis.label for axis in axes_of]
    texts += [tick.label1 for axis in axes_of for tick in axis.get_major_ticks()]
    texts += [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]

    assert {text.get_color() for text in texts} == {GREY}
    assert all(to_rgba(part.get_facecolor())[3] == 0 for part in (figure.patch, *(axes.patch for axes in figure.axes)))
    assert all(contrast(GREY, paper) > 4.2 for paper in ("#ffffff", "#111111"))
