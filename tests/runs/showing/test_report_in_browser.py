"""The page as it is used: with a mouse, keys and buttons, in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.runs.code.repositories import a_file
from tests.runs.record.sample_runs import write_code
from tests.runs.showing.conftest import settle
from tests.runs.showing.stored import ConfusesDigits, Writes, page_of, trained
from train_manager import Extension, cli
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.store.writer import MetricWriter

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Opened = Callable[..., Page]

pytestmark = pytest.mark.slow
X_RANGE = "(() => { const {min, max} = figures.find(one => one.name === 'loss').drawn.scales.x; return [min, max]; })()"
STATE = "JSON.parse(sessionStorage.getItem(key))"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with losses, a small and a large metric."""
    folder = tmp_path_factory.mktemp("run") / "digits"
    return page_of(trained(folder, Writes({"small": 0.001, "large": 50.0}), epochs=20))


def drag(page: Page, plot: str, from_share: float, to_share: float) -> None:
    """Drag over the inside of a plot, from one share of its width to another."""
    box: Any = page.locator(".plot", has=page.locator("h3", has_text=plot)).first.locator(".u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * from_share, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * to_share, middle, steps=4)
    page.mouse.up()


def test_dragging_zooms_and_reset_shows_all_again(opened: Opened, text: str) -> None:
    page = opened(text)
    whole = page.evaluate(X_RANGE)

    drag(page, "loss", 0.25, 0.5)
    low, high = page.evaluate(X_RANGE)
    page.get_by_role("button", name="Reset loss").click()

    assert whole[0] + 5 < low < high < whole[1] - 20
    assert page.evaluate(X_RANGE) == whole


def test_the_labels_of_a_constant_rate_are_not_cut(opened: Opened, tmp_path: Path) -> None:
    page = opened(page_of(trained(tmp_path / "run", Writes({"rate": 0.00104}))))
    page.locator(".plot", has=page.locator("h3", has_text="rate")).first.scroll_into_view_if_needed()
    settle(page)
    missing = page.evaluate("""(() => {
        const {drawn} = figures.find(one => one.name === "rate"), [, axis] = drawn.axes;
        drawn.ctx.font = axis.font[0];
        const labels = axis.values(drawn, axis._splits ?? [0.00095, 0.00105]);
        const longest = Math.max(...labels.map(one => drawn.ctx.measureText(one).width / devicePixelRatio));
        return longest + axis.ticks.size + axis.gap - axis._size;
    })()""")

    assert missing <= 0


def test_a_curve_that_is_not_checked_is_not_drawn(opened: Opened, text: str) -> None:
    page = opened(text)
    drawn = "figures.find(one => one.name === 'loss').drawn.series.filter(one => one.curve).map(one => one.curve.name)"
    before = page.evaluate(drawn)

    page.get_by_role("checkbox", name="training").first.uncheck()

    assert before == ["training", "valid"]
    assert page.evaluate(drawn) == ["valid"]


def test_the_legend_tells_the_best_evaluation(opened: Opened, tmp_path: Path) -> None:
    def ends_of(**given: Any) -> list[str]:
        page = opened(page_of(trained(tmp_path / f"run {len(given)}", **given)), width=420)
        assert page.locator(".legend .curve", has_text="valid").first.is_visible()
        return [*page.locator(".legend li", has_text="valid").first.locator(".end").all_text_contents()]

    assert ends_of() == ["0.654 at step 6, the best"]
    [end] = ends_of(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, maximize=True), epochs=3)
    assert re.fullmatch(r"\S+ at step 9, best \S+ at 3", end)


def test_picked_curves_are_one_plot_with_a_second_axis_and_a_name_of_its_own(opened: Opened, text: str) -> None:
    page = opened(text)
    axes = "figures.find(one => one.isPicked).drawn.axes.length"
    is_there = page.get_by_label("Name of the plot").is_visible()

    page.get_by_role("button", name="pick loss: training").click()
    page.get_by_role("button", name="pick loss: valid").click()
    settle(page)
    alone = page.evaluate(axes)
    page.get_by_role("button", name="pick large: large").click()
    settle(page)
    page.get_by_label("Name of the plot").fill("mine")

    assert not is_there
    assert alone == 2
    assert page.evaluate(axes) == 3
    assert page.locator(".plot", has=page.get_by_label("Name of the plot")).locator(".curve").all_text_contents() == [
        "loss: training (batch loss)",
        "loss: valid",
        "large: large (right axis)",
    ]
    page.get_by_role("button", name="remove picked curves: large: large").click()
    settle(page)
    assert page.evaluate(axes) == 2


