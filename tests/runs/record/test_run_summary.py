from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.runs.code.repositories import a_file
from tests.runs.record.sample_runs import entry, parameters, write_code, write_runs
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.runs.record.run_paths import named_run
from train_manager.runs.record.run_summary import Best, summaries_below, summary_of
from train_manager.runs.store.rows import Begin, HistoryRow
from train_manager.runs.store.schema import EPOCHS, EVALUATIONS, FILE
from train_manager.runs.store.thread import StoreThread


def test_runs_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry("aaaa", began="2026-05-01T10:00:00+00:00"))
    write_runs(tmp_path / "b", entry("bbbb", began="2026-05-01T11:30:00+02:00"))  # half an hour earlier
    write_runs(tmp_path / "c", entry("cccc", began="2026-05-01T12:00:00+00:00"))

    found, problems = summaries_below(tmp_path)

    assert [run.id for run in found] == ["cccc", "aaaa", "bbbb"]
    assert problems == {}


def test_a_damaged_file_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry())
    write_runs(tmp_path / "b", entry("bbbb"))
    (tmp_path / "b" / "run-aaaa.json").write_text("{")
    write_runs(tmp_path / "c", entry("cccc", began="yesterday"))

    found, problems = summaries_below(tmp_path)

    assert [run.train_dir.name for run in found] == ["a", "b"]
    assert [*problems] == [tmp_path / "b" / "run-aaaa.json", tmp_path / "c" / "run-cccc.json"]
    assert problems[tmp_path / "b" / "run-aaaa.json"].startswith(f"{tmp_path}/b/run-aaaa.json is damaged: ")


