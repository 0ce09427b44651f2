from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from array import array as array_of_floats
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from train_manager.runs.record.background_writer import EVERY, BackgroundWriter
from train_manager.runs.record.metric_items import Begin, Blob, Labels, Other
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import TABLES, Series
from train_manager.runs.store.schema import tag_of
from train_manager.telling.errors import InputError

LOSS = Series("loss", "train_step_batch")


def store(
    path: Path, *steps: int, run: str = "run", from_step: int = -1, goes_on_from: str | None = None
) -> BackgroundWriter:
    """Write a segment whose values are its steps."""
    writer = BackgroundWriter(path, run)
    writer.append(Begin(from_step, 1700000000.0, {}, goes_on_from))
    for step in steps:
        writer.append((writer.number(LOSS), step, 1, 1700000000.0 + step, float(step)))
    return writer


def rows_of_tables(writer: BackgroundWriter, written_in: int = 1) -> BackgroundWriter:
    """Write a row of each table, of step 9."""
    columns: dict[str, tuple[object, ...]] = {
        "scalars": (0.5,),
        "histograms": (Blob("d", [0.0, 1.0]), Blob("q", [5])),
        "texts": ("said",),
        "files": ("x.png", 1, "ab"),
        "arrays": ("[2]", Labels(("a", "b")), Blob("f", [1.0, 2.0])),
    }
    for table, values in columns.items():
        writer.append(Other(table, writer.number(Series("own")), written_in, 1, 0.0, values, own_step=9))
    return writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite"


def steps(path: Path, *, superseded: bool = False, run: str | None = None) -> list[int]:
    return [step for of in MetricReader(path).scalars(superseded=superseded, run=run).values() for step in of.steps]


# ---- what counts -----------------------------------------------------------------------------------------------------


def test_rows_after_the_step_that_a_resume_loaded_are_deleted(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 3, 4, run="second", from_step=2, goes_on_from="first").close()

    assert steps(path) == steps(path, superseded=True) == [1, 2, 3, 4]


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_every_table_are_deleted_as_a_resume_goes_back_before_them(path: Path, table: str) -> None:
    rows_of_tables(store(path), written_in=2).close()
    store(path, 2, run="second", from_step=1, goes_on_from="run").close()

    with closing(sqlite3.connect(path)) as connection:
        assert [row for row in connection.execute(f"SELECT * FROM {table}") if row[-1] == 9] == []