def test_what_was_chosen_is_still_so_after_the_page_has_loaded_itself_again(opened: Opened, text: str) -> None:
    page = opened(text)
    drag(page, "loss", 0.25, 0.5)
    page.get_by_role("checkbox", name="valid").first.uncheck()
    page.get_by_role("button", name="pick loss: training").click()
    page.get_by_label("smoothing").fill("0.5")
    page.get_by_label("y scale").select_option("log")
    zoomed, state = page.evaluate(X_RANGE), page.evaluate(STATE)

    page.reload()
    settle(page)

    assert page.evaluate(X_RANGE) == zoomed
    assert page.evaluate(STATE) == state
    assert (state["smooth"], state["y"], len(state["hidden"]), len(state["picked"])) == (0.5, "log", 1, 1)
    assert page.get_by_label("smoothing").input_value() == "0.5"


def test_a_page_of_a_run_that_resumes_loads_itself_again(opened: Opened, text: str) -> None:
    page = opened(text.replace('"renews":null', '"renews":0.2'), settles=False)

    with page.expect_event("load"):
        pass


def scales(page: Page, plot: str = "loss") -> Any:
    """The kinds of the two axes of a plot: 1 is linear, 3 logarithmic."""
    return page.evaluate(f"(({{x, y}}) => [x.distr, y.distr])(figures.find(one => one.name === '{plot}').drawn.scales)")


def test_both_axes_may_be_logarithmic(opened: Opened, text: str) -> None:
    page = opened(text)
    plain = scales(page)

    page.get_by_label("y scale").select_option("log")
    page.get_by_label("log x").check()
    both = scales(page)
    page.get_by_label("y scale").select_option("linear")

    assert (plain, both, scales(page)) == ([1, 1], [3, 3], [3, 1])


def test_the_button_that_maximises_restores_too(opened: Opened, text: str) -> None:
    page = opened(text)
    button = page.get_by_role("button", name="Maximise loss")

    button.click()
    during = button.text_content(), page.locator("dialog").is_visible()
    button.click()

    assert during == ("Restore", True)
    assert (button.text_content(), page.locator("dialog").is_visible()) == ("Maximise", False)


def test_smoothing_draws_a_running_mean_over_what_was_measured(opened: Opened, text: str) -> None:
    page = opened(text)
    lines = "figures.find(one => one.name === 'loss').drawn.data.length"
    smooth = page.evaluate(lines)

    page.get_by_label("smoothing").fill("0")

    assert (smooth, page.evaluate(lines)) == (4, 3)  # steps, two curves, and behind the smooth one its values


class Spike(Extension):
    """Writes a metric that is high in one of 100,000 steps."""

    def post_train_step_batch(self, writer: MetricWriter, step_num: int) -> None:
        if step_num == 1:
            for step in range(1, 100_001):
                writer.scalar("norm", 1000.0 if step == 77_777 else 1.0, step=step)


def test_a_spike_of_one_step_in_100_000_is_seen_and_zoomed_to(opened: Opened, tmp_path: Path) -> None:
    page = opened(page_of(trained(tmp_path / "run", Spike(), epochs=1)))
    range_of = (
        "(() => {const {x, y} = figures.find(one => one.name === 'norm').drawn.scales; return [x.min, x.max, y.max]})()"
    )
    whole = page.evaluate(range_of)

    drag(page, "norm", 0.77, 0.785)
    low, high, most = page.evaluate(range_of)
    drag(page, "norm", 0.01, 0.2)

    assert whole[2] >= 1000 <= most
    assert 76_000 < low < 77_777 < high < 79_500
    assert page.evaluate(range_of)[2] < 3


