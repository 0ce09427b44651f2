"""Rows on their way to a tool: it gets what counts while a training runs, and never stops it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.store.sinks import Keeps, OwnMetrics, counting, points_of, run_program
from tests.support.fork_server import ForkServer
from tests.support.programs import code
from train_manager import Extension, TrainManager
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.store import delivery, thread
from train_manager.runs.store.delivery import Connection, Ending, Sent
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import tag_of
from train_manager.testing import tiny_manager


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a sink as long as it takes, as other tests may keep the machine busy; and write rows soon."""
    monkeypatch.setattr(delivery, "PATIENCE", 60.0)
    monkeypatch.setattr(thread, "EVERY", 0.01)


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "train-manager-kept"}


def told_by(train: Callable[[], object]) -> list[str]:
    """Return the texts of the warnings of a training."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train()
    return [str(warning.message) for warning in told]


def fails(rows: Any) -> None:
    raise OSError("no space left on device")


# ---- what is sent ----------------------------------------------------------------------------------------------------


def test_metrics_of_all_kinds_arrive_as_the_store_has_them(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(kept, MetricStore(), OwnMetrics(), train_dir=tmp_path).train()

    assert sorted(map(repr, kept.rows)) == sorted(map(repr, MetricReader(tmp_path).rows()))


def test_rows_come_while_the_run_is_open(tmp_path: Path) -> None:
    has_come = threading.Event()
    kept = Keeps(lambda rows: has_come.set())
    tm = tiny_manager(kept, MetricStore(), train_dir=tmp_path)
    with tm.run():
        tm.train_steps(1)
        assert has_come.wait(60)


def test_a_second_training_of_the_same_manager_continues_the_part(tmp_path: Path) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, epochs=1, train_dir=tmp_path)
    tm.train()
    tm.train_epochs(2)

    assert points_of(kept.rows) == counting(tmp_path)
    assert [sent.mode for sent in kept.sent] == ["begin", "continue"]


def test_an_epoch_that_is_left_and_continued_with_by_a_resume_has_the_metrics_of_the_whole(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(MetricStore(), kept, Checkpoints(resume="fresh"), epochs=2, train_dir=tmp_path).train_steps(2)
    tm = tiny_manager(MetricStore(), kept, Checkpoints(resume=True), epochs=2, train_dir=tmp_path)
    tm.train()
    stored = MetricReader(tmp_path).scalars("loss", stage="train_step_epoch")

    assert points_of(kept.rows)["epoch/loss"] == [(row["step"], row["loss"]) for row in tm.history.epochs]
    assert [curve.steps for curve in stored.values()] == [[3, 6]]


def test_epochs_of_a_phase_between_two_parts_of_an_epoch_are_sent_once(tmp_path: Path) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)
    tm.train_steps(2)
    with tm.phase("head"):
        tm.train_epochs(1)
    tm.train_steps(2)
    found = points_of(kept.rows)

    assert [step for step, _ in found["head/epoch/loss"]] == [5]
    assert [step for step, _ in found["epoch/loss"]] == [6]


def test_a_resume_is_a_part_that_says_where_it_goes_on(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(MetricStore(), kept, Checkpoints(resume="fresh"), epochs=2, train_dir=tmp_path).train()
    tiny_manager(MetricStore(), kept, Checkpoints(resume=True), epochs=3, train_dir=tmp_path).train()
    first, second = (sent.part for sent in kept.sent)

    assert (first.resumes, second.resumes, second.step) == (None, first.id, 6)
    assert points_of(kept.rows) == counting(tmp_path)


def test_a_manager_that_goes_back_gets_another_connection(tmp_path: Path) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)
    tm.train_steps(4)
    tm.step_num = 2
    tm.train_steps(1)  # as long as a call of train_on_batch, so the thread goes on
    tm.step_num = 1
    tm.train_steps(2)

    assert [(sent.mode, sent.part.step) for sent in kept.sent] == [("begin", None), ("begin", 2), ("begin", 1)]
    assert [row.step for row in kept.rows if tag_of(row.series) == "batch/loss"] == [1, 2, 3, 4, 3, 2, 3]
    assert len(kept.endings) == 3


def test_several_sinks_get_all_though_one_fails(tmp_path: Path) -> None:
    class Other(Keeps):
        tool = "other"

    kept, other = Keeps(), Other(fails)
    tm = tiny_manager(MetricStore(), kept, other, epochs=2, train_dir=tmp_path)
    assert all(text.startswith("other ") for text in told_by(tm.train))
    assert points_of(kept.rows) == counting(tmp_path)


def test_calls_of_train_on_batch_share_a_thread(tmp_path: Path) -> None:
    kept, before = Keeps(), threads()
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)
    assert tm.train_data is not None
    for batch in tm.train_data:
        tm.train_on_batch(batch)
    assert len(threads() - before) == 1

    tm.train()
    assert points_of(kept.rows) == counting(tmp_path)
    assert threads() <= before


BATCHES = """
import sys
from pathlib import Path
from tests.runs.store.sinks import Keeps
from train_manager.extensions import MetricStore
from train_manager.testing import tiny_manager

