from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs.record.sample_runs import entry, write_runs
from tests.runs.showing.stored import trained
from train_manager import InputError
from train_manager.runs.record.processes import this_process
from train_manager.runs.showing.renewing import PATIENCE, keep_writing


def renews(page: Path) -> object:
    """After how many seconds a page loads itself again."""
    text = page.read_text()
    return json.loads(text[text.index('"renews":') + len('"renews":') :].split("}")[0])


def test_the_page_is_written_again_until_the_run_has_ended(tmp_path: Path) -> None:
    page, seen = tmp_path / "page.html", list[object]()
    write_runs(tmp_path / "run", entry(outcome="running", ended=None, process=this_process()))

    def sleep(seconds: float) -> None:
        seen.append((seconds, renews(page)))
        if len(seen) == 3:
            write_runs(tmp_path / "run", entry())

    keep_writing([str(tmp_path / "run")], page, 10.0, sleep)

    assert seen == [(10.0, 10.0)] * 3
    assert renews(page) is None


def test_a_run_without_a_run_file_has_ended_if_nothing_has_changed_for_ten_periods(tmp_path: Path) -> None:
    folder, waited = trained(tmp_path / "run"), list[float]()
    next(folder.glob("run-*.json")).unlink()

    keep_writing([str(folder)], tmp_path / "page.html", 0.5, waited.append)

    assert waited == [0.5] * PATIENCE
    assert renews(tmp_path / "page.html") is None


def test_after_ctrl_c_the_page_renews_itself_no_more(tmp_path: Path) -> None:
    write_runs(tmp_path / "run", entry(outcome="running", ended=None, process=this_process()))

    def interrupted(seconds: float) -> None:
        assert renews(tmp_path / "page.html") == seconds
        raise KeyboardInterrupt

    keep_writing([str(tmp_path / "run")], tmp_path / "page.html", 10.0, interrupted)

    assert renews(tmp_path / "page.html") is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_period_is_some_seconds(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(InputError) as raised:
        keep_writing([str(tmp_path)], tmp_path / "page.html", seconds)

    assert str(raised.value) == f"a page cannot be renewed every {seconds:g} s\n  give some seconds: --every 10"
