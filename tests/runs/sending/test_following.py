"""Sinks while a training runs: they get what counts, and never stop it."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.runs.sending.sinks import Keeps, counting, points_of, run_program
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.processes import this_process
from train_manager.runs.sending import follower
from train_manager.runs.sending.exporting import export_metrics
from train_manager.runs.sending.sink import Sink
from train_manager.runs.sending.sink_state import SinkState, read_state, write_state
from train_manager.telling.errors import InputError
from train_manager.testing import tiny_manager


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "train-manager-kept"]


def fails(rows: Any) -> None:
    raise OSError("no space left on device")


def test_a_sink_gets_what_counts_by_the_end_of_the_run(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(kept, MetricStore(), epochs=3, train_dir=tmp_path).train()

    assert points_of(kept.rows) == counting(tmp_path)
    assert threads() == []


def test_a_second_training_of_the_same_manager_is_followed_too(tmp_path: Path) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, epochs=1, train_dir=tmp_path)
    tm.train()
    tm.train_epochs(2)

    assert points_of(kept.rows) == counting(tmp_path)


def test_an_epoch_that_is_trained_in_two_runs_has_the_metrics_of_the_whole(tmp_path: Path) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, epochs=1, train_dir=tmp_path)
    tm.train_steps(2)
    tm.train_steps(4)

    assert points_of(kept.rows)["epoch/loss"] == [(row["step"], row["loss"]) for row in tm.history.epochs]
    assert [row["step"] for row in tm.history.epochs] == [3, 6]


def test_an_epoch_that_is_left_and_continued_with_by_a_resume_has_the_metrics_of_the_whole(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(MetricStore(), kept, Checkpoints(resume="fresh"), epochs=2, train_dir=tmp_path).train_steps(2)
    tm = tiny_manager(MetricStore(), kept, Checkpoints(resume=True), epochs=2, train_dir=tmp_path)
    tm.train()
    stored = MetricReader(tmp_path).scalars("loss", stage="train_step_epoch")

    assert points_of(kept.rows)["epoch/loss"] == [(row["step"], row["loss"]) for row in tm.history.epochs]
    assert [curve.steps for curve in stored.values()] == [[3, 6]]


def test_a_part_of_an_epoch_that_a_training_ends_with_is_no_epoch_of_a_sink(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(MetricStore(), kept, train_dir=tmp_path).train_steps(5)

    assert [step for step, _ in points_of(kept.rows)["epoch/loss"]] == [3]
    assert [step for step, _ in points_of(kept.rows)["batch/loss"]] == [1, 2, 3, 4, 5]


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


def test_a_resume_sends_what_the_run_before_has_left(tmp_path: Path) -> None:
    first = Keeps(fails)
    checkpoints = {"resume": "fresh"}
    with pytest.warns(RuntimeWarning, match="kept"):
        tiny_manager(MetricStore(), first, Checkpoints(**checkpoints), epochs=2, train_dir=tmp_path).train()  # type: ignore[arg-type]
    first_run = next(iter(read_state(tmp_path, "kept").runs), "")
    second = Keeps()
    tm = tiny_manager(MetricStore(), second, Checkpoints(resume=True), epochs=3, train_dir=tmp_path)
    tm.train()

    assert first_run == ""  # nothing was sent, so nothing is known of it
    assert points_of(second.rows) == counting(tmp_path, tm.run_id)
    export_metrics(second, tmp_path)
    assert points_of(second.rows) == counting(tmp_path)


def test_without_a_store_a_sink_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        tiny_manager(Keeps(), train_dir=tmp_path).train()

    assert "Keeps sends what MetricStore stores, but there is no MetricStore" in str(refused.value)
    assert "add it: extensions=[MetricStore(), Keeps()]" in str(refused.value)


def test_without_its_package_a_sink_names_the_extra(tmp_path: Path) -> None:
    class Missing(Keeps):
        sink, package = "missing", "no_such_package"

    with pytest.raises(ImportError) as refused:
        tiny_manager(MetricStore(), Missing(), train_dir=tmp_path).train()

    text = "Missing needs no_such_package (No module named 'no_such_package'): pip install \"train-manager[missing]\""
    assert str(refused.value).startswith(text)


def test_a_sink_that_raises_does_not_stop_the_training_and_is_told_once(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Keeps(fails), epochs=2, train_dir=tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tm.train()

    assert tm.epoch_num == 2
    [failed, left] = [str(warning.message) for warning in told]
    assert failed == "kept gets no metrics: OSError: no space left on device; the run continues"
    assert left == f"kept lacks 16 metrics of {tmp_path}: train-manager export {tmp_path} --to kept"


def test_where_warnings_are_errors_a_failed_sink_is_told_at_the_end(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Keeps(fails), epochs=2, train_dir=tmp_path)
    with pytest.raises(RuntimeWarning) as told:
        tm.train()

    assert tm.epoch_num == 2
    assert str(told.value).startswith("kept gets no metrics: OSError: no space left on device; the run continues; ")


def test_a_sink_that_hangs_is_waited_for_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "PATIENCE", 0.05)
    goes_on = threading.Event()
    kept = Keeps(lambda rows: goes_on.wait())
    tm = tiny_manager(MetricStore(), kept, epochs=2, train_dir=tmp_path)
    with pytest.warns(RuntimeWarning, match=r"kept lacks 16 metrics of .*: train-manager export .* --to kept"):
        tm.train()

    monkeypatch.setattr(follower, "PATIENCE", 20)
    goes_on.set()
    tm.train_epochs(1)
    assert points_of(kept.rows) == counting(tmp_path)


HANGS = """
import sys, threading
from tests.runs.sending.sinks import Keeps
from train_manager.extensions import MetricStore
from train_manager.runs.sending import follower
from train_manager.testing import tiny_manager