def note(rows):
    with Path(sys.argv[1], "steps.txt").open("a") as file:
        file.writelines(f"{row.step}\\n" for row in rows if row.series.name == "loss")

tm = tiny_manager(MetricStore(), Keeps(note), train_dir=sys.argv[1])
for batch in tm.train_data:
    tm.train_on_batch(batch)
"""


def test_what_calls_of_train_on_batch_leave_is_sent_as_the_process_ends(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    ended = fork_server.run(code, BATCHES, str(tmp_path))

    assert (ended.code, ended.errors) == (0, "")
    assert (tmp_path / "steps.txt").read_text() == "1\n2\n3\n"


# ---- how a connection ends -------------------------------------------------------------------------------------------


def test_a_connection_is_told_how_the_run_has_ended(tmp_path: Path) -> None:
    class Fails(Extension):
        def pre_train_step_batch(self) -> None:
            raise ValueError("in the first step")

    class Stops(Extension):
        def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
            if step_num == 2:
                train_manager.stop("enough")

    class Writes(Extension):
        def pre_train(self, writer: Any) -> None:
            writer.scalar("began", 1)

    failed, stopped = Keeps(), Keeps()
    with pytest.raises(ValueError, match="in the first step") as raised:
        tiny_manager(MetricStore(), failed, Writes(), Fails(), train_dir=tmp_path / "a").train()
    tiny_manager(MetricStore(), stopped, Stops(), epochs=2, train_dir=tmp_path / "b").train()

    assert failed.endings == [Ending(raised.value, None)]
    assert stopped.endings == [Ending(None, "enough")]


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_sink_that_raises_does_not_stop_the_training_and_is_told_once(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Keeps(fails), epochs=2, train_dir=tmp_path)
    failed, left = told_by(tm.train)

    assert tm.epoch_num == 2
    assert failed == "kept gets no metrics: OSError: no space left on device; the run continues"
    assert left == f"kept lacks 16 metrics of {tmp_path}: train-manager export {tmp_path} --to kept"


def test_a_sink_that_has_failed_is_sent_no_more_in_this_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MOST_WAITING", 10)
    tries = list[int]()
    has_tried = threading.Event()

    def counts(rows: Any) -> None:
        tries.append(len(rows))
        has_tried.set()
        fails(rows)

    tm = tiny_manager(MetricStore(), Keeps(counts), train_dir=tmp_path)

    def train() -> None:
        with tm.run():
            tm.train_steps(1)
            assert has_tried.wait(60)
            for _ in range(9):
                tm.train_steps(3)
                tm["metric_store"].pre_save_checkpoint()  # waits until the rows are written

    assert [text.partition(":")[0] for text in told_by(train)][:-1] == ["kept gets no metrics"]
    assert len(tries) == 1


def test_the_next_run_tries_a_sink_again_that_has_failed(tmp_path: Path) -> None:
    class Late(Keeps):
        def connect(self, sent: Sent) -> Connection:
            made = super().connect(sent)
            if len(self.sent) == 1:
                raise ConnectionError("nobody there")
            return made

    late = Late()
    tm = tiny_manager(MetricStore(), late, epochs=1, train_dir=tmp_path)
    assert told_by(tm.train)[0] == "kept gets no metrics: ConnectionError: nobody there; the run continues"
    tm.train_epochs(1)

    assert [step for step, _ in points_of(late.rows)["batch/loss"]] == [4, 5, 6]
    assert [sent.mode for sent in late.sent] == ["begin", "begin"]


def test_where_warnings_are_errors_a_failed_sink_is_told_at_the_end(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Keeps(fails), epochs=2, train_dir=tmp_path)
    with pytest.raises(RuntimeWarning) as told:
        tm.train()

    assert tm.epoch_num == 2
    assert str(told.value).startswith("kept gets no metrics: OSError: no space left on device; the run continues; ")


def test_a_sink_that_hangs_does_not_hold_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.05)
    goes_on = threading.Event()
    kept = Keeps(lambda rows: goes_on.wait())
    tm = tiny_manager(MetricStore(), kept, epochs=2, train_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match=r"kept lacks 16 metrics of .*: train-manager export .* --to kept"):
        tm.train()

    assert tm.epoch_num == 2
    assert kept.rows == []  # it still hangs
    monkeypatch.setattr(delivery, "PATIENCE", 60.0)
    goes_on.set()
    tm.train_epochs(1)
    assert points_of(kept.rows) == counting(tmp_path)


def test_a_sink_that_hangs_as_it_is_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.05)
    goes_on = threading.Event()

    class Hangs:
        def send(self, rows: Any) -> None: ...

        def close(self, ending: Any) -> None:
            goes_on.wait()

    kept = Keeps()
    monkeypatch.setattr(kept, "connect", lambda sent: Hangs())
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match=r"kept (has not ended within 0.05 seconds; if it )?lacks "):
        tm.train()
    goes_on.set()


HANGS = """
import sys, threading
from tests.runs.store.sinks import Keeps
from train_manager.extensions import MetricStore
from train_manager.runs.store import delivery, thread
from train_manager.testing import tiny_manager

