from __future__ import annotations

import math
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.fork_server import ForkServer
from train_manager.runs.store.batches import Written
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import Begin, BinnedCounts, HistoryRow, StoredFile, StoredRow, Vector
from train_manager.runs.store.schema import BATCHES, EPOCHS, EVALUATIONS, Series
from train_manager.runs.store.thread import EVERY, StoreThread
from train_manager.telling.errors import InputError


def store(path: Path, *steps: int, run: str = "run", resumes: str | None = None, step: int | None = 0) -> StoreThread:
    """Write a part whose losses are its steps."""
    thread = StoreThread(path, run)
    thread.append(Begin(1700000000.0, resumes or run, step, {}))
    for at in steps:
        thread.append((float(at), at, 16, 1700000000.0 + at, "train", None))
    return thread


def row(step: int, value: Any, own_step: int | None = None, name: str = "own") -> Written:
    return Written((Series(name), step, own_step, 1, 1700000000.0 + step, value))


def rows_of_all_kinds(thread: StoreThread, step: int = 1) -> StoreThread:
    """Write an item of each kind, of step 9."""
    values = (
        0.5, BinnedCounts([0.0, 1.0], [5]), "said", StoredFile("x.png", 1, "ab"), Vector([1.0, 2.0], (2,), ("a", "b"))
    )  # fmt: skip
    for value in values:
        thread.append(row(step, value, own_step=9))
    return thread


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite"


def steps(path: Path, *, run: str | None = None) -> list[int]:
    return [step for of in MetricReader(path).scalars("loss", run=run).values() for step in of.steps]


# ---- what counts -----------------------------------------------------------------------------------------------------


def test_items_of_all_kinds_count_no_more_as_a_resume_goes_back_before_them(path: Path) -> None:
    rows_of_all_kinds(store(path, 1), step=2).close()
    store(path, 2, run="second", resumes="run", step=1).close()
    reader = MetricReader(path)

    def found(run: str | None) -> list[int]:
        several: Any = reader.histograms(run=run), reader.arrays(run=run), reader.texts(run=run), reader.files(run=run)
        return [*map(len, several), len(reader.scalars("own", run=run))]

    assert (found("run"), found("second"), found(None)) == ([1] * 5, [0] * 5, [0] * 5)


def test_a_step_that_a_hook_has_given_says_nothing_about_what_counts(path: Path) -> None:
    thread = store(path, 1)
    thread.append(row(1, 0.5, own_step=1000))
    thread.close()
    store(path, 2, run="second", resumes="run", step=1).close()
    [found] = MetricReader(path).scalars("own").values()

    assert (found.steps, found.values) == ([1000], [0.5])