follower.PATIENCE = 0.2
tm = tiny_manager(MetricStore(), Keeps(lambda rows: threading.Event().wait()), epochs=2, train_dir=sys.argv[1])
tm.train()
print(tm.epoch_num)
"""


def test_a_sink_that_hangs_for_ever_lets_the_program_end(tmp_path: Path) -> None:
    ended = run_program(HANGS, tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "2\n")
    assert f"kept lacks 16 metrics of {tmp_path}: train-manager export {tmp_path} --to kept" in ended.stderr
    kept = Keeps()
    assert export_metrics(kept, tmp_path) == 16
    assert points_of(kept.rows) == counting(tmp_path)


def test_a_sink_that_cannot_be_made_at_first_gets_all_later(tmp_path: Path) -> None:
    tries: list[int] = []

    class Late(Keeps):
        def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("nobody there")
            return super().make_sink(train_dir, state)

    late = Late()
    tm = tiny_manager(MetricStore(), late, epochs=1, train_dir=tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tm.train()
    tm.train_epochs(1)

    assert str(told[0].message).startswith("kept gets no metrics: ConnectionError: nobody there")
    assert points_of(late.rows) == counting(tmp_path)


def test_a_damaged_note_of_what_was_sent_does_not_stop_the_training(tmp_path: Path) -> None:
    (tmp_path / "sinks.json").write_text("{")
    tm = tiny_manager(MetricStore(), Keeps(), train_dir=tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tm.train()

    assert tm.epoch_num == 1
    assert [str(warning.message).partition(":")[0] for warning in told] == [
        "kept gets no metrics",
        "the metrics that kept lacks cannot be counted",
    ]


def test_calls_of_train_on_batch_share_a_thread(tmp_path: Path) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)
    assert tm.train_data is not None
    for batch in tm.train_data:
        tm.train_on_batch(batch)
    assert threads() == ["train-manager-kept"]

    tm.train()
    assert points_of(kept.rows) == counting(tmp_path)


def test_a_copy_follows_by_itself(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(MetricStore(), kept, train_dir=tmp_path).train()

    assert vars(copy.deepcopy(kept))["_follower"] is None


def test_an_export_of_an_unknown_run_names_those_there_are(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.train()
    with pytest.raises(InputError) as refused:
        export_metrics(Keeps(), tmp_path, "zz")

    assert f"{tmp_path} has no runs that begin with 'zz'" in str(refused.value)
    assert f"its runs are {tm.run_id}" in str(refused.value)


def test_an_export_beside_the_training_that_sends_is_refused(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    write_state(tmp_path, "kept", SinkState(("a",), {"scalars": 1}, {}, this_process()))
    with pytest.raises(InputError) as refused:
        export_metrics(Keeps(), tmp_path)

    assert f"is sending the metrics of {tmp_path} to kept" in str(refused.value)


def test_a_run_has_noted_at_its_end_that_it_sends_no_more(tmp_path: Path) -> None:
    kept = Keeps()
    tiny_manager(MetricStore(), kept, train_dir=tmp_path).train()

    assert read_state(tmp_path, "kept").process == {}
    assert export_metrics(kept, tmp_path) == 0