def test_a_resume_deletes_nothing_before_it_has_a_row(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    writer = store(path, run="second", from_step=2, goes_on_from="first")
    writer.flush()
    assert steps(path) == [1, 2, 3]

    writer.append((writer.number(LOSS), 3, 1, 1.0, 30.0))
    writer.close()
    assert [of.values for of in MetricReader(path).scalars().values()] == [[1.0, 2.0, 30.0]]


def test_a_resume_deletes_nothing_if_its_first_row_cannot_be_written(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    writer = store(path, run="second", from_step=2, goes_on_from="first")
    writer.append((writer.number(LOSS), 3, 1, 1.0, "no number"))
    with pytest.warns(RuntimeWarning, match="which cannot be stored"):
        writer.close()

    assert steps(path, superseded=True) == [1, 2, 3]


def test_a_training_that_resumes_leaves_others_of_its_folder_alone(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 1, 2, run="other").close()
    assert (steps(path), steps(path, superseded=True)) == ([1, 2], [1, 2, 3, 1, 2])

    store(path, 3, run="second", from_step=2, goes_on_from="first").close()
    store(path, 3, 4, run="third", from_step=2, goes_on_from="second").close()

    assert (steps(path), steps(path, superseded=True)) == ([1, 2, 3, 4], [1, 2, 1, 2, 3, 4])


def test_a_checkpoint_of_another_folder_begins_a_training(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 2, 3, run="second", from_step=1, goes_on_from="elsewhere").close()

    assert (steps(path), steps(path, superseded=True)) == ([2, 3], [1, 2, 3, 2, 3])


def test_of_a_state_that_tells_no_run_later_rows_are_superseded(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 3, 4, run="second", from_step=2).close()

    assert steps(path) == [1, 2, 3, 4]
    assert steps(path, superseded=True) == [1, 2, 3, 3, 4]


def test_the_view_of_metrics_has_a_row_for_each_scalar(path: Path) -> None:
    """Its names are those that trackers are sent."""
    pandas = pytest.importorskip("pandas")
    store(path, 1, 2, run="first").close()
    writer = store(path, 2, run="second", from_step=1)
    series = [LOSS._replace(datasource=name) for name in ("train", "digits")]
    series += [Series("loss", "train_step_epoch", phase="head"), Series("accuracy", "eval", "valid"), Series("norm")]
    for one in series:
        writer.append((writer.number(one), 3, 1, 0.0, 0.5))
    writer.append(Other("scalars", writer.number(Series("own")), 3, 1, 0.0, (0.5,), own_step=1000))
    writer.close()

    with closing(sqlite3.connect(path)) as connection:
        frame = pandas.read_sql("SELECT * FROM metrics", connection)

    assert list(frame) == ["run", "series", "step", "value", "latest"]
    assert frame.to_numpy().tolist() == [
        ["first", "batch/loss", 1, 1.0, 1],
        ["first", "batch/loss", 2, 2.0, 0],
        ["second", "batch/loss", 2, 2.0, 1],
        *(["second", tag_of(one), 3, 0.5, 1] for one in series),
        ["second", "own", 1000, 0.5, 1],
    ]


def test_the_view_of_metrics_tells_trainings_of_before(path: Path) -> None:
    store(path, 1, run="first").close()
    store(path, 1, run="second").close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT run, latest FROM metrics").fetchall() == [("first", 0), ("second", 1)]


def test_a_program_that_is_started_again_from_nothing_supersedes_all(path: Path) -> None:
    store(path, 0, 1, 2, run="first").close()
    store(path, 0, 1, run="second").close()

    assert (steps(path), steps(path, superseded=True)) == ([0, 1], [0, 1, 2, 0, 1])


def test_the_rows_of_one_run_are_read_as_if_there_were_no_other(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 3, 4, run="second", from_step=2).close()

    assert (steps(path, run="first"), steps(path, run="second")) == ([1, 2, 3], [3, 4])


def test_a_step_that_a_hook_has_given_says_nothing_about_what_is_superseded(path: Path) -> None:
    writer = store(path, 1)
    writer.append(Other("scalars", writer.number(Series("own")), 1, 1, 0.0, (0.5,), own_step=1000))
    writer.close()
    store(path, run="second", from_step=1).close()
    [found] = MetricReader(path).scalars("own").values()

    assert (found.steps, found.values) == ([1000], [0.5])


def test_a_data_frame_has_a_row_for_each_scalar(path: Path) -> None:
    store(path, 1, 2, run="first").close()
    store(path, 2, run="second", from_step=1).close()
    frame = MetricReader(path).to_pandas("loss", superseded=True)

    assert list(frame) == [
        "run",
        "name",
        "stage",
        "datasource",
        "phase",
        "step",
        "epoch",
        "time",
        "value",
        "superseded",
    ]
    assert frame[["run", "step", "value", "superseded"]].to_numpy().tolist() == [
        ["first", 1, 1.0, False],
        ["first", 2, 2.0, True],
        ["second", 2, 2.0, False],
    ]


# ---- what is new -----------------------------------------------------------------------------------------------------


def test_what_is_new_is_read_once(path: Path) -> None:
    store(path, 1, 2).close()
    reader = MetricReader(path)
    first = reader.since()
    store(path, 3, run="second", from_step=1).close()
    second = reader.since(first.ids)

    assert [segment.from_step for segment in (*first.segments, *second.segments)] == [-1, 1]
    assert [(row.step, row.value, row.run) for row in first.rows["scalars"]] == [(1, 1.0, "run"), (2, 2.0, "run")]
    assert [(row.step, row.value, row.run) for row in second.rows["scalars"]] == [(3, 3.0, "second")]
    assert not any(reader.since(second.ids).rows.values())


def test_what_a_resume_has_gone_back_before_is_not_new(path: Path) -> None:
    store(path, 1, 2, 3).close()
    store(path, 2, run="second", from_step=1).close()

    assert [(row.step, row.run) for row in MetricReader(path).since().rows["scalars"]] == [(1, "run"), (2, "second")]


def test_a_follower_of_one_run_hears_of_no_other(path: Path) -> None:
    store(path, 1, 2, 3).close()
    store(path, 2, run="second", from_step=1).close()
    news = MetricReader(path).since(run="run")

    assert ([row.step for row in news.rows["scalars"]], [one.run for one in news.segments]) == ([1, 2, 3], ["run"])


def test_new_rows_come_in_parts(path: Path) -> None:
    store(path, *range(1, 8)).close()
    reader, found, news = MetricReader(path), [], None
    while news is None or news.has_more:
        news = reader.since(news and news.ids, most=3)
        found.append([row.step for row in news.rows["scalars"]])

    assert found == [[1, 2, 3], [4, 5, 6], [7]]


def test_rows_of_every_table_are_new(path: Path) -> None:
    writer = rows_of_tables(store(path))
    number = writer.number(Series("own"))
    writer.append(Other("arrays", number, 2, 1, 0.0, ("[2]", Labels(("a", "b")), Blob("f", [3.0, 4.0]))))
    writer.close()
    first = MetricReader(path).since(most=1)
    rows = {table: [(row.step, row.written_in, row.value) for row in of] for table, of in first.rows.items()}
    [array] = MetricReader(path).since(first.ids).rows["arrays"]

    assert rows.pop("arrays")[0][2][3:] == ((2,), array_of_floats("f", [1.0, 2.0]), ("a", "b"))
    assert rows == {
        "scalars": [(9, 1, 0.5)],
        "histograms": [(9, 1, ([0.0, 1.0], [5]))],
        "texts": [(9, 1, "said")],
        "files": [(9, 1, ("x.png", 1, "ab"))],
    }
    assert array.value.labels == ("a", "b")  # which were written in a row that was read before


def test_a_file_that_was_replaced_is_all_new(path: Path) -> None:
    store(path, 1, 2).close()
    store(path, 3, run="second", from_step=2).close()
    before = MetricReader(path).since()
    path.unlink()
    store(path, 1, run="third").close()
    news = MetricReader(path).since(before.ids)

    assert (news.is_anew, [(row.step, row.run) for row in news.rows["scalars"]]) == (True, [(1, "third")])
    assert not before.is_anew


# ---- stretches -------------------------------------------------------------------------------------------------------


def test_a_spike_is_the_highest_of_its_stretch(path: Path) -> None:
    writer = store(path)
    loss = writer.number(LOSS)
    for step in range(1, 100_001):
        writer.append((loss, step, 1 + step // 50_000, 100.0, 99.0 if step == 77_777 else 1.0))
    writer.close()
    [found] = MetricReader(path).stretches().values()

    assert len(found) <= 1500
    assert (found[0].first, found[-1].last, sum(one.points for one in found)) == (1, 100_000, 100_000)
    [spike] = [one for one in found if one.highest == 99]
    assert spike.first <= 77_777 <= spike.last
    assert spike.lowest == 1
    assert spike.mean == pytest.approx(1 + 98 / spike.points)
    assert (found[0].epoch, found[-1].epoch, spike.time) == (1, 3, 100.0)


def test_a_short_series_has_a_stretch_for_each_step(path: Path) -> None:
    store(path, 1, 5, 9).close()
    [found] = MetricReader(path).stretches(most=9).values()

    assert [(one.first, one.last, one.mean, one.lowest, one.highest) for one in found] == [
        (1, 1, 1, 1, 1),
        (5, 5, 5, 5, 5),
        (9, 9, 9, 9, 9),
    ]


def epochs_of(path: Path, steps: int, value: Callable[[int], float]) -> None:
    """Write a loss and batch sizes: each 22nd step has 3 examples, all others 64."""
    writer = store(path)
    loss, size = writer.number(LOSS), writer.number(Series("batch_size", LOSS.stage))
    for step in range(1, steps + 1):
        writer.append((loss, step, 1, 0.0, value(step)))
        if step % 22 < 2:
            writer.append((size, step, 1, 0.0, 64.0 if step % 22 else 3.0))
    writer.close()


def test_the_last_smaller_batch_of_an_epoch_does_not_widen_its_stretch(path: Path) -> None:
    values = {77_777: 99.0}
    epochs_of(path, 100_000, lambda step: 9.0 if step % 22 == 0 else values.get(step, 1.0))

    found = MetricReader(path).stretches(name="loss")[LOSS]

    assert len(found) <= 1500
    assert sum(one.points for one in found) == 100_000
    assert {one.highest for one in found} == {1.0, 99.0}
    [first, *_] = found
    assert first.mean == pytest.approx((64 * 64 + 3 * 3 * 9) / (64 * 64 + 3 * 3))


def test_in_a_short_series_the_smaller_batch_is_part_of_the_one_before_it_by_its_examples(path: Path) -> None:
    epochs_of(path, 44, lambda step: 9.0 if step % 22 == 0 else 1.0)

    found = MetricReader(path).stretches(name="loss")[LOSS]

    joined = (64 + 3 * 9) / 67
    assert [one.first for one in found] == [*range(1, 21), *range(22, 43), 44]
    assert [one[:2] + one[6:] for one in found if one.points > 1] == [
        (step, step, *[pytest.approx(joined)] * 3) for step in (22, 44)
    ]


def test_a_batch_that_is_not_half_as_small_or_lasts_stays_as_it_is(path: Path) -> None:
    writer = store(path, 1, 2, 3, 4, 5, 6)
    size = writer.number(Series("batch_size", LOSS.stage))
    for step, examples in (1, 64.0), (3, 32.0), (4, 64.0), (5, 8.0):
        writer.append((size, step, 1, 0.0, examples))
    writer.append((size, 7, 1, 0.0, 64.0))
    writer.close()

    found = MetricReader(path).stretches(name="loss")[LOSS]

    assert [(one.first, one.mean) for one in found] == [(step, step) for step in range(1, 7)]


def test_of_several_evaluations_at_a_step_the_last_one_is_in_the_stretches(path: Path) -> None:
    writer = store(path)
    valid = writer.number(Series("loss", "eval", "valid"))
    for step, value in (3, 0.5), (6, 0.75), (6, 0.25):
        writer.append((valid, step, 1, 0.0, value))
    writer.close()
    [found] = MetricReader(path).stretches().values()

    assert [(one.first, one.points, one.mean, one.highest) for one in found] == [(3, 1, 0.5, 0.5), (6, 1, 0.25, 0.25)]


def test_a_superseded_evaluation_does_not_replace_the_one_that_counts(path: Path) -> None:
    valid = Series("loss", "eval", "valid")
    for run, from_step, value in ("first", -1, 0.5), ("second", 6, 0.25):
        writer = store(path, run=run, from_step=from_step)
        writer.append((writer.number(valid), 9, 1, 0.0, value))
        writer.close()

    assert [one.mean for one in MetricReader(path).stretches(run="first")[valid]] == [0.5]
    assert [one.mean for one in MetricReader(path).stretches()[valid]] == [0.25]


def test_stretches_have_what_counts_only(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 3, 4, run="second", from_step=2).close()
    reader = MetricReader(path)

    def points(run: str | None) -> list[int]:
        return [one.points for of in reader.stretches(most=1, run=run).values() for one in of]

    assert (points(None), points("first"), points("second")) == ([4], [3], [2])


def test_nan_is_counted_and_left_out_of_means(path: Path) -> None:
    writer = store(path)
    loss, other = writer.number(LOSS), writer.number(Series("other"))
    for step, value in enumerate([float("nan"), 2.0, float("inf")]):
        writer.append((loss, step, 1, 0.0, value))
        writer.append((other, step, 1, 0.0, float("nan")))
    writer.close()
    found = MetricReader(path).stretches(most=1)

    assert repr(found[LOSS][0][4:]) == "(3, 1, inf, 2.0, inf)"
    assert repr(found[Series("other")][0][4:]) == "(3, 3, nan, nan, nan)"


def test_steps_of_hooks_may_be_as_large_as_they_are(path: Path) -> None:
    writer = store(path, 1, 2)
    own = writer.number(Series("own"))
    for step in (-(2**63), 0, 2**63 - 1):
        writer.append(Other("scalars", own, 1, 1, 0.0, (0.5,), own_step=step))
    writer.close()
    found = MetricReader(path).stretches()

    assert [one.points for one in found[Series("own")]] == [1, 1, 1]
    assert [one.first for one in found[LOSS]] == [1, 2]


def test_stretches_can_be_chosen(path: Path) -> None:
    store(path, 1).close()
    reader = MetricReader(path)

    assert [*reader.stretches(name="loss", stage=LOSS.stage)] == [LOSS]
    assert not reader.stretches(name="lost")
    with pytest.raises(InputError, match=r"^most must be a whole number of at least 1, but is 0$"):
        reader.stretches(0)


def test_two_million_metrics_are_read_in_a_few_seconds(path: Path) -> None:
    store(path, 1).close()
    with closing(sqlite3.connect(path)) as connection:
        ids = range(20)
        connection.executemany("INSERT INTO series VALUES (?, ?, '', '', '')", ((100 + id_, f"n{id_}") for id_ in ids))
        connection.execute(
            "INSERT INTO scalars(series, segment, step, epoch, time, value) "
            "WITH RECURSIVE steps(step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM steps LIMIT 100000) "
            "SELECT series.id, 1, step, 1, 0.0, 0.5 FROM steps, series WHERE series.id >= 100"
        )
        connection.commit()
    began = time.process_time()
    found = MetricReader(path).stretches()

    assert sum(one.points for of in found.values() for one in of) == 2_000_001
    assert time.process_time() - began < 4.0  # 1.8 s on a quiet machine


# ---- how it is read --------------------------------------------------------------------------------------------------


def test_reading_needs_no_torch_and_no_pandas(path: Path) -> None:
    store(path, 1).close()
    code = (
        "import sys; from train_manager.runs.record.metric_reader import MetricReader\n"
        f"MetricReader({str(path)!r}).scalars(); print({{'torch', 'numpy', 'pandas'}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


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


def write_until_killed(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    writer.keeps_open = True
    number, step = writer.number(LOSS), 0
    while True:
        step += 1
        writer.append((number, step, 1, time.time(), 0.5))
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
    while not path.exists() or not path.stat().st_size:
        time.sleep(0.01)
    while True:
        try:
            if steps(path):
                break
        except InputError:
            time.sleep(0.01)
    readers = [fork_server.start(read_often, path, 40) for _ in range(2)]
    codes = [reader.wait() for reader in readers]
    writer.signal(signal.SIGKILL)
    writer.wait()

    assert codes == [0, 0], "".join(reader.errors for reader in readers)


@pytest.mark.parametrize("seconds", [0.7, 1.3])
def test_a_training_that_is_killed_loses_less_than_a_second(
    fork_server: ForkServer, path: Path, seconds: float
) -> None:
    writer = fork_server.start(write_until_killed, path)
    writer.wait_for("begun")
    until = time.time() + seconds
    while time.time() < until:
        time.sleep(0.01)
    killed = time.time()
    writer.signal(signal.SIGKILL)
    writer.wait()
    [found] = MetricReader(path).scalars().values()

    assert found.steps == list(range(1, len(found.steps) + 1))
    assert killed - found.times[-1] < EVERY + 1.5  # of which the most is for a busy machine
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


def test_a_newer_version_is_refused_by_name(path: Path) -> None:
    store(path, 1).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=4")
    connection.close()

    assert read_error(path) == (
        f"{path} has version 4 of the metrics, but this train_manager knows 3\n"
        "  use the version of train_manager that wrote it, or a newer one"
    )


def test_a_file_that_lacks_a_column_is_told(path: Path) -> None:
    store(path, 1).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE texts")
        connection.execute("CREATE TABLE texts(id, series, segment, step, epoch, time, text)")

    with pytest.raises(InputError) as error:
        MetricReader(path).texts()
    assert str(error.value) == (
        f"{path} is not whole: its table texts lacks a column\n"
        "  it was begun by a train_manager of before its release, or changed; move it away"
    )