def test_a_part_is_in_the_file_with_its_first_row(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    thread = store(path, run="second", resumes="first", step=2)
    thread.flush()
    assert steps(path) == [1, 2, 3]

    thread.append((30.0, 3, 16, 1.0, "train", None))
    thread.close()
    assert [of.values for of in MetricReader(path).scalars("loss").values()] == [[1.0, 2.0, 30.0]]


def test_a_training_that_resumes_counts_without_others_of_its_folder(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 1, 2, run="other").close()
    store(path, 3, run="second", resumes="first", step=2).close()
    store(path, 3, 4, run="third", resumes="second", step=2).close()

    assert steps(path) == [1, 2, 3, 4]
    assert {part.run: steps(path, run=part.run) for part in MetricReader(path).runs()} == {
        "first": [1, 2, 3],
        "other": [1, 2],
        "second": [1, 2, 3],
        "third": [1, 2, 3, 4],
    }


def test_a_run_goes_back_in_itself_again_and_again(path: Path) -> None:
    thread = store(path, 1, 2, 3, 4)
    for step in (3, 1, 2):
        thread.append(Begin(0.0, "run", step, {}))
        for at in (step + 1, step + 2):
            thread.append((10.0 * at, at, 16, 0.0, "train", None))
    thread.close()
    reader = MetricReader(path)

    # The rows of step 2 are those of the part that went back to step 1.
    assert [(part.resumes, part.step) for part in reader.runs()] == [(None, None), (1, 3), (1, 1), (3, 2)]
    assert [of.values for of in reader.scalars("loss").values()] == [[1.0, 20.0, 30.0, 40.0]]


def test_a_run_that_is_not_in_the_file_has_no_rows(path: Path) -> None:
    store(path, 1).close()
    reader = MetricReader(path)

    assert (reader.scalars(run="x"), reader.history("x"), reader.last_step("x"), [*reader.rows("x")]) == (
        {},
        {"epochs": [], "evaluations": []},
        0,
        [],
    )
    assert reader.last_time("x") is None


# ---- epochs and evaluations ------------------------------------------------------------------------------------------

EPOCH = {"epoch": 1, "step": 3, "loss": 0.5, "note": "ü"}
EVALUATION = {"epoch": 1, "step": 3, "set": "valid", "loss": 0.25, "accuracy": math.inf}


def with_history(path: Path) -> StoreThread:
    thread = store(path, 1, 2, 3)
    thread.append(HistoryRow(EPOCHS, 0, {**EPOCH, "partial": True}, 1700000003.5))
    thread.flush()
    thread.append(HistoryRow(EPOCHS, 0, EPOCH, 1700000004.0))
    thread.append(HistoryRow(EVALUATIONS, 0, EVALUATION, 1700000005.0))
    return thread


def test_the_metrics_of_the_history_are_read_as_those_of_batches_are(path: Path) -> None:
    with_history(path).close()
    reader = MetricReader(path)

    found = {(*series[:3],): of for series, of in reader.scalars().items()}
    assert found["loss", EPOCHS, ""] == ([3], [0.5], [1700000004.0])
    assert found["accuracy", EVALUATIONS, "valid"] == ([3], [math.inf], [1700000005.0])
    assert reader.scalars("loss", EVALUATIONS) == {Series("loss", EVALUATIONS, "valid"): ([3], [0.25], [1700000005.0])}
    assert [*reader.series()] == sorted(reader.scalars(), key=lambda series: (series.name, series.stage))
    assert reader.history() == {"epochs": [EPOCH], "evaluations": [EVALUATION]}


def test_rows_come_in_the_order_of_writing(path: Path) -> None:
    with_history(path).close()

    found = [(row.series.name, row.series.stage, row.step) for row in MetricReader(path).rows()]
    batches = [("loss", BATCHES, 1), ("batch_size", BATCHES, 1), ("loss", BATCHES, 2), ("loss", BATCHES, 3)]
    assert found == [*batches, ("loss", EPOCHS, 3), ("loss", EVALUATIONS, 3), ("accuracy", EVALUATIONS, 3)]


def test_a_part_of_an_epoch_is_no_row_until_it_is_whole(path: Path) -> None:
    thread, got = store(path, 1), list[StoredRow]()
    thread.follow(lambda _, rows: got.extend(rows))
    for number, found in enumerate(({**EPOCH, "partial": True}, {**EPOCH, "step": 4, "partial": True})):
        thread.append(HistoryRow(EPOCHS, 0, found, float(number)))
        thread.flush()
    assert [row.series.stage for row in MetricReader(path).rows() if row.series.stage == EPOCHS] == []

    thread.append(HistoryRow(EPOCHS, 0, EPOCH, 3.0))
    thread.append(HistoryRow(EPOCHS, 0, {**EPOCH, "accuracy": 0.75}, 4.0))  # a hook has added a metric
    thread.close()
    assert [row[:2] + row[4:] for row in got if row.series.stage == EPOCHS] == [
        (Series("loss", EPOCHS), 3, 0.5),
        (Series("accuracy", EPOCHS), 3, 0.75),
    ]


def test_rows_of_the_history_that_a_resume_brings_keep_their_times_and_are_told_once(path: Path) -> None:
    with_history(path).close()
    thread, got = StoreThread(path, "second"), list[StoredRow]()
    thread.follow(lambda _, rows: got.extend(rows))
    history = {EPOCHS: [EPOCH], EVALUATIONS: [EVALUATION, {**EVALUATION, "set": "test"}]}
    thread.append(Begin(1800000000.0, "run", 3, history))
    thread.append((0.5, 4, 16, 1800000001.0, "train", None))
    thread.close()

    [epochs] = MetricReader(path).scalars("loss", EPOCHS).values()
    assert epochs.times == [1700000004.0]
    assert {row.series.datasource for row in got if row.series.stage == EVALUATIONS} == {"test"}


def test_an_evaluation_alone_comes_after_all_rows_of_what_it_resumes(path: Path) -> None:
    with_history(path).close()
    alone = {**EVALUATION, "step": 2, "loss": 0.75}
    thread = StoreThread(path, "alone")
    thread.append(Begin(0.0, "run", None, {EPOCHS: [], EVALUATIONS: [{**EVALUATION, "step": 1}, alone]}, new=1))
    thread.append(HistoryRow(EVALUATIONS, 2, again := {**alone, "loss": 0.5}, 0.0))
    thread.close()

    assert MetricReader(path).history() == {"epochs": [EPOCH], "evaluations": [EVALUATION, alone, again]}
    assert steps(path)[:3] == [1, 2, 3]


# ---- the views -------------------------------------------------------------------------------------------------------


def test_the_view_of_metrics_can_be_read_with_half_a_character_in_a_name(path: Path) -> None:
    thread = store(path, 1)
    thread.append(HistoryRow(EVALUATIONS, 0, {**EVALUATION, "half \ud83d": 0.5}, 0.0))
    thread.close()

    with closing(sqlite3.connect(path)) as connection:
        names = {name for (name,) in connection.execute("SELECT series FROM metrics")}
    assert "half \\ud83d" in {name.rpartition("/")[2] for name in names}


def test_the_view_of_metrics_has_a_row_for_each_number(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with_history(path).close()
    thread = store(path, 3, run="second", resumes="run", step=2)
    thread.append(Written((Series("loss", BATCHES, "digits", "head"), 3, None, 1, 0.0, 0.5)))
    thread.append(row(3, 0.5, own_step=1000))
    thread.append(HistoryRow(EVALUATIONS, 0, EVALUATION, 0.0))
    thread.close()

    with closing(sqlite3.connect(path)) as connection:
        frame = pandas.read_sql("SELECT * FROM metrics", connection)

    assert list(frame) == ["run", "series", "step", "value", "latest"]
    assert [found for found in frame.to_numpy().tolist() if "size" not in found[1]] == [
        ["run", "batch/loss", 1, 1.0, 1],
        ["run", "batch/loss", 2, 2.0, 1],
        ["run", "batch/loss", 3, 3.0, 0],
        ["second", "batch/loss", 3, 3.0, 1],
        ["second", "head/batch/loss/digits", 3, 0.5, 1],
        ["second", "own", 1000, 0.5, 1],
        ["run", "eval/valid/accuracy", 3, math.inf, 0],
        ["second", "eval/valid/accuracy", 3, math.inf, 1],
        ["run", "eval/valid/loss", 3, 0.25, 0],
        ["run", "epoch/loss", 3, 0.5, 0],
        ["second", "eval/valid/loss", 3, 0.25, 1],
    ]


def test_a_data_frame_has_a_row_for_each_scalar(path: Path) -> None:
    pytest.importorskip("pandas")
    with_history(path).close()
    frame = MetricReader(path).to_pandas("loss")

    assert list(frame) == ["name", "stage", "datasource", "phase", "step", "epoch", "time", "value"]
    assert frame[["stage", "step", "value"]].to_numpy().tolist() == [
        *([BATCHES, step, float(step)] for step in (1, 2, 3)),
        [EPOCHS, 3, 0.5],
        [EVALUATIONS, 3, 0.25],
    ]


def test_the_last_step_is_that_of_all_that_counts(path: Path) -> None:
    store(path, 1, 2, 3).close()
    store(path, 2, run="second", resumes="run", step=1).close()
    reader = MetricReader(path)

    assert (reader.last_step(), reader.last_step("run")) == (2, 3)
    assert (reader.last_time("run"), reader.last_time("second")) == (1700000003.0, 1700000002.0)


# ---- how it is read --------------------------------------------------------------------------------------------------


def test_reading_leaves_the_folder_as_it_is(path: Path) -> None:
    store(path, 1).close()
    before = path.read_bytes()
    steps(path)

    assert (os.listdir(path.parent), path.read_bytes()) == ([path.name], before)


def read_as_nobody(folder: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    print(steps(folder / "metrics.sqlite"), flush=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_folder_in_which_nothing_may_be_written_can_be_read(fork_server: ForkServer, is_killed: bool) -> None:
    folder = Path("/tmp") / f"train-manager-test-{os.getpid()}"  # tmp_path is for its owner only
    folder.mkdir()
    try:
        writer = store(folder / "metrics.sqlite", 1, 2)
        writer.flush()
        if is_killed:  # what a killed training leaves: the file and its log
            copy = folder / "killed"
            copy.mkdir()
            for end in ("", "-wal"):
                shutil.copy(folder / f"metrics.sqlite{end}", copy / f"metrics.sqlite{end}")
        writer.close()
        child = fork_server.start(read_as_nobody, folder / "killed" if is_killed else folder)
        assert child.wait_for("[") == "[1, 2]"
        child.wait()
    finally:
        shutil.rmtree(folder)


def steps_so_far(path: Path) -> list[int]:
    """Return the steps in a file that may not be there yet."""
    with suppress(InputError):
        return steps(path)
    return []


def write_until_killed(path: Path) -> None:
    thread = store(path)
    thread.open()
    step = 0
    while True:
        step += 1
        thread.append((0.5, step, 16, time.time(), "train", None))
        time.sleep(0.0005)
        if step == 10:
            print("begun", flush=True)


def read_often(path: Path, count: int) -> None:
    before = 0
    for _ in range(count):
        found = steps(path)
        assert found == list(range(1, len(found) + 1)), "steps are missing"
        assert len(found) >= before
        before = len(found)
    print("read", before, flush=True)


def test_two_readers_see_whole_transactions_while_a_training_writes(fork_server: ForkServer, path: Path) -> None:
    writer = fork_server.start(write_until_killed, path)
    writer.wait_for("begun")
    eventually(lambda: steps_so_far(path))
    readers = [fork_server.start(read_often, path, 20) for _ in range(2)]
    codes = [reader.wait() for reader in readers]
    writer.signal(signal.SIGKILL)
    writer.wait()

    assert codes == [0, 0], "".join(reader.errors for reader in readers)


def test_a_training_that_is_killed_loses_less_than_a_second(fork_server: ForkServer, path: Path) -> None:
    """What was written is there after the kill, and it is written twice a second."""
    writer = fork_server.start(write_until_killed, path)
    writer.wait_for("begun")
    eventually(lambda: len(steps_so_far(path)) > 100)
    seen = steps_so_far(path)
    writer.signal(signal.SIGKILL)
    writer.wait()
    found = steps(path)

    assert found == list(range(1, len(found) + 1))
    assert found[: len(seen)] == seen
    assert EVERY <= 0.5


# ---- what cannot be read ---------------------------------------------------------------------------------------------


def read_error(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        MetricReader(path).scalars()
    return str(caught.value)


def test_a_folder_without_metrics_is_told(tmp_path: Path) -> None:
    cure = "\n  give the train_dir of a training with the extension MetricStore"
    assert read_error(tmp_path) == f"{tmp_path} has no metrics{cure}"
    assert read_error(tmp_path / "lost") == f"there is no file {tmp_path / 'lost'}{cure}"


def test_a_file_that_is_empty_is_told(path: Path) -> None:
    path.touch()

    assert read_error(path) == f"{path} has nothing in it yet\n  read it again once its run has begun"


def test_a_damaged_file_is_told(path: Path) -> None:
    store(path, *range(1, 3000)).close()
    path.write_bytes(path.read_bytes()[:8192] + b"x" * 40_000)

    assert read_error(path) == (
        f"{path} cannot be read: database disk image is malformed\n  is it damaged, or of another program?"
    )


def test_a_file_of_another_program_is_told(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs(x)")
    connection.commit()
    connection.close()

    assert read_error(path) == (f"{path} is a database of another program\n  move it away, or give another train_dir")


def test_another_version_is_refused_by_name(path: Path) -> None:
    store(path, 1).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=5")
    connection.close()

    assert read_error(path) == (
        f"{path} has version 5 of the metrics, but this train_manager knows 4\n"
        "  use the version of train_manager that wrote it, or give another train_dir"
    )