def test_a_heat_map_is_zoomed_and_reset(opened: Opened, tmp_path: Path) -> None:
    page = opened(page_of(trained(tmp_path / "run", Writes(layers=20), epochs=20)))
    shown = "(({min, max}) => [min, max])(figures.find(one => one.name === 'gradient_norms').drawn.scales.x)"
    plot = page.locator("#layers .plot").first
    plot.scroll_into_view_if_needed()
    settle(page)
    whole = page.evaluate(shown)

    box: Any = plot.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 100, steps=4)
    page.mouse.up()
    low, high = page.evaluate(shown)
    page.get_by_role("button", name="Reset gradient_norms").click()

    assert whole == page.evaluate(shown) == [0, 60]
    assert 10 < low < high < 58


def test_norms_that_vanish_to_zero_are_told_apart_by_a_scale_of_logarithms(opened: Opened, tmp_path: Path) -> None:
    vanishing = [0.0, *(10.0**n for n in range(-9, 0))]
    page = opened(page_of(trained(tmp_path / "run", WritesNorms(vanishing))))

    assert page.locator("#layers .plot .scale").first.inner_text().split() == ["5e-10", "0.05", "(log)"]


class WritesNorms(Extension):
    """Writes the norms of layers in each step."""

    def __init__(self, norms: list[float]) -> None:
        self.norms = norms

    def post_train_step_batch(self, writer: MetricWriter) -> None:
        writer.array("gradient_norms", torch.tensor(self.norms))
        writer.array("gradient_norms_counts", torch.full((len(self.norms),), 4.0))


def test_a_confusion_matrix_which_is_never_zoomed_has_no_reset_button(opened: Opened, tmp_path: Path) -> None:
    page = opened(page_of(trained(tmp_path / "run", ConfusesDigits(), epochs=2)))
    buttons = page.locator("#classes .plot").first.locator(".buttons button")

    assert buttons.all_inner_texts() == ["Maximise"]


@pytest.mark.parametrize(("over", "last"), [("epoch", 20.0), ("examples", 800.0)])
def test_curves_are_drawn_over_epochs_and_examples(opened: Opened, text: str, over: str, last: float) -> None:
    page = opened(text)

    page.locator("#x").select_option(over)

    assert page.evaluate("figures.find(one => one.name === 'loss').drawn.data[0].at(-1)") == last


def test_the_filter_leaves_plots_whose_name_or_curve_has_the_word(opened: Opened, text: str) -> None:
    page = opened(text)

    page.get_by_label("filter").fill("SMALL")

    assert page.locator(".plot:visible h3").all_text_contents() == ["small"]


def test_a_scale_of_logarithms_over_zeros_is_linear_and_says_so(opened: Opened, tmp_path: Path) -> None:
    page = opened(page_of(trained(tmp_path / "run", Writes({"none": 0.0}))))
    page.get_by_label("y scale").select_option("log")

    plot = page.locator(".plot", has=page.locator("h3", has_text="none"))

    assert plot.locator(".note").text_content() == "No value is above zero, so the scale is linear."


def test_few_layers_are_curves_and_many_are_a_heat_map_and_zeros_a_sentence(opened: Opened, tmp_path: Path) -> None:
    few = opened(page_of(trained(tmp_path / "few", Writes(layers=2))))
    curves = few.locator("#layers .curve").all_text_contents()
    many = opened(page_of(trained(tmp_path / "many", Writes(layers=20))))
    many.locator("#layers").scroll_into_view_if_needed()
    settle(many)

    assert curves == ["0 Linear", "1 Linear"] * 2
    assert many.locator("#layers canvas:visible").count() == 1
    assert many.locator("#layers .note").all_text_contents() == [
        "As root mean squares: norms divided by the square root of the number of values (RMS).",
        "All values are 0, in 20 rows.",
    ]


def test_norms_are_shown_as_root_mean_squares_unless_the_switch_is_off(opened: Opened, tmp_path: Path) -> None:
    page = opened(page_of(trained(tmp_path / "run", Writes(layers=2))))
    ends = page.locator("#layers .plot", has=page.locator("h3", has_text="gradient_norms")).locator(".end")
    with_root = ends.all_text_contents()

    page.get_by_label("norms as RMS").uncheck()

    assert with_root == ["0.5 at step 6", "1 at step 6"]
    assert ends.all_text_contents() == ["1 at step 6", "2 at step 6"]


