from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.host_reads import HostReads
from tests.support.refusals import refusal
from train_manager.metrics.host_numbers import HostNumbers
from train_manager.runs.store.batches import Written
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import Histogram, Metric, StoredArray, StoredFile, StoredRow
from train_manager.runs.store.schema import Series
from train_manager.runs.store.thread import StoreThread
from train_manager.runs.store.writer import MetricWriter, TrainingPosition, picture_name
from train_manager.telling.errors import InputError


class Stored:
    """A MetricWriter at step 7 of epoch 2, and what a reader finds of it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.train_dir, self.numbers = folder / "metrics.sqlite", folder, HostNumbers()
        self._thread = StoreThread(self.path, "run", self.numbers)
        self.follow = self._thread.follow
        self.writer = MetricWriter(self)

    def place(self) -> TrainingPosition:
        return TrainingPosition(7, 2, "head")

    def write(self, metric: Metric) -> None:
        self._thread.append(Written(metric))

    def read(self) -> MetricReader:
        self._thread.close()
        return MetricReader(self.path)


@pytest.fixture
def written(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


NORM = Series("norm", phase="head")


def test_a_scalar_is_of_the_present_step_and_phase(written: Stored) -> None:
    written.writer.scalar("norm", 0.5)

    assert written.read().scalars()[NORM][:2] == ([7], [0.5])


@pytest.mark.parametrize("value", [3, True, 0.25, "0.5"])
def test_a_scalar_is_whatever_float_takes(written: Stored, value: Any) -> None:
    written.writer.scalar("norm", value)

    assert written.read().scalars()[NORM].values == [float(value)]


def test_a_histogram_has_edges_and_counts(written: Stored) -> None:
    written.writer.histogram("weights", torch.tensor([[0.0, 0.25], [0.75, 1.0]]), bins=2)

    assert written.read().histograms() == {Series("weights", phase="head"): [(7, [0.0, 0.5, 1.0], [2, 2])]}


def test_secrets_in_texts_and_names_give_way_to_stars(written: Stored) -> None:
    written.writer.text("sample", 'login with password: "hunter2x9"')
    written.writer.scalar("loss of https://me:hunter2x9@host/x", 0.5)

    assert [*written.read().texts().values()] == [[(7, 'login with password: "***"')]]
    assert [series.name for series in written.read().scalars()] == ["loss of https://***@host/x"]


@pytest.mark.parametrize("step", [2**70, -(2**70)])
def test_any_step_and_any_text_can_be_stored(written: Stored, step: int) -> None:
    written.writer.text("half \ud83d", "\udcff", step=step)

    [(series, rows)] = written.read().texts().items()
    assert (series.name, rows) == ("half \\ud83d", [(max(-(2**63) + 1, min(2**63 - 1, step)), "\\udcff")])


def error_lines(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            torch.zeros(2, 3),
            "'norm' must be one number, but is a tensor of shape (2, 3)\n"
            "  give a number, or writer.histogram for several",
        ),
        (torch.tensor(1j), "'norm' must be one real number, but is tensor(0.+1.j)"),
        ("high", "'norm' must be a number, but is 'high'"),
        (10**400, "'norm' must be a number, but is 1000"),
    ],
)
def test_what_is_not_one_number_is_refused(written: Stored, value: Any, told: str) -> None:
    assert refusal(lambda: written.writer.scalar("norm", value)).startswith(told)


@pytest.mark.parametrize("step", [1.5, "x", float("nan")])
def test_a_step_that_is_not_a_whole_number_is_refused(written: Stored, step: Any) -> None:
    assert (
        refusal(lambda: written.writer.scalar("norm", 0.5, step=step))
        == f"the step of 'norm' must be a whole number, but is {step!r}\n  leave it out for the present step"
    )


@pytest.mark.parametrize("values", [None, "abc", {"a": 1}, torch.tensor([1j]), ["a"]])
def test_a_histogram_of_what_is_not_numbers_is_refused(written: Stored, values: Any) -> None:
    assert (
        refusal(lambda: written.writer.histogram("weights", values))
        == f"'weights' must be numbers, but is {values!r:.60}\n  give a tensor or numbers"
    )


def test_a_metric_without_a_name_is_refused(written: Stored) -> None:
    with pytest.raises(InputError) as error:
        written.writer.scalar("", 1)

    assert error_lines(error)[0] == "a metric must have a name, but it is ''"


def test_a_file_that_is_not_there_is_refused(written: Stored, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        written.writer.file("plot", tmp_path / "lost")

    assert error_lines(error)[0] == f"{tmp_path / 'lost'} cannot be recorded: No such file or directory"


# ---- arrays ----------------------------------------------------------------------------------------------------------


def arrays(written: Stored, name: str) -> list[StoredArray]:
    [found] = written.read().arrays(name).values()
    return found


def test_an_array_is_one_row_with_labels(written: Stored) -> None:
    for _ in range(2):
        written.writer.array("norms", torch.tensor([0.5, float("nan")]), ["first", "second"])

    for row in arrays(written, "norms"):
        assert (row.step, row.epoch, row.shape, row.labels) == (7, 2, (2,), ("first", "second"))
        assert repr(row.values.tolist()) == "[0.5, nan]"


def test_the_labels_of_an_array_are_stored_once(written: Stored) -> None:
    for labels in (["a", "b"], ["a", "b"], None, ["a", "c"], ["a", "c"]):
        written.writer.array("norms", [1, 2], labels)
    written.read()

    with closing(sqlite3.connect(written.path)) as connection:
        stored = connection.execute("SELECT series, labels FROM items JOIN series ON series.id = series").fetchall()
    assert stored == [*[(1, '["a", "b"]')] * 3, *[(2, '["a", "c"]')] * 2]
    assert [row.labels[1] for row in arrays(written, "norms")] == ["b", "b", "b", "c", "c"]


def test_a_matrix_keeps_its_shape(written: Stored) -> None:
    written.writer.array("confusion", torch.arange(6).reshape(3, 2).T, ["cat", "dog"], step=100)

    [row] = arrays(written, "confusion")
    assert (row.step, row.shape, row.values.tolist()) == (100, (2, 3), [0, 2, 4, 1, 3, 5])


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([1, 2]),
        torch.tensor([1, 2], dtype=torch.bfloat16),
        torch.tensor([1.0, 2.0], requires_grad=True) * 1,
        [torch.tensor(1.0, requires_grad=True), 2],
        (1, 2.0),
        np.array([2.0, 1.0])[::-1],
        np.array([1, 2], dtype=">i4"),
        torch.tensor([2.0, 1.0]).flip(0)[None].expand(3, 2)[1],
    ],
)
def test_an_array_is_whatever_numbers_there_are(written: Stored, values: Any) -> None:
    written.writer.array("norms", values)

    assert [row.values.tolist() for row in arrays(written, "norms")] == [[1.0, 2.0]]


def test_an_array_is_stored_as_it_was_when_it_was_written(written: Stored) -> None:
    values = torch.zeros(3)
    for _ in range(3):
        written.writer.array("norms", values)
        values += 1

    assert [row.values.tolist() for row in arrays(written, "norms")] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]


def test_no_number_of_an_array_or_a_histogram_is_read_in_the_step(written: Stored) -> None:
    with HostReads() as reads:
        written.writer.array("norms", torch.zeros(3))
        written.writer.histogram("weights", torch.zeros(3))

    assert reads.count == 0


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        ([1, 2], [1, 2, 3], "'norms' has 3 values, but had 2 before"),
        ([[1, 2]], [[1], [2]], "'norms' is of shape (2, 1), but was of shape (1, 2) before"),
        ([1, 2], [[1, 2]], "'norms' is of shape (1, 2), but was of shape (2,) before"),
    ],
)
def test_an_array_whose_length_changes_is_refused(written: Stored, before: Any, now: Any, what: str) -> None:
    written.writer.array("norms", before)
    assert (
        refusal(lambda: written.writer.array("norms", now)) == f"{what}\n  give another name to what has another shape"
    )
    assert len(arrays(written, "norms")) == 1


@pytest.mark.parametrize(
    ("values", "labels", "what"),
    [
        ([1, 2], ["a", "b", "c"], "'norms' has 3 labels for 2 values"),
        ([1, 2], ["a"], "'norms' has 1 labels for 2 values"),
        ([1, 2], "ab", "'norms' has 1 labels for 2 values"),
        ([[1, 2]], ["a", "b"], "'norms' has 2 labels for 1 rows"),
    ],
)
def test_labels_must_be_as_many_as_values(written: Stored, values: Any, labels: Any, what: str) -> None:
    assert refusal(lambda: written.writer.array("norms", values, labels)) == f"{what}\n  give a label for each"


@pytest.mark.parametrize(("values", "shape"), [(0.5, ()), ([], (0,)), (torch.zeros(2, 0), (2, 0))])
def test_an_array_of_one_number_or_none_is_refused(written: Stored, values: Any, shape: tuple[int, ...]) -> None:
    assert refusal(lambda: written.writer.array("norms", values)) == (
        f"'norms' must be several numbers, but is of shape {shape}\n"
        "  give a vector or a matrix, or writer.scalar for one number"
    )


@pytest.mark.parametrize("values", [None, "abc", {"a": 1}, ["1", "2"], [[1], [1, 2]], torch.tensor([1j]), [None, 1]])
def test_an_array_of_what_is_not_numbers_is_refused(written: Stored, values: Any) -> None:
    assert (
        refusal(lambda: written.writer.array("norms", values))
        == f"'norms' must be numbers of one shape, but is {values!r:.60}\n  give a tensor or numbers"
    )


def test_several_scalars_are_written_by_their_names(written: Stored) -> None:
    written.writer.scalars({"norm": 0.5, "ratio": torch.tensor(2)}, step=9)

    found = written.read().scalars()
    assert {series.name: of[:2] for series, of in found.items()} == {"norm": ([9], [0.5]), "ratio": ([9], [2.0])}


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_is_a_file_below_plots(written: Stored, tmp_path: Path) -> None:
    written.writer.image("samples", torch.rand(3, 4, 5))

    [[(step, path, size, sha256)]] = written.read().files("samples").values()
    content = (tmp_path / path).read_bytes()
    assert (step, path) == (7, f"plots/{picture_name('samples', 'head', 7)}")
    assert (size, sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_pictures_of_several_series_and_steps_are_several_files(written: Stored, tmp_path: Path) -> None:
    names = ["samples", "Samples", "samples/a", "samples-a", "../samples", "ü", "🦊", "x" * 300, "a\0b"]
    for name in names:
        for step in (1, 2):
            written.writer.image(name, torch.zeros(2, 2), step=step)

    found = {path for of in written.read().files().values() for _, path, *_ in of}
    assert len({path.lower() for path in found}) == 2 * len(names)
    assert all((tmp_path / path).parent == tmp_path / "plots" for path in found)


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (torch.full((3, 2, 2), float("nan")), "has numbers that are not finite"),
        (torch.zeros(2, 4, 4), "is of shape (2, 4, 4), not of height and width, with 1, 3 or 4 channels first"),
        (np.zeros((3, 8, 8)), "is of shape (3, 8, 8), not of height and width, with 1, 3 or 4 channels last"),
        (
            torch.zeros(1, 2, 2, dtype=torch.int64),
            "has numbers of type int64, not bytes (uint8), bools or floats from 0 to 1",
        ),
        (torch.zeros(3, 0, 4), "is of shape (3, 0, 4), which has no pixel"),
        ("x.png", "has numbers of type <U5, not bytes (uint8), bools or floats from 0 to 1"),
    ],
)
def test_what_is_not_a_picture_is_refused(written: Stored, tmp_path: Path, image: Any, what: str) -> None:
    with pytest.raises(InputError) as error:
        written.writer.image("samples", image)

    cure = "give one picture: a tensor with the channels first, an array with them last, or a figure"
    assert str(error.value) == f"'samples' {what}\n  {cure}"
    assert not (tmp_path / "plots").exists()


def test_a_picture_that_cannot_be_written_is_told(written: Stored, tmp_path: Path) -> None:
    (tmp_path / "plots").write_text("not a folder")
    with pytest.raises(InputError) as error:
        written.writer.image("samples", torch.zeros(2, 2))

    path = tmp_path / "plots" / picture_name("samples", "head", 7)
    assert str(error.value) == f"{path} cannot be written: File exists"


# ---- followers -------------------------------------------------------------------------------------------------------


def test_a_follower_gets_what_is_written_each_kind_as_a_class_of_its_own(written: Stored, tmp_path: Path) -> None:
    got: list[StoredRow] = []
    unfollow = written.writer.follow(lambda _, rows: got.extend(rows))
    (tmp_path / "plot.txt").write_text("x")
    written.writer.scalar("norm", torch.tensor(0.5))
    written.writer.histogram("weights", torch.tensor([0.0, 1.0]), bins=2, step=9)
    written.writer.array("norms", torch.tensor([1.0, 2.0]), ["a", "b"])
    written.writer.text("note", "said")
    written.writer.file("plot", tmp_path / "plot.txt")
    reader = written.read()
    unfollow()

    kinds = {row.series.name: (row.step, type(row.value)) for row in got}
    assert kinds == {
        "norm": (7, float),
        "weights": (9, Histogram),
        "norms": (7, StoredArray),
        "note": (7, str),
        "plot": (7, StoredFile),
    }
    assert sorted(reader.rows()) == sorted(got)
