from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from train_manager import Extension, InputError, NonFiniteLoss, SkipBatch, TrainManager
from train_manager.extensions import LossCurves
from train_manager.extensions.loss_curves import (
    MOST_POINTS,
    Curve,
    Curves,
    draw,
    halved,
    legend_columns,
    mean_point,
    new_curves,
    rendered,
    replace_file,
    scale_for,
    short_name,
)
from train_manager.testing import tiny_manager

LONG = [f"validation set of the year 2024, {part}, web pages in German" for part in ("first half", "second half")]


class Losses(Extension):
    """Every training loss, and its weight."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.weights: list[int] = []

    def post_train_step_batch(self, loss: Tensor, true_batch_size: int) -> None:
        self.values.append(loss.item())
        self.weights.append(true_batch_size)


class StopAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == self.step:
            train_manager.stop("enough")


class EvalAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == self.step:
            train_manager.eval_soon()


class FailAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int) -> None:
        if step_num == self.step:
            raise ValueError("on purpose")


class CopiesToTheHost(TorchDispatchMode):
    """Counts how often a tensor is read on the host, and how often values are collected for it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reads = self.stacks = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        self.stacks += func is torch.ops.aten.stack.default
        return func(*args, **(kwargs or {}))


def trained(folder: Path, *others: Extension, **options: Any) -> LossCurves:
    curves = LossCurves()
    tiny_manager(curves, *others, train_dir=folder, **{"epochs": 2, **options}).train()
    return curves


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[LossCurves, Losses, Path]:
    """A training of two epochs, for all who only look at it: its curves, all losses, and its folder."""
    folder, losses = tmp_path_factory.mktemp("plain"), Losses()
    return trained(folder, losses), losses, folder


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "plots").iterdir())


def curves_of(values: list[float]) -> Curves:
    curves = new_curves()
    for x, value in enumerate(values):
        for curve in curves.values():
            curve.append(x, value)
    return curves


def panels_of(figure: Figure) -> list[tuple[str, str]]:
    return [(axes.get_xlabel(), axes.get_yscale()) for axes in figure.axes]


# ---- what is recorded --------------------------------------------------------------------------------------------


def test_the_training_by_batch_has_the_loss_of_every_step_over_step_num(plain: tuple[LossCurves, Losses, Path]) -> None:
    curves, losses, _ = plain
    assert curves.training["batch"].x == [1, 2, 3, 4, 5, 6]
    assert curves.training["batch"].y == losses.values


def test_the_training_by_example_goes_on_by_the_true_batch_sizes(plain: tuple[LossCurves, Losses, Path]) -> None:
    curves, _, _ = plain
    assert curves.training["example"].x == [16, 32, 40, 56, 72, 80]


def test_the_training_by_epoch_is_the_mean_over_the_examples_of_each(plain: tuple[LossCurves, Losses, Path]) -> None:
    curves, losses, _ = plain
    weighted = [loss * weight for loss, weight in zip(losses.values, losses.weights, strict=True)]
    assert curves.training["epoch"].x == [1, 2]
    assert curves.training["epoch"].y == pytest.approx([sum(weighted[:3]) / 40, sum(weighted[3:]) / 40])


def test_an_evaluation_set_starts_before_the_first_epoch(plain: tuple[LossCurves, Losses, Path]) -> None:
    valid = plain[0].eval_sets["valid"]
    assert valid["epoch"].x == [0, 1, 2]
    assert valid["batch"].x == [0, 3, 6]
    assert valid["example"].x == [0, 40, 80]


def test_an_evaluation_set_has_the_results_of_the_evaluations(tmp_path: Path) -> None:
    curves = LossCurves()
    tm = tiny_manager(curves, train_dir=tmp_path)
    tm.train()
    assert curves.eval_sets["valid"]["epoch"].y[-1] == tm.eval()["valid"]["loss"]


def test_an_evaluation_alone_is_no_point_and_leaves_the_files_as_they_are(tmp_path: Path) -> None:
    curves = LossCurves()
    tm = tiny_manager(curves, train_dir=tmp_path)
    tm.train()
    for path in (tmp_path / "plots").iterdir():
        path.write_text("as it was")
    tm.eval()
    assert curves.eval_sets["valid"]["epoch"].x == [0, 1]
    assert {path.read_text() for path in (tmp_path / "plots").iterdir()} == {"as it was"}


def test_an_evaluation_within_an_epoch_is_a_point_by_batch_but_not_by_epoch(tmp_path: Path) -> None:
    valid = trained(tmp_path, EvalAt(4)).eval_sets["valid"]
    assert valid["batch"].x == [0, 3, 4, 6]
    assert valid["example"].x == [0, 40, 56, 80]
    assert valid["epoch"].x == [0, 1, 2]