def test_a_plot_tells_a_screen_reader_how_each_curve_ends_and_has_a_table(opened: Opened, text: str) -> None:
    page = opened(text)
    plot = page.locator(".plot", has=page.locator("h3", has_text="large"))
    plot.scroll_into_view_if_needed()
    settle(page)

    plot.locator("summary").click()

    assert plot.locator(".canvas").get_attribute("aria-label") == "large over steps. large ends at 50 at step 60"
    assert plot.locator("table").inner_text().split() == ["curve", "ends", "at", "lowest", "highest"] + (
        ["large"] + ["50", "at", "step", "60"] + ["50", "at", "1"] * 2
    )


def findings(page: Page) -> list[str]:
    """What axe-core finds in a page that hinders somebody from reading it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed").Axe()
    found: Any = axe.run(page).response["violations"]
    return [f"{one['id']}: {node['target']}" for one in found for node in one["nodes"]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs with all that a page shows: few layers and many, zeros, classes, a picture, a text, code that differs."""
    above = tmp_path_factory.mktemp("runs")
    shown = (Writes({"none": 0.0} | {f"own{n}": n / 4 for n in range(8)}, layers=20), ConfusesDigits())
    runs = [trained(above / f"{epochs}", *shown, epochs=epochs) for epochs in (1, 2)]
    for number, run in enumerate(runs):
        write_code(run, read_runs(run)[-1]["id"], files=[a_file(f"train{number}.py")])
    return runs


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("number", [1, 2])
def test_axe_finds_nothing_on_the_page_of_one_run_or_two(
    opened: Opened, folders: list[Path], number: int, scheme: str
) -> None:
    page = opened(page_of(*folders[:number]), scheme=scheme)
    before = findings(page)  # what is far below has not been drawn yet
    for summary in page.locator("summary:visible").all():
        summary.click()

    assert before + findings(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_page_of_compare(
    opened: Opened, folders: list[Path], tmp_path: Path, scheme: str
) -> None:
    cli.main(["compare", *map(str, folders), "--html", str(tmp_path / "page.html")])

    page = opened((tmp_path / "page.html").read_text(), scheme=scheme)

    assert findings(page) == []


def test_axe_finds_nothing_where_a_plot_is_maximised_and_curves_are_picked(opened: Opened, text: str) -> None:
    page = opened(text)
    page.get_by_role("button", name="pick loss: training").click()
    page.get_by_role("button", name="pick large: large").click()
    page.get_by_role("button", name="Maximise picked curves").click()
    settle(page)

    assert findings(page) == []


class AtOddSteps(Extension):
    """Writes metrics at steps that a scale of logarithms has no place for, and a single one that is above zero."""

    def post_train_step_batch(self, writer: MetricWriter, step_num: int) -> None:
        if step_num == 1:
            writer.scalar("curve", 1.0, step=-5)
            for step in (-7, 0, 1):
                writer.array(f"few at {step}", torch.arange(3.0), step=step)
                writer.array(f"many at {step}", torch.arange(20.0), step=step)
            writer.array("one above zero", torch.arange(20.0) - 18)


@pytest.mark.parametrize("is_log", [False, True])
def test_metrics_at_any_step_are_drawn_on_any_scale(opened: Opened, tmp_path: Path, is_log: bool) -> None:
    page = opened(page_of(trained(tmp_path / "run", AtOddSteps(), epochs=1, steps_per_epoch=1)))
    page.get_by_label("log x").set_checked(is_log)
    page.get_by_label("y scale").select_option("log" if is_log else "auto")

    for plot in page.locator(".plot:visible").all():  # what is not seen is not drawn
        plot.scroll_into_view_if_needed()
        settle(page)

    assert page.evaluate("figures.every(one => one.isPicked || one.drawn || one.note.textContent)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_not_wider_than_a_phone(opened: Opened, tmp_path: Path, scheme: str) -> None:
    page = opened(page_of(trained(tmp_path / "run", Writes({"x" * 80: 1.0}, layers=20))), width=390, scheme=scheme)

    assert page.evaluate("document.documentElement.scrollWidth") == 390
