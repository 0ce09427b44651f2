from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from train_manager.runs.record.metric_items import Begin, Other
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import Series
from train_manager.runs.record.metric_writer import EVERY, MetricWriter
from train_manager.telling.errors import InputError

LOSS = Series("loss", "train_step_batch")


def store(path: Path, *steps: int, run: str = "run", from_step: int = -1) -> MetricWriter:
    """Write a segment whose values are its steps."""
    writer = MetricWriter(path, run)
    writer.append(Begin(from_step, 1700000000.0, {}))
    for step in steps:
        writer.append((writer.number(LOSS), step, 1, 1700000000.0 + step, float(step)))
    return writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite"


def steps(path: Path, *, superseded: bool = False, run: str | None = None) -> list[int]:
    return [step for of in MetricReader(path).scalars(superseded=superseded, run=run).values() for step in of.steps]


# ---- what counts -----------------------------------------------------------------------------------------------------


def test_rows_after_the_step_that_a_resume_loaded_are_superseded(path: Path) -> None:
    store(path, 1, 2, 3, run="first").close()
    store(path, 3, 4, run="second", from_step=2).close()

    assert steps(path) == [1, 2, 3, 4]
    assert steps(path, superseded=True) == [1, 2, 3, 3, 4]


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
    writer = MetricWriter(path, "run")
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


def told(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        MetricReader(path).scalars()
    return str(caught.value)


def test_a_folder_without_metrics_is_told(tmp_path: Path) -> None:
    cure = "\n  give the train_dir of a training with the extension MetricStore"
    assert told(tmp_path) == f"{tmp_path} has no metrics{cure}"
    assert told(tmp_path / "lost") == f"there is no file {tmp_path / 'lost'}{cure}"


def test_a_file_that_is_empty_is_told(path: Path) -> None:
    path.touch()

    assert told(path) == f"{path} has nothing in it yet\n  read it again once its training has begun"


def test_a_damaged_file_is_told(path: Path) -> None:
    store(path, *range(1, 3000)).close()
    path.write_bytes(path.read_bytes()[:8192] + b"x" * 40_000)

    assert told(path) == (
        f"{path} cannot be read: database disk image is malformed\n  is it damaged, or of another program?"
    )


def test_a_file_of_another_program_is_told(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs(x)")
    connection.commit()
    connection.close()

    assert told(path) == (f"{path} is a database of another program\n  move it away, or give another train_dir")


def test_a_newer_version_is_refused_by_name(path: Path) -> None:
    store(path, 1).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=3")
    connection.close()

    assert told(path) == (
        f"{path} has version 3 of the metrics, but this train_manager knows 2\n"
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