delivery.PATIENCE = 0.2
tm = tiny_manager(MetricStore(), Keeps(lambda rows: threading.Event().wait()), epochs=2, train_dir=sys.argv[1])
tm.train()
print(tm.epoch_num)
"""


@pytest.mark.whole
@pytest.mark.slow
def test_a_sink_that_hangs_for_ever_lets_the_program_end(tmp_path: Path) -> None:
    ended = run_program(HANGS, tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "2\n")
    assert f"kept lacks 16 metrics of {tmp_path}: train-manager export {tmp_path} --to kept" in ended.stderr
    kept = Keeps()
    assert kept.export(tmp_path) == 16
    assert points_of(kept.rows) == counting(tmp_path)


def test_more_rows_than_may_wait_are_left_out_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MOST_WAITING", 10)
    has_come, goes_on = threading.Event(), threading.Event()

    def waits(rows: Any) -> None:
        has_come.set()
        goes_on.wait()

    kept = Keeps(waits)
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)

    def train() -> None:
        with tm.run():
            tm.train_steps(1)
            assert has_come.wait(60)
            for _ in range(9):
                tm.train_steps(3)
                tm["metric_store"].pre_save_checkpoint()  # waits until the rows are written
            goes_on.set()

    slow, left = told_by(train)
    assert slow == "kept is slower than the training: 10 metrics wait for it, and more are left out"
    assert left.startswith("kept lacks ")
    assert 0 < len(kept.rows) <= 10