def test_the_commit_is_told_with_a_plus_if_files_differ_from_it(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"), entry("bbbb"), entry("cccc"), entry("dddd"))
    write_code(
        tmp_path, "bbbb", left_out=[{"path": "runs/", "why": "a training writes this folder", "size": 0, "time": 0}]
    )
    write_code(tmp_path, "cccc", files=[a_file("train.py")])
    (tmp_path / "code" / "dddd.json").write_text("{")

    runs, _ = summaries_below(tmp_path)

    assert sorted((run.id, run.commit) for run in runs) == [
        ("aaaa", ""),
        ("bbbb", "18afa3f"),
        ("cccc", "18afa3f+"),
        ("dddd", "damaged"),
    ]


def test_the_time_of_a_run_whose_process_is_gone_is_not_known(tmp_path: Path) -> None:
    gone = entry(outcome="running", ended=None, progress={})

    summary = summary_of(named_run(write_runs(tmp_path, gone)))

    assert (summary.seconds, summary.steps) == (None, None)
    assert summary.outcome == "running, or ended without a word (process 1 on host elsewhere)"


def stored(train_dir: Path, run: str, at: float) -> StoreThread:
    """Store the loss of step 7."""
    thread = StoreThread(train_dir / FILE, run)
    thread.append(Begin(at, run, 0, {}))
    thread.append((0.5, 7, 16, at, "train", None))
    return thread


def test_a_run_that_was_killed_has_come_to_what_its_store_has(tmp_path: Path) -> None:
    killed = entry("aaaa", outcome="running", ended=None, progress={}, metrics={})
    writer = stored(write_runs(tmp_path, killed), "aaaa", at=0.0)
    writer.append(HistoryRow(EPOCHS, 0, {"epoch": 1, "step": 5, "seconds": 1.0, "loss": 0.75}, 0.0))
    writer.append(HistoryRow(EVALUATIONS, 0, {"epoch": 1, "step": 5, "set": "valid", "loss": 0.25}, 0.0))
    writer.close()

    summary = summary_of(named_run(tmp_path))

    assert (summary.epochs, summary.steps) == (1, 7)
    assert summary.metrics == {"loss": 0.75, "valid/loss": 0.25}


def test_a_run_that_was_killed_took_the_time_up_to_its_last_metric(tmp_path: Path) -> None:
    killed = entry("aaaa", outcome="running", ended=None)
    began = datetime.fromisoformat(killed["began"]).timestamp()
    for run, time in ("aaaa", began + 90), ("bbbb", began + 500):
        stored(write_runs(tmp_path, killed), run, at=time).close()

    assert summary_of(named_run(tmp_path)).seconds == 90


@pytest.mark.parametrize(("saved_by", "steps"), [("aaaa", 8), ("bbbb", 7)])
def test_a_run_that_was_killed_has_come_to_its_newest_checkpoint(tmp_path: Path, saved_by: str, steps: int) -> None:
    killed = entry("aaaa", outcome="running", ended=None)
    writer = stored(write_runs(tmp_path, killed), "aaaa", at=0.0)
    writer.close()
    CheckpointFolder(tmp_path / "checkpoints").write(8, {"model": {}}, {"run": saved_by})

    assert summary_of(named_run(tmp_path)).steps == steps


def evaluated(folder: Path, run: str, *rows: dict[str, object], resumes: str = "", step: int = 0) -> None:
    """Store evaluations of a set, after so many epochs of ten steps."""
    writer = StoreThread(folder / FILE, run)
    whole = [{"epoch": epoch, "step": 10 * epoch, "set": "valid", **row} for epoch, row in enumerate(rows, start=1)]
    writer.append(Begin(0.0, resumes or run, step, {EVALUATIONS: whole[:-1]}))
    writer.append(HistoryRow(EVALUATIONS, len(rows) - 1, whole[-1], 0.0))
    writer.close()


def test_the_best_value_is_of_the_first_metric(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"))
    evaluated(tmp_path, "aaaa", {"loss": 0.5, "f1": 0.1}, {"loss": 0.25, "f1": 0.2}, {"loss": 0.375, "f1": 0.9})

    assert summary_of(named_run(tmp_path)).best == Best("valid/loss", 0.25, 2, 20, "min", "")


def test_the_best_value_is_of_the_monitored_metric(tmp_path: Path) -> None:
    early = {"$object": "train_manager.extensions:EarlyStopping", "arguments": {"monitor": "valid/f1", "mode": None}}
    write_runs(tmp_path, entry("aaaa", parameters=parameters(extensions={"early_stopping": early})))
    evaluated(tmp_path, "aaaa", {"loss": 0.5, "f1": 0.1}, {"loss": 0.25, "f1": 0.9}, {"loss": 0.125, "f1": 0.2})

    assert summary_of(named_run(tmp_path)).best == Best("valid/f1", 0.9, 2, 20, "max", "EarlyStopping")


def test_an_evaluation_beside_the_training_is_not_its_best(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"))
    evaluated(tmp_path, "aaaa", {"loss": 0.5}, {"loss": float("nan")}, {"loss": 0.25, "standalone": True})

    assert summary_of(named_run(tmp_path)).best == Best("valid/loss", 0.5, 1, 10, "min", "")


@pytest.mark.parametrize(
    "trains",
    [
        {"model": {"parameters": 5}},
        {"optimizers": {"a": [{"lr": "x"}]}},
        {"optimizers": [3]},
        {"monitor": {"metric": 5}},
    ],
    ids=range(4),
)
def test_a_damaged_record_of_what_was_trained_is_left_out(tmp_path: Path, trains: dict[str, object]) -> None:
    write_runs(tmp_path, entry("aaaa", trains=trains))
    evaluated(tmp_path, "aaaa", {"loss": 0.5})

    assert summary_of(named_run(tmp_path)).trains == {}


def test_an_evaluation_of_the_untrained_model_is_not_the_best(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"))
    evaluated(tmp_path, "aaaa", {"loss": 0.125, "epoch": 0, "step": 0}, {"loss": 0.5})

    assert summary_of(named_run(tmp_path)).best == Best("valid/loss", 0.5, 2, 20, "min", "")


def test_the_extension_that_decides_is_that_of_the_record(tmp_path: Path) -> None:
    monitor = {"metric": "valid/f1", "mode": "max", "by": "Checkpoints"}
    write_runs(tmp_path, entry("aaaa", trains={"monitor": monitor}))
    evaluated(tmp_path, "aaaa", {"loss": 0.5, "f1": 0.1}, {"loss": 0.75, "f1": 0.9})

    assert summary_of(named_run(tmp_path)).best == Best("valid/f1", 0.9, 2, 20, "max", "Checkpoints")


def test_the_best_value_may_be_of_a_run_that_was_resumed_up_to_there(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"), entry("bbbb", goes_on_from={"run": "aaaa", "step": 10}))
    evaluated(tmp_path, "aaaa", {"loss": 0.25}, {"loss": 0.125})  # the second one is after the checkpoint
    evaluated(tmp_path, "bbbb", {"loss": 0.25}, {"loss": 0.5}, resumes="aaaa", step=10)

    assert summary_of(named_run(tmp_path)).best == Best("valid/loss", 0.25, 1, 10, "min", "")


def test_a_metric_of_which_no_value_is_known_to_be_better_has_no_best(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"))
    evaluated(tmp_path, "aaaa", {"temperature": 0.5})

    assert summary_of(named_run(tmp_path)).best is None