def test_an_epoch_that_was_stopped_has_no_mean(tmp_path: Path) -> None:
    curves = trained(tmp_path, StopAt(2))
    assert curves.training["epoch"].x == []
    assert curves.training["batch"].x == [1, 2]


def test_the_mean_of_an_epoch_leaves_out_what_was_stopped_before_it(tmp_path: Path) -> None:
    curves, losses = LossCurves(), Losses()
    tm = tiny_manager(curves, losses, StopAt(2), train_dir=tmp_path)
    tm.train()
    tm.train()
    assert curves.training["epoch"].y == pytest.approx(
        [sum(map(math.prod, zip(losses.values[2:], (16, 16, 8), strict=True))) / 40]
    )


def test_a_skipped_batch_is_no_point(tmp_path: Path) -> None:
    class SkipSecond(Extension):
        number = 0

        def post_train_loss_forward(self) -> None:
            self.number += 1
            if self.number == 2:
                raise SkipBatch

    curves = trained(tmp_path, SkipSecond(), epochs=1)
    assert curves.training["example"].x == [16, 24]


def test_all_sets_are_recorded_whatever_their_names(tmp_path: Path) -> None:
    batches = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))]
    names = ["training", "_hidden", "a $ and a _", *LONG, "中文"]
    curves = trained(tmp_path, eval_data=dict.fromkeys(names, batches))
    assert list(curves.eval_sets) == names
    assert len(curves.training["epoch"].x) == 2


# ---- files -------------------------------------------------------------------------------------------------------


