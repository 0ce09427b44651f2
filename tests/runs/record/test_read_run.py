from __future__ import annotations

from pathlib import Path

from tests.support.refusals import refusal
from train_manager.extensions import Checkpoints, MetricStore, RunRecord
from train_manager.testing import tiny_manager
from train_manager.tools import read_run


def test_a_folder_shows_its_runs_metrics_and_checkpoints(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), MetricStore(), Checkpoints(), epochs=2, train_dir=tmp_path)
    tm.train()
    found = read_run(tmp_path)

    assert [entry["id"] for entry in found.entries] == [tm.run_id]
    assert [path.name for path in found.checkpoints] == ["step-000000000003", "step-000000000006"]
    assert found.history.state_dict() == tm.history.state_dict()
    assert repr(found) == f"RunFolder({str(tmp_path)!r}: 1 run, 2 checkpoints)"
    assert f">{tm.run_id}</" in found._repr_html_()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert refusal(lambda: read_run(tmp_path / "lost")).splitlines()[0] == f"there is no folder {tmp_path / 'lost'}"


def test_code_that_was_not_recorded_is_told(tmp_path: Path) -> None:
    assert (
        refusal(lambda: read_run(tmp_path).code("0123456789abcdef")).splitlines()[0]
        == f"the code of run '0123456789abcdef' was not recorded in {tmp_path}"
    )


def test_a_run_that_cannot_be_read_is_not_counted(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()
    (tmp_path / "run-aaaa.json").write_text("{")

    assert repr(read_run(tmp_path)) == f"RunFolder({str(tmp_path)!r}: 1 run, 0 checkpoints)"
