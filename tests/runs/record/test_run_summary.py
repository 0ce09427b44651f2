from __future__ import annotations

from pathlib import Path

from tests.runs.record.sample_runs import entry, write_code, write_runs
from train_manager.runs.record.metric_items import HistoryRow
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, FILE, Series
from train_manager.runs.record.metric_writer import MetricWriter
from train_manager.runs.record.run_paths import named_run
from train_manager.runs.record.run_summary import summaries_below, summary_of


def test_runs_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry("aaaa", began="2026-05-01T10:00:00+00:00"))
    write_runs(tmp_path / "b", entry("bbbb", began="2026-05-01T11:30:00+02:00"))  # half an hour earlier
    write_runs(tmp_path / "c", entry("cccc", began="2026-05-01T12:00:00+00:00"))

    found, problems = summaries_below(tmp_path)

    assert [run.id for run in found] == ["cccc", "aaaa", "bbbb"]
    assert problems == {}


def test_a_damaged_file_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text("{")
    write_runs(tmp_path / "c", entry(began="yesterday"))

    found, problems = summaries_below(tmp_path)

    assert [run.train_dir.name for run in found] == ["a"]
    assert [*problems] == [tmp_path / "b", tmp_path / "c"]
    assert problems[tmp_path / "b"].startswith(f"{tmp_path}/b/run.json is damaged: ")


def test_the_commit_is_told_with_a_plus_if_files_differ_from_it(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa"), entry("bbbb"), entry("cccc"), entry("dddd"))
    write_code(tmp_path, "bbbb", files=[{"path": "runs/", "how": "left out", "why": "a training writes this folder"}])
    write_code(tmp_path, "cccc", files=[{"path": "train.py", "how": "patch"}])
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


def test_a_run_that_was_killed_has_come_to_what_its_store_has(tmp_path: Path) -> None:
    killed = entry("aaaa", outcome="running", ended=None, progress={}, metrics={})
    writer = MetricWriter(write_runs(tmp_path, killed) / FILE, "aaaa")
    writer.append((writer.number(Series("loss", BATCHES)), 7, 1, 0.0, 0.5))
    writer.append(HistoryRow(EPOCHS, 0, {"epoch": 1, "step": 5, "seconds": 1.0, "loss": 0.75}, 0.0))
    writer.append(HistoryRow(EVALUATIONS, 0, {"epoch": 1, "step": 5, "set": "valid", "loss": 0.25}, 0.0))
    writer.close()

    summary = summary_of(named_run(tmp_path))

    assert (summary.epochs, summary.steps) == (1, 7)
    assert summary.metrics == {"loss": 0.75, "valid/loss": 0.25}
