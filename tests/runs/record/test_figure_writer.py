from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from train_manager.runs.record.figure_writer import FigureWriter, Place, histogram_of
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import Series
from train_manager.runs.record.metric_writer import MetricWriter
from train_manager.telling.errors import InputError


class Written:
    """A FigureWriter at step 7 of epoch 2, and what a reader finds of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "metrics.sqlite"
        self._file = MetricWriter(self.path, "run")
        place = Place(7, 2, "head")
        self.figures = FigureWriter(self._file.number, self._file.append, lambda: place, lambda value: value, folder)

    def read(self) -> MetricReader:
        self._file.close()
        return MetricReader(self.path)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


NORM = Series("norm", phase="head")


def test_a_scalar_is_of_the_present_step_and_phase(written: Written) -> None:
    written.figures.scalar("norm", 0.5)

    assert written.read().scalars()[NORM][:2] == ([7], [0.5])


def test_a_scalar_may_have_a_step_of_its_own(written: Written) -> None:
    written.figures.scalar("norm", 0.5, step=100)

    assert written.read().scalars()[NORM][:2] == ([100], [0.5])


@pytest.mark.parametrize("value", [3, True, 0.25, "0.5"])
def test_a_scalar_is_whatever_float_takes(written: Written, value: Any) -> None:
    written.figures.scalar("norm", value)

    assert written.read().scalars()[NORM].values == [float(value)]


def test_a_histogram_has_edges_and_counts(written: Written) -> None:
    written.figures.histogram("weights", torch.tensor([[0.0, 0.25], [0.75, 1.0]]), bins=2)

    assert written.read().histograms() == {Series("weights", phase="head"): [(7, [0.0, 0.5, 1.0], [2, 2])]}


@pytest.mark.parametrize("values", [[], [1.0, 1.0], [float("nan"), 2.0, float("inf")], [1e300, -1e300]])
def test_a_histogram_counts_every_finite_value_once(values: list[float]) -> None:
    edges, counts = histogram_of(values, bins=3)

    assert len(edges) == 4
    assert edges == sorted(set(edges))
    assert sum(counts) == sum(value - value == 0 for value in values)


def test_a_histogram_may_be_as_wide_as_all_floats() -> None:
    assert histogram_of([-1.5e308, 0.0, 1.5e308], bins=3) == ([-1.5e308, -0.5e308, 0.5e308, 1.5e308], [1, 1, 1])


def test_a_text_comes_back_as_it_was(written: Written) -> None:
    written.figures.text("sample", "it's\nü 🦊\0 end")

    assert written.read().texts() == {Series("sample", phase="head"): [(7, "it's\nü 🦊\0 end")]}


def test_a_file_is_known_by_its_hash(written: Written, tmp_path: Path) -> None:
    (tmp_path / "plot.txt").write_text("x")
    written.figures.file("plot", tmp_path / "plot.txt")

    sha256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert written.read().files() == {Series("plot", phase="head"): [(7, "plot.txt", 1, sha256)]}


def told(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    return str(error.value).splitlines()


def test_a_tensor_of_several_numbers_is_refused(written: Written) -> None:
    with pytest.raises(InputError) as error:
        written.figures.scalar("norm", torch.zeros(2, 3))

    assert told(error) == [
        "'norm' must be one number, but is a tensor of shape (2, 3)",
        "  give a number, or writer.histogram for several",
    ]


def test_what_is_not_a_number_is_refused(written: Written) -> None:
    with pytest.raises(InputError) as error:
        written.figures.scalar("norm", "high")

    assert told(error)[0] == "'norm' must be a number, but is 'high'"


def test_a_number_that_no_float_holds_is_refused(written: Written) -> None:
    with pytest.raises(InputError, match=r"^'norm' must be a number, but is 1000"):
        written.figures.scalar("norm", 10**400)


@pytest.mark.parametrize("step", [1.5, "x", float("nan")])
def test_a_step_that_is_not_a_whole_number_is_refused(written: Written, step: Any) -> None:
    with pytest.raises(InputError) as error:
        written.figures.scalar("norm", 0.5, step=step)

    assert str(error.value) == (
        f"the step of 'norm' must be a whole number, but is {step!r}\n  leave it out for the present step"
    )


@pytest.mark.parametrize("values", [None, "abc", {"a": 1}, torch.tensor([1j])])
def test_a_histogram_of_what_is_not_numbers_is_refused(written: Written, values: Any) -> None:
    with pytest.raises(InputError) as error:
        written.figures.histogram("weights", values)

    assert str(error.value) == f"'weights' must be numbers, but is {values!r:.60}\n  give a tensor or numbers"


def test_a_figure_without_a_name_is_refused(written: Written) -> None:
    with pytest.raises(InputError) as error:
        written.figures.scalar("", 1)

    assert told(error)[0] == "a figure must have a name, but it is ''"


def test_a_file_that_is_not_there_is_refused(written: Written, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        written.figures.file("plot", tmp_path / "lost")

    assert told(error)[0] == f"{tmp_path / 'lost'} cannot be recorded: No such file or directory"