def test_the_curves_are_written_as_png_and_svg_and_nothing_else(plain: tuple[LossCurves, Losses, Path]) -> None:
    folder = plain[2]
    assert files_in(folder) == ["loss_curves.png", "loss_curves.svg"]
    assert (folder / "plots" / "loss_curves.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "plots" / "loss_curves.svg").read_bytes()


def test_the_same_training_writes_the_same_files(tmp_path: Path) -> None:
    for name in ("first", "second"):
        trained(tmp_path / name)
    for file in files_in(tmp_path / "first"):
        assert (tmp_path / "first/plots" / file).read_bytes() == (tmp_path / "second/plots" / file).read_bytes()


def drawings_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every picture that is written as PNG."""
    drawn: list[int] = []

    def count(path: Path, content: bytes) -> None:
        if path.suffix == ".png":
            drawn.append(0)
        replace_file(path, content)

    monkeypatch.setattr("train_manager.extensions.loss_curves.replace_file", count)
    return drawn


def test_the_files_are_renewed_once_after_each_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = drawings_of(monkeypatch)
    trained(tmp_path, epochs=3)
    assert len(drawn) == 4


def test_without_evaluation_the_files_are_renewed_once_for_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = drawings_of(monkeypatch)
    trained(tmp_path, epochs=3, eval_data=None)
    assert len(drawn) == 3


def test_after_an_error_the_files_show_the_steps_before_it(tmp_path: Path) -> None:
    curves = LossCurves()
    with pytest.raises(ValueError, match="on purpose"):
        tiny_manager(curves, FailAt(2), eval_data=None, train_dir=tmp_path).train()
    assert files_in(tmp_path) == ["loss_curves.png", "loss_curves.svg"]
    assert curves.training["batch"].x == [1, 2]


def test_a_loss_that_is_not_finite_is_drawn_as_a_gap(tmp_path: Path) -> None:
    class Spoil(Extension):
        def pre_train_step_batch(self, step_num: int, batch: tuple[Tensor, Tensor], fixtures: Any) -> None:
            if step_num == 1:
                fixtures.modify("batch", (batch[0] * math.nan, batch[1]))

    curves = LossCurves()
    with pytest.raises(NonFiniteLoss):
        tiny_manager(curves, Spoil(), train_dir=tmp_path).train()
    assert [math.isnan(y) for y in curves.training["batch"].y][:2] == [False, True]
    assert files_in(tmp_path) == ["loss_curves.png", "loss_curves.svg"]


def test_without_a_train_dir_it_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="extension 'loss_curves'") as caught:
        tiny_manager(LossCurves()).train()
    assert "train_dir" in caught.value.cure


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    replace_file(path, b"old")
    with path.open("rb") as reader:
        replace_file(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()  # in the way
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on the system
        replace_file(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ---- surviving ----------------------------------------------------------------------------------------------------


def test_the_state_is_plain_and_comes_back_through_a_file(plain: tuple[LossCurves, Losses, Path]) -> None:
    curves, again = plain[0], LossCurves()
    again.load_state_dict(json.loads(json.dumps(curves.state_dict())))
    assert again.state_dict() == curves.state_dict()
    assert rendered(again.figure(), "svg") == rendered(curves.figure(), "svg")


def test_a_training_that_goes_on_from_a_state_makes_the_same_curves(tmp_path: Path) -> None:
    whole = trained(tmp_path, epochs=4)
    first, second = LossCurves(), LossCurves()
    tm = tiny_manager(first, epochs=4, train_dir=tmp_path)
    tm.train_epochs(2)
    second.load_state_dict(first.state_dict())
    tm.remove_extension("loss_curves")
    tm.add_extension(second)
    tm.train()
    assert second.state_dict() == whole.state_dict()


def test_a_state_taken_within_an_epoch_holds_the_steps_so_far(tmp_path: Path) -> None:
    class Save(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            if step_num == 2:
                self.state = curves.state_dict()

    curves, save = LossCurves(), Save()
    tiny_manager(curves, save, train_dir=tmp_path).train()
    assert [x for x, _ in save.state["training"]["batch"]["points"]] == [1, 2]


# ---- cost --------------------------------------------------------------------------------------------------------


def test_a_step_reads_nothing_on_the_host_and_an_epoch_collects_once(tmp_path: Path) -> None:
    with CopiesToTheHost() as copies:
        trained(tmp_path, epochs=1)
    with CopiesToTheHost() as without:
        tiny_manager(epochs=1).train()
    assert copies.reads == 0
    assert copies.stacks - without.stacks == 1


def test_neither_pyplot_nor_a_window_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it would fail
    trained(tmp_path)
    assert files_in(tmp_path) == ["loss_curves.png", "loss_curves.svg"]


def test_the_settings_of_matplotlib_are_left_as_they_were(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    trained(tmp_path)
    assert dict(matplotlib.rcParams) == before


def test_the_settings_of_the_user_do_not_change_the_picture() -> None:
    curves = curves_of([2, 1])
    usual = rendered(draw(curves, {}), "png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9}):
        assert rendered(draw(curves, {}), "png") == usual


# ---- decisions: thinning -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 5, MOST_POINTS - 1, MOST_POINTS, 3 * MOST_POINTS + 1])
def test_a_curve_is_never_longer_than_the_most_points(number: int) -> None:
    curve = Curve()
    for x in range(number):
        curve.append(x, 1.0)
    assert len(curve.x) == len(curve.y) <= MOST_POINTS
    assert len(curve.x) >= min(number, MOST_POINTS // 2)


def test_a_short_curve_has_every_point_as_it_was() -> None:
    curve = Curve()
    for x in range(MOST_POINTS - 1):
        curve.append(x, x / 7)
    assert curve.x == list(range(MOST_POINTS - 1))
    assert curve.y == [x / 7 for x in range(MOST_POINTS - 1)]


def test_the_points_of_a_long_curve_are_means_of_neighbours() -> None:
    curve = Curve(most=4)
    for x in range(8):
        curve.append(x, 10 * x)
    assert (curve.x, curve.y) == ([1.5, 5.5], [15, 55])


def test_the_last_point_is_shown_though_its_neighbours_are_still_missing() -> None:
    curve = Curve(most=4)
    for x in range(9):
        curve.append(x, 10 * x)
    assert (curve.x[-1], curve.y[-1]) == (8, 80)


def test_a_curve_that_goes_on_from_its_state_is_the_same_as_one_that_never_stopped() -> None:
    whole, first, second = Curve(most=4), Curve(most=4), Curve(most=4)
    for x in range(23):
        whole.append(x, x)
        if x == 12:
            second.load_state_dict(first.state_dict())
        (first if x < 12 else second).append(x, x)
    assert second.state_dict() == whole.state_dict()


def test_means_leave_out_what_is_not_finite() -> None:
    assert mean_point([(1, math.nan), (2, 3.0), (3, math.inf)]) == (2, 3.0)


def test_a_mean_of_nothing_finite_is_a_gap() -> None:
    assert math.isnan(mean_point([(1, math.nan), (2, -math.inf)])[1])


def test_halving_keeps_an_odd_last_point() -> None:
    assert halved([(0, 0), (1, 2), (2, 8)]) == [(0.5, 1), (2, 8)]


# ---- decisions: the picture ----------------------------------------------------------------------------------------


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


def test_two_sets_never_look_alike() -> None:
    figure = draw(curves_of([1, 2]), {str(i): curves_of([1, 2]) for i in range(12)})
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len(looks) == 13


def test_the_legend_names_every_curve_as_it_is() -> None:
    names = ["_hidden", "a $ and a $", "中文"]
    figure = draw(curves_of([1, 2]), {name: curves_of([1, 2]) for name in names})
    rendered(figure, "png")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["training", *names]


def test_a_notebook_shows_the_curves_as_a_picture(plain: tuple[LossCurves, Losses, Path]) -> None:
    assert plain[0]._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "train-manager\[viz\]"'):
        LossCurves()
