from __future__ import annotations

import re
from pathlib import Path

import pytest

from train_manager import Extension
from train_manager.extensions import MetricStore, Report, RunRecord
from train_manager.runs.store.writer import MetricWriter
from train_manager.testing import tiny_manager


class WritesLast(Extension):
    """Writes a metric as the run ends."""

    def post_run(self, writer: MetricWriter) -> None:
        writer.text("last word", "done")


class Fails(Extension):
    """Fails in the second epoch."""

    def pre_train_step_epoch(self, epoch_num: int) -> None:
        if epoch_num == 1:
            raise ValueError("no room")


@pytest.mark.parametrize("is_first", [True, False])
def test_the_page_has_the_outcome_and_the_last_metric_wherever_it_is_added(tmp_path: Path, is_first: bool) -> None:
    extensions = [MetricStore(), RunRecord(), WritesLast()]
    extensions.insert(0 if is_first else 3, Report())

    tiny_manager(*extensions, epochs=2, train_dir=tmp_path).train()

    text = (tmp_path / "report.html").read_text()
    assert "<dt>outcome</dt><dd>completed</dd>" in text
    assert re.search(r"<h3>last word at step 6</h3>\s*<pre>done</pre>", text)


def test_a_run_that_fails_has_a_page(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no room"):
        tiny_manager(MetricStore(), RunRecord(), Report(), Fails(), epochs=2, train_dir=tmp_path).train()

    page = (tmp_path / "report.html").read_text()
    assert "<dd>error: ValueError" in page
    assert "failed: ValueError: no room" in page


def test_an_evaluation_writes_no_page(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), RunRecord(), Report(), train_dir=tmp_path)
    tm.eval()

    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()

    with pytest.warns(RuntimeWarning, match="the report was not written: .*report.html cannot be written"):
        result = tiny_manager(MetricStore(), RunRecord(), Report(), train_dir=tmp_path).train()

    assert result.epochs == 1


def test_a_run_that_has_recorded_nothing_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="has neither run-<id>.json nor metrics.sqlite"):
        tiny_manager(Report(), train_dir=tmp_path).train()
